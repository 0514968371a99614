//! The Lambda function `migration`: restructures tables while they are written to.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_migration().await
}
