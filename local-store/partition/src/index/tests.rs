//! Tests that compare indexes with their table. Each index equals the projection of the table after
//! any history. Histories contain restarts, replays, and indexes that are built and removed.
//!
//! The tests compute the expected entries from the documented rules, not with the code under test.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use expression::{Placeholders, SortCondition, parse_update};
use model::encoding::decode_item;
use model::{
    AttributeValue, EpochMillis, Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, Number,
    PrimaryKey,
};
use proptest::prelude::*;

use crate::storage::testing::MapStorage;
use crate::*;

const TABLE: TableId = TableId(1);

fn attribute(name: &str, attribute_type: KeyAttributeType) -> KeyAttribute {
    KeyAttribute { name: name.to_owned(), attribute_type }
}

fn schema() -> KeySchema {
    KeySchema {
        partition: attribute("p", KeyAttributeType::S),
        sort: Some(attribute("s", KeyAttributeType::N)),
    }
}

fn local() -> IndexDefinition {
    IndexDefinition {
        name: "local".to_owned(),
        kind: IndexKind::Local,
        key_schema: KeySchema {
            partition: attribute("p", KeyAttributeType::S),
            sort: Some(attribute("n", KeyAttributeType::N)),
        }
        .into(),
        projection: IndexProjection::Include(vec!["v".to_owned()]),
        throughput: None,
    }
}

fn global(name: &str) -> IndexDefinition {
    let (sort, projection) = match name {
        "all" => (Some(attribute("n", KeyAttributeType::N)), IndexProjection::All),
        _ => (None, IndexProjection::KeysOnly),
    };
    let partition = attribute("g", KeyAttributeType::S);
    IndexDefinition {
        name: name.to_owned(),
        kind: IndexKind::Global,
        key_schema: KeySchema { partition, sort }.into(),
        projection,
        throughput: None,
    }
}

