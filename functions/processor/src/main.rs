//! The binary `functions`: every Lambda function in one program, for Weir's packages. The separate
//! programs of `bin/` share nearly all of their code, so their total download size is several times
//! as large.
//!
//! `functions NAME` runs the function NAME. Without an argument, the function's `Handler` selects
//! the function, so a copy of this program can be a function's `bootstrap`. `processor::lambda`
//! implements the functions.

use std::env;
use std::process::ExitCode;

use processor::{lambda, runtime};

fn main() -> ExitCode {
    runtime::run(run_named())
}

async fn run_named() -> ExitCode {
    let name = env::args().nth(1).or_else(|| env::var("_HANDLER").ok()).unwrap_or_default();
    match name.as_str() {
        "archive" => lambda::run_archive().await,
        "archive-maintenance" => lambda::run_archive_maintenance().await,
        "counters" => lambda::run_counters().await,
        "fan-out" => lambda::run_fan_out().await,
        "migration" => lambda::run_migration().await,
        "versions" => lambda::run_versions().await,
        _ => refuse(&name),
    }
}

#[expect(clippy::print_stderr, reason = "the log begins with the function")]
fn refuse(name: &str) -> ExitCode {
    eprintln!(
        "error: unknown function `{name}`; set Handler to the name of a function, such as `archive`"
    );
    ExitCode::FAILURE
}
