//! The convergence property of all rules. The records of a history may be repeated, reordered and
//! batched in any way, or delivered by Weir's event source mapping with faults. The final tables
//! are the same as if each record were applied once, in order.
//!
//! The batches are applied to small tables in memory. The processor has its own tests.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic"
)]
#![expect(clippy::disallowed_methods, reason = "the environment sets the number of histories")]

mod copies;
mod event_source;
mod expiry;
mod migration;

use std::collections::{BTreeMap, BTreeSet};

use model::json::item_from_str;
use model::stream_record::LambdaRecord;
use model::{AttributeValue, EventName, Item, Number, StreamRecord, StreamViewType, UserIdentity};
use proptest::prelude::*;
use proptest::sample::Index;
use rules::archive::{Archive, Bucket, Rows, parse_columns};
use rules::counters::reconcile;
use rules::counters::{Cells, Counters, Total};
use rules::migration::Target;
use rules::versions::{
    Changes, Head, Retention, Version, VersionEvent, Versions, Write, missing, plan,
};
use rules::{Fold, Found, Join, Rule, fold};

const SLOT_COUNT: u32 = 4;
const LABELS: [&str; 2] = ["2026-11-21T02:30:00.000", "2026-11-21T09:00:00.000"];

/// The tables that the rules write.
#[derive(Debug, Default)]
struct Tables {
    totals: BTreeMap<String, Item>,
    archive: BTreeMap<Bucket, Rows>,
    histories: BTreeMap<String, History>,
    targets: BTreeMap<Target, Item>,
}

/// A history of one item.
#[derive(Clone, Debug, Default, PartialEq)]
struct History {
    head: Option<Head>,
    versions: BTreeMap<u64, Version>,
}

impl History {
    fn add(&mut self, changes: &Changes) {
        let tail: Vec<Version> = self.versions.values().cloned().collect();
        let needed = self.head.as_ref().is_some_and(|head| head.needs_tail(changes));
        let tail = if needed { tail } else { Vec::new() };
        let missing = missing(self.head.as_ref(), &tail, changes);
        if missing.is_empty() {
            return;
        }
        let plan = plan(self.head.as_ref(), &tail, &missing, Retention::default()).unwrap();
        for write in plan.writes {
            match write {
                Write::Put(version) => {
                    self.versions.insert(version.number, version);
                }
                Write::Delete(number) => {
                    self.versions.remove(&number);
                }
                Write::Expire { .. } => unreachable!("everything is kept"),
            }
        }
        self.head = Some(plan.head);
    }
}

/// Returns the folded decisions of a rule about a batch.
fn decide<R: Rule>(
    rule: &R,
    found: &Found<R::Input>,
    batch: &[&LambdaRecord],
) -> <R::Effect as Fold>::Folded {
    fold(batch.iter().flat_map(|record| rule.decide(record, found).unwrap()).enumerate())
}

/// A rule, and how its effects are applied to the tables.
trait Applied {
    fn apply(&self, tables: &mut Tables, batch: &[&LambdaRecord]);
}

impl Applied for Counters {
    fn apply(&self, tables: &mut Tables, batch: &[&LambdaRecord]) {
        let inputs = self.needs(batch).into_iter().filter_map(|counter| {
            let total = Total::from_item(tables.totals.get(&counter)?);
            Some((counter, total))
        });
        let found = Found { inputs: inputs.collect(), ..Found::default() };
        for (counter, joined) in decide(self, &found, batch) {
            tables.join_cells(&counter, &joined.value);
        }
    }
}

impl Applied for Archive {
    fn apply(&self, tables: &mut Tables, batch: &[&LambdaRecord]) {
        for (bucket, joined) in decide(self, &Found::default(), batch) {
            tables.archive.entry(bucket).or_default().join(joined.value);
        }
    }
}

impl Applied for Versions {
    fn apply(&self, tables: &mut Tables, batch: &[&LambdaRecord]) {
        for (item, joined) in decide(self, &Found::default(), batch) {
            tables.histories.entry(item).or_default().add(&joined.value);
        }
    }
}

impl Tables {
    fn join_registers(&mut self, folded: rules::migration::Folded) {
        for (target, joined) in folded.registers {
            migration::join(&mut self.targets, target, &joined.value);
        }
    }

    fn total(&self, counter: &str) -> Total {
        self.totals.get(counter).map_or_else(Total::default, |item| Total::from_item(item).unwrap())
    }

