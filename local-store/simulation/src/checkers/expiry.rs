//! The checker of TTL, as clients see it: no item is removed before its expiry time, and expired
//! items are removed.
//!
//! The checker `stream` verifies that each delete by TTL concerns an expired item and is marked as
//! a delete by TTL.

use std::collections::BTreeMap;

use model::Item;

use crate::request::EXPIRES_AT;

/// Checks reads that found no item. Each element of `gone` has the key, the expiry time that the item's only
/// writer had stored, and the store time of the read. `skew_seconds` is the maximum time by which a node's
/// clock may have been ahead.
#[must_use]
pub fn check_gone(gone: &[(String, u64, u64)], skew_seconds: u64) -> Vec<String> {
    gone.iter()
        .filter(|(_, expires_at, now)| *expires_at >= now + skew_seconds)
        .map(|(key, expires_at, now)| {
            format!(
                "{key}: a read at {now} did not find the item, which expires only at {expires_at}"
            )
        })
        .collect()
}

/// Checks that the table contains no item that expired before `before`, in epoch seconds.
#[must_use]
pub fn check_left(table: &BTreeMap<String, Item>, before: u64) -> Vec<String> {
    let expires_at = |item: &Item| item.get(EXPIRES_AT)?.as_number()?.to_u64();
    table
        .iter()
        .filter_map(|(key, item)| {
            let time = expires_at(item).filter(|time| *time < before)?;
            Some(format!("{key}: the item expired at {time}, before {before}, but was not deleted"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use model::Number;

    use super::*;

    #[test]
    fn early_and_late_removals_are_both_wrong() {
        let gone = |expires_at, now| vec![("k".to_owned(), expires_at, now)];
        assert!(check_gone(&gone(100, 101), 5).is_empty());
        assert!(check_gone(&gone(104, 100), 5).is_empty(), "a clock may be ahead by less than 5 s");
        assert!(check_gone(&gone(110, 101), 5)[0].contains("expires only at 110"));
        let table =
            BTreeMap::from([("k".to_owned(), Item::new().with(EXPIRES_AT, Number::from(100u64)))]);
        assert!(check_left(&table, 100).is_empty());
        assert!(check_left(&table, 101)[0].contains("was not deleted"));
    }
}
