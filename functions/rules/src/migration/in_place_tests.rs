//! Tests of changes in place: a table of cases, and a property. The property holds for all writes
//! and deliveries. Every change is the plan's result for the current version of the item. The final
//! item is the transform of the last write. A deleted item is never restored.

use std::collections::BTreeMap;

use model::json::{item_from_str, item_to_string};
use model::stream_record::LambdaRecord;
use model::{EventName, KeyAttribute, KeyAttributeType, Number, StreamRecord, StreamViewType};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

thread_local! {
    static IN_PLACE: Migration = migration(Kind::InPlace, PROGRAM);
    static PURGE: Migration = migration(Kind::Purge, ".old >= 3 and .hold != 1");
    static PURGE_ANY: Migration =
        migration(Kind::Purge, ".old >= 3 and (any(keys[]; . == \"hold\") | not)");
    static CLOSED: Migration =
        migration(Kind::InPlace, ".state //= (if .hold then \"closed\" else \"open\" end)");
    static CLOSED_ANY: Migration = migration(
        Kind::InPlace,
        ".state //= (if any(keys[]; . == \"hold\") then \"closed\" else \"open\" end)",
    );
}

/// A transform that renames one attribute, changes the type of another, and fills in a third.
const PROGRAM: &str =
    "if has(\"old\") then .new = (.old | tostring) | del(.old) else . end | .state //= \"open\"";

const TOMBSTONE: &str =
    r#"{"id":{"S":"a"},"_weir":{"M":{"from":{"S":"x"},"at":{"S":"x"},"gone":{"BOOL":true}}}}"#;

fn schema() -> KeySchema {
    let attribute_type = KeyAttributeType::S;
    KeySchema { partition: KeyAttribute { name: "id".to_owned(), attribute_type }, sort: None }
}

