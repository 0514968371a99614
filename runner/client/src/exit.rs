//! The exit codes of `weir`, in one place.
//!
//! docs/command-line.md lists them for users. The crate clap returns code 2 for wrong flags.

use std::process::ExitCode;

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Done,
    /// Failure.
    Failed,
    /// Success with differences: lines were rejected, or a check found a fault.
    Differences,
    /// Refused, because the command might cause harm or cannot have the wanted effect.
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

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// Returns the exit code after a signal: 128 plus the signal's number, as in shells.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupted",
            Self::Terminate => "terminated",
        }
    }
}

impl From<Signal> for ExitCode {
    fn from(signal: Signal) -> Self {
        Self::from(signal.exit_code())
    }
}
