//! Changes in place: decisions as a table of cases, and the property that whatever is written and
//! delivered, items end as the transform of what was written last, and none comes back.

use std::collections::BTreeMap;

use model::json::{item_from_str, item_to_string};
use model::stream_record::LambdaRecord;
use model::{EventName, KeyAttribute, KeyAttributeType, StreamRecord, StreamViewType};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

thread_local! {
    static IN_PLACE: Migration = migration(Kind::InPlace, PROGRAM);
    static PURGE: Migration = migration(Kind::Purge, ".old >= 3");
}

/// A renamed attribute, a changed type and one that is filled in.
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
        // A tombstone of another migration, and an item that a writer's update made of one.
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
            "the condition gave an object; write a comparison such as `.tenant == \"7\"`",
        ),
        (
            Kind::Purge,
            "select(.tenant == \"x\")",
            r#"{"id":{"S":"a"},"tenant":{"S":"y"}}"#,
            "the condition gave nothing; write a comparison such as `.tenant == \"7\"`, of a list write `any(.tags[]?; . == \"x1\")`",
        ),
        (
            Kind::InPlace,
            ".n += 1",
            r#"{"id":{"S":"a"},"n":{"N":"1"}}"#,
            "the transform gives something else when it is carried out twice; write it so that a finished item stays as it is, such as `.a //= 1`",
        ),
        (
            Kind::InPlace,
            "empty",
            r#"{"id":{"S":"a"}}"#,
            "the transform gives nothing; to delete items, use kind `purge`",
        ),
        (
            Kind::InPlace,
            "., .",
            r#"{"id":{"S":"a"}}"#,
            "the transform gives several items; that needs kind `restructure`",
        ),
        (
            Kind::InPlace,
            ".id = \"b\"",
            r#"{"id":{"S":"a"}}"#,
            "the transform changes the key; that needs kind `restructure` and another table",
        ),
    ] {
        let found = migration(kind, program).rewrite("t", &item_from_str(item).unwrap());
        let found = match found {
            Ok(Rewrite::Keep) => "keep".to_owned(),
            Ok(Rewrite::Delete) => "delete".to_owned(),
            Ok(Rewrite::Change(item)) => format!("change {}", item_to_string(&item)),
            Err(reason) => reason,
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
    assert!(migration.rewrite("t", &item(140)).unwrap_err().contains("has 141 attributes"));
    let done = item(140).with("state", "open");
    assert_eq!(migration.rewrite("t", &done), Ok(Rewrite::Keep));
}

/// Whatever reads an item refuses it: the backfill, a record, and a comparison, which asks for the
/// rewrite.
#[test]
fn an_item_for_which_a_condition_is_neither_true_nor_false_is_refused_by_all() {
    let migration = migration(Kind::Purge, ".tags[] == \"x1\"");
    let mut world = World::default();
    for tags in ["[]", r#"[{"S":"x1"},{"S":"x2"}]"#] {
        let item = format!(r#"{{"id":{{"S":"i1"}},"tags":{{"L":{tags}}}}}"#);
        let item = item_from_str(&item).unwrap();
        world.write(1, Some(item.clone()));
        let record = world.records.last().unwrap();
        let refused = [
            migration.rewrite("t", &item).unwrap_err(),
            migration.backfill("t", &item).unwrap_err().0,
            migration.decide(record, &Found::default()).unwrap_err().0,
        ];
        assert!(refused.iter().all(|why| why.contains("any(.tags[]?;")), "{tags}: {refused:?}");
    }
}

/// The table and its stream, as the writers and the executor change them.
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

    /// As the executor does: the change of the version that was seen is made if every attribute of
    /// it stands there; else the change of what stands there.
    fn apply(&mut self, migration: &Migration, effects: Vec<Effect>) {
        for effect in effects {
            let Effect::Rewrite { target, seen } = effect else { panic!("{effect:?}") };
            let key = target.key.to_item(&schema());
            let key: u8 = key["id"].as_str().unwrap()[1..].parse().unwrap();
            let Some(stands) = self.table.get(&key).cloned() else { continue };
            let holds = |wanted: &Item| {
                seen.item.iter().all(|(name, value)| stands.get(name) == Some(value))
                    && wanted
                        .keys()
                        .all(|name| seen.item.contains_key(name) || !stands.contains_key(name))
            };
            match migration.rewrite("t", &seen.item).unwrap() {
                Rewrite::Keep => panic!("a rewrite that is none"),
                Rewrite::Delete if holds(&Item::new()) => self.write(key, None),
                Rewrite::Change(wanted) if holds(&wanted) => {
                    let mut item = stands.clone();
                    for name in seen.item.keys().filter(|name| !wanted.contains_key(*name)) {
                        item.remove(name);
                    }
                    item.extend(wanted.iter().map(|(name, value)| (name.clone(), value.clone())));
                    self.write(key, Some(item));
                }
                _ => match migration.rewrite("t", &stands).unwrap() {
                    Rewrite::Keep => {}
                    Rewrite::Delete => self.write(key, None),
                    Rewrite::Change(wanted) => self.write(key, Some(wanted)),
                },
            }
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

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    Write(u8, Option<(Option<u8>, Option<u8>, bool)>),
    /// A record that there is by now, once more or for the first time.
    Deliver(Index),
    /// The backfill reads an item now; what it says is applied later.
    Read(u8),
    /// One of the things that the backfill has read is applied, perhaps again.
    Apply(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let attributes = (prop::option::of(0..5_u8), prop::option::of(0..3_u8), any::<bool>());
    let step = prop_oneof![
        3 => (0..3_u8, prop::option::weighted(0.8, attributes))
            .prop_map(|(key, item)| Step::Write(key, item)),
        2 => any::<Index>().prop_map(Step::Deliver),
        1 => (0..3_u8).prop_map(Step::Read),
        2 => any::<Index>().prop_map(Step::Apply),
    ];
    prop::collection::vec(step, 1..40)
}

fn check(migration: &Migration, steps: &[Step], last: &[Index]) {
    let (mut world, mut read) = (World::default(), Vec::new());
    // What the writers wanted last; a writer's put replaces the whole item.
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
            Step::Deliver(index) if !world.records.is_empty() => {
                let record = index.get(&world.records).clone();
                world.apply(migration, migration.decide(&record, &Found::default()).unwrap());
            }
            Step::Read(key) => {
                if let Some(item) = world.table.get(key) {
                    read.push(migration.backfill("t", item).unwrap());
                }
            }
            Step::Apply(index) if !read.is_empty() => {
                let effects = index.get(&read).clone();
                world.apply(migration, effects);
            }
            Step::Deliver(_) | Step::Apply(_) => {}
        }
    }
    // Every record is delivered at least once, in the order of its shard; then some again.
    let mut next = 0;
    while let Some(record) = world.records.get(next).cloned() {
        world.apply(migration, migration.decide(&record, &Found::default()).unwrap());
        next += 1;
        assert!(next < 10_000, "its own writes never come to an end");
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
    assert_eq!(world.table, finished(migration, truth));
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
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn items_are_the_transform_of_what_was_written_last(
        steps in steps(),
        last in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        IN_PLACE.with(|migration| check(migration, &steps, &last));
        PURGE.with(|migration| check(migration, &steps, &last));
    }
}
