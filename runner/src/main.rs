//! The binary `weir`. See `runner::command_line` for its verbs.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    runner::command_line::run().await
}
