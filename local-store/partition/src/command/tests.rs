//! Tests with one command of each kind: its tag in the log is stable, and the state machine applies
//! it.

use std::collections::BTreeSet;

use model::{EncodedItem, EpochMillis, IndexKeySchema, KeyAttribute, KeyAttributeType};

use crate::machine::tests::{Replica, START, create, entry, key, put, schema};
use crate::stream::row_tests::{large, together};
use crate::*;

const TABLE: TableId = TableId(1);

/// Returns the tag of a command's kind in the log. Tags in a log are permanent, so add a new kind
/// at the end. Also add it to [`one_of_each`], so that a test applies it before a log contains it.
fn number(command: &Command) -> u8 {
    match command {
        Command::CreateTable(_) => 0,
        Command::UpdateTable(_) => 1,
        Command::DeleteTable { .. } => 2,
        Command::UpdateTimeToLive { .. } => 3,
        Command::Write(_) => 4,
        Command::Expire { .. } => 5,
        Command::StepTimeToLive { .. } => 6,
        Command::StepIndexes { .. } => 7,
        Command::RotateShards { .. } => 8,
        Command::TrimStreams { .. } => 9,
        Command::PurgeTable { .. } => 10,
        Command::Transaction(_) => 11,
        Command::ForgetTokens => 12,
        Command::SplitPartition { .. } => 13,
        Command::StepSplits { .. } => 14,
        Command::AdoptTable { .. } => 15,
        Command::DropTable { .. } => 16,
        Command::Receive(_) => 17,
        Command::TrimOutbox { .. } => 18,
        Command::Prepare(_) => 19,
        Command::Decide(_) => 20,
        Command::Finish(_) => 21,
        Command::CompleteTransaction { .. } => 22,
        Command::ForgetTransactions => 23,
        Command::LimitItemCollections { .. } => 24,
        Command::ChangeRing(_) => 25,
    }
}

fn one_of_each(definition: &Table) -> Vec<Command> {
    let (id, began, deciding_arc) = (TransactionId(7), EpochMillis(0), ArcId::FIRST);
    let table = TABLE;
    let decide = Decide {
        id,
        began,
        commit: false,
        token: None,
        sizes: Vec::new(),
        participants: Vec::new(),
    };
    vec![
        create(),
        Command::UpdateTable(Box::new(UpdateTable::of_options(table, Vec::new()))),
        Command::DeleteTable { table },
        Command::UpdateTimeToLive { table, change: TimeToLiveChange::Enable("ttl".to_owned()) },
        put(0, 1, None),
        Command::Expire { table, key: Box::new(key(0)), expires_at: 1 },
        Command::StepTimeToLive { table },
        Command::StepIndexes { table },
        Command::RotateShards { table },
        Command::TrimStreams { table },
        Command::PurgeTable { table },
        Command::Transaction(Box::new(Transaction { token: None, operations: Vec::new() })),
        Command::ForgetTokens,
        Command::SplitPartition { table, partition: PartitionNumber(0), at: SplitPoint::Half },
        Command::StepSplits { table },
        Command::AdoptTable {
            table: Box::new(definition.clone()),
            placement: definition.placement.clone(),
        },
        Command::DropTable { table },
        Command::Receive(Box::new(DeliveryBatch {
            from: ArcId(1),
            first: 1,
            deliveries: Vec::new(),
        })),
        Command::TrimOutbox { to: ArcId(1), upto: 0 },
        Command::Prepare(Box::new(Prepare {
            id,
            deciding_arc,
            began,
            operations: Vec::new(),
            return_items: false,
        })),
        Command::Decide(Box::new(decide)),
        Command::Finish(Finish { id, began, commit: false, operations: 0 }),
        Command::CompleteTransaction { id, began },
        Command::ForgetTransactions,
        Command::LimitItemCollections { bytes_max: 1 << 30 },
        Command::ChangeRing(Box::new(RingChange::Found {
            nodes: (1..=3).filter_map(Slot::new).map(|slot| (slot, None)).collect(),
            arcs: 1,
        })),
    ]
}

/// Returns a replica that has the table `t`.
fn replica() -> Replica {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    replica
}

#[test]
fn a_command_of_each_kind_is_applied() {
    let definition = replica().table().definition();
    for command in one_of_each(&definition) {
        let mut replica = replica();
        let name = format!("{command:?}");
        let entry = entry(0, vec![command]);
        let applied = replica.machine.apply(&replica.storage, 2, &entry);
        assert!(matches!(&applied, Ok((_, replies)) if replies.len() == 1), "{name}: {applied:?}");
    }
}

