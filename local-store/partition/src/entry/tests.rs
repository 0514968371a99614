//! Tests of the encoding of entries, and of updates that decode only a part of an item.

use std::collections::BTreeMap;

use expression::{
    Condition, ExpressionError, ExpressionKind, Placeholders, Update, parse_condition, parse_update,
};
use model::{
    AttributeValue, EncodedItem, IndexKeySchema, Item, KeyAttribute, KeyAttributeType, Number,
};
use proptest::prelude::*;

use crate::index::refusal::check_updated;
use crate::machine::tests::{Replica, create, entry, key, put, schema};
use crate::*;

fn placeholders(values: &[(&str, AttributeValue)]) -> Placeholders {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let values = BTreeMap::from_iter(values);
    Placeholders::new(None, Some(values).filter(|values| !values.is_empty())).unwrap()
}

fn update(text: &str, value: &AttributeValue) -> Result<Update, ExpressionError> {
    let given = text.contains(":v").then(|| (":v", value.clone()));
    parse_update(text, &mut placeholders(given.as_slice()))
}

fn condition(text: &str, value: &AttributeValue) -> Result<Condition, ExpressionError> {
    let given = text.contains(":v").then(|| (":v", value.clone()));
    parse_condition(text, ExpressionKind::Condition, &mut placeholders(given.as_slice()))
}

fn write(number: u8, action: WriteAction, condition: Option<Condition>) -> Write {
    Write {
        table: TableId(1),
        key: key(number),
        action,
        condition: condition.map(Box::new),
        return_old: false,
        return_new: true,
        return_on_failure: false,
    }
}

/// Returns writes, some of which repeat the operation of others.
fn any_write() -> impl Strategy<Value = Command> {
    let action = prop_oneof![
        3 => Just(WriteAction::Update(add("1"))),
        2 => Just(WriteAction::Update(add("2"))),
        2 => Just(WriteAction::Update(update("REMOVE n", &number("1")).unwrap())),
        2 => Just(WriteAction::Delete),
        1 => Just(WriteAction::Check),
        1 => (0u8..2).prop_map(|number| WriteAction::put(&key(number).to_item(&schema()))),
    ];
    let text = prop::sample::select(vec![
        "n > :v",
        "attribute_exists(n)",
        "n = :v AND m = :v",
        "n = :w AND m BETWEEN :v AND :x AND o = :v",
    ]);
    let value = || (0usize..3).prop_map(|length| AttributeValue::S("x".repeat(length)));
    let values = (value(), value());
    let condition = prop::option::of((text, values).prop_map(|(text, (v, w))| {
        let x = AttributeValue::S("y".to_owned());
        let given = [(":v", v), (":w", w), (":x", x)];
        let given: Vec<_> = given.into_iter().filter(|(name, _)| text.contains(name)).collect();
        parse_condition(text, ExpressionKind::Condition, &mut placeholders(&given)).unwrap()
    }));
    let flags = prop::sample::select(
        vec![(false, true, false); 5]
            .into_iter()
            .chain([(true, true, false), (false, false, false), (false, true, true)])
            .collect::<Vec<_>>(),
    );
    (0u8..9, action, condition, prop_oneof![9 => Just(1), 1 => Just(2)], flags).prop_map(
        |(number, action, condition, table, (return_old, return_new, return_on_failure))| {
            let (table, write) = (TableId(table), write(number, action, condition));
            let write = Write { table, return_old, return_new, return_on_failure, ..write };
            Command::Write(Box::new(write))
        },
    )
}

fn number(digits: &str) -> AttributeValue {
    AttributeValue::N(digits.parse().unwrap())
}

fn add(digits: &str) -> Update {
    update("ADD n :v", &number(digits)).unwrap()
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        20 => any_write(),
        1 => Just(Command::ForgetTokens),
        1 => any_write().prop_map(|write| match write {
            Command::Write(write) => {
                let operations = vec![*write];
                Command::Transaction(Box::new(Transaction { token: None, operations }))
            }
            other => other,
        }),
    ]
}

