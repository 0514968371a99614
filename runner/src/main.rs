//! The binary `weir`. See `runner::command_line` for its verbs.

use std::process::ExitCode;

/// The store allocates often and frees on other threads. mimalloc saves a fifth of the CPU time of
/// a write against the system's allocator, and takes some megabytes more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    locks::abort_when_poisoned();
    runner::command_line::run().await
}
