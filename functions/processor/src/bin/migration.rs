//! The Lambda function `migration`: restructures tables while they are written to.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    processor::runtime::run(processor::lambda::run_migration())
}
