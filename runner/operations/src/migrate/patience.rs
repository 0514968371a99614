//! Looks that fail now and then: whoever only watches does not end what works, and whoever waits goes on
//! waiting.

use std::time::{Duration, Instant};

use super::failure::{Failure, Result};
use client::output::say;

/// For how long looks may fail in a row before whoever only watches gives up.
pub(super) const UNSEEN_MAX: Duration = Duration::from_secs(3600);

/// How many looks may fail, by time.
pub(super) struct Patience {
    most: Duration,
    /// Since when each look has failed.
    since: Option<Instant>,
    said: Option<Failure>,
    /// It is known that there is something to see.
    is_known: bool,
}

impl Patience {
    /// For what is known to be there: looks may fail for so long in a row.
    pub(super) fn new(most: Duration) -> Self {
        Self { most, since: None, said: None, is_known: true }
    }

    /// The same, but the first look must not fail: there may be nothing to see.
    pub(super) fn after_first(most: Duration) -> Self {
        Self { is_known: false, ..Self::new(most) }
    }

    /// What was seen; none if it was not to be seen this time, which is said.
    ///
    /// # Errors
    /// When that is so for too long.
    pub(super) fn seen<T>(&mut self, look: Result<T>) -> Result<Option<T>> {
        let problem = match look {
            Ok(seen) => {
                self.is_known = true;
                self.since = None;
                self.said = None;
                return Ok(Some(seen));
            }
            Err(problem) => problem,
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.is_known || since.elapsed() > self.most {
            return Err(problem);
        }
        if self.said.as_ref() != Some(&problem) {
            say(&format!("cannot look, it is tried again: {problem}"));
            self.said = Some(problem);
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
        let mut patience = Patience::new(Duration::from_secs(3600));
        for look in [failed(), failed(), Ok(3), failed()] {
            let expected = look.clone().ok();
            assert_eq!(patience.seen(look), Ok(expected));
        }
        patience.since = Instant::now().checked_sub(Duration::from_secs(3700));
        assert_eq!(patience.seen(failed()), failed().map(Some));

        let mut patience = Patience::after_first(Duration::from_secs(3600));
        assert_eq!(patience.seen(failed()), failed().map(Some));
        assert_eq!(patience.seen(Ok(3)), Ok(Some(3)));
        assert_eq!(patience.seen(failed()), Ok(None));
    }
}
