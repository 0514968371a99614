//! The Lambda function `counters`: sums the slots of sharded counters.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    processor::runtime::run(processor::lambda::run_counters())
}
