//! The Lambda function `versions`: keeps every version of an item.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    processor::runtime::run(processor::lambda::run_versions())
}
