//! The binary `weir`. See `runner::command_line` for its verbs.

use std::process::ExitCode;

/// The store allocates much, on one thread what another one frees: this costs a fifth less CPU time
/// for a write than the system's allocator, and some megabytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    locks::abort_when_poisoned();
    runner::command_line::run().await
}
