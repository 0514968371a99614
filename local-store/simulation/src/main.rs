//! The binary `simulation`. `simulation::command_line` has its flags.

use std::process::ExitCode;

use clap::Parser;
use simulation::command_line::{Arguments, execute};

/// A world allocates many small objects. With the system's allocator, they would take a quarter of a run's
/// time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::io::Result<ExitCode> {
    execute(Arguments::parse())
}
