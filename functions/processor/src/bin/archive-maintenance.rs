//! The Lambda function `archive-maintenance`: compacts the archive and erases rows from it.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_archive_maintenance().await
}
