//! Limits retries of writes that had no effect, because another process changed the control-table
//! entry or DynamoDB throttled the request.
//!
//! [`contention`] defines the number of attempts and the pauses.
//!
//! [`contention`]: client::contention

use crate::migrate::failure::{Failure, Result};
use client::contention::{Attempts, NotApplied};

/// The result of an atomic write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    Done,
    /// Nothing was written, because another process changed the entry. The caller must read the
    /// entry again and repeat its decision.
    Changed,
    /// Nothing was written, because DynamoDB throttled the request. The value is DynamoDB's
    /// message.
    Throttled(String),
}

/// Waits before the next attempt, after an attempt without effect. `what` describes the entry in
/// the error message.
///
/// # Errors
/// When the number of attempts reaches its limit.
pub(crate) async fn pause(attempts: &mut Attempts, written: WriteResult, what: &str) -> Result<()> {
    let (why, words) = match written {
        WriteResult::Done => return Ok(()),
        WriteResult::Changed => (
            NotApplied::Changed,
            format!("other processes keep changing {what}; run the command again"),
        ),
        WriteResult::Throttled(words) => (NotApplied::Throttled, words),
    };
    if attempts.after(why).await { Ok(()) } else { Err(Failure::Retry(words)) }
}
