//! Waiting for a file descriptor when all descriptors of the process or the machine are in use.
//!
//! The lack of a descriptor is not a disk failure, and it is temporary, because connections and
//! files are closed over time. Therefore the code that opens a file waits and retries, and logs a
//! message about the limit.

use std::io;

use std::thread;
use std::time::{Duration, Instant};

use locks::Mutex;
use platform::descriptors::Descriptors;

/// `EMFILE` and `ENFILE`, which have the same numbers on Linux and macOS.
const PROCESS_LIMIT: i32 = 24;
const MACHINE_LIMIT: i32 = 23;

/// The first pause. Each further pause is twice as long, up to the longest pause. The first pause
/// is short enough that a blocked write continues soon after a descriptor is free.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The maximum total time that a read waits for a descriptor. After this time, the client of the
/// read has timed out.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest time between two log messages about the limit.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Returns whether an error was caused by the lack of a file descriptor.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(PROCESS_LIMIT | MACHINE_LIMIT))
}

/// Returns whether an error was caused by a temporary lack of a resource, such as memory. Lack of
/// disk space does not count.
pub fn is_passing(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::Interrupted,
        io::ErrorKind::WouldBlock,
        io::ErrorKind::ResourceBusy,
    ];
    is_exhausted(error) || kinds.contains(&error.kind())
}

/// Calls `open` until it succeeds, or fails for another reason than the lack of a descriptor. A
/// call that fails for lack of a descriptor must have changed nothing. Blocks the thread while
/// waiting, which is safe because requests have their own time-outs.
///
/// # Errors
/// The error of the last call.
pub fn wait_for_one<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut backoff = Backoff::default();
    loop {
        match open() {
            Err(error) if is_exhausted(&error) => backoff.pause(),
            other => return other,
        }
    }
}

/// The state of the pauses between the attempts of one call.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    begun: Option<Instant>,
    last: Duration,
}

impl Backoff {
    /// Blocks the thread for the next pause, and logs a message about the limit.
    pub(crate) fn pause(&mut self) {
        self.begun.get_or_insert_with(Instant::now);
        warn();
        self.last = (self.last * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
        thread::sleep(self.last);
    }

    /// Returns whether the total time of the pauses has reached the maximum for a read.
    pub(crate) fn is_over(&self) -> bool {
        self.begun.is_some_and(|begun| begun.elapsed() > PATIENCE)
    }
}

/// Logs a message about the limit, at most once per interval.
fn warn() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock();
    if last.is_some_and(|last| last.elapsed() < WARN_EVERY) {
        return;
    }
    *last = Some(Instant::now());
    let limit = Descriptors::of_process().limit;
    tracing::warn!(
        limit,
        "all file descriptors are in use, so opening a file waits; close connections or raise the limit (`ulimit -n`, RLIMIT_NOFILE)"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_retried() {
        let mut errors = vec![PROCESS_LIMIT, MACHINE_LIMIT];
        let opened = wait_for_one(|| match errors.pop() {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Ok("open"),
        });
        assert_eq!(opened.unwrap(), "open");
        let mut calls = 0;
        let failed: io::Result<()> = wait_for_one(|| {
            calls += 1;
            Err(io::Error::from_raw_os_error(5))
        });
        assert_eq!((failed.unwrap_err().raw_os_error(), calls), (Some(5), 1));
    }
}
