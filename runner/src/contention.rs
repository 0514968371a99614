//! Items that others are at, at the same time, and tables that are throttled: which errors say so,
//! and how often to try again.
//!
//! DynamoDB cancels a transaction, a read as well, while another write or transaction is at one of
//! its items, and refuses a plain write to an item of a transaction. Nothing was done then.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;

use crate::mapping::BackOff;
use crate::sdk_error::is_throttle;

/// Attempts in all, with about ten seconds of pauses between them: whoever meets others for so long
/// shares the item with more of them than it can bear.
const ATTEMPTS_MAX: u32 = 50;
/// The pauses grow up to about as long as a few transactions take, and differ between those who
/// met each other.
const PAUSE: BackOff = BackOff { base_ms: 2, cap_ms: 150, spread_percent: 100 };

/// Attempts that were made, and may still be.
pub(crate) struct Attempts {
    made: u32,
    seed: u64,
}

impl Attempts {
    /// The first one is under way.
    pub(crate) fn first() -> Self {
        Self { made: 1, seed: RandomState::new().hash_one(0_u8) }
    }

    /// Waits until the next attempt may begin; `false` when all have been made.
    pub(crate) async fn next(&mut self) -> bool {
        if self.made >= ATTEMPTS_MAX {
            return false;
        }
        let pause = PAUSE.delay_ms(self.made, self.seed);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        self.made += 1;
        true
    }
}

/// Whether an error says that others were there first, or are there now: nothing was done, and it
/// may be done later. `text` names the reasons for which a transaction was cancelled.
pub(crate) fn is_contended(code: Option<&str>, text: &str) -> bool {
    match code {
        Some("TransactionConflictException") => true,
        // What is wrong with the request itself stays wrong.
        Some("TransactionCanceledException") => !text.contains("ValidationError"),
        _ => false,
    }
}

/// Why a transaction was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// An item is not what its condition says.
    Changed,
    /// Somebody else is at an item, or a table is throttled: it may be made later.
    Busy,
    /// Something else is wrong, and stays so; or nobody knows whether it was made.
    Otherwise,
}

/// Why a transaction was not made, by the reasons that each of its parts gives.
pub(crate) fn why_undone(error: &SdkError<TransactWriteItemsError>) -> Undone {
    let Some(failed) = error.as_service_error() else { return Undone::Otherwise };
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = failed else {
        let others = ["TransactionConflictException", "TransactionInProgressException"].map(Some);
        let is_busy = failed.code().is_some_and(is_throttle) || others.contains(&failed.code());
        return if is_busy { Undone::Busy } else { Undone::Otherwise };
    };
    let codes = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code());
    let codes: Vec<&str> = codes.filter(|code| *code != "None").collect();
    let is_busy = |code: &&str| *code == "TransactionConflict" || is_throttle(code);
    if codes.contains(&"ConditionalCheckFailed") {
        Undone::Changed
    } else if !codes.is_empty() && codes.iter().all(is_busy) {
        Undone::Busy
    } else {
        Undone::Otherwise
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

    fn undone(error: TransactWriteItemsError) -> Undone {
        let status = StatusCode::try_from(400).unwrap();
        why_undone(&SdkError::service_error(error, Response::new(status, SdkBody::empty())))
    }

    #[test]
    fn only_a_failed_condition_says_that_something_changed() {
        let cancelled = |codes: &[&str]| {
            let reasons =
                codes.iter().map(|code| CancellationReason::builder().code(*code).build());
            let cancelled = TransactionCanceledException::builder();
            let cancelled = cancelled.set_cancellation_reasons(Some(reasons.collect())).build();
            undone(TransactWriteItemsError::TransactionCanceledException(cancelled))
        };
        for (codes, expected) in [
            (&["TransactionConflict", "None"][..], Undone::Busy),
            (&["None", "ThrottlingError"], Undone::Busy),
            (&["ProvisionedThroughputExceeded", "TransactionConflict"], Undone::Busy),
            (&["None", "ConditionalCheckFailed"], Undone::Changed),
            (&["TransactionConflict", "ConditionalCheckFailed"], Undone::Changed),
            (&["TransactionConflict", "ValidationError"], Undone::Otherwise),
            (&["ItemCollectionSizeLimitExceeded"], Undone::Otherwise),
            (&[], Undone::Otherwise),
        ] {
            assert_eq!(cancelled(codes), expected, "{codes:?}");
        }
        for (code, expected) in [
            ("ThrottlingException", Undone::Busy),
            ("TransactionConflictException", Undone::Busy),
            ("AccessDeniedException", Undone::Otherwise),
        ] {
            let metadata = ErrorMetadata::builder().code(code).build();
            assert_eq!(undone(TransactWriteItemsError::generic(metadata)), expected, "{code}");
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
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
    fn the_pauses_are_bounded() {
        let longest: u64 = (1..ATTEMPTS_MAX).map(|made| PAUSE.delay_ms(made, u64::MAX)).sum();
        assert!((5_000..20_000).contains(&longest), "{longest} ms");
    }
}
