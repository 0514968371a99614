//! The Lambda function `archive-maintenance`: compacts the archive and erases from it.
//!
//! Nothing is decided or done here; see `processor::lambda`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_archive_maintenance().await
}
