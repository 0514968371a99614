//! The pipes of a process's output, to check whether all output of the process was read.
//!
//! `log` reads the output itself.

#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tokio::process::Child;
use tokio::time::{Instant, sleep};

/// The maximum time until the pipes count as empty. A function that writes without end must not delay
/// its invocations longer.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// The pause between two checks of the pipes.
const PAUSE: Duration = Duration::from_millis(1);

/// The pipes of one process; empty if the system does not report how many bytes are in a pipe.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    #[cfg(unix)]
    ends: Vec<OwnedFd>,
}

impl Pipes {
    /// Returns the pipes of a process's standard output and error.
    #[cfg(unix)]
    pub(super) fn of(child: &Child) -> Self {
        let output = child.stdout.as_ref().map(|it| it.as_fd().try_clone_to_owned());
        let error = child.stderr.as_ref().map(|it| it.as_fd().try_clone_to_owned());
        // A pipe without a descriptor is not checked. Then only the order of log lines may differ.
        Self { ends: output.into_iter().chain(error).filter_map(Result::ok).collect() }
    }

    /// Returns an empty value, because this system does not report how many bytes are in a pipe.
    #[cfg(not(unix))]
    pub(super) fn of(_: &Child) -> Self {
        Self::default()
    }

    /// Waits until the pipes are empty, for a bounded time.
    pub(super) async fn emptied(&self) {
        let started = Instant::now();
        while !self.are_empty() && started.elapsed() < WAIT_MAX {
            sleep(PAUSE).await;
        }
    }

    #[cfg(unix)]
    fn are_empty(&self) -> bool {
        self.ends.iter().all(|end| rustix::io::ioctl_fionread(end).unwrap_or(0) == 0)
    }

    #[cfg(not(unix))]
    fn are_empty(&self) -> bool {
        true
    }
}
