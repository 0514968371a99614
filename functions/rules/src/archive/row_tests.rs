//! Compares rows of records in JSON with rows of parsed items. The formatting of the JSON and the
//! order and number of the records are random.

use std::fmt::Write as _;

use model::json::{item_to_string, write_string};
use model::stream_record::{LambdaRecord, RecordView, lambda_record_from_str};
use model::{AttributeValue, Item, Number};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::effect::Join;

fn numbers() -> impl Strategy<Value = Number> {
    let big = "-?[1-9][0-9]{20,37}".prop_map(|text| text.parse().unwrap());
    let small = "-?[0-9]{1,4}\\.[0-9]{1,12}".prop_map(|text| text.parse().unwrap());
    prop_oneof![any::<i32>().prop_map(|n| Number::from(i64::from(n))), big, small]
}

fn texts() -> impl Strategy<Value = String> + Clone {
    prop_oneof!["[a-c]{0,3}", "[a\"\\\\\n\u{1}é😀]{0,4}"]
}

fn values() -> impl Strategy<Value = AttributeValue> {
    let leaf = prop_oneof![
        texts().prop_map(AttributeValue::S),
        numbers().prop_map(AttributeValue::N),
        vec(any::<u8>(), 0..4).prop_map(AttributeValue::B),
        any::<bool>().prop_map(AttributeValue::Bool),
        Just(AttributeValue::Null),
        btree_set(texts(), 1..4).prop_map(AttributeValue::Ss),
        btree_set(numbers(), 1..4).prop_map(AttributeValue::Ns),
        btree_set(vec(any::<u8>(), 0..3), 1..4).prop_map(AttributeValue::Bs),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(AttributeValue::L),
            btree_map(names(), inner, 0..3).prop_map(AttributeValue::M),
        ]
    })
}

