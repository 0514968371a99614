//! Tests of the point at which a partition splits, of rejected splits, and of the search for
//! partitions to split.

use model::{Item, Number, StreamViewType, Token};

use crate::machine::tests::{Replica, add, create, entry, key, put, schema, write};
use crate::*;

const TABLE: TableId = TableId(1);

/// Returns a table of one partition with items of about `sizes` bytes, each under its own partition
/// key.
fn table_of(sizes: &[usize]) -> Replica {
    let mut replica = Replica::new();
    let provisioned = Billing::Provisioned { read_units: 1, write_units: 1 };
    let Command::CreateTable(create) = create() else { panic!("a table") };
    replica.apply(
        1,
        &entry(
            0,
            vec![Command::CreateTable(Box::new(CreateTable { billing: provisioned, ..*create }))],
        ),
    );
    let commands = (0u8..).step_by(3).zip(sizes).map(|(number, size)| sized(number, *size));
    replica.apply(2, &entry(0, commands.collect()));
    replica
}

fn sized(number: u8, size: usize) -> Command {
    let item = key(number).to_item(&schema()).with("text", "x".repeat(size).as_str());
    write(number, WriteAction::put(&item))
}

fn begin(replica: &mut Replica, partition: u32, at: SplitPoint) -> Reply {
    let command =
        Command::SplitPartition { table: TABLE, partition: PartitionNumber(partition), at };
    apply(replica, command)
}

fn apply(replica: &mut Replica, command: Command) -> Reply {
    let index = replica.machine.applied_index() + 1;
    replica.apply(index, &entry(0, vec![command])).remove(0)
}

/// Runs steps until no partition is being split; returns the number of steps.
fn finish(replica: &mut Replica) -> usize {
    let mut steps = 1;
    while apply(replica, Command::StepSplits { table: TABLE }) == (Reply::Done { more: true }) {
        steps += 1;
        assert!(steps < 100);
    }
    steps
}

fn bytes(replica: &Replica) -> Vec<u64> {
    let table = replica.table();
    table
        .partitions
        .iter()
        .map(|p| read_partition_statistics(&replica.storage, table, p.number).unwrap().bytes)
        .collect()
}

#[test]
fn a_split_halves_the_bytes() {
    let mut replica = table_of(&[1000; 40]);
    assert_eq!(begin(&mut replica, 0, SplitPoint::Half), Reply::Done { more: true });
    finish(&mut replica);
    let [below, above] = bytes(&replica)[..] else { panic!("two partitions") };
    assert!(below.abs_diff(above) <= 2100, "{below} {above}");
    let numbers: Vec<u32> = replica.table().partitions.iter().map(|p| p.number.0).collect();
    assert_eq!(numbers, [1, 2], "both children have new numbers");
}

#[test]
fn items_with_one_partition_key_stay_together() {
    // The largest collection has the highest token: it becomes the upper part.
    let mut tokens: Vec<u8> = (0..10).map(|n| n * 3).collect();
    tokens.sort_by_key(|number| key(*number).token());
    let last = *tokens.last().unwrap();
    let mut replica = table_of(&[10; 10]);
    apply(&mut replica, sized(last, 100_000));
    apply(&mut replica, sized(last + 1, 100_000));
    begin(&mut replica, 0, SplitPoint::Half);
    finish(&mut replica);
    let table = replica.table();
    assert_eq!(table.partitions[1].first_token, key(last).token());
    assert!(bytes(&replica)[1] > 200_000 && bytes(&replica)[0] < 1000);

    // The upper part has only one partition key, so it cannot be split by size.
    let above = table.partitions[1].number;
    assert_eq!(begin(&mut replica, above.0, SplitPoint::Half), Reply::Done { more: true });
    finish(&mut replica);
    assert_eq!(replica.table().partitions.len(), 2);
    assert_eq!(replica.table().partitions[1].number, above);
    // The split is not tried again until the partition has grown.
    let due = |replica: &Replica| {
        let table = Table::clone(replica.table());
        find_due_splits(&replica.storage, ArcPosition::default(), [&table].into_iter(), 1000)
            .unwrap()
    };
    assert_eq!(due(&replica), []);
    apply(&mut replica, sized(last + 2, 100_000));
    assert_eq!(due(&replica), [(TABLE, above, SplitPoint::Half)]);
}

#[test]
fn an_empty_partition_is_split_in_the_middle() {
    let mut replica = table_of(&[]);
    begin(&mut replica, 0, SplitPoint::Half);
    finish(&mut replica);
    assert_eq!(replica.table().partitions[1].first_token, Token(1 << 63));
}

