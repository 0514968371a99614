//! The exit codes of `weir`, in one place.
//!
//! docs/command-line.md lists them for users. Code 2 (the flags are wrong) is clap's.

use std::process::ExitCode;

pub use crate::interruption::Signal;

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// Failure.
    Failed,
    /// Success with differences: lines were rejected, or a check found a fault.
    Differences,
    /// Refused, because it might do harm or cannot have the wanted effect.
    Refused,
    /// Timed out.
    TimedOut,
    /// Ended by Ctrl-C or SIGTERM.
    Interrupted(Signal),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Differences => 3,
            Exit::Refused => 4,
            Exit::TimedOut => 5,
            Exit::Interrupted(signal) => signal.exit_code(),
        })
    }
}