/// Generates attribute names: names that become equal column names, declared names, and names that
/// must be escaped.
fn names() -> impl Strategy<Value = String> {
    const NAMES: [&str; 11] =
        ["a", "A", "b", "price", "Price", "price_n", "m", "ttl", "dt", "é\"", "x.y"];
    prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn items() -> impl Strategy<Value = Item> {
    btree_map(names(), values(), 0..6).prop_map(|members| {
        let item: Item = members.into_iter().collect();
        item.with("id", "k")
    })
}

/// Writes the item in another valid form, with another order of members, white space, escaped
/// strings, and other forms of numbers.
fn write_otherwise(out: &mut String, value: &AttributeValue) {
    match value {
        AttributeValue::S(text) => {
            out.push_str("{ \"S\" : \"");
            text.encode_utf16().for_each(|unit| {
                let _ = write!(out, "\\u{unit:04X}");
            });
            out.push_str("\"}");
        }
        AttributeValue::N(number) => {
            let _ = write!(out, r#"{{"N":"{number}e0"}}"#);
        }
        AttributeValue::L(members) => {
            out.push_str(r#"{"L":["#);
            for (position, member) in members.iter().enumerate() {
                out.push_str(if position > 0 { ", " } else { "" });
                write_otherwise(out, member);
            }
            out.push_str("]}");
        }
        AttributeValue::M(members) => {
            out.push_str(r#"{"M":"#);
            write_members_otherwise(out, members.iter().rev());
            out.push('}');
        }
        AttributeValue::Ns(members) => {
            let texts: Vec<String> =
                members.iter().rev().map(|number| format!("\"{number}E+0\"")).collect();
            let _ = write!(out, r#"{{"NS":[{}]}}"#, texts.join(" ,"));
        }
        other => model::json::write_attribute_value(out, other),
    }
}

fn write_members_otherwise<'i>(
    out: &mut String,
    members: impl Iterator<Item = (&'i String, &'i AttributeValue)>,
) {
    out.push('{');
    for (position, (name, value)) in members.enumerate() {
        out.push_str(if position > 0 { ",\n" } else { "" });
        write_string(out, name);
        out.push(':');
        write_otherwise(out, value);
    }
    out.push('}');
}

/// Returns a record of a delete by TTL. If `otherwise` is true, the item is written by
/// [`write_otherwise`].
fn record(number: usize, item: &Item, otherwise: bool) -> String {
    let mut image = item_to_string(item);
    if otherwise {
        image.clear();
        write_members_otherwise(&mut image, item.iter().rev());
    }
    format!(
        r#"{{"eventID":"e{number}","eventName":"REMOVE","dynamodb":{{"ApproximateCreationDateTime":1795228199,"Keys":{{"id":{{"S":"k"}}}},"OldImage":{image},"SequenceNumber":"{number}","SizeBytes":1,"StreamViewType":"OLD_IMAGE"}},"userIdentity":{{"principalId":"dynamodb.amazonaws.com","type":"Service"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/tab/stream/2026-11-21"}}"#
    )
}

/// Returns the plain JSON of an attribute value.
fn plain(value: &AttributeValue) -> String {
    let quoted = |text: &str| {
        let mut out = String::new();
        write_string(&mut out, text);
        out
    };
    let binary = |bytes: &Vec<u8>| {
        let text = item_to_string(&Item::new().with("b", AttributeValue::B(bytes.clone())));
        text[r#"{"b":{"B":"#.len()..text.len() - 2].to_owned()
    };
    let array = |members: Vec<String>| format!("[{}]", members.join(","));
    match value {
        AttributeValue::S(text) => quoted(text),
        AttributeValue::N(number) => number.to_string(),
        AttributeValue::B(bytes) => binary(bytes),
        AttributeValue::Bool(flag) => flag.to_string(),
        AttributeValue::Null => "null".to_owned(),
        AttributeValue::L(members) => array(members.iter().map(plain).collect()),
        AttributeValue::M(members) => {
            let members = members.iter().map(|(n, v)| format!("{}:{}", quoted(n), plain(v)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        AttributeValue::Ss(members) => array(members.iter().map(|text| quoted(text)).collect()),
        AttributeValue::Ns(members) => array(members.iter().map(Number::to_string).collect()),
        AttributeValue::Bs(members) => array(members.iter().map(binary).collect()),
    }
}

/// Returns the expected value of a column as a string; `None` if the attribute is present and does
/// not fit.
fn expected_value(column: &Column, item: &Item) -> Option<String> {
    let path = column.path.to_string();
    let found = match path.as_str() {
        "m.b" => match item.get("m") {
            Some(AttributeValue::M(members)) => members.get("b"),
            _ => None,
        },
        name => item.get(name),
    };
    let Some(value) = found else { return Some("Null".to_owned()) };
    Some(match (column.column_type, value) {
        (ColumnType::Json, value) => format!("Text({:?})", plain(value)),
        (_, AttributeValue::Null) => "Null".to_owned(),
        (ColumnType::String, AttributeValue::S(text)) => format!("Text({text:?})"),
        (ColumnType::String, AttributeValue::N(number)) => format!("Text(\"{number}\")"),
        (ColumnType::Bigint, AttributeValue::N(n)) => {
            format!("Integer({})", i64::try_from(n.to_i128()?).ok()?)
        }
        (ColumnType::Decimal { precision, scale }, AttributeValue::N(number)) => {
            let unscaled = number.to_scaled_i128(scale.into())?;
            let digits = unscaled.unsigned_abs().to_string().len();
            (digits <= usize::from(precision)).then(|| format!("Decimal({unscaled})"))?
        }
        (ColumnType::Boolean, AttributeValue::Bool(flag)) => format!("Boolean({flag})"),
        (ColumnType::Binary, AttributeValue::B(bytes)) => format!("Binary({bytes:?})"),
        _ => return None,
    })
}

fn rule(declaration: &str) -> Archive {
    let Declaration { columns, discover } = Declaration::parse(declaration).unwrap();
    Archive { columns, discover, ttl_attribute: Some("ttl".to_owned()), ..Archive::default() }
}

fn rows_of(decided: Vec<Effect<Bucket, Rows>>) -> Rows {
    let [effect] = <[_; 1]>::try_from(decided).unwrap();
    effect.statement
}

fn check_row(rule: &Archive, row: &Row, record: &LambdaRecord) {
    let item = record.record.old_image.as_ref().unwrap();
    let view = ItemView::of(item);
    let base = Schema::of(&ItemView::of(&record.record.keys), &rule.columns);
    let (schema, notes) =
        if rule.discover { discovered::discover(&base, &view) } else { (base, Vec::new()) };
    assert_eq!(*row.schema, schema);
    assert_eq!(row.item(), item_to_string(item));
    assert_eq!(row.sequence_number(), record.record.sequence_number.padded());
    assert_eq!(row.event_id(), record.record.event_id);
    assert_eq!(
        row.ttl_raw,
        item.get("ttl").and_then(|ttl| i64::try_from(ttl.as_number()?.to_i128()?).ok())
    );
    let has_ttl = item.get("ttl").is_some_and(|ttl| ttl.as_number().is_some());
    let mut misfits = usize::from(has_ttl && row.ttl_raw.is_none());
    for (position, column) in schema.columns().enumerate() {
        let expected = expected_value(column, item);
        misfits += usize::from(expected.is_none());
        let expected = expected.unwrap_or_else(|| "Null".to_owned());
        assert_eq!(format!("{:?}", row.value(position)), expected, "{column:?}");
    }
    assert_eq!(row.coercions.len(), notes.len() + misfits, "{:?}", row.coercions);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rows_from_texts_are_rows_from_items(
        items in vec(items(), 1..6),
        declaration in prop::sample::select(&[
            "", "*", "price:decimal(38,10),m:json,m.b:string", "*,price:bigint,a:string,b:boolean",
        ][..]),
        deliveries in vec((any::<prop::sample::Index>(), any::<bool>()), 0..12),
    ) {
        let (rule, fresh) = (rule(declaration), rule(declaration));
        let found = Found::default();
        let mut in_order = Rows::default();
        for (number, item) in items.iter().enumerate() {
            let texts = [record(number, item, false), record(number, item, true)];
            let record = lambda_record_from_str(&texts[0]).unwrap();
            prop_assert_eq!(&lambda_record_from_str(&texts[1]).unwrap(), &record);
            let rows = rows_of(fresh.decide(&record, &found).unwrap());
            check_row(&rule, rows.iter().next().unwrap(), &record);
            for text in &texts {
                let view = RecordView::read(text).expect("nothing about it is unusual");
                prop_assert_eq!(&rows_of(rule.decide_view(view, &found).unwrap()), &rows);
            }
            in_order.join(rows);
        }
        // Redelivery in another order produces the same rows.
        let mut joined = Rows::default();
        let again = deliveries.iter().map(|(which, otherwise)| (which.index(items.len()), *otherwise));
        for (number, otherwise) in again.chain((0..items.len()).rev().map(|number| (number, true))) {
            let text = record(number, &items[number], otherwise);
            let view = RecordView::read(&text).unwrap();
            joined.join(rows_of(rule.decide_view(view, &found).unwrap()));
        }
        prop_assert_eq!(joined, in_order);
    }
}
