//! Tolerates failed reads for a limited time. Otherwise, one failed read would stop the workers of
//! `start` or `work`, and would end a command that waits.

use std::time::{Duration, Instant};

use crate::migrate::failure::{Failure, Result};
use client::output::say;

/// Maximum time for which all reads may fail before a watching command fails.
pub(crate) const UNSEEN_MAX: Duration = Duration::from_secs(3600);

/// The tolerance for failed reads.
pub(crate) struct FailureTolerance {
    most: Duration,
    /// The time since which every read has failed.
    since: Option<Instant>,
    reported: Option<Failure>,
    /// True if the value is known to exist. Only then may a failed read be retried.
    is_known: bool,
}

impl FailureTolerance {
    /// Returns the tolerance for reads of a value that exists. Reads are retried until they have
    /// failed for the time `most` without a success.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, since: None, reported: None, is_known: true }
    }

    /// Returns the same tolerance as [`Self::new`], except that the first read must succeed,
    /// because the value may not exist.
    pub(crate) fn after_first(most: Duration) -> Self {
        Self { is_known: false, ..Self::new(most) }
    }

    /// Returns the value of a successful read. Reports a failed read and returns `None` if it may
    /// be retried.
    ///
    /// # Errors
    /// When reads have failed for longer than the tolerance allows.
    pub(crate) fn seen<T>(&mut self, look: Result<T>) -> Result<Option<T>> {
        let problem = match look {
            Ok(seen) => {
                self.is_known = true;
                self.since = None;
                self.reported = None;
                return Ok(Some(seen));
            }
            Err(problem) => problem,
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.is_known || since.elapsed() > self.most {
            return Err(problem);
        }
        if self.reported.as_ref() != Some(&problem) {
            say(&format!("cannot read the status of the migration, retrying: {problem}"));
            self.reported = Some(problem);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_may_fail_for_a_while() {
        let failed = || Err::<u8, _>(Failure::from("no"));
        let mut patience = FailureTolerance::new(Duration::from_secs(3600));
        for look in [failed(), failed(), Ok(3), failed()] {
            let expected = look.clone().ok();
            assert_eq!(patience.seen(look), Ok(expected));
        }
        patience.since = Instant::now().checked_sub(Duration::from_secs(3700));
        assert_eq!(patience.seen(failed()), failed().map(Some));

        let mut patience = FailureTolerance::after_first(Duration::from_secs(3600));
        assert_eq!(patience.seen(failed()), failed().map(Some));
        assert_eq!(patience.seen(Ok(3)), Ok(Some(3)));
        assert_eq!(patience.seen(failed()), Ok(None));
    }
}
