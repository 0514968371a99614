//! Time to live: what DynamoDB takes for a time of expiry, and when an item has expired.
//!
//! Rules: AWS, "Using time to live (TTL)": a top-level Number of seconds since 1970; an item expires
//! when the current time is greater; a time more than five years in the past is ignored.

use model::limits::TTL_PAST_SECONDS_MAX;

/// The second of an expiry, from a number as `model::Number` writes it. A fraction of a second is
/// dropped; `None` for what never comes: a negative number, or one beyond 64 bits.
#[must_use]
pub fn expiry_of(number: &str) -> Option<u64> {
    // Rust reads `-0`, which is what stands before the point of `-0.5`.
    let whole = number.split('.').next().filter(|whole| !whole.starts_with('-'));
    whole.and_then(|whole| whole.parse().ok())
}

/// Whether TTL deletes an item that expires at this second.
#[must_use]
pub fn is_over(expiry: u64, now_seconds: u64) -> bool {
    (now_seconds.saturating_sub(TTL_PAST_SECONDS_MAX)..now_seconds).contains(&expiry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_over_when_ttl_deletes_it() {
        let now = 2_000_000_000;
        for (number, expected) in [
            ("1999999999", true),
            ("1999999999.9", true),
            ("2000000000", false),
            ("2000000001", false),
            ("1842320000", true),
            ("1842319999.9", false),
            ("0", false),
            ("-0.5", false),
            ("-1999999999", false),
            ("100000000000000000000", false),
        ] {
            let found = expiry_of(number).is_some_and(|expiry| is_over(expiry, now));
            assert_eq!(found, expected, "{number}");
        }
    }
}
