//! The Lambda function `versions`: keeps every version of an item.
//!
//! Nothing is decided or done here; see `processor::lambda`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_versions().await
}