    fn join_cells(&mut self, counter: &str, cells: &Cells) {
        if let Some(joined) = self.total(counter).joined(cells) {
            self.totals.insert(counter.to_owned(), joined.to_item("counter", counter));
        }
    }

    /// Returns the data that must be equal in all runs. Excludes the number of writes of a total or
    /// a history.
    fn contents(&self) -> Contents {
        let (mut totals, mut histories) = (self.totals.clone(), self.histories.clone());
        totals.values_mut().for_each(|item| {
            item.remove("revision");
        });
        for head in histories.values_mut().filter_map(|history| history.head.as_mut()) {
            head.revision = 1;
        }
        (totals, self.archive.clone(), histories, self.targets.clone())
    }
}

type Contents = (
    BTreeMap<String, Item>,
    BTreeMap<Bucket, Rows>,
    BTreeMap<String, History>,
    BTreeMap<Target, Item>,
);

/// A change in a table of slots, or in a table of items that expire.
#[derive(Clone, Debug)]
enum Change {
    Put { key: u8, value: i8 },
    Delete { key: u8 },
    Expire { key: u8 },
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => (0..8_u8, any::<i8>()).prop_map(|(key, value)| Change::Put { key, value }),
        1 => (0..8_u8).prop_map(|key| Change::Delete { key }),
        1 => (0..8_u8).prop_map(|key| Change::Expire { key }),
    ];
    prop::collection::vec(change, 1..40)
}

/// Returns a key as a string. Keys 0 to 7 are the slots of two counters.
fn key_text(key: u8) -> String {
    Counters::slot_key_text(["A", "B#b"][usize::from(key) / 4], u32::from(key) % SLOT_COUNT)
}

