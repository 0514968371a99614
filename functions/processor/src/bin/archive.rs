//! The Lambda function `archive`: archives the items that TTL deletes.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    processor::runtime::run(processor::lambda::run_archive())
}