fn key(number: u8) -> PrimaryKey {
    PrimaryKey {
        partition: KeyValue::S(format!("p{}", number / 3)),
        sort: Some(KeyValue::N(Number::from(u64::from(number % 3)))),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, g: Option<u8>, n: Option<u8>, v: u8 },
    Add(u8, u8),
    SetText(u8, u8),
    Delete(u8),
    Create(&'static str),
    Remove(&'static str),
    Build,
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let key = 0u8..9;
    let name = prop_oneof![Just("all"), Just("keys")];
    prop_oneof![
        6 => (key.clone(), prop::option::of(0u8..4), prop::option::of(0u8..4), 0u8..2)
            .prop_map(|(key, g, n, v)| Step::Put { key, g, n, v }),
        3 => (key.clone(), 0u8..3).prop_map(|(key, v)| Step::Add(key, v)),
        3 => (key.clone(), 0u8..4).prop_map(|(key, v)| Step::SetText(key, v)),
        2 => key.prop_map(Step::Delete),
        2 => name.clone().prop_map(Step::Create),
        1 => name.prop_map(Step::Remove),
        3 => Just(Step::Build),
        1 => Just(Step::Restart),
    ]
}

/// Returns a string, an empty string or a number. Only a non-empty string can be a key of the
/// index.
fn text(number: u8) -> AttributeValue {
    match number {
        0 => AttributeValue::N(Number::ZERO),
        1 => AttributeValue::S(String::new()),
        number => AttributeValue::S(format!("g\u{0}{number}")),
    }
}

fn write(number: u8, action: WriteAction) -> Command {
    Command::Write(Box::new(Write {
        table: TABLE,
        key: key(number),
        action,
        condition: None,
        return_old: false,
        return_new: true,
        return_on_failure: false,
    }))
}

fn update(number: u8, text: &str, value: AttributeValue) -> Command {
    let values = BTreeMap::from([(":v".to_owned(), value)]);
    let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
    write(number, WriteAction::Update(parse_update(text, &mut placeholders).unwrap()))
}

fn change(change: IndexChange) -> Command {
    Command::UpdateTable(Box::new(UpdateTable {
        table: TABLE,
        billing: None,
        deletion_protection: None,
        stream: None,
        indexes: vec![change],
        options: Vec::new(),
    }))
}

fn command(step: &Step) -> Option<Command> {
    Some(match step {
        Step::Put { key: number, g, n, v } => {
            let mut item = key(*number)
                .to_item(&schema())
                .with("v", Number::from(u64::from(*v)))
                .with("w", "w");
            if let Some(g) = g {
                item.insert("g".to_owned(), text(*g));
            }
            if let Some(n) = n {
                item.insert("n".to_owned(), AttributeValue::N(Number::from(u64::from(*n))));
            }
            write(*number, WriteAction::put(&item))
        }
        Step::Add(number, v) => {
            update(*number, "ADD n :v", AttributeValue::N(Number::from(u64::from(*v))))
        }
        Step::SetText(number, v) => update(*number, "SET g = :v", text(*v)),
        Step::Delete(number) => write(*number, WriteAction::Delete),
        Step::Create(name) => change(IndexChange::Create(global(name))),
        Step::Remove(name) => change(IndexChange::Delete((*name).to_owned())),
        Step::Build => Command::StepIndexes { table: TABLE },
        Step::Restart => return None,
    })
}

struct Replica {
    machine: Machine,
    storage: MapStorage,
    index: u64,
}

impl Replica {
    fn new() -> Self {
        let storage = MapStorage::default();
        let machine = Machine::open(&storage).unwrap();
        let mut replica = Self { machine, storage, index: 0 };
        replica.apply(vec![Command::CreateTable(Box::new(CreateTable {
            name: "t".into(),
            key_schema: schema(),
            billing: Billing::OnDemand,
            deletion_protection: false,
            stream: None,
            indexes: vec![local()],
            options: Vec::new(),
        }))]);
        replica
    }

    fn apply(&mut self, commands: Vec<Command>) -> Vec<Reply> {
        self.index += 1;
        let entry = Entry { now: EpochMillis(1_800_000_000_000), commands };
        let entry = decode_entry(&encode_entry(&entry).unwrap()).unwrap();
        let (batch, replies) = self.machine.apply(&self.storage, self.index, &entry).unwrap();
        self.storage.apply(batch);
        let (again, none) = self.machine.apply(&self.storage, self.index, &entry).unwrap();
        assert_eq!((again, none), (Batch::default(), Vec::new()), "a replay does nothing");
        replies
    }

    fn table(&self) -> &Table {
        self.machine.catalogue().find("t").unwrap()
    }

    fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        let range = ItemRange::Tokens(TokenRange::ALL);
        read_encoded_items(&self.storage, self.table(), &range, None, true, &mut |item| {
            items.push(decode_item(item).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        items
    }

    fn entries(&self, index: IndexNumber, range: &ItemRange, forward: bool) -> Vec<Item> {
        let mut items = Vec::new();
        let table = self.table();
        read_encoded_entries(&self.storage, table, index, range, None, forward, &mut |entry| {
            items.push(decode_item(entry).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        items
    }
}

/// The attributes that an index projects, and the condition for an item to have an entry.
type Rules<'r> = (&'r [&'r str], &'r dyn Fn(&Item) -> bool);

/// Returns the entries that an index must have: one for each item whose index keys have the right
/// type and are not empty.
fn expected(definition: &IndexDefinition, items: &[Item]) -> Vec<Item> {
    let is_text =
        |item: &Item| matches!(item.get("g"), Some(AttributeValue::S(t)) if !t.is_empty());
    let has_number = |item: &Item| item.contains_key("n");
    let (kept, is_indexed): Rules<'_> = match definition.name.as_str() {
        "local" => (&["p", "s", "n", "v"], &has_number),
        "all" => {
            (&["p", "s", "g", "n", "v", "w"], &|item: &Item| is_text(item) && has_number(item))
        }
        _ => (&["p", "s", "g"], &is_text),
    };
    let project = |item: &Item| {
        let mut item = item.clone();
        item.retain(|name, _| kept.contains(&name.as_str()));
        item
    };
    items.iter().filter(|item| is_indexed(item)).map(project).collect()
}

fn sorted(mut items: Vec<Item>) -> Vec<String> {
    items.sort_by_key(|item| format!("{item:?}"));
    items.iter().map(|item| format!("{item:?}")).collect()
}

fn check(replica: &Replica) {
    let items = replica.items();
    for index in &replica.table().indexes {
        let everything = ItemRange::Tokens(TokenRange::ALL);
        let entries = replica.entries(index.number, &everything, true);
        let statistics =
            read_index_statistics(&replica.storage, replica.table(), index.number).unwrap();
        let must = sorted(expected(&index.definition, &items));
        match index.status {
            IndexStatus::Active => assert_eq!(sorted(entries.clone()), must, "{index:?}"),
            // An unfinished index may lack entries, but its existing entries are right.
            IndexStatus::Creating { .. } | IndexStatus::Delivering { .. } => {
                assert!(
                    sorted(entries.clone()).iter().all(|entry| must.contains(entry)),
                    "{index:?}"
                );
            }
            IndexStatus::Deleting => continue,
        }
        assert_eq!(statistics.items, entries.len() as u64);
        assert_eq!(statistics.bytes, entries.iter().map(Item::size).sum::<usize>() as u64);
        let backwards: Vec<Item> =
            replica.entries(index.number, &everything, false).into_iter().rev().collect();
        assert_eq!(backwards, entries);
    }
    check_collections(replica, &items);
}

/// Checks that each item collection is as large as its items and their entries in local indexes.
fn check_collections(replica: &Replica, items: &[Item]) {
    let mut collections: BTreeMap<KeyValue, u64> = BTreeMap::new();
    let mut add = |item: &Item| {
        let partition = KeyValue::from_attribute_value(&item[&schema().partition.name]).unwrap();
        *collections.entry(partition).or_default() += item.size() as u64;
    };
    items.iter().for_each(&mut add);
    for index in replica.table().indexes_of(IndexKind::Local) {
        let everything = ItemRange::Tokens(TokenRange::ALL);
        replica.entries(index.number, &everything, true).iter().for_each(&mut add);
    }
    let is_collection = |key: &&Vec<u8>| key[0] == 20;
    assert_eq!(replica.storage.0.keys().filter(is_collection).count(), collections.len());
    for (partition, bytes) in collections {
        let known = keys::item_collection::read(&replica.storage, TABLE, &partition);
        assert_eq!(known, Ok(bytes), "{partition:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn indexes_equal_the_projection_of_the_table(steps in prop::collection::vec(prop::collection::vec(any_step(), 1..5), 1..30)) {
        let mut replica = Replica::new();
        for group in &steps {
            let commands: Vec<Command> = group.iter().filter_map(command).collect();
            for reply in replica.apply(commands) {
                prop_assert!(!matches!(reply, Reply::TableNotFound | Reply::TableExists));
            }
            if group.iter().any(|step| matches!(step, Step::Restart)) {
                replica.machine = Machine::open(&replica.storage).unwrap();
            }
            check(&replica);
        }
        while replica.apply(vec![Command::StepIndexes { table: TABLE }]) == [Reply::Done { more: true }] {
            check(&replica);
        }
        check(&replica);
        prop_assert_eq!(find_index_work([replica.table()].into_iter()), Vec::new());
        let kept: Vec<IndexNumber> = replica.table().indexes.iter().map(|i| i.number).collect();
        let is_entry = |key: &&Vec<u8>| matches!(key[0], 8 | 9);
        for key in replica.storage.0.keys().filter(is_entry) {
            let number = IndexNumber(u32::from_be_bytes(key[9..13].try_into().unwrap()));
            prop_assert!(kept.contains(&number), "index {number:?} left {key:?}");
        }
        replica.apply(vec![Command::DeleteTable { table: TABLE }, Command::PurgeTable { table: TABLE }]);
        prop_assert_eq!(replica.storage.0.keys().filter(|key| key[0] != 1).count(), 0);
    }

    #[test]
    fn ranges_of_an_index_are_those_of_its_condition(
        values in prop::collection::vec((0u8..9, -3i64..4), 0..20),
        low in -3i64..4,
        high in -3i64..4,
    ) {
        let mut replica = Replica::new();
        for (number, n) in values {
            let item = key(number).to_item(&schema()).with("n", Number::from(n));
            replica.apply(vec![write(number, WriteAction::put(&item))]);
        }
        let number = |n: i64| KeyValue::N(Number::from(n));
        for condition in [
            SortCondition::Equal(number(low)),
            SortCondition::Less(number(low)),
            SortCondition::LessOrEqual(number(low)),
            SortCondition::Greater(number(low)),
            SortCondition::GreaterOrEqual(number(low)),
            SortCondition::Between(number(low), number(high)),
        ] {
            let partition = KeyValue::S("p1".to_owned());
            let all = ItemRange::Collection { partition: partition.clone(), sort: None };
            let range = ItemRange::Collection { partition, sort: Some(condition.clone()) };
            let matches = |item: &Item| {
                condition.matches(&KeyValue::from_attribute_value(&item["n"]).unwrap())
            };
            let mut all = replica.entries(IndexNumber(0), &all, true);
            prop_assert!(all.is_sorted_by_key(|item| KeyValue::from_attribute_value(&item["n"])));
            all.retain(matches);
            prop_assert_eq!(replica.entries(IndexNumber(0), &range, true), all);
        }
    }
}

#[test]
fn values_that_cannot_be_keys_are_refused_in_the_words_of_the_service() {
    let mut replica = Replica::new();
    replica.apply(vec![change(IndexChange::Create(global("all")))]);
    let put = |name: &str, value: AttributeValue| {
        write(1, WriteAction::put(&key(1).to_item(&schema()).with(name, value)))
    };
    let text = |length: usize| AttributeValue::S("x".repeat(length));
    for (command, refusal) in [
        (
            put("g", AttributeValue::N(Number::ZERO)),
            "One or more parameter values were invalid: Type mismatch for Index Key g Expected: S Actual: N IndexName: all",
        ),
        (
            put("g", text(2049)),
            "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes",
        ),
        (
            put("n", text(1)),
            "One or more parameter values were invalid: Type mismatch for Index Key n Expected: N Actual: S IndexName: all",
        ),
        (
            update(1, "SET g = :v", AttributeValue::Bool(true)),
            "One or more parameter values were invalid: Type mismatch for Index Key g Expected: S Actual: BOOL IndexName: all",
        ),
        (
            update(1, "SET g = if_not_exists(g, :v)", AttributeValue::Bool(true)),
            "The update expression attempted to update the secondary index key to unsupported type",
        ),
        (
            update(1, "SET g = :v", text(2049)),
            "The update expression attempted to update the secondary index key beyond allowed size limits",
        ),
    ] {
        assert_eq!(replica.apply(vec![command]), [Reply::Invalid(refusal.to_owned())]);
    }
    for (command, refusal) in [
        (
            put("g", text(0)),
            "One or more parameter values are not valid. A value specified for a secondary index key is not supported. The AttributeValue for a key attribute cannot contain an empty string value. IndexName: all, IndexKey: g",
        ),
        (
            update(1, "SET g = :v", text(0)),
            "One or more parameter values are not valid. The update expression attempted to update a secondary index key to a value that is not supported. The AttributeValue for a key attribute cannot contain an empty string value.",
        ),
    ] {
        assert_eq!(replica.apply(vec![command]), [Reply::EmptyIndexKey(refusal.to_owned())]);
    }
    assert_eq!(replica.items(), Vec::<Item>::new());
}

#[test]
fn a_moved_entry_is_two_writes_and_a_changed_one_is_one() {
    let mut replica = Replica::new();
    let item = |n: u64, v: u64, w: &str| {
        let item = key(1).to_item(&schema()).with("n", Number::from(n));
        write(1, WriteAction::put(&item.with("v", Number::from(v)).with("w", w)))
    };
    let counts =
        [(item(1, 1, "a"), 1), (item(1, 2, "a"), 1), (item(1, 2, "b"), 0), (item(2, 2, "b"), 2)];
    for (command, count) in counts {
        let replies = replica.apply(vec![command]);
        assert!(
            matches!(&replies[..], [Reply::Written(w)] if w.index_writes.len() == count),
            "{replies:?}"
        );
    }
}