/// Returns the table after all changes, and its stream. Halfway, the stream is disabled and enabled
/// again. It then has another label and new sequence numbers.
fn history(changes: &[Change]) -> (BTreeMap<u8, i8>, Vec<LambdaRecord>) {
    let (mut table, mut records) = (BTreeMap::new(), Vec::new());
    for (position, change) in changes.iter().enumerate() {
        let (key, after, by_ttl) = match change {
            Change::Put { key, value } => (*key, Some(*value), false),
            Change::Delete { key } => (*key, None, false),
            Change::Expire { key } => (*key, None, true),
        };
        let before = match after {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
        if before == after {
            continue;
        }
        let half = changes.len() / 2;
        let (label, sequence) = if position < half { (0, position) } else { (1, position - half) };
        records.push(record(key, before, after, by_ttl, LABELS[label], sequence));
    }
    (table, records)
}

fn record(
    key: u8,
    before: Option<i8>,
    after: Option<i8>,
    by_ttl: bool,
    label: &str,
    sequence: usize,
) -> LambdaRecord {
    let keys = item_from_str(&format!(r#"{{"slot":{{"S":"{}"}}}}"#, key_text(key))).unwrap();
    let image = |value: Option<i8>| {
        let mut item = keys.clone();
        item.insert("votes".to_owned(), AttributeValue::N(Number::from(i64::from(value?))));
        Some(item)
    };
    LambdaRecord {
        record: StreamRecord {
            event_id: format!("{label}{sequence:032}"),
            event_name: match (before, after) {
                (None, _) => EventName::Insert,
                (_, None) => EventName::Remove,
                _ => EventName::Modify,
            },
            user_identity: by_ttl.then(UserIdentity::time_to_live),
            // Some records have the same second, and many have the same minute.
            approximate_creation_seconds: Some(1_795_228_140 + sequence as u64 * 7),
            old_image: image(before),
            new_image: image(after),
            keys: keys.clone(),
            sequence_number: format!("{}", sequence + 7).parse().unwrap(),
            size_bytes: 1,
            view_type: StreamViewType::NewAndOldImages,
        },
        event_source_arn: format!(
            "arn:aws:dynamodb:us-east-1:000000000000:table/slots/stream/{label}"
        ),
    }
}

/// The deliveries of the records: each record at least once, and some records again.
#[derive(Clone, Debug)]
enum Deliveries {
    /// Delivered in any order and any batches.
    AnyOrder { again: Vec<Index>, order: Vec<Index>, sizes: Vec<usize> },
    /// Delivered by Weir's event source mapping, with the faults of a seed.
    Mapping { seed: u64 },
}

fn deliveries() -> impl Strategy<Value = Deliveries> {
    let any_order = (
        prop::collection::vec(any::<Index>(), 0..30),
        prop::collection::vec(any::<Index>(), 80),
        prop::collection::vec(1..9_usize, 1..40),
    );
    prop_oneof![
        any_order.prop_map(|(again, order, sizes)| Deliveries::AnyOrder { again, order, sizes }),
        any::<u64>().prop_map(|seed| Deliveries::Mapping { seed }),
    ]
}

fn deliver<'r>(records: &'r [LambdaRecord], deliveries: &Deliveries) -> Vec<Vec<&'r LambdaRecord>> {
    let (again, order, sizes) = match deliveries {
        Deliveries::AnyOrder { again, order, sizes } => (again, order, sizes),
        Deliveries::Mapping { seed } => return event_source::deliver(*seed, records).0,
    };
    let mut all: Vec<&LambdaRecord> = records.iter().collect();
    if !records.is_empty() {
        all.extend(again.iter().map(|index| index.get(records)));
    }
    for (position, index) in order.iter().enumerate().take(all.len()) {
        let other = index.index(all.len());
        all.swap(position, other);
    }
    let mut sizes = sizes.iter().copied().cycle();
    let mut batches = Vec::new();
    while !all.is_empty() {
        let rest = all.split_off(sizes.next().unwrap().min(all.len()));
        batches.push(std::mem::replace(&mut all, rest));
    }
    batches
}

fn counters() -> Counters {
    Counters { slot_count: SLOT_COUNT, slot_key: "slot".to_owned(), slot_value: "votes".to_owned() }
}

fn archive() -> Archive {
    let columns = parse_columns("votes:bigint").unwrap().into();
    Archive { columns, discover: true, ..Archive::default() }
}

fn versions() -> Versions {
    Versions { table: "slots".to_owned() }
}

/// Checks that each history contains the changes of its item, in order, and ends with the current
/// item.
fn check_histories(tables: &Tables, records: &[LambdaRecord]) {
    let mut expected: BTreeMap<String, Vec<&StreamRecord>> = BTreeMap::new();
    for record in records {
        let key = rules::versions::history_key(&record.record.keys);
        expected.entry(key).or_default().push(&record.record);
    }
    assert!(tables.histories.keys().eq(expected.keys()));
    for (item, records) in expected {
        let history = &tables.histories[&item];
        let versions: Vec<&Version> = history.versions.values().collect();
        let numbers: Vec<u64> = versions.iter().map(|version| version.number).collect();
        assert_eq!(numbers, (1..=records.len() as u64).collect::<Vec<_>>(), "{item}");
        for (version, record) in versions.iter().zip(&records) {
            assert_eq!(version.event, VersionEvent::of_record(record.event_name), "{item}");
            assert_eq!(version.image, record.new_image, "{item}");
            assert_eq!(version.event_id, record.event_id, "{item}");
            assert_eq!(version.by_ttl, record.user_identity.is_some(), "{item}");
        }
        for (before, version) in versions.iter().zip(versions.iter().skip(1)) {
            let before = before.image.as_ref().map(rules::versions::fingerprint);
            assert!(version.is_next_to(before), "{item}: {version:?}");
        }
        assert_eq!(history.head.as_ref().unwrap().latest, records.len() as u64, "{item}");
    }
}

fn sums(table: &BTreeMap<u8, i8>) -> BTreeMap<String, Number> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for (key, value) in table {
        let text = key_text(*key);
        let counter = text.rsplit_once('#').unwrap().0;
        *sums.entry(counter.to_owned()).or_default() += i64::from(*value);
    }
    sums.into_iter().map(|(counter, sum)| (counter, Number::from(sum))).collect()
}

fn check_totals(tables: &Tables, table: &BTreeMap<u8, i8>) {
    let expected = sums(table);
    for counter in tables.totals.keys().chain(expected.keys()) {
        let expected = expected.get(counter).copied().unwrap_or(Number::ZERO);
        let total = tables.totals.get(counter).and_then(|item| item.get("total").cloned());
        assert_eq!(total, Some(AttributeValue::N(expected)), "{counter}");
    }
}

