//! Tests of documents and their parts. The assembly restores every document unchanged. The parts
//! follow a document that grows and shrinks. After overlapping, repeated and late assemblies, the
//! document equals the current parts.
//!
//! The tables are maps in memory. Other tests write to the store.

use std::cell::RefCell;

use model::json::item_from_str;
use model::{
    AttributeValue, EventName, KeyAttribute, KeyAttributeType, KeyValue, StreamRecord,
    StreamViewType,
};
use proptest::prelude::*;
use proptest::sample::Index;

use super::plan::{Cut, Part, Parts};
use super::*;

thread_local! {
    // The compilation takes longer than many cases, so it is done once.
    static BOTH: RefCell<(Migration, Migration)> = RefCell::new((
        compile(&plan(PARTS), Direction::Forward).unwrap(),
        compile(&plan(PARTS), Direction::Reverse).unwrap(),
    ));
}

const PARTS: [(&str, &str, Cut); 7] = [
    ("director", "info.director", Cut::Whole),
    ("actor", "info.actors", Cut::Each),
    ("actors", "info.also.actors", Cut::Each),
    ("text", "text", Cut::Bytes(1_000)),
    ("picture", "info.picture", Cut::Bytes(1_000)),
    ("notes", "notes", Cut::Bytes(1_000)),
    ("words", "info.words", Cut::Bytes(1_000)),
];

fn schema(partition: &str, sort: Option<&str>) -> KeySchema {
    let attribute =
        |name: &str| KeyAttribute { name: name.to_owned(), attribute_type: KeyAttributeType::S };
    KeySchema { partition: attribute(partition), sort: sort.map(attribute) }
}

fn plan<const N: usize>(parts: [(&str, &str, Cut); N]) -> Plan {
    let list =
        parts.map(|(name, path, cut)| Part { name: name.to_owned(), path: path.to_owned(), cut });
    let output = |to: &str, key: &[(&str, &str)]| plan::Output {
        to: to.to_owned(),
        transform: ".".to_owned(),
        key: key.iter().map(|(name, template)| ((*name).into(), (*template).into())).collect(),
    };
    Plan {
        migration: "m".to_owned(),
        kind: Kind::Split,
        from: vec![plan::Source {
            table: "documents".to_owned(),
            items: vec![output("parts", &[("pk", "D#{id}")])],
            split: Some(Parts { profile: "PROFILE".to_owned(), list: list.into() }),
            archive: false,
        }],
        inverse: vec![plan::Source {
            table: "parts".to_owned(),
            items: vec![output("documents", &[])],
            split: None,
            archive: false,
        }],
        backfill: plan::Backfill::Scan,
        segments: 1,
        gate_seconds: 1,
        settle_seconds: 5,
        function_seconds: plan::FUNCTION_SECONDS,
        route: None,
    }
}

fn compile(plan: &Plan, direction: Direction) -> Result<Migration, Vec<PlanError>> {
    let tables = [("documents", schema("id", None)), ("parts", schema("pk", Some("sk")))];
    let schemas = tables.map(|(name, schema)| (name.to_owned(), schema)).into();
    Migration::compile(plan, direction, &schemas)
}

fn long_text() -> impl Strategy<Value = AttributeValue> {
    "[aß]{0,700}".prop_map(AttributeValue::S)
}

