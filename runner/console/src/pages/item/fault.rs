//! Parses an item that a person typed as DynamoDB JSON. Reports the line of a fault, and what to
//! write instead.
//!
//! `model` validates the item; this module only finds the smallest part that `model` rejects.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::{AttributeType, Item, json};
use serde_json::Value;
use serde_json::value::RawValue;

/// The maximum number of characters of a value in a message.
const SHOWN_MAX: usize = 60;

/// A fault in the JSON of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextFault {
    /// The line number of the fault, from 1.
    pub(crate) line: usize,
    /// The description of the fault.
    pub(crate) what: String,
    /// The correct JSON to write instead of the faulty part.
    pub(crate) instead: String,
}

/// Parses an item.
///
/// # Errors
/// The first fault in the JSON.
pub(crate) fn read_item(text: &str) -> Result<Item, TextFault> {
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| {
        let what = error.to_string();
        // Remove the line number from the message, because `TextFault` has its own field for it.
        let what = what.split(" at line ").next().unwrap_or(&what).to_owned();
        TextFault {
            line: error.line().max(1),
            what: format!("not JSON: {what}"),
            instead: example(),
        }
    })?;
    let error = match json::item_from_str(text) {
        Ok(item) => return Ok(item),
        Err(error) => error.to_string(),
    };
    let Some(part) = faulty_member(whole) else {
        let instead = if is_object(whole) { "each name once".to_owned() } else { example() };
        return Err(TextFault { line: line(text, whole), what: error, instead });
    };
    let reason = json::attribute_value_from_str(part.value.get());
    let what = reason.map_or_else(|error| error.to_string(), |_| error);
    Err(TextFault {
        line: line(text, part.value),
        what: format!("`{}`: {what}", shortened(&part.path)),
        instead: instead(part.value),
    })
}

fn example() -> String {
    r#"an object such as {"title":{"S":"Rush"},"year":{"N":"2013"}}"#.to_owned()
}

/// The smallest part of an item that is not a valid attribute value.
struct Part<'t> {
    path: String,
    value: &'t RawValue,
}

/// Returns the first member of an object that is not a valid attribute value; `None` if all are
/// valid.
fn faulty_member(members: &RawValue) -> Option<Part<'_>> {
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(members.get()).ok()?;
    let (name, value) = members.into_iter().find(|(_, value)| !is_value(value))?;
    Some(within(value).map_or_else(
        || Part { path: name.to_string(), value },
        |part| Part { path: format!("{name}{}", part.path), value: part.value },
    ))
}

/// Returns the invalid part within a map or list; `None` if the fault is in the value itself.
fn within(value: &RawValue) -> Option<Part<'_>> {
    let members: BTreeMap<&str, &RawValue> = serde_json::from_str(value.get()).ok()?;
    let mut members = members.into_iter();
    match (members.next()?, members.next()) {
        (("M", inner), None) => {
            let part = faulty_member(inner)?;
            Some(Part { path: format!(".{}", part.path), value: part.value })
        }
        (("L", inner), None) => {
            let list: Vec<&RawValue> = serde_json::from_str(inner.get()).ok()?;
            let (index, value) =
                list.into_iter().enumerate().find(|(_, value)| !is_value(value))?;
            Some(within(value).map_or_else(
                || Part { path: format!("[{index}]"), value },
                |part| Part { path: format!("[{index}]{}", part.path), value: part.value },
            ))
        }
        _ => None,
    }
}

