//! The safety property of a migration: the final targets are the transform of the source. It holds
//! for all writes during the migration, for all times at which the backfill reads items, and for
//! repeated, reordered and late deliveries.

use std::cell::RefCell;
use std::collections::BTreeMap;

use model::json::item_from_str;
use model::stream_record::LambdaRecord;
use model::{EventName, KeyAttribute, KeyAttributeType, StreamRecord, StreamViewType};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::effect::Join as _;

/// A version of a source item. It determines the item's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    owner: u8,
    value: u8,
}

const KEYS: u8 = 4;

thread_local! {
    // The compilation of jq takes longer than a hundred histories, so it is done once.
    static MIGRATION: RefCell<Migration> = RefCell::new(migration());
}

fn schema(name: &str) -> KeySchema {
    KeySchema {
        partition: KeyAttribute { name: name.to_owned(), attribute_type: KeyAttributeType::S },
        sort: None,
    }
}

fn migration() -> Migration {
    let key = |template: &str| BTreeMap::from([("pk".to_owned(), template.to_owned())]);
    let output = |transform: &str, template: &str| plan::Output {
        to: "target".to_owned(),
        transform: transform.to_owned(),
        key: key(template),
    };
    let plan = Plan {
        migration: "m".to_owned(),
        kind: Kind::Restructure,
        from: vec![plan::Source {
            table: "source".to_owned(),
            items: vec![
                output("{id, owner, value}", "{owner}#{id}"),
                // This output makes more or fewer parts, depending on the value.
                output(
                    ".value as $value | (1, 2, 3) | select(. < $value) | {part: .}",
                    "part#{part}",
                ),
                // Two source items with the same owner collide in this output.
                output("select(.value < 3) | {owner, of: .id}", "owner#{owner}"),
            ],
            split: None,
            archive: false,
        }],
        inverse: Vec::new(),
        backfill: plan::Backfill::Scan,
        segments: 1,
        gate_seconds: 1,
        settle_seconds: 5,
        function_seconds: plan::FUNCTION_SECONDS,
        route: None,
    };
    let schemas = [("source".to_owned(), schema("id")), ("target".to_owned(), schema("pk"))].into();
    Migration::compile(&plan, Direction::Forward, &schemas).unwrap()
}

fn item(key: u8, version: Version) -> Item {
    let Version { owner, value } = version;
    item_from_str(&format!(
        r#"{{"id":{{"S":"i{key}"}},"owner":{{"S":"o{owner}"}},"value":{{"N":"{value}"}}}}"#
    ))
    .unwrap()
}

fn record(key: u8, before: Option<Version>, after: Option<Version>, place: usize) -> LambdaRecord {
    let label = "2026-11-21T02:30:00.000";
    LambdaRecord {
        record: StreamRecord {
            event_id: format!("{place:032}"),
            event_name: match (before, after) {
                (None, _) => EventName::Insert,
                (_, None) => EventName::Remove,
                _ => EventName::Modify,
            },
            user_identity: None,
            // Each change has its own second, so that a fence can be between any two changes.
            approximate_creation_seconds: Some(place as u64 + 1),
            keys: item_from_str(&format!(r#"{{"id":{{"S":"i{key}"}}}}"#)).unwrap(),
            old_image: before.map(|version| item(key, version)),
            new_image: after.map(|version| item(key, version)),
            sequence_number: (place + 7).to_string().parse().unwrap(),
            size_bytes: 1,
            view_type: StreamViewType::NewAndOldImages,
        },
        event_source_arn: format!(
            "arn:aws:dynamodb:us-east-1:000000000000:table/source/stream/{label}"
        ),
    }
}

/// Returns the record of a touch of an item, between the change `place` and the previous change.
fn touch(key: u8, version: Version, place: usize) -> LambdaRecord {
    let mut touched = record(key, Some(version), Some(version), place);
    // The sequence numbers of changes differ by a thousand, see `apart`.
    touched.record.sequence_number =
        (place * 1_000 + 500 + usize::from(key)).to_string().parse().unwrap();
    touched.record.approximate_creation_seconds = Some(place as u64 + 1);
    let image = touched.record.new_image.take().unwrap();
    touched.record.new_image = Some(image.with(TOUCH, "m"));
    touched
}

/// Returns a record whose sequence number leaves room for touches before it.
fn apart(mut record: LambdaRecord, place: usize) -> LambdaRecord {
    record.record.sequence_number = (place * 1_000 + 999).to_string().parse().unwrap();
    record
}

/// The target items, written as the executor writes them: with their `Registers` in the mark.
#[derive(Default)]
struct Targets(BTreeMap<Target, Item>);

impl Targets {
    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Registers { target, registers } = effect else { panic!("{effect:?}") };
            let known = self.0.get(&target).map(|item| Registers::from_item(item).unwrap());
            if let Some(joined) = known.unwrap_or_default().joined(&registers) {
                let key = target.key.to_item(&schema("pk"));
                self.0.insert(target, joined.to_item(&key));
            }
        }
    }

    fn visible(&self) -> BTreeMap<Target, Item> {
        let seen = |item: &Item| visible(item, &schema("pk"));
        self.0.iter().filter_map(|(target, item)| Some((target.clone(), seen(item)?))).collect()
    }
}

