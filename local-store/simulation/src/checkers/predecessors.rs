//! Checks without a search, in O(n log n): values that were never stored, lost updates, values that
//! reappear after they were replaced, and lost acknowledged writes.
//!
//! The checks rely on two facts: each value is stored by only one operation, and each completed
//! operation returns the value that it found. The checks find most defects and describe them
//! directly. `linearizability` finds the remaining defects with a search.

use std::collections::BTreeMap;

use super::linearizability::{Kind, Operation, State};

/// The known times of the operation that stored a value.
struct Writer {
    call: u64,
    end: Option<u64>,
}

/// Checks the history of one item, which does not exist at first. Returns the defects.
#[must_use]
pub fn check(operations: &[Operation]) -> Vec<String> {
    let mut writers = BTreeMap::new();
    for operation in operations {
        if let Kind::Write(value) | Kind::WriteIf(_, value) = operation.kind {
            let end = operation.seen.map(|(end, _)| end);
            writers.insert(value, Writer { call: operation.call, end });
        }
    }
    let mut wrong: Vec<String> = operations
        .iter()
        .filter_map(|operation| match (operation.kind, operation.seen) {
            (Kind::WriteIf(asked, value), Some((end, seen))) if asked != seen => Some(format!(
                "condition: the write of {value}, acknowledged at {end}, replaced {seen:?}, but its condition was {asked:?}"
            )),
            _ => None,
        })
        .collect();
    let mut replaced: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for operation in operations {
        let (Some((end, Some(found))), Some(stored)) = (operation.seen, stored(operation)) else {
            continue;
        };
        if let Some((_, other)) = replaced.get(&found) {
            wrong.push(format!(
                "lost update: the operations that ended at {end} and at {other} both replaced {found}; the operation at {end} stored {stored:?}"
            ));
        }
        replaced.insert(found, (end, end));
    }
    wrong.extend(operations.iter().filter_map(|operation| {
        let (end, seen) = operation.seen?;
        let seen = seen?;
        let Some(writer) = writers.get(&seen) else {
            return Some(format!(
                "the operation that ended at {end} saw {seen}, which no operation stored"
            ));
        };
        if writer.call > end {
            return Some(format!(
                "the operation that ended at {end} saw {seen}, whose write began later"
            ));
        }
        match replaced.get(&seen) {
            Some((gone, _)) if *gone < operation.call => Some(format!(
                "stale read: the operation from {} to {end} saw {seen}, which had been replaced at {gone}",
                operation.call
            )),
            _ => None,
        }
    }));
    wrong.extend(find_revivals(operations, &writers));
    wrong
}

/// Returns the state that a completed operation stored; `None` if the operation changed nothing.
fn stored(operation: &Operation) -> Option<State> {
    let (_, seen) = operation.seen?;
    match operation.kind {
        Kind::Read => None,
        Kind::Write(value) | Kind::WriteIf(_, value) => Some(Some(value)),
        Kind::Delete => seen.map(|_| None),
    }
}

/// Finds stale reads: operations that saw an old value, although a newer value was acknowledged
/// before they began.
fn find_revivals(operations: &[Operation], writers: &BTreeMap<u64, Writer>) -> Vec<String> {
    // For the end of each write, the latest start among the writes that had ended by that time.
    let mut ended: Vec<(u64, u64, u64)> =
        writers.iter().filter_map(|(value, w)| Some((w.end?, w.call, *value))).collect();
    ended.sort_unstable();
    let mut latest = (0, 0);
    for (_, call, value) in &mut ended {
        latest = latest.max((*call, *value));
        (*call, *value) = latest;
    }
    let mut wrong = Vec::new();
    for operation in operations {
        let Some((end, Some(seen))) = operation.seen else { continue };
        let Some(older) = writers.get(&seen).and_then(|writer| writer.end) else { continue };
        let before = ended.partition_point(|(end, ..)| *end < operation.call);
        let Some((_, call, newer)) = before.checked_sub(1).and_then(|place| ended.get(place))
        else {
            continue;
        };
        if *call > older && *newer != seen {
            wrong.push(format!(
                "lost write: the operation from {} to {end} saw {seen}, acknowledged at {older}, although {newer} was stored and acknowledged after {seen} and before the operation began",
                operation.call
            ));
        }
    }
    wrong
}

/// Checks the final state if all outcomes are known: it must be the state that the last write
/// stored.
#[must_use]
pub fn check_end(operations: &[Operation], found: State) -> Option<String> {
    if operations.iter().any(|operation| operation.seen.is_none() && operation.kind != Kind::Read) {
        return None;
    }
    let replaced = |value: u64| {
        operations
            .iter()
            .any(|o| o.seen.is_some_and(|(_, seen)| seen == Some(value)) && stored(o).is_some())
    };
    let lost = operations.iter().find_map(|operation| match (operation.kind, operation.seen) {
        (Kind::Write(value) | Kind::WriteIf(_, value), Some((end, _)))
            if Some(value) != found && !replaced(value) =>
        {
            Some((value, end))
        }
        _ => None,
    });
    let (value, end) = lost?;
    Some(format!(
        "acknowledged write lost: {value}, acknowledged at {end}, was never replaced, but the item has {found:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(call: u64, end: u64, seen: State, kind: Kind) -> Operation {
        Operation { call, seen: Some((end, seen)), kind }
    }

    #[test]
    fn planted_violations_are_named() {
        use Kind::{Delete, Read, Write};
        let first = done(1, 2, None, Write(1));
        let cases = [
            (vec![first.clone(), done(3, 4, Some(1), Write(2)), done(5, 6, Some(2), Read)], None),
            (
                vec![first.clone(), done(3, 9, Some(1), Write(2)), done(4, 8, Some(1), Write(3))],
                Some("lost update"),
            ),
            (vec![done(1, 2, Some(5), Read)], Some("no operation stored")),
            (
                vec![done(1, 2, Some(5), Read), done(3, 4, None, Write(5))],
                Some("whose write began later"),
            ),
            (
                vec![first.clone(), done(3, 4, Some(1), Write(2)), done(5, 6, Some(1), Read)],
                Some("stale"),
            ),
            (
                vec![first.clone(), done(3, 4, Some(1), Delete), done(5, 6, Some(1), Read)],
                Some("stale"),
            ),
            // The second write found no item, as if the first write had never been applied.
            (
                vec![first, done(3, 4, None, Write(2)), done(5, 6, Some(1), Read)],
                Some("lost write"),
            ),
        ];
        for (history, expected) in cases {
            let wrong = check(&history);
            match expected {
                None => assert!(wrong.is_empty(), "{wrong:?}"),
                Some(text) => assert!(wrong.iter().any(|w| w.contains(text)), "{text}: {wrong:?}"),
            }
        }
    }

    #[test]
    fn the_final_state_is_that_of_the_last_write() {
        let history = [done(1, 2, None, Kind::Write(1)), done(3, 4, Some(1), Kind::Write(2))];
        assert_eq!(check_end(&history, Some(2)), None);
        assert!(check_end(&history, Some(1)).unwrap().contains("2, acknowledged at 4"));
        assert!(check_end(&history, None).is_some());
        let unknown = [history[0].clone(), Operation { call: 5, seen: None, kind: Kind::Delete }];
        assert_eq!(check_end(&unknown, None), None, "the delete may have been applied");
    }
}
