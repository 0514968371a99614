//! Writes that came to nothing and may be made again: others wrote the same entry, or DynamoDB
//! throttles.
//!
//! Both are answers that nothing was written. How often, and after which pauses, [`contention`]
//! says.
//!
//! [`contention`]: client::contention

use super::failure::{Failure, Result};
use client::contention::{Attempts, Undone};

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

/// Waits until the next attempt, after one that came to nothing. `what` is to be written, for people.
///
/// # Errors
/// When there were enough of them.
pub(super) async fn pause(attempts: &mut Attempts, written: Written, what: &str) -> Result<()> {
    let (why, words) = match written {
        Written::Done => return Ok(()),
        Written::Changed => {
            (Undone::Changed, format!("others change {what} all the time; try again"))
        }
        Written::Throttled(words) => (Undone::Throttled, words),
    };
    if attempts.after(why).await { Ok(()) } else { Err(Failure::Retry(words)) }
}
