//! Time to live: the values that DynamoDB accepts as a time of expiry, and the check whether an
//! item has expired.
//!
//! Rules (AWS, "Using time to live (TTL)"): the value is a top-level Number of seconds since 1970. An
//! item has expired when the current time is greater than this value. A value more than five years in
//! the past is ignored.

use model::limits::TTL_PAST_SECONDS_MAX;

/// Returns the time of expiry in whole seconds since 1970, for a number in the format of
/// `model::Number`. Returns `None` if the item never expires: the number is negative or beyond 64
/// bits.
#[must_use]
pub fn expiry_of(number: &str) -> Option<u64> {
    // Rust would parse `-0`, the integer part of `-0.5`, as 0.
    let whole = number.split('.').next().filter(|whole| !whole.starts_with('-'));
    whole.and_then(|whole| whole.parse().ok())
}

/// Returns whether TTL deletes an item with this time of expiry at the current time, both in
/// seconds since 1970.
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
