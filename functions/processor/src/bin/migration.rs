//! The Lambda function `migration`: restructures tables while they are written to.
//!
//! Nothing is decided or done here; see `processor::lambda`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_migration().await
}
