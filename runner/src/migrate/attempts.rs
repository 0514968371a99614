//! Writes that came to nothing and may be made again: others wrote the same entry, or DynamoDB
//! throttles.
//!
//! Both are answers that nothing was written. Who throttles needs longer pauses: a verb that gave up
//! at the first such answer left writers held up that it could have let go a second later.

use std::time::Duration;

/// Attempts to make a change while others change the same entry.
const CHANGED_MAX: u32 = 20;
/// How long is waited after the second of them that was in vain; after the next one twice as long, and
/// so on.
const CHANGED_PAUSE: Duration = Duration::from_millis(10);
/// Attempts while DynamoDB throttles: half a minute in all.
const THROTTLED_MAX: u32 = 20;
/// How long is waited after the first of them; after each other one twice as long.
const THROTTLED_PAUSE: Duration = Duration::from_millis(50);
/// But no longer than this.
const THROTTLED_PAUSE_MAX: Duration = Duration::from_secs(2);

/// What became of a write that is made whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// Nothing was written, because others write there: what is written has to follow from what
    /// stands there now.
    Changed,
    /// Nothing was written, because DynamoDB takes no more at the moment; and its words.
    Throttled(String),
}

/// The attempts to make one change.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    changed: u32,
    throttled: u32,
}

impl Attempts {
    /// Waits until the next attempt, after one that came to nothing. `what` is to be written, for
    /// people.
    ///
    /// # Errors
    /// When there were enough of them.
    pub(super) async fn pause(&mut self, written: Written, what: &str) -> Result<(), String> {
        if let Some(pause) = self.next(written, what)? {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// How long to wait; none after a write.
    fn next(&mut self, written: Written, what: &str) -> Result<Option<Duration>, String> {
        match written {
            Written::Done => Ok(None),
            Written::Changed if self.changed + 1 >= CHANGED_MAX => {
                Err(format!("others change {what} all the time; try again"))
            }
            Written::Changed => {
                let pause = CHANGED_PAUSE * self.changed;
                self.changed += 1;
                Ok(Some(pause))
            }
            Written::Throttled(reason) if self.throttled + 1 >= THROTTLED_MAX => Err(reason),
            Written::Throttled(_) => {
                let pause = THROTTLED_PAUSE * 2u32.pow(self.throttled.min(10));
                self.throttled += 1;
                Ok(Some(pause.min(THROTTLED_PAUSE_MAX)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_to_an_end() {
        let throttled = Written::Throttled("slowly".to_owned());
        let changed = "others change `STATE` all the time; try again";
        for (written, attempts, waits, says) in
            [(Written::Changed, CHANGED_MAX, 1, changed), (throttled, THROTTLED_MAX, 25, "slowly")]
        {
            let (mut all, mut waited) = (Attempts::default(), Duration::ZERO);
            for _ in 1..attempts {
                waited += all.next(written.clone(), "`STATE`").unwrap().unwrap();
            }
            assert_eq!(all.next(written, "`STATE`"), Err(says.to_owned()));
            assert!(waited >= Duration::from_secs(waits), "{waited:?}");
        }
        assert_eq!(Attempts::default().next(Written::Done, ""), Ok(None));
    }
}
