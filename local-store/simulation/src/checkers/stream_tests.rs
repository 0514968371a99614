//! Tests of the stream's checker. The checker must accept a correct stream, and report each planted
//! defect.

use std::collections::BTreeMap;

use model::{EventName, Item, Number, StreamRecord, StreamViewType, UserIdentity};

use super::stream::*;
use crate::history::{Reading, WriteOutcome};
use crate::request::{EXPIRES_AT, KEY, Shard, WRITE_ID};

fn item(key: &str, id: u64) -> Item {
    Item::new().with(KEY, key).with(WRITE_ID, Number::from(id))
}

fn record(number: u64, key: &str, old: Option<Item>, new: Option<Item>) -> StreamRecord {
    StreamRecord {
        event_id: number.to_string(),
        event_name: match (&old, &new) {
            (None, _) => EventName::Insert,
            (_, None) => EventName::Remove,
            _ => EventName::Modify,
        },
        user_identity: None,
        approximate_creation_seconds: Some(1000),
        keys: Item::new().with(KEY, key),
        old_image: old,
        new_image: new,
        sequence_number: format!("{number:04}").parse().unwrap(),
        size_bytes: 0,
        view_type: StreamViewType::NewAndOldImages,
    }
}

fn shard(id: &str, parent: Option<&str>, first: u64, last: Option<u64>) -> Shard {
    let number = |n: u64| format!("{n:04}");
    Shard {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        range: (number(first), last.map(number)),
    }
}

/// The input of one check. The input is correct until a test plants a defect.
struct Case {
    shards: Vec<ShardRecords>,
    writes: BTreeMap<u64, (String, WriteOutcome)>,
    deletes: BTreeMap<String, Vec<(WriteOutcome, Option<u64>)>>,
    table: BTreeMap<String, Item>,
}

impl Case {
    /// Returns a stream in which `a` is written twice across a rotation, `b` is deleted, and `c`
    /// expires.
    fn honest() -> Self {
        let expiring = item("c", 4).with(EXPIRES_AT, Number::from(900u64));
        let mut expired = record(7, "c", Some(expiring.clone()), None);
        expired.user_identity = Some(UserIdentity::time_to_live());
        let parent = vec![
            record(1, "a", None, Some(item("a", 1))),
            record(2, "b", None, Some(item("b", 3))),
            record(3, "c", None, Some(expiring)),
        ];
        let child = vec![
            record(5, "a", Some(item("a", 1)), Some(item("a", 2))),
            record(6, "b", Some(item("b", 3)), None),
            expired,
        ];
        let write = |id, key: &str| (id, (key.to_owned(), WriteOutcome::Acknowledged));
        Self {
            shards: vec![
                ShardRecords { shard: shard("s1", None, 1, Some(4)), records: parent },
                ShardRecords { shard: shard("s2", Some("s1"), 4, None), records: child },
            ],
            writes: BTreeMap::from([write(1, "a"), write(2, "a"), write(3, "b"), write(4, "c")]),
            deletes: BTreeMap::from([(
                "b".to_owned(),
                vec![(WriteOutcome::Acknowledged, Some(3))],
            )]),
            table: BTreeMap::from([("a".to_owned(), item("a", 2))]),
        }
    }

    fn check(&self) -> Vec<String> {
        let facts = Facts {
            writes: &self.writes,
            deletes: &self.deletes,
            table: &self.table,
            latest_seconds: 1000,
            has_one_log: true,
        };
        check(&self.shards, &facts)
    }
}

#[test]
fn an_honest_stream_passes() {
    assert_eq!(Case::honest().check(), Vec::<String>::new());
}

