//! Tests of the rows of an entry's stream records: reads from every position, and trimming.

use std::ops::ControlFlow;

use model::EpochMillis;
use model::limits::STREAM_RETENTION_MS;

use crate::machine::tests::{Replica, START, create, entry, key, schema, write};
use crate::*;

const TABLE: TableId = TableId(1);

/// Returns a write of an item of 500 bytes, one of three items of one partition.
pub(crate) fn large(number: u8, value: usize) -> Command {
    let item = key(number % 3).to_item(&schema()).with("text", format!("{value:0>500}").as_str());
    write(number % 3, WriteAction::put(&item))
}

/// Combines writes into a transaction.
pub(crate) fn together(commands: Vec<Command>) -> Command {
    let operation = |command| match command {
        Command::Write(write) => *write,
        other => panic!("{other:?} is not a write"),
    };
    let operations = commands.into_iter().map(operation).collect();
    Command::Transaction(Box::new(Transaction { token: None, operations }))
}

/// Returns the records of the only shard that has records.
fn records(replica: &Replica, from: Option<Position>) -> Vec<(Sequence, Option<String>)> {
    let table = replica.table();
    let stream = table.streams.last().unwrap();
    let mut found = Vec::new();
    for shard in &stream.shards {
        let from = from.unwrap_or(Position::At(shard.first));
        let visit = &mut |sequence, record: model::StreamRecord<model::EncodedItem>| {
            let new = record.decode().unwrap().new_image.unwrap();
            found.push((sequence, new.get("text").map(|text| format!("{text:?}"))));
            ControlFlow::Continue(())
        };
        read_shard_records(&replica.storage, table, stream, shard, from, visit).unwrap();
    }
    found
}

/// Returns the sequences of the only shard that has records, the newest first.
fn newest(replica: &Replica) -> Vec<Sequence> {
    let table = replica.table();
    let stream = table.streams.last().unwrap();
    let mut found = Vec::new();
    for shard in &stream.shards {
        let visit = &mut |sequence, _| {
            found.push(sequence);
            ControlFlow::Continue(())
        };
        read_newest_shard_records(&replica.storage, table, stream, shard, visit).unwrap();
    }
    found
}

fn rows(replica: &Replica) -> usize {
    replica.storage.0.keys().filter(|key| key.first() == Some(&QUEUE_KEYS)).count()
}

/// Goal: from every position, a read returns each record once, in the order of the commands. After
/// a day, a trim removes complete rows.
#[test]
fn records_of_an_entry_are_read_from_anywhere() {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    let mut commands: Vec<Command> = (0..60).map(|value| large(0, value)).collect();
    commands.insert(20, together(vec![large(1, 100), large(2, 101)]));
    commands.push(together(vec![large(1, 102)]));
    replica.apply(2, &entry(1000, commands));
    replica.apply(3, &entry(2000, vec![large(0, 103), large(1, 104)]));
    let values = (0..20).chain([100, 101]).chain(20..60).chain([102, 103, 104]);
    let text = |value: usize| {
        Some(format!("{:?}", model::AttributeValue::from(format!("{value:0>500}").as_str())))
    };
    let all = records(&replica, None);
    assert!(all.iter().map(|(_, text)| text.clone()).eq(values.map(text)));
    assert!(all.is_sorted_by(|(one, _), (other, _)| one < other));
    assert!(newest(&replica).iter().eq(all.iter().rev().map(|(sequence, _)| sequence)));
    // There are six rows: one before the first transaction, one of that transaction, two between
    // the transactions, one of the last transaction, and one of the next entry.
    assert_eq!(rows(&replica), 6);
    for (place, (sequence, _)) in all.iter().enumerate() {
        assert_eq!(records(&replica, Some(Position::At(*sequence))), all[place..]);
        assert_eq!(records(&replica, Some(Position::After(*sequence))), all[place + 1..]);
    }
    let (last, _) = all.last().unwrap();
    let shard_with = |replica: &Replica, trimmed: Option<Sequence>| {
        let table = replica.table();
        let of = |shard: &Shard| read_last_sequence(&replica.storage, table, shard).unwrap();
        let shards: Vec<_> = table.shards().filter(|shard| of(shard).is_some()).collect();
        assert_eq!(shards.len(), 1);
        assert_eq!((of(shards[0]), shards[0].trimmed), (Some(*last), trimmed));
    };
    shard_with(&replica, None);
    // The first entry expires, and then the next one.
    let trim = || vec![Command::TrimStreams { table: TABLE }];
    for (index, at, left) in [(4, 2000, 2), (5, 4000, 0)] {
        let at = STREAM_RETENTION_MS + at;
        let tables = [Table::clone(replica.table())];
        let due = find_due_trims(&replica.storage, tables.iter(), EpochMillis(START + at));
        assert_eq!(due.unwrap(), [TABLE]);
        replica.apply(index, &entry(at, trim()));
        let rest = &all[all.len() - left..];
        assert_eq!(records(&replica, None), rest);
        let trimmed = all.get(all.len() - left - 1).map(|(sequence, _)| *sequence);
        shard_with(&replica, trimmed);
        assert_eq!(records(&replica, Some(Position::At(all[3].0))), rest);
    }
    assert_eq!(rows(&replica), 0);
}

/// Goal: a search by time finds the first record that is not older than the time. Method: compares
/// the search with a linear search for every second of a history whose rows have several records,
/// before and after a trim.
#[test]
fn a_time_finds_its_first_record() {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    for index in 2..40u8 {
        let at = u64::from(index) * u64::from(index) * 700;
        let commands = (0..index % 4).map(|number| large(number, usize::from(index))).collect();
        replica.apply(index.into(), &entry(at, commands));
    }
    check_times(&replica, 1_200);
    let a_day_later = STREAM_RETENTION_MS + 500_000;
    replica.apply(40, &entry(a_day_later, vec![Command::TrimStreams { table: TABLE }]));
    assert!(replica.table().shards().any(|shard| shard.trimmed.is_some()));
    check_times(&replica, 1_200);
}

fn check_times(replica: &Replica, seconds: u64) {
    let table = replica.table();
    let stream = table.streams.last().unwrap();
    for shard in &stream.shards {
        let mut all = Vec::new();
        let visit = &mut |sequence, record: model::StreamRecord<model::EncodedItem>| {
            all.push((record.approximate_creation_seconds.unwrap(), sequence));
            ControlFlow::Continue(())
        };
        let from = Position::At(shard.first);
        read_shard_records(&replica.storage, table, stream, shard, from, visit).unwrap();
        for second in 0..seconds {
            let time = EpochMillis(START + second * 1000 + 500 * (second % 2));
            let wanted = all.iter().find(|(at, _)| EpochMillis(at * 1000) >= time);
            let found = find_first_since(&replica.storage, table, shard, time).unwrap();
            let first = found.map(|found| {
                all.iter().find(|(_, sequence)| *sequence >= found).map(|(_, sequence)| *sequence)
            });
            assert_eq!(first, wanted.map(|(_, sequence)| Some(*sequence)), "{second}");
        }
    }
}
