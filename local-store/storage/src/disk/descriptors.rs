//! What is done when the process, or the machine, has no file descriptor left.
//!
//! That is no fault of the disk, and ends by itself: connections close, files are given back. So
//! whatever opens a file waits and tries again, and the log names the limit.

use std::io;

use std::thread;
use std::time::{Duration, Instant};

use locks::Mutex;
use platform::descriptors::Descriptors;

/// `EMFILE` and `ENFILE`, which Linux and macOS number alike.
const PROCESS_LIMIT: i32 = 24;
const MACHINE_LIMIT: i32 = 23;

/// The first pause, which doubles up to the longest: short enough that a write which met the limit
/// goes on soon after it has passed.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time that a read waits in all: its requester has given up by then.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two lines in the log.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Whether no descriptor was left.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(PROCESS_LIMIT | MACHINE_LIMIT))
}

/// Whether the process is out of something else than disk, for the moment: memory, or time to wait.
pub fn is_passing(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::Interrupted,
        io::ErrorKind::WouldBlock,
        io::ErrorKind::ResourceBusy,
    ];
    is_exhausted(error) || kinds.contains(&error.kind())
}

/// Calls what opens a file again for as long as no descriptor is left. It must have changed nothing
/// when it fails so. Blocks the thread meanwhile: requests that wait for it have time-outs of their
/// own, and nothing is lost.
///
/// # Errors
/// What the last call said.
pub fn wait_for_one<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut backoff = Backoff::default();
    loop {
        match open() {
            Err(error) if is_exhausted(&error) => backoff.pause(),
            other => return other,
        }
    }
}

/// The pauses of one call.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    begun: Option<Instant>,
    last: Duration,
}

impl Backoff {
    /// Blocks the thread for the next pause, and names the limit in the log.
    pub(crate) fn pause(&mut self) {
        self.begun.get_or_insert_with(Instant::now);
        warn();
        self.last = (self.last * 2).clamp(PAUSE_FIRST, PAUSE_MAX);
        thread::sleep(self.last);
    }

    /// Whether whoever waits for an answer has waited for long enough.
    pub(crate) fn is_over(&self) -> bool {
        self.begun.is_some_and(|begun| begun.elapsed() > PATIENCE)
    }
}

/// Names the limit in the log, now and then.
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
        "no file descriptor is left, so files wait to be opened; close connections or raise the \
         limit (`ulimit -n`, RLIMIT_NOFILE)"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_waited_for() {
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
