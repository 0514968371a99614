//! The Lambda function `archive`: keeps what TTL deletes.
//!
//! Nothing is decided or done here; see `processor::lambda`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_archive().await
}
