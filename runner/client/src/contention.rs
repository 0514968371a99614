//! Classifies errors of write conflicts and throttling, and decides how often to retry.
//!
//! DynamoDB cancels a transaction, even a read-only transaction, if another write or transaction
//! uses one of its items at the same time. It also rejects a plain write to an item of a running
//! transaction. In both cases, no write was applied.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;

use crate::sdk_error::is_throttle;
use mapping::BackOff;

/// Maximum attempts on conflicts; the pauses between them add up to about ten seconds. A longer conflict
/// means that the item has too many writers.
const ATTEMPTS_MAX: u32 = 50;
/// The pauses grow to the duration of a few transactions. They are random, so that the same writers
/// do not collide again.
const PAUSE: BackOff = BackOff { base_ms: 2, cap_ms: 150, spread_percent: 100 };
/// Maximum attempts while a table is throttled. The pauses between them add up to 30 to 60 seconds, in
/// which burst capacity recovers.
const THROTTLED_MAX: u32 = 20;
/// Pauses after throttling, which lasts longer than a conflict.
const THROTTLED_PAUSE: BackOff = BackOff { base_ms: 50, cap_ms: 2_000, spread_percent: 100 };

/// The counter of one operation's attempts, with its limits.
pub struct Attempts {
    made: u32,
    throttled: u32,
    seed: u64,
}

impl Attempts {
    /// Returns the counter of an operation that is at its first attempt.
    pub fn first() -> Self {
        Self { made: 1, throttled: 1, seed: RandomState::new().hash_one(0_u8) }
    }

    /// Waits before the next attempt after a conflict. Returns `false` when no attempt remains.
    pub async fn next(&mut self) -> bool {
        let pause = self.pause(NotApplied::Busy);
        wait(pause).await
    }

    /// Waits before the next attempt of a transaction that was not applied. Returns `false` if no
    /// attempt remains or a retry cannot help.
    pub async fn after(&mut self, why: NotApplied) -> bool {
        let pause = self.pause(why);
        wait(pause).await
    }

    /// Returns the pause in milliseconds.
    fn pause(&mut self, why: NotApplied) -> Option<u64> {
        let (made, most, pauses) = match why {
            NotApplied::Changed | NotApplied::Busy => (&mut self.made, ATTEMPTS_MAX, PAUSE),
            NotApplied::Throttled => (&mut self.throttled, THROTTLED_MAX, THROTTLED_PAUSE),
            NotApplied::Otherwise => return None,
        };
        if *made >= most {
            return None;
        }
        let pause = pauses.delay_ms(*made, self.seed);
        *made += 1;
        Some(pause)
    }
}

async fn wait(pause: Option<u64>) -> bool {
    match pause {
        Some(milliseconds) => {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            true
        }
        None => false,
    }
}

/// Returns true for a conflict: nothing was applied, and a retry may succeed. `text` contains the
/// reasons of a cancelled transaction.
pub fn is_contended(code: Option<&str>, text: &str) -> bool {
    match code {
        Some("TransactionConflictException") => true,
        // A transaction with an invalid request fails again at every retry.
        Some("TransactionCanceledException") => !text.contains("ValidationError"),
        _ => false,
    }
}

/// The reason why a transaction was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotApplied {
    /// A condition failed: an item has changed.
    Changed,
    /// A concurrent transaction or write used one of the transaction's items. A retry may succeed
    /// immediately.
    Busy,
    /// A table is throttled: a retry may succeed later.
    Throttled,
    /// Any other error: a retry cannot fix it, or the transaction may have been applied.
    Otherwise,
}