/// Returns the number of histories that test each property. `HISTORIES=10000` sets it.
fn cases() -> u32 {
    std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(512)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn tables_converge(
        changes in changes(),
        first in deliveries(),
        second in deliveries(),
        // The change after which the backfill reads the slots, and the batch before which its
        // effects are applied.
        read in any::<Index>(),
        said in any::<Index>(),
    ) {
        let (table, records) = history(&changes);
        let migration = migration::migration();
        let rules: [&dyn Applied; 4] = [&counters(), &archive(), &versions(), &migration];
        let mut in_order = Tables::default();
        let mut delivered = Tables::default();
        for rule in rules {
            for record in &records {
                rule.apply(&mut in_order, &[record]);
            }
        }
        let mut batches = deliver(&records, &first);
        let after = batches.split_off(said.index(batches.len() + 1));
        let deliver_all = |batches: Vec<Vec<&LambdaRecord>>, tables: &mut Tables| {
            for batch in batches {
                rules.iter().for_each(|rule| rule.apply(tables, &batch));
            }
        };
        deliver_all(batches, &mut delivered);
        let effects = migration::read(&migration, &changes, read.index(changes.len() + 1));
        delivered.join_registers(fold(effects.into_iter().enumerate()));
        deliver_all(after, &mut delivered);
        prop_assert_eq!(delivered.contents(), in_order.contents());

        // A second delivery changes nothing, not even the number of writes.
        let (totals, histories) = (delivered.totals.clone(), delivered.histories.clone());
        for rule in rules {
            for batch in deliver(&records, &second) {
                rule.apply(&mut delivered, &batch);
            }
        }
        prop_assert_eq!(&delivered.totals, &totals);
        prop_assert_eq!(&delivered.histories, &histories);
        prop_assert_eq!(delivered.contents(), in_order.contents());

        // The final tables equal a result that is computed without any rule.
        check_totals(&delivered, &table);
        check_histories(&delivered, &records);
        migration::check(&migration, &delivered.targets, &table);
        let expired = records.iter().filter(|r| r.record.user_identity.is_some());
        let expired: BTreeSet<&str> = expired.map(|r| r.record.event_id.as_str()).collect();
        let rows: Vec<&str> = delivered.archive.values().flat_map(Rows::event_ids).collect();
        prop_assert_eq!(rows.len(), expired.len());
        prop_assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), expired);
    }

    /// Goal: every total is correct after a last reconciliation, and late records do not change it.
    /// Before this reconciliation, the reconciler reads the slots at any moment between changes and
    /// deliveries. Some records are late and some are lost.
    #[test]
    fn reconciled_totals_converge(
        changes in changes(),
        steps in prop::collection::vec((0..4_u8, any::<Index>()), 0..60),
        late in deliveries(),
    ) {
        let rule = counters();
        let mut tables = Tables::default();
        let mut done = 0;
        for (step, index) in &steps {
            let (table, records) = history_of_first(&changes, done);
            match step {
                0 => done = (done + 1).min(changes.len()),
                1 if !records.is_empty() => rule.apply(&mut tables, &[index.get(&records)]),
                2 => done = (done + index.index(9)).min(changes.len()),
                _ => reconcile_all(&mut tables, &table),
            }
        }
        let (table, records) = history(&changes);
        reconcile_all(&mut tables, &table);
        check_totals(&tables, &table);

        // These deliveries contain the last record of each slot.
        for batch in deliver(&records, &late) {
            rule.apply(&mut tables, &batch);
        }
        check_totals(&tables, &table);
    }
}

/// Returns the table and the stream after the first `count` changes.
fn history_of_first(changes: &[Change], count: usize) -> (BTreeMap<u8, i8>, Vec<LambdaRecord>) {
    let (_, all) = history(changes);
    let (table, some) = history(&changes[..count]);
    // The labels of the stream depend on the length of the entire history.
    (table, all.into_iter().take(some.len()).collect())
}

fn reconcile_all(tables: &mut Tables, table: &BTreeMap<u8, i8>) {
    for (number, counter) in ["A", "B#b"].into_iter().enumerate() {
        let total = tables.total(counter);
        let slots = reconcile::slots_needed(&total, SLOT_COUNT)
            .into_iter()
            .filter_map(|slot| {
                let key = u8::try_from(slot).unwrap() + u8::try_from(number).unwrap() * 4;
                Some((slot, Number::from(i64::from(*table.get(&key)?))))
            })
            .collect();
        let cells = reconcile::decide(&total, &slots, &BTreeSet::new(), 1_795_228_199);
        tables.join_cells(counter, &cells);
    }
}