fn value() -> impl Strategy<Value = AttributeValue> {
    let leaf = prop_oneof![
        4 => "[a-zäß€😀]{0,8}".prop_map(AttributeValue::S),
        1 => "[aß😀]{300,1200}".prop_map(AttributeValue::S),
        2 => any::<i64>().prop_map(|n| AttributeValue::N(n.into())),
        1 => Just(AttributeValue::N("0.1234567890123456789012345678901234567".parse().unwrap())),
        2 => prop::collection::vec(any::<u8>(), 0..20).prop_map(AttributeValue::B),
        1 => prop::collection::vec(any::<u8>(), 900..3000).prop_map(AttributeValue::B),
        1 => any::<bool>().prop_map(AttributeValue::Bool),
        1 => Just(AttributeValue::Null),
        1 => prop::collection::btree_set("[a-z]{1,3}", 1..4).prop_map(AttributeValue::Ss),
        1 => prop::collection::btree_map("[a-z]{1,3}", long_text(), 1..5).prop_map(AttributeValue::M),
    ];
    leaf.prop_recursive(2, 24, 6, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..6).prop_map(AttributeValue::L),
            1 => prop::collection::btree_map("[a-z]{0,4}", inner, 0..4)
                .prop_map(AttributeValue::M),
        ]
    })
}

