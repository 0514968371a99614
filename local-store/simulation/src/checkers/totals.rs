//! Checkers of totals: no money is created or lost, and every vote is counted once.

use std::collections::BTreeMap;

use model::Item;

use crate::history::{Sum, Votes};

/// The attribute of a counter slot to which votes add.
pub const COUNT: &str = "n";

/// Checks each sum that a client read against the expected sum.
#[must_use]
pub fn check_sums(sums: &[Sum], expected: &BTreeMap<&'static str, i128>) -> Vec<String> {
    sums.iter()
        .filter_map(|Sum { what, total, at }| match expected.get(what) {
            Some(expected) if expected == total => None,
            other => {
                Some(format!("{what}: the sum of a read at {at} is {total}, expected {other:?}"))
            }
        })
        .collect()
}

/// Checks a counter's votes against the final count of its slot.
#[must_use]
pub fn check_votes(slot: &str, votes: &Votes, found: Option<&Item>) -> Vec<String> {
    let mut wrong = Vec::new();
    let total = found.and_then(|item| item.get(COUNT)?.as_number()?.to_i128()).unwrap_or(0);
    let most = votes.counted + votes.unknown;
    if total < votes.counted || total > most {
        wrong.push(format!(
            "{slot}: the counter has {total} votes, but between {} and {most} were cast",
            votes.counted
        ));
    }
    let mut by_count = votes.acknowledged_counts.clone();
    by_count.sort_unstable_by_key(|(_, _, count)| *count);
    for pair in by_count.windows(2) {
        let [(_, earlier, count), (_, later, next)] = pair else { continue };
        if count == next {
            wrong.push(format!(
                "{slot}: the votes that ended at {earlier} and {later} both returned the count {count}"
            ));
        }
    }
    // A vote that returned a higher count must not have ended before this vote began.
    let mut first_end = u64::MAX;
    for (call, end, count) in by_count.iter().rev() {
        if first_end < *call {
            wrong.push(format!("{slot}: the vote that returned the count {count} began at {call}, after a vote with a higher count had ended at {first_end}"));
        }
        first_end = first_end.min(*end);
    }
    wrong
}

#[cfg(test)]
mod tests {
    use model::Number;

    use super::*;

    #[test]
    fn a_wrong_sum_is_named() {
        let expected = BTreeMap::from([("accounts", 500)]);
        let sum = |total| Sum { what: "accounts", total, at: 3 };
        assert!(check_sums(&[sum(500)], &expected).is_empty());
        assert!(check_sums(&[sum(500), sum(490)], &expected)[0].contains("is 490"));
    }

    #[test]
    fn votes_are_counted_once_and_in_order() {
        let item = |count: u64| Item::new().with(COUNT, Number::from(count));
        let votes = |told: &[(u64, u64, i128)]| Votes {
            acknowledged_counts: told.to_vec(),
            counted: 2,
            unknown: 1,
        };
        let honest = votes(&[(1, 4, 1), (2, 3, 2)]);
        assert!(check_votes("s", &honest, Some(&item(2))).is_empty());
        assert!(check_votes("s", &honest, Some(&item(3))).is_empty(), "the unknown one");
        for (planted, found, text) in [
            (honest.clone(), 1, "the counter has 1 votes, but between 2 and 3"),
            (honest, 4, "the counter has 4 votes"),
            (votes(&[(1, 4, 1), (2, 3, 1)]), 2, "both returned the count 1"),
            (votes(&[(3, 4, 1), (1, 2, 2)]), 2, "the count 1 began at 3"),
        ] {
            let wrong = check_votes("s", &planted, Some(&item(found)));
            assert!(wrong.iter().any(|w| w.contains(text)), "{text}: {wrong:?}");
        }
    }
}