/// Returns the expected targets, computed without registers. Each target has the item of the first
/// source that has the target.
fn truth(table: &BTreeMap<u8, Version>) -> BTreeMap<Target, Item> {
    let mut expected: BTreeMap<Target, Item> = BTreeMap::new();
    for (key, version) in table {
        let item = item(*key, *version);
        for (target, made) in MIGRATION.with_borrow(|m| m.outputs("source", &item)).unwrap() {
            expected.entry(target).or_insert(made);
        }
    }
    expected
}

fn changes() -> impl Strategy<Value = Vec<(u8, Option<Version>)>> {
    let version = prop::option::weighted(0.8, (0..3_u8, 0..5_u8))
        .prop_map(|version| version.map(|(owner, value)| Version { owner, value }));
    prop::collection::vec((0..KEYS, version), 1..24)
}

/// Checks that nothing changes if the statements are folded first, or applied again.
fn repeat_changes_nothing(targets: &Targets, statements: Vec<Vec<Effect>>) -> Result<(), String> {
    let (target, stands) = targets.0.first_key_value().unwrap();
    let mut folded = Registers::default();
    for effect in statements.into_iter().flatten() {
        if let Effect::Registers { target: of, registers } = effect
            && of == *target
        {
            folded.join(registers);
        }
    }
    let stands = Registers::from_item(stands).unwrap();
    if stands == folded { Ok(()) } else { Err(format!("{stands:?} is not {folded:?}")) }
}

/// The tables after each change, and the records of the changes.
type History = (Vec<BTreeMap<u8, Version>>, Vec<(usize, LambdaRecord)>);

fn history(changes: &[(u8, Option<Version>)]) -> History {
    // `tables[n]` is the source after *n* changes.
    let mut tables = vec![BTreeMap::<u8, Version>::new()];
    let mut records = Vec::new();
    for (place, (key, after)) in changes.iter().enumerate() {
        let mut table = tables.last().unwrap().clone();
        let before = match after {
            Some(version) => table.insert(*key, *version),
            None => table.remove(key),
        };
        if before != *after {
            records.push((place, record(*key, before, *after, place)));
        }
        tables.push(table);
    }
    (tables, records)
}

