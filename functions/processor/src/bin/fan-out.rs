//! The Lambda function `fan-out`: makes copies follow their origins.
//!
//! Nothing is decided or done here; see `processor::lambda`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    processor::lambda::run_fan_out().await
}
