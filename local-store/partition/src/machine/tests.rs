//! Tests that compare the state machine with a plain map, and check its invariants.
//!
//! Expressions are tested in their own crate, so every update in these tests is `ADD n :v`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use expression::{ExpressionKind, Placeholders, parse_condition, parse_update};
use model::encoding::decode_item;
use model::limits::{SHARD_ROTATION_MS, STREAM_RETENTION_MS};
use model::{
    AttributeValue, EpochMillis, EventName, Item, KeyAttribute, KeyAttributeType, KeySchema,
    KeyValue, Number, PrimaryKey, StreamRecord, StreamViewType,
};
use proptest::prelude::*;

use crate::storage::testing::MapStorage;
use crate::*;

pub(crate) const START: u64 = 1_800_000_000_000;

/// A replica: a state machine and its storage.
pub(crate) struct Replica {
    pub(crate) machine: Machine,
    pub(crate) storage: MapStorage,
}

impl Replica {
    pub(crate) fn new() -> Self {
        let storage = MapStorage::default();
        Self { machine: Machine::open(&storage).unwrap(), storage }
    }

    pub(crate) fn apply(&mut self, index: u64, entry: &Entry) -> Vec<Reply> {
        let (batch, replies) = self.machine.apply(&self.storage, index, entry).unwrap();
        self.storage.apply(batch);
        replies
    }

    pub(crate) fn table(&self) -> &Table {
        self.machine.catalogue().find("t").unwrap()
    }

