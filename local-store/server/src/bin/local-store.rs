//! The binary `local-store`: one store on one port. See `server::command_line` for its flags.

use std::process::ExitCode;

use clap::Parser;
use server::command_line::{Arguments, run};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).init();
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
