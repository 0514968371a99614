//! The convergence property for migrations: the final targets equal the transform of the source.
//! This holds for any time of the backfill's reads or touches, and for any order, repetition and
//! delay of records.
//!
//! The first migration turns slots into items of another table and runs beside the other rules. The
//! second migration starts late, with a fence.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

use model::stream_record::LambdaRecord;
use model::{
    EventName, Item, KeyAttribute, KeyAttributeType, KeySchema, Number, StreamRecord,
    StreamViewType,
};
use proptest::prelude::*;
use proptest::sample::Index;
use rules::migration::plan::{Backfill, FUNCTION_SECONDS, Output, Plan, Source};
use rules::migration::{Direction, Effect, Kind, Migration, Registers, TOUCH, Target};
use rules::{Found, Refusal, Rule, fold};

use super::{
    Applied, Change, LABELS, Tables, cases, decide, deliver, deliveries, history_of_first, key_text,
};

/// The time of the fence in seconds since 1970. Records up to this second are skipped.
const FENCE_S: usize = 1_795_228_140;
const KEYS: u8 = 4;

thread_local! {
    // The compilation of jq takes longer than a hundred histories, so it is done once.
    static COMPILED: Rc<Migration> = Rc::new(slots());
    static FENCED: Migration = items().fenced(Some(FENCE_S as u64));
}

/// A migration that decides each record once and caches the decision. A decision depends only on
/// the record, and jq takes longer than all other rules together.
pub(super) struct Remembering {
    migration: Rc<Migration>,
    decided: RefCell<BTreeMap<String, Vec<Effect>>>,
}

pub(super) fn migration() -> Remembering {
    Remembering { migration: COMPILED.with(Rc::clone), decided: RefCell::default() }
}

impl Rule for Remembering {
    type Input = Infallible;
    type Effect = Effect;

    fn decide(
        &self,
        record: &LambdaRecord,
        found: &Found<Infallible>,
    ) -> Result<Vec<Effect>, Refusal> {
        let id = &record.record.event_id;
        if let Some(decided) = self.decided.borrow().get(id) {
            return Ok(decided.clone());
        }
        let decided = self.migration.decide(record, found)?;
        self.decided.borrow_mut().insert(id.clone(), decided.clone());
        Ok(decided)
    }
}

impl Applied for Remembering {
    fn apply(&self, tables: &mut Tables, batch: &[&LambdaRecord]) {
        tables.join_registers(decide(self, &Found::default(), batch));
    }
}

fn schema(name: &str) -> KeySchema {
    let attribute_type = KeyAttributeType::S;
    KeySchema { partition: KeyAttribute { name: name.to_owned(), attribute_type }, sort: None }
}

/// Returns a migration from the table `slots`. Each slot becomes one item. A slot with many votes
/// also becomes a second item, whose key changes with the votes. All slots with few votes collide
/// on one key.
fn slots() -> Migration {
    compile(
        "slot",
        &[
            (".", "SLOT#{slot}"),
            ("select(.votes > 20)", "{votes}#{slot}"),
            ("select(.votes < -60) | {slot}", "FEW"),
        ],
    )
}

/// Returns a migration of items with an owner and a value.
fn items() -> Migration {
    compile(
        "id",
        &[
            ("{id, owner, value}", "{owner}#{id}"),
            // This output yields one or two parts or none, depending on the value.
            (".value as $value | (1, 2, 3) | select(. < $value) | {part: .}", "part#{part}"),
            // Two source items with the same owner collide in this output.
            ("select(.value < 3) | {owner, of: .id}", "owner#{owner}"),
        ],
    )
}

fn compile(key: &str, outputs: &[(&str, &str)]) -> Migration {
    let output = |(transform, template): &(&str, &str)| Output {
        to: "targets".to_owned(),
        transform: (*transform).to_owned(),
        key: BTreeMap::from([("pk".to_owned(), (*template).to_owned())]),
    };
    let items = outputs.iter().map(output).collect();
    let plan = Plan {
        migration: "m".to_owned(),
        kind: Kind::Restructure,
        from: vec![Source { table: "slots".to_owned(), items, split: None, archive: false }],
        inverse: Vec::new(),
        backfill: Backfill::Scan,
        segments: 1,
        gate_seconds: 1,
        settle_seconds: 5,
        function_seconds: FUNCTION_SECONDS,
        route: None,
    };
    let schemas = [("slots", key), ("targets", "pk")];
    let schemas = schemas.map(|(table, key)| (table.to_owned(), schema(key))).into();
    Migration::compile(&plan, Direction::Forward, &schemas).unwrap()
}