fn migration(kind: Kind, program: &str) -> Migration {
    let output =
        plan::Output { to: "t".to_owned(), transform: program.to_owned(), key: BTreeMap::new() };
    let plan = Plan {
        migration: "m".to_owned(),
        kind,
        from: vec![plan::Source {
            table: "t".to_owned(),
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
    };
    let schemas = [("t".to_owned(), schema())].into();
    Migration::compile(&plan, Direction::Forward, &schemas).unwrap()
}

#[test]
fn rewrites() {
    for (kind, program, item, expected) in [
        (
            Kind::InPlace,
            PROGRAM,
            r#"{"id":{"S":"a"},"old":{"N":"1.50"}}"#,
            r#"change {"id":{"S":"a"},"new":{"S":"1.5"},"state":{"S":"open"}}"#,
        ),
        (Kind::InPlace, PROGRAM, r#"{"id":{"S":"a"},"state":{"S":"x"}}"#, "keep"),
        (Kind::Purge, ".tenant == \"x\"", r#"{"id":{"S":"a"},"tenant":{"S":"x"}}"#, "delete"),
        (Kind::Purge, ".tenant == \"x\"", r#"{"id":{"S":"a"},"tenant":{"S":"y"}}"#, "keep"),
        (Kind::Purge, ".tenant == \"x\"", r#"{"id":{"S":"a"}}"#, "keep"),
        (Kind::Purge, ".old", r#"{"id":{"S":"a"}}"#, "keep"),
        // A tombstone of another migration, and a tombstone that a writer updated, which is an item
        // again.
        (Kind::InPlace, PROGRAM, TOMBSTONE, "keep"),
        (Kind::Purge, ".tenant != \"x\"", TOMBSTONE, "keep"),
        (
            Kind::Purge,
            ".tenant != \"x\"",
            r#"{"id":{"S":"a"},"n":{"N":"1"},"_weir":{"M":{"from":{"S":"x"},"at":{"S":"x"},"gone":{"BOOL":true}}}}"#,
            "delete",
        ),
        (
            Kind::Purge,
            ".tenant = \"x\"",
            r#"{"id":{"S":"a"},"tenant":{"S":"y"}}"#,
            "the condition yielded an object; write a comparison such as `.tenant == \"7\"`",
        ),
        (
            Kind::Purge,
            "select(.tenant == \"x\")",
            r#"{"id":{"S":"a"},"tenant":{"S":"y"}}"#,
            "the condition yielded nothing; write a comparison such as `.tenant == \"7\"`, for a list write `any(.tags[]?; . == \"x1\")`",
        ),
        (
            Kind::InPlace,
            ".n += 1",
            r#"{"id":{"S":"a"},"n":{"N":"1"}}"#,
            "the transform is not idempotent: a second run changes the item again; write it so that a finished item stays unchanged, such as `.a //= 1`",
        ),
        (
            Kind::InPlace,
            "empty",
            r#"{"id":{"S":"a"}}"#,
            "the transform yields no item; to delete items, use kind `purge`",
        ),
        (
            Kind::InPlace,
            "., .",
            r#"{"id":{"S":"a"}}"#,
            "the transform yields several items; use kind `restructure`",
        ),
        (
            Kind::InPlace,
            ".id = \"b\"",
            r#"{"id":{"S":"a"}}"#,
            "the transform changes the key; use kind `restructure` and another table",
        ),
    ] {
        let found = migration(kind, program).rewrite("t", &item_from_str(item).unwrap());
        let found = match found {
            Ok(Rewrite::Keep) => "keep".to_owned(),
            Ok(Rewrite::Delete) => "delete".to_owned(),
            Ok(Rewrite::Change(item)) => format!("change {}", item_to_string(&item)),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{program} {item}");
    }
}

#[test]
fn an_item_whose_change_no_guard_can_compare_is_refused() {
    let migration = migration(Kind::InPlace, ".state //= \"open\"");
    let item = |attributes: usize| {
        let others = (1..attributes).map(|number| format!(r#","a{number}":{{"N":"1"}}"#));
        item_from_str(&format!(r#"{{"id":{{"S":"a"}}{}}}"#, others.collect::<String>())).unwrap()
    };
    assert!(matches!(migration.rewrite("t", &item(139)), Ok(Rewrite::Change(_))));
    let error = migration.rewrite("t", &item(140)).unwrap_err().to_string();
    assert!(error.contains("has 141 attributes"), "{error}");
    let done = item(140).with("state", "open");
    assert_eq!(migration.rewrite("t", &done), Ok(Rewrite::Keep));
}

/// Goal: the write is conditional on the absence of every attribute that the program can read, if
/// the expression has room. A writer may add an attribute after the judgement, so that the plan no
/// longer selects the item.
#[test]
fn an_attribute_that_the_program_reads_must_not_have_come_meanwhile() {
    let many = (0..200).map(|number| format!(".a{number} == 1")).collect::<Vec<_>>().join(" or ");
    for (kind, program, absent, is_complete) in [
        (Kind::Purge, ".tenant == \"7\" and .hold != true", "_weir hold", true),
        (Kind::Purge, ".tenant == \"7\" and (keys | length) < 3", "_weir", false),
        (Kind::InPlace, ".state //= (if .closed then 1 else 2 end)", "_weir closed state", true),
        (Kind::InPlace, ".[.tenant] //= 1", "7 _weir", false),
    ] {
        let migration = migration(kind, program);
        let before = item_from_str(r#"{"id":{"S":"a"},"tenant":{"S":"7"}}"#).unwrap();
        let after = match migration.rewrite("t", &before) {
            Ok(Rewrite::Change(after)) => Some(after),
            Ok(Rewrite::Delete) => None,
            other => panic!("{program}: {other:?}"),
        };
        let guard = migration.guard("t", &before, after.as_ref());
        assert_eq!(guard.absent.into_iter().collect::<Vec<_>>().join(" "), absent, "{program}");
        assert_eq!(guard.is_complete, is_complete, "{program}");
    }
    // The absence of all these attributes would exceed the maximum size of an expression.
    let migration = migration(Kind::Purge, &format!("({many}) | not"));
    let before = item_from_str(r#"{"id":{"S":"a"}}"#).unwrap();
    let guard = migration.guard("t", &before, None);
    assert!(!guard.is_complete && (100..140).contains(&guard.absent.len()), "{guard:?}");
    let held = before.clone().with("a199", Number::from(1_u64));
    assert!(migration.is_misjudged("t", &before, None, &held));
    assert!(!migration.is_misjudged("t", &before, None, &before.clone().with("b", "1")));
}

/// Goal: the backfill, a record and a comparison all refuse an item for which the condition yields
/// no single boolean.
#[test]
fn an_item_without_a_clear_verdict_is_refused_by_all() {
    let migration = migration(Kind::Purge, ".tags[] == \"x1\"");
    let mut world = World::default();
    for tags in ["[]", r#"[{"S":"x1"},{"S":"x2"}]"#] {
        let item = format!(r#"{{"id":{{"S":"i1"}},"tags":{{"L":{tags}}}}}"#);
        let item = item_from_str(&item).unwrap();
        world.write(1, Some(item.clone()));
        let record = world.records.last().unwrap();
        let refused = [
            migration.rewrite("t", &item).unwrap_err().to_string(),
            migration.backfill("t", &item).unwrap_err().0,
            migration.decide(record, &Found::default()).unwrap_err().0,
        ];
        assert!(refused.iter().all(|why| why.contains("any(.tags[]?;")), "{tags}: {refused:?}");
    }
}

/// The table and its stream. Writers and the executor change them.
#[derive(Default)]
struct World {
    table: BTreeMap<u8, Item>,
    records: Vec<LambdaRecord>,
}

impl World {
    fn write(&mut self, key: u8, after: Option<Item>) {
        let before = match &after {
            Some(item) => self.table.insert(key, item.clone()),
            None => self.table.remove(&key),
        };
        if before == after {
            return;
        }
        let sequence = self.records.len() + 1;
        self.records.push(LambdaRecord {
            record: StreamRecord {
                event_id: format!("{sequence:032}"),
                event_name: match (&before, &after) {
                    (None, _) => EventName::Insert,
                    (_, None) => EventName::Remove,
                    _ => EventName::Modify,
                },
                user_identity: None,
                approximate_creation_seconds: None,
                keys: item_from_str(&format!(r#"{{"id":{{"S":"i{key}"}}}}"#)).unwrap(),
                old_image: before,
                new_image: after,
                sequence_number: sequence.to_string().parse().unwrap(),
                size_bytes: 1,
                view_type: StreamViewType::NewAndOldImages,
            },
            event_source_arn:
                "arn:aws:dynamodb:us-east-1:000000000000:table/t/stream/2026-11-21T02:30:00.000"
                    .to_owned(),
        });
    }

    /// Sets an attribute of an item if the item exists. Returns whether it exists.
    fn set(&mut self, key: u8, name: &str, value: u8) -> bool {
        let Some(item) = self.table.get(&key).cloned() else { return false };
        self.write(key, Some(item.with(name, Number::from(u64::from(value)))));
        true
    }

    /// Reads the items of the effects, which is the executor's first step.
    fn begin(&self, effects: Vec<Effect>) -> Vec<(u8, Item)> {
        let read = |effect| {
            let Effect::Rewrite { target } = effect else { panic!("{effect:?}") };
            let key = target.key.to_item(&schema());
            let key: u8 = key["id"].as_str().unwrap()[1..].parse().unwrap();
            Some((key, self.table.get(&key)?.clone()))
        };
        effects.into_iter().filter_map(read).collect()
    }

    /// Judges the item that was read, and writes it if the guard's condition is true. If the
    /// condition is false, judges the current item. If the guard is not complete, judges the
    /// replaced item after the write and undoes a wrong change.
    fn end(&mut self, migration: &Migration, (key, mut judged): (u8, Item)) {
        while let Some(stands) = self.table.get(&key).cloned() {
            let after = match migration.rewrite("t", &judged).unwrap() {
                Rewrite::Keep => return,
                Rewrite::Delete => None,
                Rewrite::Change(after) => Some(after),
            };
            let guard = migration.guard("t", &judged, after.as_ref());
            let holds = judged.iter().all(|(name, value)| stands.get(name) == Some(value))
                && guard.absent.iter().all(|name| !stands.contains_key(name));
            if !holds {
                judged = stands;
                continue;
            }
            let made = after.as_ref().map(|after| changed(&judged, after, &stands));
            self.write(key, made.clone());
            if migration.is_misjudged("t", &judged, after.as_ref(), &stands) {
                assert!(!guard.is_complete, "{judged:?} {stands:?}");
                self.write(key, Some(stands.clone()));
                judged = stands;
                continue;
            }
            let wanted = migration.rewrite("t", &stands).unwrap();
            assert_eq!(wanted, made.map_or(Rewrite::Delete, Rewrite::Change), "{stands:?}");
            return;
        }
    }

    fn apply(&mut self, migration: &Migration, effects: Vec<Effect>) {
        for begun in self.begin(effects) {
            self.end(migration, begun);
        }
    }
}

fn item(key: u8, old: Option<u8>, other: Option<u8>, is_done: bool) -> Item {
    let mut item = item_from_str(&format!(r#"{{"id":{{"S":"i{key}"}}}}"#)).unwrap();
    if let Some(old) = old {
        item.insert("old".to_owned(), AttributeValue::N(u64::from(old).into()));
    }
    if let Some(other) = other {
        item.insert("other".to_owned(), AttributeValue::N(u64::from(other).into()));
    }
    if is_done {
        item.insert("state".to_owned(), AttributeValue::from("done"));
    }
    item
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Write(u8, Option<(Option<u8>, Option<u8>, bool)>),
    /// Adds an attribute to an existing item, or changes the attribute's value.
    Set(u8, &'static str, u8),
    /// Delivers one of the existing records, again or for the first time.
    Deliver(Index),
    /// The backfill reads an item. Its effects are applied later.
    Read(u8),
    /// Applies one of the backfill's effects, possibly again.
    Apply(Index),
    /// Ends the change of one of the items that were read.
    End(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let attributes = (prop::option::of(0..5_u8), prop::option::of(0..3_u8), any::<bool>());
    let step = prop_oneof![
        3 => (0..3_u8, prop::option::weighted(0.8, attributes))
            .prop_map(|(key, item)| Step::Write(key, item)),
        2 => any::<Index>().prop_map(Step::Deliver),
        2 => (0..3_u8, prop::sample::select(vec!["old", "hold", "other"]), 0..5_u8)
            .prop_map(|(key, name, value)| Step::Set(key, name, value)),
        1 => (0..3_u8).prop_map(Step::Read),
        2 => any::<Index>().prop_map(Step::Apply),
        3 => any::<Index>().prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..40)
}

/// Returns the final table and the last values of the writers.
fn outcome(
    migration: &Migration,
    steps: &[Step],
    last: &[Index],
) -> (BTreeMap<u8, Item>, BTreeMap<u8, Item>) {
    let (mut world, mut read, mut begun) = (World::default(), Vec::new(), Vec::new());
    // The put of a writer replaces the entire item.
    let mut truth: BTreeMap<u8, Item> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Write(key, None) => {
                world.write(*key, None);
                truth.remove(key);
            }
            Step::Write(key, Some((old, other, is_done))) => {
                let item = item(*key, *old, *other, *is_done);
                world.write(*key, Some(item.clone()));
                truth.insert(*key, item);
            }
            Step::Set(key, name, value) => {
                if world.set(*key, name, *value)
                    && let Some(item) = truth.get_mut(key)
                {
                    item.insert((*name).to_owned(), AttributeValue::N(u64::from(*value).into()));
                }
            }
            Step::Deliver(index) if !world.records.is_empty() => {
                let record = index.get(&world.records).clone();
                let effects = migration.decide(&record, &Found::default()).unwrap();
                begun.extend(world.begin(effects));
            }
            Step::Read(key) => {
                if let Some(item) = world.table.get(key) {
                    read.push(migration.backfill("t", item).unwrap());
                }
            }
            Step::Apply(index) if !read.is_empty() => {
                begun.extend(world.begin(index.get(&read).clone()));
            }
            Step::End(index) if !begun.is_empty() => {
                let begun = begun.swap_remove(index.index(begun.len()));
                world.end(migration, begun);
            }
            Step::Deliver(_) | Step::Apply(_) | Step::End(_) => {}
        }
    }
    begun.into_iter().for_each(|begun| world.end(migration, begun));
    // Every record is delivered at least once, in the order of its shard. Some records are
    // delivered again at the end.
    let mut next = 0;
    while let Some(record) = world.records.get(next).cloned() {
        world.apply(migration, migration.decide(&record, &Found::default()).unwrap());
        next += 1;
        assert!(next < 10_000, "the migration's own writes must end");
    }
    for index in last {
        if let Some(record) = (!world.records.is_empty()).then(|| index.get(&world.records).clone())
        {
            world.apply(migration, migration.decide(&record, &Found::default()).unwrap());
        }
        if !read.is_empty() {
            world.apply(migration, index.get(&read).clone());
        }
    }
    (world.table, truth)
}

fn finished(migration: &Migration, truth: BTreeMap<u8, Item>) -> BTreeMap<u8, Item> {
    truth
        .into_iter()
        .filter_map(|(key, item)| match migration.rewrite("t", &item).unwrap() {
            Rewrite::Keep => Some((key, item)),
            Rewrite::Change(item) => Some((key, item)),
            Rewrite::Delete => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn items_are_the_transform_of_the_last_write(
        steps in steps(),
        last in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        for migration in [&IN_PLACE, &PURGE, &PURGE_ANY] {
            migration.with(|migration| {
                let (table, truth) = outcome(migration, &steps, &last);
                assert_eq!(table, finished(migration, truth));
            });
        }
        // The result of these migrations depends on the time of the change, so it is checked at
        // that time.
        for migration in [&CLOSED, &CLOSED_ANY] {
            migration.with(|migration| {
                let (table, _) = outcome(migration, &steps, &last);
                assert_eq!(table, finished(migration, table.clone()));
            });
        }
    }
}
