//! The binary `local-store`: one store on one port. See `server::command_line` for its flags.

use std::process::ExitCode;

use clap::Parser;
use server::command_line::{Arguments, run};
use tracing_subscriber::EnvFilter;

/// The store allocates much, on one thread what another one frees: this costs a fifth less CPU time
/// for a write than the system's allocator, and some megabytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    locks::abort_when_poisoned();
    // The consensus library tells of every vote and message; what matters of it is told here.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,openraft=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
