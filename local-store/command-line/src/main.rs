//! The binary `local-store`, which serves a store on one port. See the library `local_store` for its flags.

use std::process::ExitCode;

use clap::Parser;
use local_store::{Arguments, run};
use tracing_subscriber::EnvFilter;

/// The allocator. The store often allocates memory on one thread and frees it on another. Compared with
/// the system's allocator, mimalloc reduces the CPU time of a write by a fifth, but uses some megabytes
/// more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    locks::abort_when_poisoned();
    // Hides the log of the consensus library, which contains every vote and message. The store itself
    // logs the important events.
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
