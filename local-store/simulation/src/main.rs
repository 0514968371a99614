//! The binary `simulation`. Its flags are in `simulation::command_line`.

use std::process::ExitCode;

use clap::Parser;
use simulation::command_line::{Arguments, execute};

/// The allocator of the binary. A world allocates many small objects, which would take a quarter of
/// a run's time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::io::Result<ExitCode> {
    execute(Arguments::parse())
}