fn map(names: &'static [&'static str]) -> impl Strategy<Value = BTreeMap<String, AttributeValue>> {
    let member = (prop::sample::select(names), value());
    prop::collection::vec(member, 0..5).prop_map(|members| {
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

/// Returns the attributes of a document without its key. Some of them become parts and have any
/// type.
fn content() -> impl Strategy<Value = Item> {
    let info = map(&["director", "actors", "picture", "words", "also", "year"]);
    let also = prop::option::of(map(&["actors", "of"]));
    let rest = map(&["text", "notes", "info", "title", "director", "actors"]);
    (rest, prop::option::weighted(0.8, (info, also))).prop_map(|(rest, info)| {
        let mut item = Item(rest);
        if let Some((mut info, also)) = info {
            if let Some(also) = also {
                info.insert("also".to_owned(), AttributeValue::M(also));
            }
            item.insert("info".to_owned(), AttributeValue::M(info));
        }
        item
    })
}

fn document(id: u8, content: &Item) -> Item {
    content.clone().with("id", AttributeValue::S(format!("d{id}")))
}

fn record(id: u8, before: Option<&Item>, after: Option<&Item>, place: usize) -> LambdaRecord {
    LambdaRecord {
        record: StreamRecord {
            event_id: format!("{place:032}"),
            event_name: match (before, after) {
                (None, _) => EventName::Insert,
                (_, None) => EventName::Remove,
                _ => EventName::Modify,
            },
            user_identity: None,
            approximate_creation_seconds: Some(1),
            keys: Item::new().with("id", AttributeValue::S(format!("d{id}"))),
            old_image: before.map(|content| document(id, content)),
            new_image: after.map(|content| document(id, content)),
            sequence_number: (place + 7).to_string().parse().unwrap(),
            size_bytes: 1,
            view_type: StreamViewType::NewAndOldImages,
        },
        event_source_arn: "arn:aws:dynamodb:us-east-1:000000000000:table/documents/stream/l"
            .to_owned(),
    }
}

/// The table of parts, by target.
type Table = BTreeMap<Target, Item>;

fn state(table: &mut Table, effects: Vec<Effect>) {
    for effect in effects {
        let Effect::Registers { target, registers } = effect else { panic!("{effect:?}") };
        let known = table.get(&target).map(|item| Registers::from_item(item).unwrap());
        if let Some(joined) = known.unwrap_or_default().joined(&registers) {
            let key = target.key.to_item(&schema("pk", Some("sk")));
            table.insert(target, joined.to_item(&key));
        }
    }
}

/// Returns the items of a document's partition, in the order of their sort keys.
fn partition(table: &Table, id: u8) -> (Document, Vec<Item>) {
    let partition = KeyValue::from_attribute_value(&AttributeValue::S(format!("D#d{id}"))).unwrap();
    let mut items: Vec<Item> = table
        .iter()
        .filter(|(target, _)| target.key.partition == partition)
        .map(|(_, item)| item.clone())
        .collect();
    items.sort_by_key(|item| item["sk"].as_str().unwrap().to_owned());
    (Document { migration: "m".to_owned(), parts: "parts".to_owned(), partition }, items)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_document_survives_the_round_trip(content in content()) {
        let document = document(1, &content);
        BOTH.with_borrow(|(forward, back)| {
            let outputs = forward.outputs("documents", &document).unwrap();
            let mut table = Table::new();
            state(&mut table, forward.backfill("documents", &document).unwrap());
            prop_assert_eq!(outputs.len(), table.len());
            for (target, item) in &outputs {
                // Large values are cut into pieces. Values that cannot become parts are only in the
                // profile.
                let sort = item["sk"].as_str().unwrap();
                if sort.contains('#') && sort != "PROFILE" && !sort.starts_with("actor") {
                    let rest = item.iter().filter(|(name, _)| !["pk", "sk"].contains(&name.as_str()));
                    let [(_, value)] = rest.collect::<Vec<_>>()[..] else { panic!("{item:?}") };
                    let single = match value {
                        AttributeValue::L(members) => members.len() == 1,
                        AttributeValue::M(members) => members.len() == 1,
                        _ => false,
                    };
                    prop_assert!(single || value.size() <= 1_003, "{}", value.size());
                }
                prop_assert_eq!(&target.key.to_item(&schema("pk", Some("sk")))["pk"], &AttributeValue::from("D#d1"));
            }
            let (of, items) = partition(&table, 1);
            prop_assert_eq!(back.document("parts", &items), Ok(Some(document.clone())));
            let assembled = back.assembled(&of, &items, &Keys::default()).unwrap();
            prop_assert_eq!(assembled.refused, None);
            prop_assert_eq!(assembled.targets.into_values().collect::<Vec<_>>(), [Some(document.clone())]);
            prop_assert_eq!(forward.there_and_back("documents", &document), Ok(Some(document)));
            Ok(())
        })?;
    }

    /// Goal: the parts follow a document that grows, shrinks, is deleted and is created again,
    /// regardless of when the document is read.
    #[test]
    fn parts_follow_their_document(
        versions in prop::collection::vec(prop::option::weighted(0.85, content()), 1..6),
        read in any::<Index>(),
        order in prop::collection::vec(any::<Index>(), 16),
        again in prop::collection::vec(any::<Index>(), 0..4),
    ) {
        BOTH.with_borrow(|(forward, back)| {
            let mut statements = Vec::new();
            let mut before = None;
            for (place, after) in versions.iter().enumerate() {
                if before != after.as_ref() {
                    let record = record(1, before, after.as_ref(), place);
                    statements.push(forward.decide(&record, &Found::default()).unwrap());
                }
                before = after.as_ref();
            }
            if let Some(content) = &versions[read.index(versions.len())] {
                statements.push(forward.backfill("documents", &document(1, content)).unwrap());
            }
            if statements.is_empty() {
                return Ok(());
            }
            let repeated: Vec<_> = again.iter().map(|i| i.get(&statements).clone()).collect();
            statements.extend(repeated);
            for (place, index) in order.iter().enumerate().take(statements.len()) {
                let other = index.index(statements.len());
                statements.swap(place, other);
            }
            let mut table = Table::new();
            statements.into_iter().for_each(|effects| state(&mut table, effects));
            let (_, items) = partition(&table, 1);
            let last = versions.last().unwrap().as_ref().map(|content| document(1, content));
            prop_assert_eq!(back.document("parts", &items), Ok(last));
            // Only tombstones remain of earlier versions.
            let stands = items.iter().filter_map(|item| back.visible("parts", item)).count();
            let expected = versions.last().unwrap().as_ref().map_or(0, |content| {
                forward.outputs("documents", &document(1, content)).unwrap().len()
            });
            prop_assert_eq!(stands, expected);
            Ok(())
        })?;
    }
}

/// An assembler that works like the executor. It reads the document and then the parts. It writes
/// the document only if the document has not changed since that read.
#[derive(Clone, Debug, Default)]
struct Assembler {
    stands: Option<Option<Item>>,
    parts: Option<Vec<Item>>,
    is_done: bool,
}

impl Assembler {
    fn step(
        &mut self,
        back: &Migration,
        parts: &BTreeMap<String, Item>,
        stands: &mut Option<Item>,
    ) {
        let id = schema("id", None).key_of_item(&document(1, &Item::new())).unwrap();
        match (&self.stands, &self.parts) {
            _ if self.is_done => {}
            (None, _) => self.stands = Some(stands.clone()),
            (Some(_), None) => self.parts = Some(parts.values().cloned().collect()),
            (Some(known), Some(items)) => {
                let (of, _) = partition(&Table::new(), 1);
                let keys = Keys([id.clone()].into());
                let assembled = back.assembled(&of, items, &keys).unwrap();
                let Some(item) = assembled.targets.into_values().next() else {
                    assert!(assembled.refused.is_some());
                    self.is_done = true;
                    return;
                };
                if known != stands {
                    *self = Self::default();
                    return;
                }
                let registers = known.as_ref().and_then(|item| Registers::from_item(item).ok());
                let said = Document::restated(registers.as_ref(), &of.source("pk"), item);
                *stands = Some(said.to_item(&id.to_item(&schema("id", None))));
                self.is_done = true;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Goal: the final document equals the assembly of its parts, if several assemblers work on each
    /// change at the same time.
    #[test]
    fn assemblies_that_overlap_end_at_the_parts(
        was_there in any::<bool>(),
        // Each event puts or deletes a part (number 0 is the profile). One assembler continues
        // after it.
        events in prop::collection::vec(
            (0..4_usize, prop::option::weighted(0.7, 0..4_u8), prop::collection::vec(any::<Index>(), 0..6)),
            1..10,
        ),
        order in prop::collection::vec(any::<Index>(), 100),
    ) {
        BOTH.with_borrow(|(_, back)| {
            let mut stands = was_there.then(|| document(1, &Item::new()));
            let mut parts = BTreeMap::new();
            let mut assemblers: Vec<Assembler> = Vec::new();
            for (part, value, steps) in &events {
                let sort = ["PROFILE", "actor#000001", "actor#000002", "director"][*part];
                let name = ["title", "actors", "actors", "director"][*part];
                match value {
                    None => {
                        parts.remove(sort);
                    }
                    Some(value) => {
                        let mut item = item_from_str(&format!(
                            r#"{{"pk":{{"S":"D#d1"}},"sk":{{"S":"{sort}"}},"{name}":{{"N":"{value}"}}}}"#
                        )).unwrap();
                        if *part == 0 {
                            item.insert("id".to_owned(), AttributeValue::from("d1"));
                        }
                        parts.insert(sort.to_owned(), item);
                    }
                }
                assemblers.push(Assembler::default());
                for step in steps {
                    let who = step.index(assemblers.len());
                    assemblers[who].step(back, &parts, &mut stands);
                }
            }
            for index in &order {
                let who = index.index(assemblers.len());
                assemblers[who].step(back, &parts, &mut stands);
            }
            while let Some(assembler) = assemblers.iter_mut().find(|a| !a.is_done) {
                assembler.step(back, &parts, &mut stands);
            }
            let items: Vec<Item> = parts.values().cloned().collect();
            let expected = back.document("parts", &items).unwrap();
            prop_assert_eq!(stands.as_ref().and_then(|item| back.visible("documents", item)), expected);
            Ok(())
        })?;
    }
}

#[test]
fn invalid_splits_are_reported_with_their_place() {
    type Change = fn(&mut Plan);
    let cases: [(&str, &str, Change); 13] = [
        (
            "key",
            "a split needs exactly one key template, for `pk`: sort keys are the names of parts",
            |plan| {
                plan.from[0].items[0].key.insert("sk".to_owned(), "x".to_owned());
            },
        ),
        (
            "key.pk",
            "`owner` is not a key attribute of the document; all parts of a document must stay in one partition",
            |plan| {
                plan.from[0].items[0].key.insert("pk".to_owned(), "{id}{owner}".to_owned());
            },
        ),
        (
            "key.pk",
            "`id` is a key attribute of the document, so the template must contain it",
            |plan| {
                plan.from[0].items[0].key.insert("pk".to_owned(), "one".to_owned());
            },
        ),
        ("to", "there is no table `elsewhere`", |plan| {
            plan.from[0].items[0].to = "elsewhere".to_owned();
        }),
        ("profile", NAMES, |plan| parts(plan).profile = "actor#000001".to_owned()),
        ("parts[0].name", NAMES, |plan| parts(plan).list[0].name = "a b".to_owned()),
        ("parts[1].name", "`director` is listed twice", |plan| {
            parts(plan).list[1].name = "director".to_owned();
        }),
        ("parts[0].name", "`PROFILE` is listed twice", |plan| {
            parts(plan).list[0].name = "PROFILE".to_owned();
        }),
        ("parts[0].path", "`info.` names no attribute", |plan| {
            parts(plan).list[0].path = "info.".to_owned();
        }),
        (
            "parts[0].path",
            "`id` is a key attribute of the document, so it must stay in the profile",
            |plan| {
                parts(plan).list[0].path = "id".to_owned();
            },
        ),
        (
            "parts[0].path",
            "`sk` is a key attribute of the parts, so a part cannot store it",
            |plan| {
                parts(plan).list[0].path = "info.sk".to_owned();
            },
        ),
        ("parts[1].path", "`info` overlaps `info.director`", |plan| {
            parts(plan).list[1].path = "info".to_owned();
        }),
        ("parts[3].cut", "write a size from 1000 to 390000 bytes", |plan| {
            parts(plan).list[3].cut = Cut::Bytes(999);
        }),
    ];
    for (place, reason, change) in cases {
        let mut plan = plan(PARTS);
        change(&mut plan);
        let errors = compile(&plan, Direction::Forward).unwrap_err();
        assert_eq!(
            (errors[0].place.as_str(), errors[0].reason.as_str()),
            (format!("from[0].{place}").as_str(), reason)
        );
    }
}

const NAMES: &str = "write 1 to 64 of A-Z, a-z, 0-9, `_`, `-`, `.` and `:`";

fn parts(plan: &mut Plan) -> &mut Parts {
    plan.from[0].split.as_mut().unwrap()
}

#[test]
fn parts_that_form_no_document_are_refused() {
    let items = |text: &str| -> Vec<Item> {
        let items = text.split('\n').map(|line| {
            let (sort, rest) = line.split_once(' ').unwrap();
            item_from_str(&format!(r#"{{"pk":{{"S":"D#d1"}},"sk":{{"S":"{sort}"}}{rest}}}"#))
                .unwrap()
        });
        items.collect()
    };
    let profile = r#"PROFILE ,"id":{"S":"d1"},"text":{"S":"x"},"info":{"M":{}}"#;
    for (text, expected) in [
        (String::from("director "), Some("the document has parts but no profile")),
        (profile.to_owned(), None),
        (
            r#"PROFILE ,"id":{"S":"d2"}"#.to_owned(),
            Some("the profile belongs to a document of another partition"),
        ),
        (r#"PROFILE ,"x":{"S":"d2"}"#.to_owned(), Some("the profile lacks the key of `documents`")),
        (format!("{profile}\nmusic#1 "), Some("`music#1` matches no part in the plan")),
        (format!("{profile}\ndirector "), Some("`director` has no `director`")),
        (
            format!("{profile}\ndirector ,\"director\":{{\"S\":\"x\"}},\"born\":{{\"S\":\"y\"}}"),
            Some("`director` has `born`, which has no place in the document"),
        ),
        (
            format!("{profile}\ntext#000000 ,\"text\":{{\"S\":\"y\"}}"),
            Some("`text` has parts, but the profile also has `text`"),
        ),
        (
            format!(
                "{profile}\nnotes#0 ,\"notes\":{{\"S\":\"y\"}}\nnotes#1 ,\"notes\":{{\"L\":[]}}"
            ),
            Some(
                "the pieces of `notes` cannot be joined: they must be all strings, all binary values, all lists, or all maps with distinct names",
            ),
        ),
        (
            format!(
                "{profile}\nwords#0 ,\"words\":{{\"M\":{{\"en\":{{\"S\":\"a\"}}}}}}\nwords#1 ,\"words\":{{\"M\":{{\"en\":{{\"S\":\"b\"}}}}}}"
            ),
            Some(
                "the pieces of `info.words` cannot be joined: they must be all strings, all binary values, all lists, or all maps with distinct names",
            ),
        ),
        (
            format!(
                "{profile}\nactor#0 ,\"actors\":{{\"S\":\"{}\"}}\nactor#1 ,\"actors\":{{\"S\":\"{}\"}}",
                "x".repeat(300_000),
                "y".repeat(150_000)
            ),
            Some("the document has 451,"),
        ),
    ] {
        let refused = BOTH.with_borrow(|(_, back)| {
            let (of, _) = partition(&Table::new(), 1);
            back.assembled(&of, &items(&text), &Keys::default()).unwrap().refused
        });
        let refused = refused.map(|error| error.to_string());
        match (refused, expected) {
            (Some(refused), Some("the document has 451,")) => {
                assert!(
                    refused.ends_with("bytes with its mark, but an item has at most 409600"),
                    "{refused}"
                );
            }
            (refused, expected) => assert_eq!(refused.as_deref(), expected, "{text}"),
        }
    }
}

#[test]
fn a_map_is_cut_into_maps_of_its_members() {
    let text = |bytes: usize| AttributeValue::S("x".repeat(bytes));
    let words = [("de", text(600)), ("en", text(600)), ("fr", text(300)), ("it", text(1_200))];
    let words: BTreeMap<String, AttributeValue> =
        words.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let info = BTreeMap::from([("words".to_owned(), AttributeValue::M(words.clone()))]);
    let document = document(1, &Item::new().with("info", AttributeValue::M(info)));
    let pieces = BTreeMap::from([
        ("words#000000", vec!["de"]),
        ("words#000001", vec!["en", "fr"]),
        // A member that is larger than the limit becomes a separate piece.
        ("words#000002", vec!["it"]),
    ]);
    BOTH.with_borrow(|(forward, _)| {
        let made = forward.outputs("documents", &document).unwrap();
        let made: BTreeMap<String, Vec<String>> = made
            .values()
            .filter_map(|item| {
                let names = item.get("words")?.as_map()?.keys().cloned().collect();
                Some((item["sk"].as_str()?.to_owned(), names))
            })
            .collect();
        let pieces = pieces
            .into_iter()
            .map(|(sort, names)| (sort.to_owned(), names.into_iter().map(str::to_owned).collect()));
        assert_eq!(made, pieces.collect());
        assert_eq!(forward.there_and_back("documents", &document), Ok(Some(document.clone())));
    });
}

#[test]
fn a_document_with_too_many_parts_is_refused() {
    let members = vec![AttributeValue::Null; PARTS_MAX];
    let info = BTreeMap::from([("actors".to_owned(), AttributeValue::L(members))]);
    let document = document(1, &Item::new().with("info", AttributeValue::M(info)));
    let refused = |document: &Item| {
        BOTH.with_borrow(|(forward, _)| {
            forward.outputs("documents", document).unwrap_err().to_string()
        })
    };
    assert_eq!(
        refused(&document),
        "the document becomes more than 1000 items; cut `info.actors` into larger pieces, by bytes"
    );
    let named = document.with("sk", AttributeValue::Null);
    assert_eq!(
        refused(&named),
        "the document has the attribute `sk`, which is a key attribute of its parts"
    );
}
