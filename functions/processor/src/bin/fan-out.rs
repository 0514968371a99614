//! The Lambda function `fan-out`: propagates changes of origins to their copies.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    processor::runtime::run(processor::lambda::run_fan_out())
}