#[test]
fn a_split_at_a_token_counts_concurrent_writes() {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    // There are more items than one step counts, so writes are interleaved with the steps.
    for (index, block) in (2..).zip(0u32..60) {
        let commands = (0..200).map(|n| numbered(block * 200 + n, 1)).collect();
        replica.apply(index, &entry(0, commands));
    }
    let range = replica.table().token_range(0).unwrap();
    begin(&mut replica, 0, SplitPoint::Token(Token(range.last.0 - 5)));
    let mut steps = 0;
    while apply(&mut replica, Command::StepSplits { table: TABLE }) == (Reply::Done { more: true })
    {
        let base = steps * 700;
        let changes = (0..300).map(|n| numbered(base + n, u8::try_from(n % 7).unwrap())).collect();
        let index = replica.machine.applied_index() + 1;
        replica.apply(index, &entry(0, changes));
        steps += 1;
    }
    assert!(steps > 0, "counting the items took several steps");
    let table = Table::clone(replica.table());
    assert_eq!(table.partitions.len(), 5);
    let items = replica.items();
    for (place, partition) in table.partitions.iter().enumerate() {
        let range = table.token_range(place).unwrap();
        let within = |item: &&Item| {
            let token = schema().key_of_item(item).unwrap().token();
            range.first <= token && token <= range.last
        };
        let found: Vec<usize> = items.iter().filter(within).map(Item::size).collect();
        let known = read_partition_statistics(&replica.storage, &table, partition.number).unwrap();
        assert_eq!(known.items, found.len() as u64);
        assert_eq!(known.bytes, found.iter().sum::<usize>() as u64);
    }
}

/// Returns a command that puts an item with its own partition key and a string of this length. For
/// length 0, the command deletes the item.
fn numbered(number: u32, length: u8) -> Command {
    let item = Item::new()
        .with("p", format!("k{number}").as_str())
        .with("s", Number::from(0u64))
        .with("text", "x".repeat(usize::from(length)).as_str());
    let action = if length == 0 { WriteAction::Delete } else { WriteAction::put(&item) };
    Command::Write(Box::new(Write {
        table: TABLE,
        key: schema().key_of_item(&item).unwrap(),
        action,
        condition: None,
        return_old: false,
        return_new: false,
        return_on_failure: false,
    }))
}

#[test]
fn invalid_splits_are_refused() {
    let mut replica = table_of(&[10; 4]);
    let mut refused = |partition, at, why: &str| {
        let reply = begin(&mut replica, partition, at);
        assert!(matches!(&reply, Reply::Invalid(text) if text.contains(why)), "{reply:?}");
    };
    refused(7, SplitPoint::Half, "does not exist");
    refused(0, SplitPoint::Token(Token(0)), "outside the partition");
    assert_eq!(
        begin(&mut replica, 0, SplitPoint::Token(Token(1))),
        Reply::Done { more: true },
        "the lower part may be a single token"
    );
    let again = begin(&mut replica, 0, SplitPoint::Half);
    assert!(matches!(&again, Reply::Invalid(text) if text.contains("already")), "{again:?}");
    finish(&mut replica);
    let narrow = begin(&mut replica, 1, SplitPoint::Half);
    assert!(matches!(&narrow, Reply::Invalid(text) if text.contains("one token")), "{narrow:?}");
}

#[test]
fn a_table_gets_the_partitions_for_its_throughput() {
    let mut replica = table_of(&[10; 4]);
    let update = Command::UpdateTable(Box::new(UpdateTable {
        table: TABLE,
        billing: Some(Billing::Provisioned { read_units: 3000, write_units: 2000 }),
        deletion_protection: None,
        stream: None,
        indexes: Vec::new(),
        options: Vec::new(),
    }));
    apply(&mut replica, update);
    for _ in 0..5 {
        let table = Table::clone(replica.table());
        let due = find_due_splits(
            &replica.storage,
            ArcPosition::default(),
            [&table].into_iter(),
            u64::MAX,
        )
        .unwrap();
        for (table, partition, at) in due {
            apply(&mut replica, Command::SplitPartition { table, partition, at });
        }
        finish(&mut replica);
    }
    let first: Vec<u64> = replica.table().partitions.iter().map(|p| p.first_token.0).collect();
    assert_eq!(first, [0, 1 << 62, 1 << 63], "the widest partition is split");
}

#[test]
fn two_children_continue_a_split_shard() {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create(), put(1, 1, None)]));
    let place = replica.table().partition_of(key(1).token());
    let partition = replica.table().partitions[place].clone();
    let middle = replica.table().token_range(place).unwrap().middle().unwrap();
    begin(&mut replica, partition.number.0, SplitPoint::Token(middle));
    finish(&mut replica);
    apply(&mut replica, add(1, 1));
    let table = replica.table();
    assert_eq!(table.streams[0].view_type, StreamViewType::NewAndOldImages);
    let shards: Vec<&Shard> = table.shards().collect();
    let parent = shards.iter().find(|s| Some(s.number) == partition.shard).unwrap();
    let children: Vec<_> =
        shards.iter().filter(|s| s.parent.as_ref() == Some(&parent.id)).collect();
    assert_eq!(children.len(), 2);
    assert!(children.iter().all(|child| Some(child.first) == parent.last));
    let records: Vec<usize> = replica
        .records()
        .into_iter()
        .filter(|(id, _)| *id == parent.id || children.iter().any(|child| child.id == *id))
        .map(|(_, records)| records.len())
        .collect();
    assert_eq!(records.iter().sum::<usize>(), 2);
    assert_eq!(records[0], 1, "one record in the parent, one in a child");
}
