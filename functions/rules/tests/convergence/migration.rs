//! The convergence property for a migration: the slots become items of another table, and the backfill
//! reads them at any time.
//!
//! The crate's own tests cover starts, fences and touches.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;

use model::stream_record::LambdaRecord;
use model::{Item, KeyAttribute, KeyAttributeType, KeySchema};
use rules::migration::plan::{Backfill, FUNCTION_SECONDS, Output, Plan, Source};
use rules::migration::{Direction, Effect, Kind, Migration, Registers, Target};
use rules::{Found, Refusal, Rule};

use super::{Applied, Change, Tables, decide, history_of_first, key_text};

thread_local! {
    // The compilation of jq takes longer than a hundred histories, so it is done once.
    static COMPILED: Rc<Migration> = Rc::new(compile());
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

/// Returns the migration. Each slot becomes one item. A slot with many votes also becomes a second item,
/// whose key changes with the votes. All slots with few votes collide at one key.
fn compile() -> Migration {
    let output = |transform: &str, template: &str| Output {
        to: "targets".to_owned(),
        transform: transform.to_owned(),
        key: BTreeMap::from([("pk".to_owned(), template.to_owned())]),
    };
    let items = vec![
        output(".", "SLOT#{slot}"),
        output("select(.votes > 20)", "{votes}#{slot}"),
        output("select(.votes < -60) | {slot}", "FEW"),
    ];
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
    let schemas = [("slots", "slot"), ("targets", "pk")];
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
    Item::new().with("slot", key_text(key)).with("votes", model::Number::from(i64::from(votes)))
}

/// Checks the items that readers see. Each target has the item of the first slot that has the target.
pub(super) fn check(
    Remembering { migration, .. }: &Remembering,
    targets: &BTreeMap<Target, Item>,
    table: &BTreeMap<u8, i8>,
) {
    let mut expected = BTreeMap::new();
    let mut slots: Vec<Item> = table.iter().map(|(key, votes)| slot(*key, *votes)).collect();
    slots.sort_by_key(|slot| migration.source_item("slots", slot).unwrap().to_string());
    for slot in slots {
        for (target, made) in migration.outputs("slots", &slot).unwrap() {
            expected.entry(target).or_insert(made);
        }
    }
    let seen = targets.iter().filter_map(|(target, item)| {
        Some((target.clone(), migration.visible(&target.table, item)?))
    });
    assert_eq!(seen.collect::<BTreeMap<_, _>>(), expected);
}
