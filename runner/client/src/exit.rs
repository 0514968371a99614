//! The exit codes of `weir`, in one place.
//!
//! docs/command-line.md lists them for users. Code 2 (the flags are wrong) is clap's.

use std::process::ExitCode;

pub use crate::interruption::Signal;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// It is done, but something differs from what was wanted: lines were put aside, a check found
    /// a fault.
    Differences,
    /// It was not done, because it might do harm or cannot have the wanted effect.
    Refused,
    /// It was not done in time.
    TimedOut,
    /// Ctrl-C or SIGTERM ended it.
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
