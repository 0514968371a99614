//! The Lambda function `counters`: sums the slots of sharded counters.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_counters().await
}
