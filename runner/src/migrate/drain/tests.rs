//! What a target shows of what is said of it, and streams that do not tell of all.

use model::json::item_from_str;
use model::{KeyAttribute, KeyAttributeType, KeySchema};
use rules::migration::plan::{Direction, Kind, Output, Plan, Source};

use super::*;

fn migration() -> Migration {
    let output = Output { to: "pets".into(), transform: ".".into(), key: BTreeMap::new() };
    let plan = Plan {
        migration: "m".into(),
        kind: Kind::Restructure,
        from: vec![Source {
            table: "cats".into(),
            items: vec![output],
            split: None,
            archive: false,
        }],
        inverse: Vec::new(),
        backfill: rules::migration::plan::Backfill::Scan,
        segments: 1,
        gate_seconds: 1,
        settle_seconds: 5,
        function_seconds: 60,
    };
    let attribute_type = KeyAttributeType::S;
    let partition = KeyAttribute { name: "p".into(), attribute_type };
    let schema = KeySchema { partition, sort: None };
    let schemas = [("cats".into(), schema.clone()), ("pets".into(), schema)].into();
    Migration::compile(&plan, Direction::Forward, &schemas).unwrap()
}

fn item(value: &str) -> Item {
    item_from_str(&format!(r#"{{"p":{{"S":"k"}},"v":{{"S":"{value}"}}}}"#)).unwrap()
}

/// What the backfill says of an item, by another source if that is given.
fn said(migration: &Migration, value: &str, source: Option<&str>) -> (Target, Registers) {
    let effects = migration.backfill("cats", &item(value)).unwrap();
    let Some(Effect::Registers { target, registers }) = effects.into_iter().next() else {
        panic!()
    };
    let (known, register) = registers.only().unwrap();
    let source = source.unwrap_or(known).to_owned();
    (target, Registers::of(source, register.clone()))
}

#[test]
fn a_target_shows_what_is_said_of_it_or_never_will() {
    let migration = migration();
    let key = item_from_str(r#"{"p":{"S":"k"}}"#).unwrap();
    let (target, first) = said(&migration, "a", None);
    let of = |stands: Option<&Item>| of_target(&migration, &target, &first, stands);
    let is_never = |lack: Option<Lack>| matches!(lack, Some(Lack::Never(_)));
    assert!(matches!(of(None), Some(Lack::NotYet(_))));
    assert_eq!(of(Some(&first.to_item(&key))), None);
    // Somebody else's item is left alone: it is right only as long as it is the same.
    assert_eq!(of(Some(&item("a"))), None);
    assert!(is_never(of(Some(&item("b")))));
    // Of two sources one is hidden, unless both say the same.
    let with = |value| {
        let (_, other) = said(&migration, value, Some("another"));
        first.joined(&other).unwrap().to_item(&key)
    };
    assert!(is_never(of(Some(&with("b")))));
    assert_eq!(of(Some(&with("a"))), None);
}