/// Joins registers into the targets, as the executor writes them.
pub(super) fn join(targets: &mut BTreeMap<Target, Item>, target: Target, said: &Registers) {
    let known = targets.get(&target).map(|item| Registers::from_item(item).unwrap());
    if let Some(joined) = known.unwrap_or_default().joined(said) {
        let item = joined.to_item(&target.key.to_item(&schema("pk")));
        targets.insert(target, item);
    }
}

/// Returns the effects of a backfill that reads each slot after the first `after` changes.
pub(super) fn read(rule: &Remembering, changes: &[Change], after: usize) -> Vec<Effect> {
    let (table, _) = history_of_first(changes, after);
    let slots = table.iter().map(|(key, votes)| slot(*key, *votes));
    slots.flat_map(|slot| rule.migration.backfill("slots", &slot).unwrap()).collect()
}

fn slot(key: u8, votes: i8) -> Item {
    Item::new().with("slot", key_text(key)).with("votes", Number::from(i64::from(votes)))
}

/// Checks the items that readers see.
pub(super) fn check(
    rule: &Remembering,
    targets: &BTreeMap<Target, Item>,
    table: &BTreeMap<u8, i8>,
) {
    check_items(&rule.migration, targets, table.iter().map(|(key, votes)| slot(*key, *votes)));
}

/// Checks the items that readers see. Each target must equal the item that the first of its source
/// items produces.
fn check_items(
    migration: &Migration,
    targets: &BTreeMap<Target, Item>,
    items: impl Iterator<Item = Item>,
) {
    let mut expected = BTreeMap::new();
    let mut items: Vec<Item> = items.collect();
    items.sort_by_key(|item| migration.source_item("slots", item).unwrap().to_string());
    for item in items {
        for (target, made) in migration.outputs("slots", &item).unwrap() {
            expected.entry(target).or_insert(made);
        }
    }
    let seen = targets.iter().filter_map(|(target, item)| {
        Some((target.clone(), migration.visible(&target.table, item)?))
    });
    assert_eq!(seen.collect::<BTreeMap<_, _>>(), expected);
}

/// The states of a table of items after each change, and the records of the changes.
struct History {
    tables: Vec<BTreeMap<u8, Item>>,
    /// Each record with the number of the change.
    records: Vec<(usize, LambdaRecord)>,
}

impl History {
    /// Returns the history of these changes. Each change has its own second, and the fence is
    /// before the change with the number `fence`. A touch is `(key, number of the next change)`.
    fn of(changes: &[(u8, Option<(u8, u8)>)], touches: &[(u8, usize)], fence: usize) -> Self {
        let mut history = Self { tables: vec![BTreeMap::new()], records: Vec::new() };
        let mut table = BTreeMap::new();
        for place in 0..=changes.len() {
            let at = (place, FENCE_S + 1 + place - fence);
            for (key, _) in touches.iter().filter(|(_, next)| *next == place) {
                // A touch does not create an item.
                if let Some(item) = table.get(key).cloned() {
                    history.set(&mut table, *key, Some(item.clone().with(TOUCH, "m")), at);
                    history.set(&mut table, *key, Some(item), at);
                }
            }
            if let Some((key, version)) = changes.get(place) {
                let item = version.map(|(owner, value)| {
                    id(*key)
                        .with("owner", format!("o{owner}"))
                        .with("value", Number::from(u64::from(value)))
                });
                history.set(&mut table, *key, item, at);
                history.tables.push(table.clone());
            }
        }
        history
    }

