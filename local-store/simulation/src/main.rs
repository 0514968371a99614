//! The binary `simulation`. See `simulation::command_line` for its flags.

use std::process::ExitCode;

use clap::Parser;
use simulation::command_line::{Arguments, execute};

fn main() -> std::io::Result<ExitCode> {
    execute(Arguments::parse())
}
