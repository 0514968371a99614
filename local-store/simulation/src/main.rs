//! The binary `simulation`. See `simulation::command_line` for its flags.

use std::process::ExitCode;

use clap::Parser;
use simulation::command_line::{Arguments, execute};

/// A world allocates much and small; the system's allocator takes a quarter of a run's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::io::Result<ExitCode> {
    execute(Arguments::parse())
}