/// Goal: the effect of an entry never changes. After an upgrade, replicas apply different numbers
/// of old entries, because their durable states end at different entries. If the effect of an entry
/// changed, the replicas would diverge. For new behaviour, add a command, or a field that old
/// entries lack.
///
/// Method: applies each kind of command after each other kind, one day later. The table has
/// expiring items, an index, and a stream with rows of several records. The hash of all batches
/// must equal the recorded one. Steps in test builds and in release builds differ only in their
/// size.
#[test]
fn the_effect_of_an_entry_never_changes() {
    let mut batches = xxhash_rust::xxh3::Xxh3::new();
    let mut written = BTreeSet::new();
    let commands = history_commands();
    for first in &commands {
        for second in &commands {
            let mut replica = replica();
            let items = (1..=6).map(|number| put(number, number, Some(expiry(number))));
            let (table, change) = (TABLE, TimeToLiveChange::Enable("ttl".to_owned()));
            let expiring = vec![Command::UpdateTimeToLive { table, change }];
            let steps = vec![Command::StepTimeToLive { table }; 4];
            let begin = [items.collect(), expiring, steps, commands_of_rows()];
            let history = begin.into_iter().chain([vec![first.clone()], vec![second.clone()]]);
            for (index, commands) in (2..).zip(history) {
                let entry = entry((index - 2) * 90_000_000, commands);
                let (batch, _) = replica.machine.apply(&replica.storage, index, &entry).unwrap();
                batch.ops.iter().for_each(|op| add_to_hash(&mut batches, op));
                written.extend(batch.ops.iter().filter_map(|op| op.key().first().copied()));
                replica.storage.apply(batch);
            }
        }
    }
    // A single arc has no changes for other arcs, and the table has no local index and therefore no
    // item collections.
    let without = [12, 13, 20];
    let all = (1..=23).filter(|family| !without.contains(family));
    assert_eq!(written.into_iter().collect::<Vec<_>>(), all.collect::<Vec<u8>>());
    assert_eq!(format!("{:032x}", batches.digest128()), "8c246a73bfcc3b75f2f7d917472aa9de");
}

/// Returns commands whose stream records have several rows: full rows, rows of transactions, and a
/// row that continues after a transaction over several arcs.
fn commands_of_rows() -> Vec<Command> {
    let (id, began, deciding_arc) = (TransactionId(8), EpochMillis(START), ArcId::FIRST);
    let Command::Transaction(all) = together(vec![large(1, 1), large(2, 2)]) else {
        panic!("not a transaction");
    };
    let operations = all.operations.clone();
    let prepare = Prepare { id, deciding_arc, began, operations, return_items: false };
    let finish = Finish { id, began, commit: true, operations: 2 };
    let mut commands = (0..45).map(|value| large(0, value)).collect::<Vec<_>>();
    commands.push(Command::Transaction(all));
    commands.extend([large(0, 46), Command::Prepare(Box::new(prepare)), Command::Finish(finish)]);
    commands.extend([
        large(0, 47),
        Command::Expire { table: TABLE, key: Box::new(key(0)), expires_at: 1 },
    ]);
    commands.push(large(0, 48));
    commands
}

/// Returns the expiry time of an item of the history, in epoch seconds.
fn expiry(number: u8) -> u64 {
    START / 1000 + u64::from(number)
}