/// Returns why a transaction was not applied, from the cancellation reasons of its items.
pub fn why_not_applied(error: &SdkError<TransactWriteItemsError>) -> NotApplied {
    let Some(failed) = error.as_service_error() else { return NotApplied::Otherwise };
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = failed else {
        return match failed.code() {
            Some("TransactionConflictException" | "TransactionInProgressException") => {
                NotApplied::Busy
            }
            Some(code) if is_throttle(code) => NotApplied::Throttled,
            _ => NotApplied::Otherwise,
        };
    };
    let codes = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code());
    let codes: Vec<&str> = codes.filter(|code| *code != "None").collect();
    let is_known = |code: &&str| *code == "TransactionConflict" || is_throttle(code);
    if codes.contains(&"ConditionalCheckFailed") {
        NotApplied::Changed
    } else if codes.is_empty() || !codes.iter().all(is_known) {
        NotApplied::Otherwise
    } else if codes.iter().any(|code| is_throttle(code)) {
        NotApplied::Throttled
    } else {
        NotApplied::Busy
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::error::ErrorMetadata;
    use aws_sdk_dynamodb::types::CancellationReason;
    use aws_sdk_dynamodb::types::error::TransactionCanceledException;
    use aws_smithy_runtime_api::http::{Response, StatusCode};
    use aws_smithy_types::body::SdkBody;

    use super::*;

    fn undone(error: TransactWriteItemsError) -> NotApplied {
        let status = StatusCode::try_from(400).unwrap();
        why_not_applied(&SdkError::service_error(error, Response::new(status, SdkBody::empty())))
    }

    #[test]
    fn only_a_failed_condition_means_a_change() {
        let cancelled = |codes: &[&str]| {
            let reasons =
                codes.iter().map(|code| CancellationReason::builder().code(*code).build());
            let cancelled = TransactionCanceledException::builder();
            let cancelled = cancelled.set_cancellation_reasons(Some(reasons.collect())).build();
            undone(TransactWriteItemsError::TransactionCanceledException(cancelled))
        };
        for (codes, expected) in [
            (&["TransactionConflict", "None"][..], NotApplied::Busy),
            (&["None", "ThrottlingError"], NotApplied::Throttled),
            (&["ProvisionedThroughputExceeded", "TransactionConflict"], NotApplied::Throttled),
            (&["None", "ConditionalCheckFailed"], NotApplied::Changed),
            (&["TransactionConflict", "ConditionalCheckFailed"], NotApplied::Changed),
            (&["TransactionConflict", "ValidationError"], NotApplied::Otherwise),
            (&["ItemCollectionSizeLimitExceeded"], NotApplied::Otherwise),
            (&[], NotApplied::Otherwise),
        ] {
            assert_eq!(cancelled(codes), expected, "{codes:?}");
        }
        for (code, expected) in [
            ("ThrottlingException", NotApplied::Throttled),
            ("TransactionConflictException", NotApplied::Busy),
            ("AccessDeniedException", NotApplied::Otherwise),
        ] {
            let metadata = ErrorMetadata::builder().code(code).build();
            assert_eq!(undone(TransactWriteItemsError::generic(metadata)), expected, "{code}");
        }
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        for (code, text, expected) in [
            (Some("TransactionConflictException"), "Transaction is ongoing for the item", true),
            (Some("TransactionCanceledException"), "[TransactionConflict, None]", true),
            (Some("TransactionCanceledException"), "[None, ConditionalCheckFailed]", true),
            (Some("TransactionCanceledException"), "[ValidationError, None]", false),
            (Some("ResourceNotFoundException"), "no table", false),
            (None, "cannot connect", false),
        ] {
            assert_eq!(is_contended(code, text), expected, "{code:?} {text}");
        }
    }

    #[test]
    fn attempts_come_to_an_end() {
        for (why, attempts, milliseconds) in [
            (NotApplied::Busy, ATTEMPTS_MAX, 5_000..20_000),
            (NotApplied::Changed, ATTEMPTS_MAX, 5_000..20_000),
            (NotApplied::Throttled, THROTTLED_MAX, 25_000..65_000),
            (NotApplied::Otherwise, 1, 0..1),
        ] {
            let mut all = Attempts::first();
            let pauses: Vec<u64> = std::iter::from_fn(|| all.pause(why)).collect();
            assert_eq!(pauses.len() + 1, attempts as usize, "{why:?}");
            let waited: u64 = pauses.iter().sum();
            assert!(milliseconds.contains(&waited), "{why:?}: {waited} ms");
        }
    }
}
