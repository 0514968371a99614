//! The Lambda function `archive`: archives the items that TTL deletes.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_archive().await
}
