//! One command of each kind: its number in the log stays, and it is carried out.

use model::{EpochMillis, IndexKeySchema, KeyAttribute, KeyAttributeType};

use crate::machine_tests::{Replica, create, entry, key, put};
use crate::*;

const TABLE: TableId = TableId(1);

/// The number of a command's kind in the log. What is in a log has it for ever, so a new kind goes to
/// the end; and it belongs into [`one_of_each`], so that it is applied here before it is in a log.
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
        Command::Settle { .. } => 22,
        Command::ForgetTransactions => 23,
        Command::LimitItemCollections { .. } => 24,
    }
}

fn one_of_each(definition: &Table) -> Vec<Command> {
    let (id, began, home) = (TransactionId(7), EpochMillis(0), ArcId::FIRST);
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
        Command::Receive(Box::new(Parcel { from: ArcId(1), first: 1, deliveries: Vec::new() })),
        Command::TrimOutbox { to: ArcId(1), upto: 0 },
        Command::Prepare(Box::new(Prepare {
            id,
            home,
            began,
            operations: Vec::new(),
            return_items: false,
        })),
        Command::Decide(Box::new(decide)),
        Command::Finish(Finish { id, began, commit: false, operations: 0 }),
        Command::Settle { id, began },
        Command::ForgetTransactions,
        Command::LimitItemCollections { bytes_max: 1 << 30 },
    ]
}

/// A machine in which the table `t` is.
fn replica() -> Replica {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    replica
}

#[test]
fn a_command_of_each_kind_is_carried_out() {
    let definition = replica().table().definition();
    for command in one_of_each(&definition) {
        let mut replica = replica();
        let name = format!("{command:?}");
        let entry = entry(0, vec![command]);
        let applied = replica.machine.apply(&replica.storage, 2, &entry);
        assert!(matches!(&applied, Ok((_, replies)) if replies.len() == 1), "{name}: {applied:?}");
    }
}

/// Goal: what an entry does never changes. A state is durable up to some entry, another one up to
/// an earlier one, and a newer program applies the rest: replicas of which one was ahead would differ
/// from then on. What is to work otherwise is another command, or gets a field that old entries lack.
///
/// Method: each kind of command behind each other one, a day later, in a table with items that expire;
/// all batches together have the hash that they had when this was written. Steps are smaller in tests
/// than in programs, and otherwise the same.
#[test]
fn entries_do_what_they_always_did() {
    let definition = replica().table().definition();
    let mut commands = one_of_each(&definition);
    let index = IndexDefinition {
        name: "by-n".to_owned(),
        kind: IndexKind::Global,
        key_schema: IndexKeySchema {
            partition: vec![KeyAttribute {
                name: "n".to_owned(),
                attribute_type: KeyAttributeType::N,
            }],
            sort: Vec::new(),
        },
        projection: IndexProjection::All,
        throughput: None,
    };
    let indexed = UpdateTable {
        indexes: vec![IndexChange::Create(index)],
        ..UpdateTable::of_options(TABLE, Vec::new())
    };
    commands.push(Command::UpdateTable(Box::new(indexed)));
    let mut batches = xxhash_rust::xxh3::Xxh3::new();
    for first in &commands {
        for second in &commands {
            let mut replica = replica();
            let items = (1..=6).map(|number| put(number, number, Some(number.into())));
            for (index, commands) in
                (2..).zip([items.collect(), vec![first.clone()], vec![second.clone()]])
            {
                let entry = entry((index - 2) * 90_000_000, commands);
                let (batch, _) = replica.machine.apply(&replica.storage, index, &entry).unwrap();
                batch.ops.iter().for_each(|op| add_to_hash(&mut batches, op));
                replica.storage.apply(batch);
            }
        }
    }
    assert_eq!(format!("{:032x}", batches.digest128()), "a9d55d6ef704d2ef7acd571dfa9757f0");
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
        assert_eq!(number(command), place, "{command:?} is not in its place");
        let encoded: Vec<u8> = postcard::to_extend(command, Vec::new()).unwrap();
        assert_eq!(encoded.first(), Some(&place), "{command:?}");
    }
}

/// Goal: nothing is carried out by every arc but what each of them has a part of.
#[test]
fn a_kind_of_command_goes_where_it_belongs() {
    let replica = replica();
    let commands = one_of_each(&replica.table().definition());
    for (number, command) in (0u8..).zip(&commands) {
        let expected = match number {
            0..=3 => Destination::Definition,
            4 | 5 | 13 => Destination::To(ArcId::FIRST),
            11 => Destination::Items,
            15..=22 => Destination::Addressed,
            _ => Destination::Everyone,
        };
        assert_eq!(destination(replica.machine.catalogue(), command), expected, "{command:?}");
    }
}

/// Goal: nodes of a process work out once what changes items alone, and nothing else.
#[test]
fn writes_and_expired_items_change_items_alone() {
    for command in one_of_each(&replica().table().definition()) {
        let expected = matches!(command, Command::Write(_) | Command::Expire { .. });
        assert_eq!(entry(0, vec![command.clone()]).only_writes(), expected, "{command:?}");
        let with_another = entry(0, vec![command.clone(), Command::ForgetTokens]);
        assert!(!with_another.only_writes(), "{command:?}");
    }
}
