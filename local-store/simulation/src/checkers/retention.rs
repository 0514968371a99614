//! Checks retention. After a day without requests, the stream must have discarded its records and
//! closed shards. TTL must have removed expired items, with stream records of the deletes. Nothing
//! else may have changed.

use std::collections::{BTreeMap, BTreeSet};

use model::{Item, StreamRecord};

use super::stream::ShardRecords;
use crate::request::KEY;

/// Compares the states of a table and its stream before and after more than a day.
#[must_use]
pub fn check(
    before: (&BTreeMap<String, Item>, &[ShardRecords]),
    after: (&BTreeMap<String, Item>, &[ShardRecords]),
) -> Vec<String> {
    let (table, shards) = before;
    let (left, still) = after;
    let mut wrong = Vec::new();
    let closed: BTreeSet<&str> = shards
        .iter()
        .filter(|found| found.shard.range.1.is_some())
        .map(|found| found.shard.id.as_str())
        .collect();
    let old: BTreeSet<(&str, &str)> = shards.iter().flat_map(places).collect();
    let mut removed: BTreeMap<&str, &StreamRecord> = BTreeMap::new();
    for found in still {
        if closed.contains(found.shard.id.as_str()) {
            wrong.push(format!(
                "{}: the shard was closed more than a day ago, but still exists",
                found.shard.id
            ));
        }
        for (place, record) in places(found).zip(&found.records) {
            let key = record.keys.get(KEY).and_then(|key| key.as_str()).unwrap_or_default();
            let what = format!("{key} at {}", record.sequence_number);
            if old.contains(&place) {
                wrong.push(format!("{what}: the record is older than a day"));
            } else if !record.is_time_to_live() || record.old_image.as_ref() != table.get(key) {
                wrong.push(format!("{what}: neither a client nor TTL made the record's change"));
            } else if removed.insert(key, record).is_some() {
                wrong.push(format!("{what}: the item was removed twice"));
            }
        }
    }
    for (key, item) in table {
        match (left.get(key), removed.get(key.as_str())) {
            (None, None) => {
                wrong.push(format!("{key}: the item was removed without a stream record"));
            }
            (Some(_), Some(_)) => {
                wrong.push(format!("{key}: the stream removes the item, but it exists"));
            }
            (Some(now), None) if now != item => {
                wrong.push(format!("{key}: the item changed without a stream record"));
            }
            _ => {}
        }
    }
    let come = left.keys().filter(|key| !table.contains_key(*key));
    wrong.extend(come.map(|key| format!("{key}: the item was never written")));
    wrong
}

fn places(found: &ShardRecords) -> impl Iterator<Item = (&str, &str)> {
    let id = found.shard.id.as_str();
    found.records.iter().map(move |record| (id, record.sequence_number.as_str()))
}

#[cfg(test)]
mod tests {
    use model::{EventName, Number, StreamViewType, UserIdentity};

    use super::*;
    use crate::request::{EXPIRES_AT, Shard};

    fn item(key: &str, expires_at: u64) -> Item {
        Item::new().with(KEY, key).with(EXPIRES_AT, Number::from(expires_at))
    }

    fn removal(number: u64, key: &str) -> StreamRecord {
        StreamRecord {
            event_id: number.to_string(),
            event_name: EventName::Remove,
            user_identity: Some(UserIdentity::time_to_live()),
            approximate_creation_seconds: Some(1000),
            keys: Item::new().with(KEY, key),
            old_image: Some(item(key, 5)),
            new_image: None,
            sequence_number: format!("{number:04}").parse().unwrap(),
            size_bytes: 0,
            view_type: StreamViewType::NewAndOldImages,
        }
    }

    fn shard(id: &str, last: Option<u64>, records: Vec<StreamRecord>) -> ShardRecords {
        let range = ("0001".to_owned(), last.map(|n| format!("{n:04}")));
        ShardRecords { shard: Shard { id: id.to_owned(), parent: None, range }, records }
    }

    type State = (BTreeMap<String, Item>, Vec<ShardRecords>);
    type Plant = dyn Fn(&mut State);

    /// Returns the states before and after. Item `a` stays and `b` expires. One shard was closed, and one was
    /// open.
    fn states() -> (State, State) {
        let items = |keys: &[&str]| {
            keys.iter().map(|key| ((*key).to_owned(), item(key, 5))).collect::<BTreeMap<_, _>>()
        };
        let closed = shard("s1", Some(2), vec![removal(1, "x")]);
        let open = shard("s2", None, vec![removal(3, "y")]);
        let later = shard("s3", None, vec![removal(4, "b")]);
        let emptied = shard("s2", Some(3), Vec::new());
        ((items(&["a", "b"]), vec![closed, open]), (items(&["a"]), vec![emptied, later]))
    }

    fn complaints(plant: impl Fn(&mut State)) -> Vec<String> {
        let (before, mut after) = states();
        plant(&mut after);
        check((&before.0, &before.1), (&after.0, &after.1))
    }

    #[test]
    fn a_quiet_day_keeps_unexpired_items() {
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn late_removals_and_changes_are_named() {
        let old = |state: &mut State| state.1[0].records.push(removal(3, "y"));
        let closed = |state: &mut State| state.1.push(shard("s1", Some(2), Vec::new()));
        let silent = |state: &mut State| state.1[1].records.clear();
        let twice = |state: &mut State| state.1[1].records.push(removal(5, "b"));
        let kept = |state: &mut State| drop(state.0.insert("b".to_owned(), item("b", 5)));
        let other = |state: &mut State| drop(state.0.insert("a".to_owned(), item("a", 6)));
        let new = |state: &mut State| drop(state.0.insert("c".to_owned(), item("c", 5)));
        let by_user = |state: &mut State| state.1[1].records[0].user_identity = None;
        let cases: [(&Plant, &str); 8] = [
            (&old, "older than a day"),
            (&closed, "closed more than a day ago"),
            (&silent, "removed without a stream record"),
            (&twice, "removed twice"),
            (&kept, "the stream removes the item"),
            (&other, "changed without a stream record"),
            (&new, "never written"),
            (&by_user, "neither a client nor TTL made"),
        ];
        for (plant, expected) in cases {
            let found = complaints(plant);
            assert!(found.iter().any(|what| what.contains(expected)), "{expected}: {found:?}");
        }
    }
}
