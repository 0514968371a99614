//! The binary `local-store`: one store on one port. See `server::command_line` for its flags.

use std::process::ExitCode;

use clap::Parser;
use server::command_line::{Arguments, run};
use tracing_subscriber::EnvFilter;

/// The allocator. The store often allocates memory on one thread and frees it on another. Compared with the
/// system's allocator, mimalloc saves a fifth of the CPU time of a write and costs some megabytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    locks::abort_when_poisoned();
    // The consensus library would log every vote and message. The store logs the important ones
    // itself.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,openraft=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    platform::threads::run(serve())
}

async fn serve() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
