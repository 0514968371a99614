//! The Lambda function `archive-maintenance`: compacts the archive and erases rows from it.
//!
//! `processor::lambda` implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    processor::runtime::run(processor::lambda::run_archive_maintenance())
}