fn is_value(value: &RawValue) -> bool {
    json::attribute_value_from_str(value.get()).is_ok()
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// Returns the number of the line on which a part of the JSON begins.
fn line(text: &str, part: &RawValue) -> usize {
    // The part borrows from the text, so the difference of the addresses is its offset.
    let place = part.get().as_ptr().addr().saturating_sub(text.as_ptr().addr());
    let before = text.as_bytes().get(..place).unwrap_or_default();
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns the correct JSON to write instead of a faulty part: the same value with its type.
fn instead(part: &RawValue) -> String {
    let Ok(value) = serde_json::from_str::<Value>(part.get()) else { return example() };
    let text = shortened(part.get());
    match &value {
        Value::String(_) => format!("{{\"S\":{text}}}"),
        Value::Number(_) => format!("{{\"N\":\"{text}\"}}"),
        Value::Bool(_) => format!("{{\"BOOL\":{text}}}"),
        Value::Null => "{\"NULL\":true}, or leave the attribute out".to_owned(),
        Value::Array(_) => "{\"L\":[…]} with a type for each member".to_owned(),
        Value::Object(members) => {
            let mut members = members.iter();
            match (members.next(), members.next()) {
                (Some((kind, inner)), None) => instead_of_operand(kind, inner),
                _ => types(),
            }
        }
    }
}

/// Returns the correct JSON to write instead of an object with one member, whose name should be a
/// type.
fn instead_of_operand(kind: &str, inner: &Value) -> String {
    match (AttributeType::from_descriptor(kind), inner) {
        (None, _) => types(),
        (Some(AttributeType::S), _) => "{\"S\":\"a string in quotes\"}".to_owned(),
        (Some(AttributeType::N), Value::Number(number)) => format!("{{\"N\":\"{number}\"}}"),
        (Some(AttributeType::N), _) => "a number in quotes, such as {\"N\":\"-1.5\"}".to_owned(),
        (Some(AttributeType::B), _) => {
            "base64 with its padding, such as {\"B\":\"AAEC\"}".to_owned()
        }
        (Some(AttributeType::Bool), _) => "{\"BOOL\":true} or {\"BOOL\":false}".to_owned(),
        (Some(AttributeType::Null), _) => "{\"NULL\":true}".to_owned(),
        (Some(AttributeType::M), _) => {
            "{\"M\":{…}}, an object with a type for each member".to_owned()
        }
        (Some(AttributeType::L), _) => {
            "{\"L\":[…]}, an array with a type for each member".to_owned()
        }
        (Some(AttributeType::Ss), _) => {
            "{\"SS\":[\"a\",\"b\"]}: at least one string, no duplicates".to_owned()
        }
        (Some(AttributeType::Ns), _) => {
            "{\"NS\":[\"1\",\"2\"]}: at least one number in quotes, no duplicates".to_owned()
        }
        (Some(AttributeType::Bs), _) => {
            "{\"BS\":[\"AAEC\"]}: at least one base64 string, no duplicates".to_owned()
        }
    }
}

fn types() -> String {
    let names = AttributeType::ALL.map(AttributeType::descriptor).join(", ");
    format!("one of the types {names} with its value, such as {{\"S\":\"a\"}}")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_its_line_and_a_remedy() {
        for (text, line, what, remedy) in [
            ("", 1, "not JSON: EOF while parsing a value", "an object such as"),
            (
                "{\n  \"a\": {\"S\": \"x\"}\n  \"b\": 1\n}",
                3,
                "not JSON: expected `,` or `}`",
                "an object",
            ),
            ("[1]", 1, "Unrecognized collection type", "an object such as"),
            ("{\n\"a\": \"x\"}", 2, "`a`: Unexpected value type in payload", "{\"S\":\"x\"}"),
            ("{\"a\":{\"S\":\"x\"},\n\n\"n\":7}", 3, "`n`: Unexpected value type", "{\"N\":\"7\"}"),
            ("{\"n\":\n{\"N\":7.5}}", 2, "`n`: DECIMAL_VALUE cannot", "{\"N\":\"7.5\"}"),
            ("{\"n\":{\"N\":\"x\"}}", 1, "`n`: The parameter cannot", "a number in quotes"),
            ("{\"t\":true}", 1, "`t`: ", "{\"BOOL\":true}"),
            ("{\"t\":null}", 1, "`t`: ", "{\"NULL\":true}"),
            ("{\"l\":[1]}", 1, "`l`: ", "{\"L\":[…]}"),
            (
                "{\"x\":{\"X\":1}}",
                1,
                "`x`: Supplied AttributeValue is empty",
                "one of the types S, N",
            ),
            (
                "{\"x\":{\"S\":\"a\",\"N\":\"1\"}}",
                1,
                "`x`: Supplied AttributeValue has",
                "one of the",
            ),
            ("{\"b\":{\"B\":\"A\"}}", 1, "`b`: Base64 encoded length", "base64 with its padding"),
            ("{\"s\":{\"SS\":[]}}", 1, "`s`: ", "{\"SS\":["),
            (
                "{\"m\":{\"M\":{\n\"l\":{\"L\":[{\"S\":\"ok\"},\n{\"M\":{\"n\":{\"N\":1}}}]}}}}",
                3,
                "`m.l[1].n`: NUMBER_VALUE cannot be converted to String",
                "{\"N\":\"1\"}",
            ),
            (
                "{\"a\":{\"S\":\"1\"},\"a\":{\"S\":\"2\"}}",
                1,
                "Duplicate attribute name",
                "each name once",
            ),
        ] {
            let fault = read_item(text).unwrap_err();
            assert_eq!(fault.line, line, "{text}: {fault:?}");
            assert!(fault.what.starts_with(what), "{text}: {fault:?}");
            assert!(fault.instead.starts_with(remedy), "{text}: {fault:?}");
        }
        assert_eq!(read_item("{\n}").unwrap(), Item::new());
    }
}