/// Returns commands of every kind that has an effect in the history, and the commands that create
/// their work.
fn history_commands() -> Vec<Command> {
    let began = EpochMillis(START + 1_000_000_000);
    let (id, deciding_arc) = (TransactionId(7), ArcId::FIRST);
    let write = |command| match command {
        Command::Write(write) => *write,
        other => panic!("{other:?} is not a write"),
    };
    let operations = || {
        vec![write(put(1, 9, None)), Write { action: WriteAction::Check, ..write(put(2, 0, None)) }]
    };
    let token = || Some("token".to_owned());
    let decide = Decide {
        id,
        began,
        commit: true,
        token: Some(("other".to_owned(), 1)),
        sizes: vec![(1, 2)],
        participants: vec![(deciding_arc, 2)],
    };
    let attribute_type = KeyAttributeType::N;
    let index = IndexDefinition {
        name: "by-n".to_owned(),
        kind: IndexKind::Global,
        key_schema: IndexKeySchema {
            partition: vec![KeyAttribute { name: "n".to_owned(), attribute_type }],
            sort: Vec::new(),
        },
        projection: IndexProjection::All,
        throughput: None,
    };
    let indexed = |change| UpdateTable {
        indexes: vec![change],
        ..UpdateTable::of_options(TABLE, Vec::new())
    };
    let entry = EncodedItem::from(&key(1).to_item(&schema())).as_bytes().to_vec();
    let delivery =
        Delivery { table: TABLE, index: IndexNumber(0), key: vec![8, 1], entry: Some(entry) };
    let mut commands = one_of_each(&replica().table().definition());
    commands.extend([
        Command::UpdateTable(Box::new(indexed(IndexChange::Create(index)))),
        Command::UpdateTable(Box::new(indexed(IndexChange::Delete("by-n".to_owned())))),
        Command::Receive(Box::new(DeliveryBatch {
            from: ArcId(1),
            first: 1,
            deliveries: vec![delivery],
        })),
        Command::Expire { table: TABLE, key: Box::new(key(3)), expires_at: expiry(3) },
        Command::Transaction(Box::new(Transaction { token: token(), operations: operations() })),
        Command::Prepare(Box::new(Prepare {
            id,
            deciding_arc,
            began,
            operations: operations(),
            return_items: false,
        })),
        Command::Decide(Box::new(decide)),
        Command::Finish(Finish { id, began, commit: true, operations: 2 }),
        Command::CompleteTransaction { id, began },
    ]);
    commands.extend(Slot::new(4).map(|slot| {
        Command::ChangeRing(Box::new(RingChange::Join { slot, address: Some("a".to_owned()) }))
    }));
    commands
}

fn add_to_hash(hash: &mut xxhash_rust::xxh3::Xxh3, op: &Op) {
    let (tag, value): (_, &[u8]) = match op {
        Op::Put(_, value) => (0, value),
        Op::Insert(_, value) => (1, value),
        Op::Delete(_) => (2, &[]),
    };
    let lengths = [tag, op.key().len(), value.len()].map(|number| u32::try_from(number).unwrap());
    lengths.iter().for_each(|number| hash.update(&number.to_le_bytes()));
    hash.update(op.key());
    hash.update(value);
}

#[test]
fn a_kind_of_command_keeps_its_number_in_the_log() {
    let commands = one_of_each(&replica().table().definition());
    for (place, command) in (0u8..).zip(&commands) {
        assert_eq!(number(command), place, "the position of {command:?} differs from its number");
        let encoded: Vec<u8> = postcard::to_extend(command, Vec::new()).unwrap();
        assert_eq!(encoded.first(), Some(&place), "{command:?}");
    }
}

/// Goal: a command runs in every arc only if every arc has a part of its work.
#[test]
fn a_kind_of_command_has_its_destination() {
    let replica = replica();
    let commands = one_of_each(&replica.table().definition());
    for (number, command) in (0u8..).zip(&commands) {
        let expected = match number {
            0..=3 => Destination::Definition,
            4 | 5 | 13 | 25 => Destination::To(ArcId::FIRST),
            11 => Destination::Items,
            15..=22 => Destination::Addressed,
            _ => Destination::Everyone,
        };
        assert_eq!(destination(replica.machine.catalogue(), command), expected, "{command:?}");
    }
}

/// Goal: commands whose result the nodes of a process share change only items.
#[test]
fn writes_and_expired_items_change_items_alone() {
    for command in one_of_each(&replica().table().definition()) {
        let expected = matches!(command, Command::Write(_) | Command::Expire { .. });
        assert_eq!(entry(0, vec![command.clone()]).only_writes(), expected, "{command:?}");
        let with_another = entry(0, vec![command.clone(), Command::ForgetTokens]);
        assert!(!with_another.only_writes(), "{command:?}");
    }
}

/// Goal: later commands of an entry see the stream records of its earlier writes, even while a row
/// is still open.
#[test]
fn a_purge_in_the_entry_of_the_last_write_leaves_no_records() {
    let mut replica = replica();
    let ends = [Command::DeleteTable { table: TABLE }, Command::PurgeTable { table: TABLE }];
    let commands = [put(1, 1, None), put(2, 2, None)].into_iter().chain(ends).collect();
    replica.apply(2, &entry(0, commands));
    let is_record = |key: &&Vec<u8>| key.first() == Some(&QUEUE_KEYS);
    assert_eq!(replica.storage.0.keys().find(is_record), None);
}
