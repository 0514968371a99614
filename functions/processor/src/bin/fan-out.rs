//! The Lambda function `fan-out`: propagates changes of origins to their copies.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_fan_out().await
}