/// Repeats some statements and reorders all of them.
fn deliver_again(statements: &mut Vec<Vec<Effect>>, again: &[Index], order: &[Index]) {
    let repeated: Vec<_> = again.iter().map(|index| index.get(statements).clone()).collect();
    statements.extend(repeated);
    for (place, index) in order.iter().enumerate().take(statements.len()) {
        let other = index.index(statements.len());
        statements.swap(place, other);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn targets_are_the_transform_of_the_source(
        changes in changes(),
        start in any::<Index>(),
        head in any::<Index>(),
        fence in any::<Index>(),
        // Records from before the start, which are delivered again.
        late in prop::collection::vec(any::<Index>(), 0..4),
        // The times at which the backfill reads each key, once or twice.
        reads in prop::collection::vec((any::<Index>(), prop::option::of(any::<Index>())), usize::from(KEYS)),
        again in prop::collection::vec(any::<Index>(), 0..12),
        order in prop::collection::vec(any::<Index>(), 64),
    ) {
        let (tables, records) = history(&changes);
        // The consumer starts before change `first`, and the backfill reads after change `start` or
        // later.
        let start = start.index(tables.len());
        let first = head.index(start + 1);
        // The skipped records were written before the fence, and the backfill reads after the
        // fence.
        let fence = first + fence.index(start - first + 1);
        MIGRATION.with_borrow_mut(|m| m.fence = Some(fence as u64));
        let mut statements: Vec<Vec<Effect>> = Vec::new();
        let is_late = |place: usize| {
            late.iter().any(|index| index.index(changes.len()) == place)
        };
        for (place, record) in &records {
            if *place >= first || is_late(*place) {
                let effects = MIGRATION.with_borrow(|m| m.decide(record, &Found::default())).unwrap();
                if !effects.is_empty() {
                    statements.push(effects);
                }
            }
        }
        for (key, (first, second)) in (0..KEYS).zip(&reads) {
            for read in std::iter::once(first).chain(second) {
                let table = &tables[start + read.index(tables.len() - start)];
                if let Some(version) = table.get(&key) {
                    let read = item(key, *version);
                    statements.push(MIGRATION.with_borrow(|m| m.backfill("source", &read)).unwrap());
                }
            }
        }
        if statements.is_empty() {
            return Ok(());
        }
        deliver_again(&mut statements, &again, &order);

        let mut targets = Targets::default();
        statements.iter().for_each(|effects| targets.apply(effects.clone()));

        prop_assert_eq!(targets.visible(), truth(tables.last().unwrap()));

        prop_assert_eq!(repeat_changes_nothing(&targets, statements), Ok(()));
    }

    #[test]
    fn touched_items_are_the_transform_of_the_source(
        changes in changes(),
        start in any::<Index>(),
        // The times at which each key is touched, once or twice.
        touches in prop::collection::vec((any::<Index>(), prop::option::of(any::<Index>())), usize::from(KEYS)),
        again in prop::collection::vec(any::<Index>(), 0..12),
        order in prop::collection::vec(any::<Index>(), 64),
    ) {
        let (tables, records) = history(&changes);
        let start = start.index(tables.len());
        MIGRATION.with_borrow_mut(|m| m.fence = Some(start as u64));
        let decide = |record: &LambdaRecord| {
            MIGRATION.with_borrow(|m| m.decide(record, &Found::default())).unwrap()
        };
        let followed = records.iter().filter(|(place, _)| *place >= start);
        let mut statements: Vec<Vec<Effect>> =
            followed.map(|(place, record)| decide(&apart(record.clone(), *place))).collect();
        for (key, (first, second)) in (0..KEYS).zip(&touches) {
            for touched in std::iter::once(first).chain(second) {
                let place = start + touched.index(tables.len() - start);
                // A touch does not create an item.
                if let Some(version) = tables[place].get(&key) {
                    statements.push(decide(&touch(key, *version, place)));
                }
            }
        }
        statements.retain(|effects| !effects.is_empty());
        if statements.is_empty() {
            return Ok(());
        }
        deliver_again(&mut statements, &again, &order);
        let mut targets = Targets::default();
        statements.iter().for_each(|effects| targets.apply(effects.clone()));
        prop_assert_eq!(targets.visible(), truth(tables.last().unwrap()));
    }
}