#[test]
fn planted_defects_are_named() {
    type Plant = fn(&mut Case);
    let cases: [(&str, Plant); 17] = [
        ("acknowledged write 2 is not in", |c| {
            c.shards[1].records.remove(0);
        }),
        ("replaying the stream gives", |c| {
            c.shards[1].records.remove(0);
        }),
        ("is in the stream 2 times", |c| {
            let again = record(8, "a", Some(item("a", 9)), Some(item("a", 2)));
            c.shards[1].records.push(again);
        }),
        ("differs from the previous record's new image", |c| {
            c.shards[1].records[0].old_image = Some(item("a", 9));
        }),
        ("old and new images are equal", |c| {
            let same = record(8, "a", Some(item("a", 2)), Some(item("a", 2)));
            c.shards[1].records.push(same);
        }),
        ("sequence numbers are not ascending", |c| c.shards[1].records.swap(0, 1)),
        ("two records have the sequence number", |c| {
            let mut again = c.shards[1].records[0].clone();
            again.keys = Item::new().with(KEY, "z");
            c.shards[0].records.push(again);
        }),
        ("is outside the shard's range", |c| c.shards[0].shard.range.1 = Some("0002".to_owned())),
        ("is not listed after its parent", |c| c.shards.swap(0, 1)),
        ("has an open parent", |c| c.shards[0].shard.range.1 = None),
        ("before its parent's end", |c| c.shards[1].shard.range.0 = "0003".to_owned()),
        ("does not descend from", |c| c.shards[1].shard.parent = None),
        ("no client wrote 2", |c| {
            c.writes.remove(&2);
        }),
        ("the store rejected the write 2", |c| {
            c.writes.insert(2, ("a".to_owned(), WriteOutcome::NotApplied));
        }),
        ("neither TTL nor a client deleted it", |c| c.shards[1].records[2].user_identity = None),
        ("TTL removed at 1000 an item that expires at Some(1900)", |c| {
            let extended = item("c", 4).with(EXPIRES_AT, Number::from(1900u64));
            c.shards[0].records[2].new_image = Some(extended.clone());
            c.shards[1].records[2].old_image = Some(extended);
        }),
        ("acknowledged delete of Some(3) is not in", |c| {
            c.shards[1].records.remove(1);
            c.table.insert("b".to_owned(), item("b", 3));
        }),
    ];
    for (expected, plant) in cases {
        let mut case = Case::honest();
        plant(&mut case);
        let wrong = case.check();
        assert!(wrong.iter().any(|w| w.contains(expected)), "{expected}: {wrong:?}");
    }
}

#[test]
fn an_unknown_write_or_delete_may_be_in_the_stream_or_not() {
    let mut case = Case::honest();
    case.writes.insert(2, ("a".to_owned(), WriteOutcome::Unknown));
    case.writes.insert(99, ("a".to_owned(), WriteOutcome::Unknown));
    case.deletes
        .insert("b".to_owned(), vec![(WriteOutcome::Unknown, None), (WriteOutcome::Unknown, None)]);
    assert_eq!(case.check(), Vec::<String>::new());
}

#[test]
fn readers_read_contiguous_records() {
    let case = Case::honest();
    let all = &case.shards[1].records;
    let reading = |from_beginning, records: &[StreamRecord]| Reading {
        shard: "s2".to_owned(),
        from_beginning,
        records: records.to_vec(),
    };
    assert_eq!(check_reading(&reading(true, &all[..2]), &case.shards), None);
    assert_eq!(check_reading(&reading(false, &all[1..]), &case.shards), None);
    let gap = [all[0].clone(), all[2].clone()];
    let lost = [record(9, "a", None, Some(item("a", 9)))];
    for (planted, text) in [
        (reading(true, &all[1..]), "missed 1 records"),
        (reading(true, &gap), "but the shard has"),
        (reading(false, &lost), "no longer in the shard"),
        (Reading { shard: "s9".to_owned(), ..reading(true, all) }, "not in the final list"),
    ] {
        let wrong = check_reading(&planted, &case.shards).unwrap_or_default();
        assert!(wrong.contains(text), "{text}: {wrong}");
    }
}
