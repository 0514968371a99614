//! Tests of decisions about records from a text file, and of plans that do not match their tables.

use std::fmt::Write as _;

use model::stream_record::{RecordView, lambda_record_from_str};
use model::{KeyAttribute, KeyAttributeType};

use super::*;
use crate::rule::testing::check_decisions;
use model::json::item_from_str;

fn schema(partition: &str, sort: Option<&str>) -> KeySchema {
    let attribute =
        |name: &str| KeyAttribute { name: name.to_owned(), attribute_type: KeyAttributeType::S };
    KeySchema { partition: attribute(partition), sort: sort.map(attribute) }
}

fn schemas() -> BTreeMap<String, KeySchema> {
    let tables = [("orders", schema("id", None)), ("shop", schema("pk", Some("sk")))];
    tables.map(|(name, schema)| (name.to_owned(), schema)).into()
}

fn plan(transform: &str, key: &[(&str, &str)]) -> Plan {
    let key = key.iter().map(|(name, template)| ((*name).to_owned(), (*template).to_owned()));
    let output =
        plan::Output { to: "shop".to_owned(), transform: transform.to_owned(), key: key.collect() };
    Plan {
        migration: "m".to_owned(),
        kind: Kind::Restructure,
        from: vec![plan::Source {
            table: "orders".to_owned(),
            items: vec![output],
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
    }
}

const KEYS: [(&str, &str); 2] = [("pk", "CUSTOMER#{customer}"), ("sk", "ORDER#{id}")];

const DECISIONS: &str = include_str!("../../testdata/migration.txt");

fn orders_migration() -> Migration {
    let plan = plan("select(.customer) | {id, customer, total}", &KEYS);
    Migration::compile(&plan, Direction::Forward, &schemas()).unwrap()
}

fn describe(effect: &Effect) -> String {
    match effect {
        Effect::Registers { target, registers } => {
            let mut text = format!("target {}:{:?}", target.table, target.key);
            for (source, register) in registers.iter() {
                let item = register.item.as_ref().map(item_to_string);
                let item = item.unwrap_or_else(|| "gone".to_owned());
                let _ = write!(text, "\n{source} as of {}: {item}", register.stamp);
            }
            text
        }
        Effect::Rewrite { target } => format!("rewrite {}:{:?}", target.table, target.key),
        Effect::Assemble { document, keys } => {
            let mut text = format!("assemble {}:{:?}", document.parts, document.partition);
            let _ = keys.0.iter().try_for_each(|key| write!(text, "\nkey {key:?}"));
            text
        }
    }
}

#[test]
fn decisions() {
    check_decisions(&orders_migration(), &Found::default(), describe, DECISIONS);
    // A function passes each record to all active migrations.
    check_decisions(&vec![Arc::new(orders_migration())], &Found::default(), describe, DECISIONS);
}

/// Goal: no mark of the fan-out, of a restore or of another migration is copied into a target.
/// Items that differ only in marks are equal.
#[test]
fn marks_of_the_source_are_not_in_a_target() {
    let own = crate::marks::tests::OWN.replace(r#""id""#, r#""customer":{"S":"A"},"id""#);
    let migration = Migration::compile(&plan(".", &KEYS), Direction::Forward, &schemas()).unwrap();
    let expected = migration.outputs("orders", &item_from_str(&own).unwrap()).unwrap();
    let marked = crate::marks::tests::marked(&own);
    assert_eq!(migration.outputs("orders", &marked).unwrap(), expected);
    let (target, made) = expected.first_key_value().unwrap();
    assert_eq!(made.len(), item_from_str(&own).unwrap().len() + 2);
    let stands = crate::marks::tests::marked(&item_to_string(made));
    assert_eq!(migration.visible(&target.table, &stands).as_ref(), Some(made));
}

#[test]
fn a_refusal_of_one_migration_does_not_affect_the_others() {
    let record = DECISIONS.lines().nth(1).unwrap();
    let record = lambda_record_from_str(record).unwrap();
    let (view, found) = (|| RecordView::of(&record), Found::default());
    let alone = orders_migration().decide(&record, &found).unwrap();
    let mut plan = plan("error(\"never\")", &KEYS);
    plan.migration = "other".to_owned();
    let other = Arc::new(Migration::compile(&plan, Direction::Forward, &schemas()).unwrap());
    let both = vec![other, Arc::new(orders_migration())];
    let (effects, refused) = both.decide_each(view(), &found);
    assert_eq!(effects, alone);
    assert!(refused.unwrap().0.starts_with("`other`: "));
    assert_eq!(both[1..].to_vec().decide_each(view(), &found), (alone, None));
}

#[test]
fn records_up_to_the_fence_have_no_effect() {
    let record = DECISIONS.lines().nth(1).unwrap();
    let record = lambda_record_from_str(record).unwrap();
    let second = record.record.approximate_creation_seconds.unwrap();
    for (fence, effects) in [(second + 1, 0), (second, 0), (second - 1, 1)] {
        let rule = vec![Arc::new(orders_migration().fenced(Some(fence)))];
        let decided = rule.decide(&record, &Found::default()).unwrap();
        assert_eq!(decided.len(), effects, "{fence}");
        assert_eq!(rule.decide_view(RecordView::of(&record), &Found::default()), Ok(decided));
    }
}

#[test]
fn invalid_plans_are_reported_with_their_place() {
    for (plan, place, reason) in [
        (plan("{", &KEYS), "from[0].items[0].transform", "expected closing brace"),
        (
            plan(".", &[("nope", "x")]),
            "from[0].items[0].key.nope",
            "`nope` is not a key attribute of `shop`",
        ),
        (
            plan(".", &[("pk", "{")]),
            "from[0].items[0].key.pk",
            "unmatched brace; write `{name}`, or `{{` for a brace",
        ),
    ] {
        let errors = Migration::compile(&plan, Direction::Forward, &schemas()).unwrap_err();
        assert_eq!((errors[0].place.as_str(), errors[0].reason.as_str()), (place, reason));
    }
    let mut same = plan(".", &KEYS);
    same.from[0].table = "shop".to_owned();
    let errors = Migration::compile(&same, Direction::Forward, &schemas()).unwrap_err();
    assert!(errors[0].reason.contains("is a source and a target"), "{errors:?}");
}

#[test]
fn a_duplicate_table_of_a_plan_is_reported() {
    // Several entries may read the same table if they write to different tables.
    let mut twice = plan(".", &KEYS);
    twice.from.push(twice.from[0].clone());
    assert!(Migration::compile(&twice, Direction::Forward, &schemas()).is_ok());
    for (kind, instead) in [(Kind::InPlace, "combine its entries"), (Kind::Purge, "`or`")] {
        let mut twice = plan("true", &[]);
        twice.kind = kind;
        twice.from[0].items[0].to = "orders".to_owned();
        twice.from.push(twice.from[0].clone());
        let errors = Migration::compile(&twice, Direction::Forward, &schemas()).unwrap_err();
        assert_eq!(errors[0].place, "from[1].table");
        assert!(errors[0].reason.contains(instead), "{errors:?}");
        assert_eq!(errors.len(), 1);
    }
    let parts = plan::Parts { profile: "PROFILE".to_owned(), list: Vec::new() };
    let mut split = plan(".", &[("pk", "{id}")]);
    split.kind = Kind::Split;
    split.from[0].split = Some(parts);
    split.from.push(plan::Source { table: "more".to_owned(), ..split.from[0].clone() });
    let mut schemas = schemas();
    schemas.insert("more".to_owned(), schema("id", None));
    let errors = Migration::compile(&split, Direction::Forward, &schemas).unwrap_err();
    assert_eq!(errors[0].place, "from[1].to");
    assert!(errors[0].reason.contains("another table"), "{errors:?}");
}

#[test]
fn a_tombstone_that_a_writer_updates_is_an_item() {
    let migration = orders_migration();
    let mark = r#""_weir":{"M":{"from":{"S":"x"},"at":{"S":"x"},"gone":{"BOOL":true}}}"#;
    let item = |text: &str| item_from_str(&format!("{{{text},{mark}}}")).unwrap();
    let bare = item(r#""id":{"S":"7"}"#);
    assert_eq!(migration.outputs("orders", &bare).unwrap().len(), 0);
    let written = item(r#""id":{"S":"7"},"customer":{"S":"A"}"#);
    let outputs = migration.outputs("orders", &written).unwrap();
    let made = outputs.values().next().unwrap();
    assert!(made["customer"].as_str() == Some("A") && !made.contains_key(MARK), "{made:?}");
}

#[test]
fn source_items_are_texts() {
    let item = SourceItem {
        table: "orders".to_owned(),
        key: item_from_str(r#"{"id":{"S":"a|b"}}"#).unwrap(),
    };
    assert_eq!(item.to_string().parse(), Ok(item));
    assert!("x".parse::<SourceItem>().is_err());
}