    fn set(
        &mut self,
        table: &mut BTreeMap<u8, Item>,
        key: u8,
        new: Option<Item>,
        (place, second): (usize, usize),
    ) {
        let old = match &new {
            Some(item) => table.insert(key, item.clone()),
            None => table.remove(&key),
        };
        if old == new {
            return;
        }
        let sequence = self.records.len() + 7;
        let record = StreamRecord {
            event_id: format!("{sequence:032}"),
            event_name: match (&old, &new) {
                (None, _) => EventName::Insert,
                (_, None) => EventName::Remove,
                _ => EventName::Modify,
            },
            user_identity: None,
            approximate_creation_seconds: Some(second as u64),
            keys: id(key),
            old_image: old,
            new_image: new,
            sequence_number: sequence.to_string().parse().unwrap(),
            size_bytes: 1,
            view_type: StreamViewType::NewAndOldImages,
        };
        let stream = format!("table/slots/stream/{}", LABELS[0]);
        let event_source_arn = format!("arn:aws:dynamodb:us-east-1:000000000000:{stream}");
        self.records.push((place, LambdaRecord { record, event_source_arn }));
    }
}

fn id(key: u8) -> Item {
    Item::new().with("id", format!("i{key}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases().max(2_000)))]

    #[test]
    fn targets_are_the_transform_of_the_source(
        changes in prop::collection::vec(
            (0..KEYS, prop::option::weighted(0.8, (0..3_u8, 0..5_u8))), 1..24),
        start in any::<Index>(),
        head in any::<Index>(),
        fence in any::<Index>(),
        // Records from before the start, which are delivered again.
        late in prop::collection::vec(any::<Index>(), 0..4),
        // The times at which the backfill reaches each key, once or twice.
        reached in prop::collection::vec((any::<Index>(), prop::option::of(any::<Index>())), usize::from(KEYS)),
        touches in any::<bool>(),
        deliveries in deliveries(),
        // The batches before which the reads of the backfill are applied, some of them again.
        applied in prop::collection::vec(any::<Index>(), 8..20),
    ) {
        // The consumer starts before change `first`, and the backfill reads after change `start` or
        // later. The skipped records were written before the fence, and the backfill reads after
        // it.
        let start = start.index(changes.len() + 1);
        let first = head.index(start + 1);
        let fence = first + fence.index(start - first + 1);
        let mut reached: Vec<(u8, usize)> = (0..KEYS).zip(&reached).flat_map(|(key, (once, again))| {
            let at = |index: &Index| (key, start + index.index(changes.len() + 1 - start));
            std::iter::once(at(once)).chain(again.as_ref().map(at))
        }).collect();
        let touched = if touches { std::mem::take(&mut reached) } else { Vec::new() };
        let history = History::of(&changes, &touched, fence);

        FENCED.with(|migration| {
            let is_late = |place: usize| late.iter().any(|index| index.index(changes.len()) == place);
            let followed = history.records.iter().filter(|(place, _)| *place >= first || is_late(*place));
            let records: Vec<LambdaRecord> = followed.map(|(_, record)| record.clone()).collect();
            let mut statements: Vec<Vec<Effect>> = deliver(&records, &deliveries)
                .iter()
                .map(|batch| {
                    let found = Found::default();
                    batch.iter().flat_map(|record| migration.decide(record, &found).unwrap()).collect()
                })
                .collect();
            let reads = reached.iter().filter_map(|(key, at)| history.tables[*at].get(key));
            let reads: Vec<Vec<Effect>> =
                reads.map(|item| migration.backfill("slots", item).unwrap()).collect();
            for (place, read) in applied.iter().zip(reads.iter().cycle()) {
                statements.insert(place.index(statements.len() + 1), read.clone());
            }

            let mut tables = Tables::default();
            for effects in &statements {
                tables.join_registers(fold(effects.iter().cloned().enumerate()));
            }
            let table = history.tables.last().unwrap();
            check_items(migration, &tables.targets, table.values().cloned());

            // The result is the same if the statements are folded first.
            let mut at_once = Tables::default();
            at_once.join_registers(fold(statements.into_iter().flatten().enumerate()));
            prop_assert_eq!(&tables.targets, &at_once.targets);
            Ok(())
        })?;
    }
}
