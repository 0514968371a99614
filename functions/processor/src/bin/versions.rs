//! The Lambda function `versions`: keeps every version of an item.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_versions().await
}