proptest! {
    #[test]
    fn an_entry_decodes_to_its_commands(
        requests in prop::collection::vec(prop::collection::vec(any_command(), 0..12), 0..6),
    ) {
        let mut encoder = EntryEncoder::with_room(0);
        let mut counted = 0;
        for commands in &requests {
            let before = counted;
            counted = encoder.push(commands, usize::MAX).unwrap().unwrap();
            // A rejected request adds no bytes.
            let least = (counted - before).checked_sub(1);
            if let Some(least) = least {
                prop_assert_eq!(encoder.push(commands, least), Ok(None));
            }
            // The encoding also contains the length and the count of the values that differ from
            // the base.
            let whole: usize = commands.iter().map(alone).sum();
            let more = counted - before - whole;
            prop_assert!(more <= 24 * commands.len(), "{more}");
        }
        let all: Vec<Command> = requests.concat();
        let encoded = encoder.finish(entry(0, Vec::new()).now).unwrap();
        let EncodedEntry { bytes, begins_at } = encoded;
        prop_assert_eq!(entry_counts(&bytes[begins_at..]), Some(counted));
        prop_assert!(bytes.len() <= ENTRY_HEAD_BYTES_MAX + counted);
        let decoded = decode_entry(&bytes[begins_at..]).unwrap();
        prop_assert_eq!(format!("{:?}", decoded.commands), format!("{all:?}"));
    }
}

/// Returns the size in bytes of an entry with only this command, without the head.
fn alone(command: &Command) -> usize {
    EntryEncoder::with_room(0).push(std::slice::from_ref(command), usize::MAX).unwrap().unwrap()
}

/// Goal: the log entry of a request that writes the same operation to many items stores little more
/// than their keys.
#[test]
fn the_common_part_of_the_writes_of_a_request_is_stored_once() {
    let long = AttributeValue::S("long".repeat(100));
    let update = update("SET a = :v", &long).unwrap();
    let condition = condition("a <> :v", &long).unwrap();
    let commands: Vec<Command> = (0..25)
        .map(|number| {
            let action = WriteAction::Update(update.clone());
            Command::Write(Box::new(write(number, action, Some(condition.clone()))))
        })
        .collect();
    let whole = alone(&commands[0]);
    assert!(whole > 800, "{whole}");
    let mut encoder = EntryEncoder::with_room(0);
    let counted = encoder.push(&commands, usize::MAX).unwrap().unwrap();
    assert!((25 * whole..25 * (whole + 10)).contains(&counted), "{counted} of 25 times {whole}");
    assert_eq!(encoder.push(&commands, counted - 1).unwrap(), None);
    let bytes = encode_entry(&entry(0, commands)).unwrap().len();
    assert!(bytes < whole + 25 * 24, "{bytes}");
}

/// Goal: a request is not rejected because its first write is much larger than its other writes.
#[test]
fn a_delta_counts_the_bytes_of_its_whole_write() {
    let value = |length| AttributeValue::S("v".repeat(length));
    let delete = |number: u8, length| {
        let condition = condition("v <> :v", &value(length)).unwrap();
        Command::Write(Box::new(write(number, WriteAction::Delete, Some(condition))))
    };
    let mut commands = vec![delete(0, 100_000)];
    commands.extend((1..25).map(|number| delete(number, 10)));
    let whole: usize = commands.iter().map(alone).sum();
    let counted = EntryEncoder::with_room(0).push(&commands, usize::MAX).unwrap().unwrap();
    assert!((whole..whole + 1_000).contains(&counted), "{counted} of {whole}");
}

#[test]
fn an_entry_that_begins_with_a_delta_is_damaged() {
    let commands = || vec![Command::Write(Box::new(write(1, WriteAction::Delete, None))); 2];
    let (one, two) = (entry(0, vec![commands().remove(0)]), entry(0, commands()));
    let (one, two) = (encode_entry(&one).unwrap(), encode_entry(&two).unwrap());
    let first = one.len() - alone(&commands()[0]);
    // The encoded number of commands is correct.
    let alike = [&one[..first - 1], &[1], &two[one.len()..]].concat();
    assert!(decode_entry(&[&alike[..first - 1], &[0]].concat()).is_ok());
    let error = decode_entry(&alike).unwrap_err().to_string();
    assert!(error.ends_with("a delta has no preceding write"), "{error}");
}