    pub(crate) fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        let range = ItemRange::Tokens(TokenRange::ALL);
        read_encoded_items(&self.storage, self.table(), &range, None, true, &mut |item| {
            items.push(decode_item(item).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        items
    }

    /// Returns all records of the table's streams, by shard, in order.
    pub(crate) fn records(&self) -> Vec<(String, Vec<StreamRecord>)> {
        let table = self.table();
        let mut all = Vec::new();
        for stream in &table.streams {
            for shard in &stream.shards {
                let mut records = Vec::new();
                let from = Position::At(shard.first);
                read_shard_records(&self.storage, table, stream, shard, from, &mut |_, record| {
                    records.push(record.decode().unwrap());
                    ControlFlow::Continue(())
                })
                .unwrap();
                all.push((shard.id.clone(), records));
            }
        }
        all
    }
}

pub(crate) fn schema() -> KeySchema {
    let attribute =
        |name: &str, attribute_type| KeyAttribute { name: name.to_owned(), attribute_type };
    KeySchema {
        partition: attribute("p", KeyAttributeType::S),
        sort: Some(attribute("s", KeyAttributeType::N)),
    }
}

pub(crate) fn key(number: u8) -> PrimaryKey {
    PrimaryKey {
        partition: KeyValue::S(format!("p{}", number / 3)),
        sort: Some(KeyValue::N(Number::from(u64::from(number % 3)))),
    }
}

pub(crate) fn create() -> Command {
    Command::CreateTable(Box::new(CreateTable {
        name: "t".into(),
        key_schema: schema(),
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: Some((StreamViewType::NewAndOldImages, "label-1".to_owned())),
        indexes: Vec::new(),
        options: Vec::new(),
    }))
}

pub(crate) fn write(number: u8, action: WriteAction) -> Command {
    Command::Write(Box::new(Write {
        table: TableId(1),
        key: key(number),
        action,
        condition: None,
        return_old: true,
        return_new: true,
        return_on_failure: true,
    }))
}

pub(crate) fn put(number: u8, value: u8, expires_at: Option<u64>) -> Command {
    let mut item = key(number).to_item(&schema()).with("n", Number::from(u64::from(value)));
    if let Some(time) = expires_at {
        item = item.with("ttl", Number::from(time));
    }
    write(number, WriteAction::put(&item))
}

pub(crate) fn add(number: u8, value: u8) -> Command {
    let values =
        BTreeMap::from([(":v".to_owned(), AttributeValue::N(Number::from(u64::from(value))))]);
    let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
    write(number, WriteAction::Update(parse_update("ADD n :v", &mut placeholders).unwrap()))
}

pub(crate) fn entry(at: u64, commands: Vec<Command>) -> Entry {
    Entry { now: EpochMillis(START + at), commands }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, Option<u8>),
    Add(u8, u8),
    Delete(u8),
    /// A transaction that adds to some items and deletes others, if another item exists.
    Transact(Vec<(u8, u8)>, u8),
    Wait(u16),
    Sweep,
    Rotate,
    /// Begins to split one of the partitions, at a token or at half of its bytes.
    Split(u8, Option<u8>),
    GoOn,
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let number = 0u8..15;
    prop_oneof![
        4 => (number.clone(), 0u8..3, prop::option::of(0u8..60)).prop_map(|(k, v, t)| Step::Put(k, v, t)),
        3 => (number.clone(), 0u8..3).prop_map(|(k, v)| Step::Add(k, v)),
        2 => number.clone().prop_map(Step::Delete),
        3 => (prop::collection::btree_map(number.clone(), 0u8..3, 1..4), 9u8..12).prop_map(|(ops, last)| {
            Step::Transact(ops.into_iter().collect(), last % 9)
        }),
        1 => (0u16..30_000).prop_map(Step::Wait),
        2 => Just(Step::Sweep),
        1 => Just(Step::Rotate),
        2 => (any::<u8>(), any::<Option<u8>>()).prop_map(|(place, at)| Step::Split(place, at)),
        3 => Just(Step::GoOn),
        1 => Just(Step::Restart),
    ]
}

/// Returns a transaction that adds to some items (0 deletes), if another item exists.
fn transact(operations: &[(u8, u8)], checked: u8) -> Command {
    let mut placeholders = Placeholders::new(None, None).unwrap();
    let exists =
        parse_condition("attribute_exists(p)", ExpressionKind::Condition, &mut placeholders);
    let check = write(checked, WriteAction::Check);
    let mut commands: Vec<Command> = operations
        .iter()
        .filter(|(number, _)| *number != checked)
        .map(|(number, value)| match value {
            0 => write(*number, WriteAction::Delete),
            value => add(*number, *value),
        })
        .collect();
    commands.push(check);
    let mut operations: Vec<Write> = commands
        .into_iter()
        .map(|command| match command {
            Command::Write(write) => *write,
            other => panic!("{other:?} is not a write"),
        })
        .collect();
    operations.last_mut().unwrap().condition = Some(Box::new(exists.unwrap()));
    // Histories repeat the same token: within ten minutes, only the first transaction is applied.
    let token = (checked == 0).then(|| "token".to_owned());
    Command::Transaction(Box::new(Transaction { token, operations }))
}

/// Returns a split of a partition: at a fraction of its tokens, or at half of its bytes.
fn split(table: &Table, place: u8, at: Option<u8>) -> Command {
    let place = usize::from(place) % table.partitions.len();
    let range = table.token_range(place).unwrap();
    let at = at.map_or(SplitPoint::Half, |fraction| {
        let width = range.last.0 - range.first.0;
        SplitPoint::Token(model::Token(range.first.0 + width / 256 * u64::from(fraction) + 1))
    });
    Command::SplitPartition { table: TableId(1), partition: table.partitions[place].number, at }
}

/// Runs a history and returns the replica and its log.
fn run(steps: &[Vec<Step>]) -> (Replica, Vec<Entry>) {
    let mut replica = Replica::new();
    let enable = Command::UpdateTimeToLive {
        table: TableId(1),
        change: TimeToLiveChange::Enable("ttl".to_owned()),
    };
    let mut log =
        vec![entry(0, vec![create(), enable, Command::StepTimeToLive { table: TableId(1) }])];
    replica.apply(1, &log[0]);
    let mut now = 0;
    for group in steps {
        let mut commands = Vec::new();
        for step in group {
            match step {
                Step::Put(k, v, t) => {
                    let seconds = (START + now) / 1000;
                    commands.push(put(*k, *v, t.map(|t| seconds - 30 + u64::from(t))));
                }
                Step::Add(k, v) => commands.push(add(*k, *v)),
                Step::Delete(k) => commands.push(write(*k, WriteAction::Delete)),
                Step::Transact(operations, checked) => {
                    commands.push(transact(operations, *checked));
                }
                Step::Wait(millis) => now += u64::from(*millis),
                Step::Sweep => {
                    let time = EpochMillis(START + now);
                    commands.extend(
                        find_expired(&replica.storage, replica.table(), time, 100, None)
                            .unwrap()
                            .commands,
                    );
                }
                Step::Rotate => {
                    now += SHARD_ROTATION_MS;
                    commands.push(Command::RotateShards { table: TableId(1) });
                }
                Step::Split(place, at) => commands.push(split(replica.table(), *place, *at)),
                Step::GoOn => commands.push(Command::StepSplits { table: TableId(1) }),
                Step::Restart => replica.machine = Machine::open(&replica.storage).unwrap(),
            }
        }
        log.push(entry(now, commands));
        let index = u64::try_from(log.len()).unwrap();
        replica.apply(index, log.last().unwrap());
    }
    (replica, log)
}

/// Replays the stream's records into a table, and checks each record against the previous image.
fn replay_stream(replica: &Replica) -> BTreeMap<PrimaryKey, Item> {
    let mut table = BTreeMap::new();
    let mut all: Vec<_> = replica.records().into_iter().flat_map(|(_, records)| records).collect();
    all.sort_by(|a, b| a.sequence_number.cmp(&b.sequence_number));
    for record in all {
        let key = schema().key_of_parameter(&record.keys).unwrap();
        let before = table.remove(&key);
        assert_eq!(before, record.old_image, "the old image equals the item before the write");
        assert_ne!(record.old_image, record.new_image, "the two images of a record differ");
        let expected = match (&record.old_image, &record.new_image) {
            (None, Some(_)) => EventName::Insert,
            (Some(_), Some(_)) => EventName::Modify,
            (Some(_), None) => EventName::Remove,
            (None, None) => panic!("a record without images"),
        };
        assert_eq!(record.event_name, expected);
        if let Some(new) = record.new_image {
            table.insert(key, new);
        }
    }
    table
}

/// Checks that the ranges cover the ring once, and that each partition's statistics are exact.
fn check_partitions(replica: &Replica, items: &BTreeMap<PrimaryKey, Item>) {
    let table = replica.table();
    let mut next = Some(0);
    for (place, partition) in table.partitions.iter().enumerate() {
        let range = table.token_range(place).unwrap();
        assert_eq!(Some(range.first.0), next, "no gap and no overlap");
        next = range.last.0.checked_add(1);
        let within =
            items.iter().filter(|(key, _)| range.first <= key.token() && key.token() <= range.last);
        let sizes: Vec<usize> = within.map(|(_, item)| item.size()).collect();
        let known = read_partition_statistics(&replica.storage, table, partition.number).unwrap();
        assert_eq!(known.items, sizes.len() as u64, "{partition:?}");
        assert_eq!(known.bytes, sizes.iter().sum::<usize>() as u64, "{partition:?}");
    }
    assert_eq!(next, None, "the last range ends the ring");
}

/// Checks that reading shards after their parents gives the records of each item in order. Also
/// checks that each open shard has one partition, and that records are within their shard's range.
fn check_lineage(replica: &Replica) {
    let table = replica.table();
    let shards: Vec<Shard> = table.shards().cloned().collect();
    let mut open: Vec<ShardNumber> =
        shards.iter().filter(|shard| shard.last.is_none()).map(|shard| shard.number).collect();
    let mut taking: Vec<ShardNumber> =
        table.partitions.iter().filter_map(|partition| partition.shard).collect();
    open.sort();
    taking.sort();
    assert_eq!(open, taking);
    let mut last_seen: BTreeMap<PrimaryKey, String> = BTreeMap::new();
    let mut read: Vec<String> = Vec::new();
    for (shard, (id, records)) in shards.iter().zip(replica.records()) {
        assert_eq!(shard.id, id);
        if let Some(parent) = &shard.parent {
            assert!(read.contains(parent), "parents precede their children");
            let parent = shards.iter().find(|shard| shard.id == *parent).unwrap();
            assert_eq!(parent.last, Some(shard.first));
        }
        let (first, last) = (shard.first.to_string(), shard.last.map(|last| last.to_string()));
        for record in records {
            let number = record.sequence_number.as_str().to_owned();
            assert!(first <= number && last.as_ref().is_none_or(|last| number <= *last));
            let key = schema().key_of_parameter(&record.keys).unwrap();
            let before = last_seen.insert(key, number.clone());
            assert!(before.is_none_or(|before| before < number), "order of one item");
        }
        read.push(id);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn histories_keep_every_invariant(steps in prop::collection::vec(prop::collection::vec(any_step(), 1..6), 1..20)) {
        let (replica, log) = run(&steps);
        let items: BTreeMap<_, _> = replica
            .items()
            .into_iter()
            .map(|item| (schema().key_of_item(&item).unwrap(), item))
            .collect();
        prop_assert_eq!(&replay_stream(&replica), &items);

        for (_, records) in replica.records() {
            prop_assert!(records.is_sorted_by(|a, b| a.sequence_number < b.sequence_number));
        }

        let statistics = read_statistics(&replica.storage, replica.table()).unwrap();
        let bytes: usize = items.values().map(Item::size).sum();
        prop_assert_eq!(statistics.items, items.len() as u64);
        prop_assert_eq!(statistics.bytes, bytes as u64);

        check_partitions(&replica, &items);
        check_lineage(&replica);

        let far = EpochMillis(START + 100 * STREAM_RETENTION_MS);
        let expiring = items.values().filter(|item| item.contains_key("ttl")).count();
        let found = find_expired(&replica.storage, replica.table(), far, 1000, None).unwrap();
        prop_assert_eq!((found.commands.len(), found.next_position), (expiring, None));

        // Replaying the log gives the same bytes, with the entries themselves or with entries
        // decoded from their payloads. Applying an entry twice changes nothing.
        let mut twin = Replica::new();
        for (index, entry) in (1u64..).zip(&log) {
            let decoded = decode_entry(&encode_entry(entry).unwrap()).unwrap();
            twin.apply(index, &decoded);
            twin.apply(index, entry);
        }
        prop_assert_eq!(&twin.storage.0, &replica.storage.0);

        // A state machine that takes over the batches of another replica has the same bytes, too.
        let (mut first, mut other) = (Replica::new(), Replica::new());
        for (index, entry) in (1u64..).zip(&log) {
            let (batch, _) = first.machine.apply(&first.storage, index, entry).unwrap();
            first.storage.apply(batch.clone());
            if other.machine.take_over(index, entry) {
                other.storage.apply(batch);
                prop_assert!(!other.machine.take_over(index, entry), "an entry is taken over twice");
            } else {
                other.apply(index, entry);
            }
            prop_assert_eq!(other.machine.now(), first.machine.now());
        }
        prop_assert_eq!(other.storage.0, replica.storage.0);
    }
}

#[test]
fn time_to_live_spares_extended_items_and_marks_its_deletes() {
    let (mut replica, log) = run(&[vec![Step::Put(1, 1, Some(0)), Step::Put(2, 1, Some(0))]]);
    let now = EpochMillis(START);
    let expired = find_expired(&replica.storage, replica.table(), now, 10, None).unwrap().commands;
    assert_eq!(expired.len(), 2);
    let next = u64::try_from(log.len()).unwrap() + 1;
    let extended = put(1, 1, Some(START / 1000 + 1000));
    let mut commands = vec![extended];
    commands.extend(expired.clone());
    commands.extend(expired);
    replica.apply(next, &entry(0, commands));
    assert_eq!(replica.items().len(), 1);
    let records: Vec<_> = replica.records().into_iter().flat_map(|(_, r)| r).collect();
    let removed: Vec<_> = records.iter().filter(|r| r.event_name == EventName::Remove).collect();
    assert_eq!(removed.len(), 1, "one record although the delete was sent twice");
    assert!(removed[0].is_time_to_live());
    assert_eq!(schema().key_of_parameter(&removed[0].keys), Ok(key(2)));
}

#[test]
fn enabling_time_to_live_indexes_existing_items() {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    let expired = START / 1000 - 5;
    let commands = (0..9).map(|number| put(number, 1, Some(expired))).collect();
    replica.apply(2, &entry(0, commands));
    let change = TimeToLiveChange::Enable("ttl".to_owned());
    let reply = replica.apply(
        3,
        &entry(0, vec![Command::UpdateTimeToLive { table: TableId(1), change: change.clone() }]),
    );
    assert!(matches!(reply[0], Reply::Table(_)));
    assert_eq!(replica.table().time_to_live.status(), "ENABLING");
    assert_eq!(find_time_to_live_work([replica.table()].into_iter()), [TableId(1)]);
    replica.apply(4, &entry(0, vec![Command::StepTimeToLive { table: TableId(1) }]));
    assert_eq!(replica.table().time_to_live.status(), "ENABLED");
    let found =
        find_expired(&replica.storage, replica.table(), EpochMillis(START), 100, None).unwrap();
    assert_eq!(found.commands.len(), 9);
    let again =
        replica.apply(5, &entry(0, vec![Command::UpdateTimeToLive { table: TableId(1), change }]));
    assert_eq!(again[0], Reply::Invalid("TimeToLive is already enabled".to_owned()));
    let disable = TimeToLiveChange::Disable("ttl".to_owned());
    replica.apply(
        6,
        &entry(0, vec![Command::UpdateTimeToLive { table: TableId(1), change: disable }]),
    );
    replica.apply(7, &entry(0, vec![Command::StepTimeToLive { table: TableId(1) }]));
    assert_eq!(replica.table().time_to_live, TimeToLive::Disabled);
    let left: Vec<_> = replica.storage.0.keys().filter(|key| key[0] == 5).collect();
    assert_eq!(left, Vec::<&Vec<u8>>::new());
}

#[test]
fn shards_rotate_with_lineage_and_are_trimmed_after_a_day() {
    let (mut replica, log) =
        run(&[vec![Step::Put(1, 1, None)], vec![Step::Rotate], vec![Step::Put(1, 2, None)]]);
    let shards: Vec<_> = replica.table().shards().cloned().collect();
    assert_eq!(shards.len(), 8);
    for child in &shards[4..] {
        let parent = shards.iter().find(|shard| Some(&shard.id) == child.parent.as_ref()).unwrap();
        assert!(parent.last.is_some() && child.last.is_none());
        assert_eq!(parent.last.unwrap(), child.first);
        assert!((28..=65).contains(&child.id.len()));
    }
    let count = |replica: &Replica| replica.records().iter().map(|(_, r)| r.len()).sum::<usize>();
    assert_eq!(count(&replica), 2);
    let later = SHARD_ROTATION_MS + STREAM_RETENTION_MS + 2000;
    let tables = [Table::clone(replica.table())];
    let due = find_due_trims(&replica.storage, tables.iter(), EpochMillis(START + later)).unwrap();
    assert_eq!(due, [TableId(1)]);
    let next = u64::try_from(log.len()).unwrap() + 1;
    replica.apply(next, &entry(later, vec![Command::TrimStreams { table: TableId(1) }]));
    assert_eq!(count(&replica), 0);
    assert_eq!(replica.table().shards().count(), 4, "only closed shards are removed");
}

#[test]
fn a_stream_that_is_enabled_again_is_another_stream() {
    let (mut replica, log) = run(&[vec![Step::Put(1, 1, None)]]);
    let next = u64::try_from(log.len()).unwrap() + 1;
    let update = |stream| {
        Command::UpdateTable(Box::new(UpdateTable {
            table: TableId(1),
            billing: None,
            deletion_protection: None,
            stream,
            indexes: Vec::new(),
            options: Vec::new(),
        }))
    };
    let enable = |label: &str| update(Some(Some((StreamViewType::KeysOnly, label.to_owned()))));
    let refused = replica.apply(next, &entry(0, vec![enable("label-2")]));
    assert!(matches!(&refused[0], Reply::Invalid(text) if text.contains("enabled stream")));
    replica.apply(
        next + 1,
        &entry(0, vec![update(Some(None)), put(2, 1, None), enable("label-2"), put(3, 1, None)]),
    );
    let table = replica.table();
    assert_eq!(
        table.streams.iter().map(|s| s.label.as_str()).collect::<Vec<_>>(),
        ["label-1", "label-2"]
    );
    assert!(table.stream("label-1").unwrap().shards.iter().all(|shard| shard.last.is_some()));
    let records: Vec<_> = replica.records().into_iter().flat_map(|(_, r)| r).collect();
    assert_eq!(records.len(), 2, "no stream contains the write between the two streams");
    assert!(
        records.iter().any(|r| r.view_type == StreamViewType::KeysOnly && r.new_image.is_none())
    );
}

#[test]
fn conditions_and_refusals_change_nothing() {
    let (mut replica, log) = run(&[vec![Step::Put(1, 1, None)]]);
    let before = replica.items();
    let next = u64::try_from(log.len()).unwrap() + 1;
    let condition = parse_condition(
        "attribute_not_exists(p)",
        ExpressionKind::Condition,
        &mut Placeholders::new(None, None).unwrap(),
    )
    .unwrap();
    let Command::Write(mut guarded) = put(1, 2, None) else { panic!("a write") };
    guarded.condition = Some(Box::new(condition));
    let text = key(1).to_item(&schema()).with("n", "text");
    let commands = vec![
        Command::Write(guarded),
        write(1, WriteAction::put(&text)),
        add(1, 1),
        Command::DeleteTable { table: TableId(9) },
        create(),
    ];
    let replies = replica.apply(next, &entry(0, commands));
    let bytes = before[0].size();
    assert_eq!(replies[0], Reply::ConditionFailed { item: before.first().cloned(), bytes });
    assert!(
        matches!(&replies[2], Reply::Invalid(text) if text.contains("incorrect data type")),
        "{:?}",
        replies[2]
    );
    assert_eq!(replies[3], Reply::TableNotFound);
    assert_eq!(replies[4], Reply::TableExists);
}

#[test]
fn a_deleted_table_leaves_nothing() {
    let (mut replica, log) = run(&[vec![Step::Put(1, 1, Some(5)), Step::Put(2, 1, None)]]);
    let next = u64::try_from(log.len()).unwrap() + 1;
    replica.apply(next, &entry(0, vec![Command::DeleteTable { table: TableId(1) }, create()]));
    assert_eq!(replica.table().id, TableId(2), "the new table has a new id");
    assert_eq!(replica.items(), Vec::<Item>::new());
    assert_eq!(find_deleted_table(&replica.storage), Ok(Some(TableId(1))));
    let reply = replica.apply(next + 1, &entry(0, vec![Command::PurgeTable { table: TableId(1) }]));
    assert_eq!(reply, [Reply::Done { more: false }]);
    assert_eq!(find_deleted_table(&replica.storage), Ok(None));
    let of_old = |key: &&Vec<u8>| key.len() > 8 && key[1..9] == 1u64.to_be_bytes();
    assert_eq!(replica.storage.0.keys().filter(of_old).count(), 0);
}

/// Goal: a replica of any arc can apply every throughput setting in a log, and all arcs have the
/// same partitions.
#[test]
fn a_table_with_any_throughput_can_be_created_and_adopted() {
    let units = 1_000_000_000_000;
    let billing = Billing::Provisioned { read_units: units, write_units: units };
    let Command::CreateTable(create) = create() else { panic!("not a CreateTable") };
    let create = CreateTable { billing, ..*create };
    let bytes = encode_entry(&entry(0, vec![Command::CreateTable(Box::new(create))])).unwrap();
    for arcs in [1, 3] {
        let created = decode_entry(&bytes).unwrap();
        let mut of_arcs: Vec<Table> = Vec::new();
        for arc in 0..arcs {
            let storage = MapStorage::default();
            let position = ArcPosition { arc: ArcId(arc), arcs };
            let mut machine = Machine::open_in(position, &storage).unwrap();
            let entry = match of_arcs.first() {
                None => created.clone(),
                Some(table) => {
                    let (table, placement) = (Box::new(table.definition()), &table.placement);
                    let placement = placement.clone();
                    entry(0, vec![Command::AdoptTable { table, placement }])
                }
            };
            let bytes = encode_entry(&entry).unwrap().len();
            assert!(bytes < 16 * 1024, "{bytes}: only the definition, without the arcs' shards");
            machine.apply(&storage, 1, &entry).unwrap();
            of_arcs.push(machine.catalogue().find("t").map(|table| Table::clone(table)).unwrap());
        }
        let partitions = || of_arcs.iter().flat_map(|table| &table.partitions);
        let firsts: BTreeSet<u64> = partitions().map(|partition| partition.first_token.0).collect();
        assert_eq!((partitions().count(), firsts.len()), (PARTITIONS_MAX, PARTITIONS_MAX));
    }
}

/// Goal: each new stream of a table has a label that sorts after the earlier labels. This holds for
/// any process that enables a stream, with any clock.
#[test]
fn labels_of_streams_grow_across_clocks() {
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![create()]));
    let change = |stream: Option<&str>| {
        let stream = stream.map(|label| (StreamViewType::KeysOnly, label.to_owned()));
        let nothing = UpdateTable::of_options(TableId(1), Vec::new());
        Command::UpdateTable(Box::new(UpdateTable { stream: Some(stream), ..nothing }))
    };
    for (index, label) in (2..).zip(["label-0", "label-1", "label-1", "label-2"]) {
        replica.apply(index, &entry(0, vec![change(None), change(Some(label))]));
    }
    let labels: Vec<&str> = replica.table().streams.iter().map(|s| s.label.as_str()).collect();
    assert_eq!(labels, ["label-1", "label-11", "label-111", "label-1111", "label-2"]);
    assert!(labels.is_sorted());
}
