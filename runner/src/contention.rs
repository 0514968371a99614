//! Slots and ballots that others are at, at the same time: which errors say so, and how often to
//! try again.
//!
//! DynamoDB cancels a transaction, a read as well, while another write or transaction is at one of
//! its items, and refuses a plain write to an item of a transaction. Nothing was done then.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::mapping::BackOff;

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

#[cfg(test)]
mod tests {
    use super::*;

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