/// Items with a few attribute names and several types.
fn any_attributes() -> impl Strategy<Value = Item> {
    let leaf = prop_oneof![
        (0u8..4).prop_map(|number| AttributeValue::N(Number::from(u64::from(number)))),
        "[a-c]{0,2}".prop_map(AttributeValue::S),
    ];
    let value = prop_oneof![
        4 => leaf.clone(),
        1 => prop::collection::vec(leaf.clone(), 0..3).prop_map(AttributeValue::L),
        1 => prop::collection::btree_map("[ab]", leaf, 0..3).prop_map(AttributeValue::M),
    ];
    prop::collection::btree_map("[a-gnz]", value, 0..8)
        .prop_map(|members| members.into_iter().collect())
}

fn indexes() -> Vec<IndexDefinition> {
    let attribute = |name: &str, attribute_type| {
        let name = name.to_owned();
        vec![KeyAttribute { name, attribute_type }]
    };
    let of = |name: &str, partition, sort, projection| IndexDefinition {
        name: name.to_owned(),
        kind: IndexKind::Global,
        key_schema: IndexKeySchema { partition, sort },
        projection,
        throughput: None,
    };
    let (a, n) = (attribute("a", KeyAttributeType::S), attribute("n", KeyAttributeType::N));
    vec![
        of("both", a, n.clone(), IndexProjection::Include(vec!["c".to_owned()])),
        of("one", n, Vec::new(), IndexProjection::All),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// Goal: a write that decodes only a part of an item has the same result as a write that
    /// decodes the entire item.
    #[test]
    fn a_write_to_a_part_of_an_item_equals_a_write_to_the_whole(
        attributes in any_attributes(),
        update_text in prop::sample::select(vec![
            "SET a = :v", "SET a = b", "SET a.a = :v", "SET a = a, b = :v", "SET n = n + :v",
            "SET c = if_not_exists(d, :v)", "SET b = list_append(b, c)", "SET d = e - f",
            "SET b = list_append(if_not_exists(b, d), :v)", "REMOVE a", "REMOVE a.b, c",
            "REMOVE b[0]", "ADD n :v", "SET z = :v REMOVE g", "SET b[1] = a", "SET n = :v, a = c",
            "SET c = if_not_exists(d, e)", "SET c = if_not_exists(d, if_not_exists(e, f))",
            "SET b = list_append(b, list_append(if_not_exists(c, d), :v))",
        ]),
        condition_text in prop::sample::select(vec![
            "", "a = :v", "attribute_exists(b)", "size(c) > :v", "NOT a = b", "d IN (e, :v)",
            "contains(e, f)", "c.a BETWEEN g AND :v",
        ]),
        value in prop_oneof![
            2 => (0u8..4).prop_map(|number| AttributeValue::N(Number::from(u64::from(number)))),
            2 => "[a-c]{0,1}".prop_map(AttributeValue::S),
            1 => Just(AttributeValue::L(vec![AttributeValue::Null])),
        ],
        has_indexes in any::<bool>(),
    ) {
        // Some values do not fit some of the expressions. Such cases are skipped.
        let condition = Some(condition_text).filter(|text| !text.is_empty());
        let (Ok(update), Ok(condition)) = (
            update(update_text, &value),
            condition.map(|text| self::condition(text, &value)).transpose(),
        ) else {
            return Ok(());
        };
        let Command::CreateTable(mut table) = create() else { unreachable!() };
        table.indexes = if has_indexes { indexes() } else { Vec::new() };
        let mut replica = Replica::new();
        replica.apply(1, &entry(0, vec![Command::CreateTable(table)]));
        let mut old = key(1).to_item(&schema());
        old.extend(attributes);
        // A put of values that indexes do not accept is rejected, so the item is stored first.
        let stored = write(1, WriteAction::put(&old), None);
        let mut plain = Replica::new();
        plain.apply(1, &entry(0, vec![create()]));
        plain.apply(2, &entry(0, vec![Command::Write(Box::new(stored))]));
        let items = std::mem::take(&mut plain.storage.0).into_iter();
        let of_item = EncodedItem::from(&old).to_shared();
        replica.storage.0.extend(items.filter(|(_, bytes)| **bytes == *of_item));

        let holds = condition.as_ref().is_none_or(|condition| condition.evaluate(&old));
        let whole = update.apply(&old);
        let asked = write(1, WriteAction::Update(update.clone()), condition);
        let replies = replica.apply(3, &entry(0, vec![Command::Write(Box::new(asked))]));
        let expected = match whole {
            _ if !holds => None,
            Err(error) => Some(Err(error.to_string())),
            Ok(new) => match check_updated(replica.table(), &update, Some(&old), &new) {
                Ok(()) => Some(Ok(new)),
                Err(refusal) => Some(Err(refusal.text)),
            },
        };
        let found = match &replies[0] {
            Reply::ConditionFailed { .. } => None,
            Reply::Invalid(text) | Reply::EmptyIndexKey(text) => Some(Err(text.clone())),
            // An update that changes nothing returns no new item.
            Reply::Written(written) => Some(Ok(written.new.clone().unwrap_or(old.clone()))),
            other => panic!("{other:?}"),
        };
        let kept = replica.items();
        prop_assert_eq!(&kept, &[match &expected {
            Some(Ok(new)) => new.clone(),
            _ => old,
        }]);
        prop_assert_eq!(found, expected);
    }
}

/// Goal: the size limit counts all entries of an item in local indexes, even if the update does not
/// use their attributes.
#[test]
fn an_update_is_refused_for_the_size_of_local_entries_that_it_does_not_use() {
    let key_schema = IndexKeySchema {
        partition: vec![schema().partition],
        sort: vec![KeyAttribute { name: "n".to_owned(), attribute_type: KeyAttributeType::N }],
    };
    let index = IndexDefinition {
        name: "local".to_owned(),
        kind: IndexKind::Local,
        key_schema,
        projection: IndexProjection::All,
        throughput: None,
    };
    let Command::CreateTable(mut table) = create() else { panic!("not a CreateTable") };
    table.indexes = vec![index];
    let mut replica = Replica::new();
    replica.apply(1, &entry(0, vec![Command::CreateTable(table)]));
    let large = key(1).to_item(&schema()).with("a", "x".repeat(150_000).as_str());
    let text = |length: usize| AttributeValue::S("y".repeat(length));
    let mut asked = vec![WriteAction::put(&large.with("n", Number::from(1_u64)))];
    let set = |length| WriteAction::Update(update("SET b = :v", &text(length)).unwrap());
    asked.extend([
        set(60_000),
        set(40_000),
        WriteAction::Update(update("REMOVE n", &text(0)).unwrap()),
        set(60_000),
    ]);
    let commands = asked.into_iter().map(|action| Command::Write(Box::new(write(1, action, None))));
    let replies = replica.apply(2, &entry(0, commands.collect()));
    let outcomes: Vec<bool> = replies
        .iter()
        .map(|reply| match reply {
            Reply::Written(_) => true,
            Reply::Invalid(text) => !text.contains("exceeded the maximum allowed size"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(outcomes, [true, false, true, true, true]);
}

/// Goal: puts of one request are stored in full, never as deltas.
#[test]
fn puts_are_never_deltas() {
    let commands = vec![put(1, 1, None), put(1, 1, None), put(2, 1, None)];
    let decoded = decode_entry(&encode_entry(&entry(0, commands.clone())).unwrap()).unwrap();
    assert_eq!(format!("{:?}", decoded.commands), format!("{commands:?}"));
}
