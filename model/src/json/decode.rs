//! Decodes JSON to items, with DynamoDB's checks and error messages.
//!
//! Callers check key schemas and item sizes, which depend on the table.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use super::fault::ValueFault;
use super::tree::{Json, parse};
use super::view::ItemView;
use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::limits::NESTING_LEVELS_MAX;
use crate::number::{Number, NumberError};

/// The reason why JSON is not an attribute value or an item. In the protocol, each variant is a
/// different exception.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The JSON has the wrong structure or types: `SerializationException`.
    #[error("{0}")]
    Shape(String),
    /// The JSON has the right structure, but the value is invalid: `ValidationException`.
    #[error("{0}")]
    Value(ValueFault),
}

fn shape(text: &str) -> DecodeError {
    DecodeError::Shape(text.to_owned())
}

fn value_error(text: &str) -> DecodeError {
    DecodeError::Value(text.into())
}

/// DynamoDB's message for a value that is nested in too many maps and lists.
const NESTED_TOO_DEEPLY: &str = "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit";

const NULL_NOT_TRUE: &str = "One or more parameter values were invalid: Null attribute value types must have the value of true";

/// Decodes an item: an object of attribute values.
///
/// # Errors
/// Returns the first problem of the item.
pub fn decode_item(json: &Json<'_>) -> Result<Item, DecodeError> {
    Ok(Item(decode_members(json, 1)?))
}

/// Decodes one attribute value: an object with exactly one type descriptor.
///
/// # Errors
/// Returns the first problem of the value.
pub fn decode_attribute_value(json: &Json<'_>) -> Result<AttributeValue, DecodeError> {
    decode_value(json, 1)
}

/// Decodes the value of an expression placeholder by DynamoDB's rules until mid-2026: the value may
/// have one nesting level more than an attribute of an item.
///
/// # Errors
/// Returns the first problem of the value.
pub fn decode_placeholder_value(json: &Json<'_>) -> Result<AttributeValue, DecodeError> {
    decode_value(json, 0)
}

/// Decodes an item from JSON text.
///
/// # Errors
/// When the text is not JSON, or the JSON is not an item.
pub fn item_from_str(text: &str) -> Result<Item, DecodeError> {
    // Fast path: most items are valid and need no JSON tree.
    if let Some(view) = ItemView::from_text(text) {
        return Ok(view.into_item());
    }
    decode_item(&parse(text.as_bytes()).map_err(|error| shape(&error.to_string()))?)
}

/// Decodes an attribute value from JSON text.
///
/// # Errors
/// When the text is not JSON, or the JSON is not an attribute value.
pub fn attribute_value_from_str(text: &str) -> Result<AttributeValue, DecodeError> {
    decode_attribute_value(&parse(text.as_bytes()).map_err(|error| shape(&error.to_string()))?)
}

fn decode_members(
    json: &Json<'_>,
    level: usize,
) -> Result<BTreeMap<String, AttributeValue>, DecodeError> {
    let Json::Object(pairs) = json else {
        return Err(not_a_map(json));
    };
    let mut members = BTreeMap::new();
    for (name, member) in pairs {
        let value = decode_value(member, level)?;
        if members.insert(name.clone().into_owned(), value).is_some() {
            return Err(shape("Duplicate attribute name in an item or map"));
        }
    }
    Ok(members)
}

/// Decodes a value at a level of nesting: 1 for an attribute, one more for each map or list around
/// it, and 0 for a value that may be one level deeper.
fn decode_value(json: &Json<'_>, level: usize) -> Result<AttributeValue, DecodeError> {
    if level > NESTING_LEVELS_MAX {
        return Err(value_error(NESTED_TOO_DEEPLY));
    }
    let Json::Object(pairs) = json else {
        return Err(not_a_value(json));
    };
    // A member whose value is `null` counts as absent. SDKs never send `null`.
    let mut given = pairs.iter().filter(|(_, value)| *value != Json::Null);
    let Some((descriptor, value)) = given.next() else {
        return Err(value_error(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
        ));
    };
    if given.next().is_some() {
        return Err(value_error(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes",
        ));
    }
    let Some(attribute_type) = AttributeType::from_descriptor(descriptor) else {
        return Err(value_error(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
        ));
    };
    match attribute_type {
        AttributeType::S => Ok(AttributeValue::S(text(value)?.into_owned())),
        AttributeType::N => Ok(AttributeValue::N(number(value)?)),
        AttributeType::B => Ok(AttributeValue::B(binary(value)?)),
        AttributeType::Bool => match value {
            Json::Bool(flag) => Ok(AttributeValue::Bool(*flag)),
            other => Err(not_a(other, "Boolean")),
        },
        AttributeType::Null => match value {
            Json::Bool(true) => Ok(AttributeValue::Null),
            Json::Bool(false) => Err(value_error(NULL_NOT_TRUE)),
            // DynamoDB treats the word `no` as `false`.
            Json::String(word) if word == "no" => Err(value_error(NULL_NOT_TRUE)),
            other => Err(not_a(other, "Boolean")),
        },
        AttributeType::M => Ok(AttributeValue::M(decode_members(value, level + 1)?)),
        AttributeType::L => {
            let members = array(value)?.iter().map(|member| decode_value(member, level + 1));
            Ok(AttributeValue::L(members.collect::<Result<_, _>>()?))
        }
        AttributeType::Ss => {
            Ok(AttributeValue::Ss(set(value, "string", |member| Ok(text(member)?.into_owned()))?))
        }
        AttributeType::Ns => Ok(AttributeValue::Ns(set(value, "number", number)?)),
        AttributeType::Bs => Ok(AttributeValue::Bs(set(value, "binary", binary)?)),
    }
}

fn text<'j>(json: &'j Json<'_>) -> Result<Cow<'j, str>, DecodeError> {
    json.as_str().map(Cow::Borrowed).ok_or_else(|| not_a(json, "String"))
}

fn number(json: &Json<'_>) -> Result<Number, DecodeError> {
    let text = text(json)?;
    text.parse().map_err(|error: NumberError| {
        let older = error.clone().as_before(&text).to_string();
        // Until mid-2026, DynamoDB's message for an empty number had no colon at the end.
        let older = if error == NumberError::Empty { older.trim_end_matches(": ") } else { &older };
        DecodeError::Value(ValueFault::new(error.to_string(), older))
    })
}

fn binary(json: &Json<'_>) -> Result<Vec<u8>, DecodeError> {
    let Json::String(text) = json else {
        return Err(not_a_binary(json));
    };
    STANDARD.decode(text.as_bytes()).map_err(|_| not_base64(text))
}

fn array<'j, 'a>(json: &'j Json<'a>) -> Result<&'j [Json<'a>], DecodeError> {
    json.as_array().ok_or_else(|| not_a_list(json))
}

fn set<T: Ord>(
    json: &Json<'_>,
    kind: &str,
    member: impl Fn(&Json<'_>) -> Result<T, DecodeError>,
) -> Result<BTreeSet<T>, DecodeError> {
    let given = array(json)?;
    if given.is_empty() {
        // DynamoDB's message has two consecutive spaces before `may`.
        return Err(match kind {
            "binary" => value_error(
                "One or more parameter values were invalid: Binary sets should not be empty",
            ),
            "number" => DecodeError::Value(ValueFault::alone(
                "One or more parameter values were invalid: An number set  may not be empty",
            )),
            _ => value_error(&format!(
                "One or more parameter values were invalid: An {kind} set  may not be empty"
            )),
        });
    }
    if given.iter().any(|json| matches!(json, Json::Null)) {
        // This message was recorded from DynamoDB for string sets. The other kinds of sets are
        // assumed to have the same message.
        return Err(value_error(&format!(
            "One or more parameter values were invalid: An {kind} set may not have a null string as a member"
        )));
    }
    let mut members = BTreeSet::new();
    for (position, json) in given.iter().enumerate() {
        if !members.insert(member(json)?) {
            let (before, rest) = given.split_at(position);
            let mut before: Vec<(T, &str)> = before
                .iter()
                .filter_map(|json| Some((member(json).ok()?, json.as_str()?)))
                .collect();
            before.sort();
            let ordered = before.into_iter().map(|(_, text)| text);
            let ordered: Vec<&str> = ordered.chain(rest.iter().filter_map(Json::as_str)).collect();
            let sent: Vec<&str> = given.iter().filter_map(Json::as_str).collect();
            return Err(DecodeError::Value(duplicates(kind, &ordered, &sent)));
        }
    }
    Ok(members)
}

/// Returns the fault of a set with a duplicate member. DynamoDB's message since mid-2026 lists the
/// members in sorted order up to the duplicate.
fn duplicates(kind: &str, ordered: &[&str], sent: &[&str]) -> ValueFault {
    let quoted = |separator: &str| {
        ordered.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(separator)
    };
    let told = |shown: &str| {
        format!(
            "One or more parameter values were invalid: Input collection {shown}contains duplicates."
        )
    };
    match kind {
        "number" => ValueFault::new(told(""), "Input collection contains duplicates"),
        // DynamoDB's message has no space before `of type BS`.
        "binary" => ValueFault::new(
            told(&format!("[{}]of type BS ", quoted(","))),
            told(&format!("[{}]of type BS ", sent.join(", "))),
        ),
        _ => ValueFault::new(
            told(&format!("[{}] ", quoted(", "))),
            told(&format!("[{}] ", sent.join(", "))),
        ),
    }
}

/// DynamoDB's message for a structure or map where a scalar or a list is expected.
const STRUCTURE: &str = "Start of structure or map found where not expected";
/// DynamoDB's message for a null in a list, a set or a map.
const NULL: &str = "Unexpected null value";

/// Returns DynamoDB's error for JSON in place of a scalar of this Java type.
fn not_a(json: &Json<'_>, expected: &str) -> DecodeError {
    let kind = match json {
        Json::Null => return shape(NULL),
        Json::Object(_) | Json::Item(_) => return shape(STRUCTURE),
        Json::Array(_) => {
            return DecodeError::Shape(format!(
                "Unrecognized collection type class java.lang.{expected}"
            ));
        }
        Json::String(_) => return shape("Unexpected token received from parser"),
        Json::Bool(true) => "TRUE_VALUE",
        Json::Bool(false) => "FALSE_VALUE",
        Json::Integer(_) => "NUMBER_VALUE",
        Json::Float(_) => "DECIMAL_VALUE",
    };
    DecodeError::Shape(format!("{kind} cannot be converted to {expected}"))
}

fn not_a_binary(json: &Json<'_>) -> DecodeError {
    shape(match json {
        Json::Null => NULL,
        Json::Object(_) | Json::Item(_) => STRUCTURE,
        Json::Array(_) => "Unrecognized collection type class java.nio.ByteBuffer",
        _ => "only base-64-encoded strings are convertible to bytes",
    })
}

/// Returns DynamoDB's error for an invalid base64 string. The misspelling in the last message is
/// DynamoDB's own.
fn not_base64(text: &str) -> DecodeError {
    let is_of_base64 = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let characters = text.chars().count();
    if !characters.is_multiple_of(4) {
        return DecodeError::Shape(format!(
            "Base64 encoded length is expected a multiple of 4 bytes but found: {characters}"
        ));
    }
    match text.chars().find(|c| !is_of_base64(c)) {
        Some(wrong) => DecodeError::Shape(format!("Invalid Base64 character: '{wrong}'")),
        None => shape("Invalid last non-pad Base64 character dectected"),
    }
}

fn not_a_list(json: &Json<'_>) -> DecodeError {
    shape(match json {
        Json::Null => NULL,
        Json::Object(_) | Json::Item(_) => STRUCTURE,
        _ => "Unexpected field type",
    })
}

/// Returns the error for JSON that should be an item or the members of an `M`.
fn not_a_map(json: &Json<'_>) -> DecodeError {
    shape(match json {
        Json::Null => NULL,
        Json::Array(_) => {
            "Unrecognized collection type java.util.Map<java.lang.String, com.amazonaws.dynamodb.v20120810.AttributeValue>"
        }
        Json::Item(_) => STRUCTURE,
        _ => "Unexpected field type",
    })
}

/// Returns the error for JSON that should be an attribute, or a member of an `M` or an `L`.
fn not_a_value(json: &Json<'_>) -> DecodeError {
    shape(match json {
        Json::Null => NULL,
        Json::Array(_) => {
            "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue"
        }
        Json::Item(_) => STRUCTURE,
        _ => "Unexpected value type in payload",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_name_the_fault() {
        for (json, expected) in [
            (
                "{}",
                "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
            ),
            (
                r#"{"X":"1"}"#,
                "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes",
            ),
            (
                r#"{"S":"a","N":"1"}"#,
                "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes",
            ),
            (r#"{"N":1}"#, "NUMBER_VALUE cannot be converted to String"),
            (r#"{"N":"abc"}"#, "The parameter cannot be converted to a numeric value: abc"),
            (
                r#"{"NULL":false}"#,
                "One or more parameter values were invalid: Null attribute value types must have the value of true",
            ),
            (
                r#"{"SS":[]}"#,
                "One or more parameter values were invalid: An string set  may not be empty",
            ),
            (
                r#"{"NS":[]}"#,
                "One or more parameter values were invalid: An number set  may not be empty",
            ),
            (
                r#"{"BS":[]}"#,
                "One or more parameter values were invalid: Binary sets should not be empty",
            ),
            (
                r#"{"SS":["a","a"]}"#,
                "One or more parameter values were invalid: Input collection [\"a\", \"a\"] contains duplicates.",
            ),
            (
                r#"{"M":{"a":{"S":"x"},"a":{"S":"y"}}}"#,
                "Duplicate attribute name in an item or map",
            ),
        ] {
            assert_eq!(attribute_value_from_str(json).unwrap_err().to_string(), expected, "{json}");
        }
        let no = attribute_value_from_str(r#"{"NULL":"no"}"#).unwrap_err();
        assert_eq!(no, value_error(NULL_NOT_TRUE));
    }

    #[test]
    fn faults_with_two_wordings_have_both() {
        let of_set = |shown: &str| {
            format!(
                "One or more parameter values were invalid: Input collection {shown}contains duplicates."
            )
        };
        let not_numeric = "The parameter cannot be converted to a numeric value";
        for (json, current, older) in [
            (r#"{"N":""}"#, format!("{not_numeric}: "), not_numeric.to_owned()),
            (
                r#"{"N":"1e2147483648"}"#,
                NumberError::Overflow.to_string(),
                format!("{not_numeric}: 1e2147483648"),
            ),
            (
                r#"{"SS":["b","a","b","c"]}"#,
                of_set(r#"["a", "b", "b", "c"] "#),
                of_set("[b, a, b, c] "),
            ),
            (
                r#"{"BS":["/w==","AA==","AA=="]}"#,
                of_set(r#"["AA==","/w==","AA=="]of type BS "#),
                of_set("[/w==, AA==, AA==]of type BS "),
            ),
            (
                r#"{"NS":["1","1.0"]}"#,
                of_set(""),
                "Input collection contains duplicates".to_owned(),
            ),
        ] {
            let Err(DecodeError::Value(fault)) = attribute_value_from_str(json) else {
                panic!("{json} has a wrong value")
            };
            assert_eq!((fault.current(), fault.older()), (&*current, &*older), "{json}");
        }
    }

    /// Source of the cases: dynalite's tests, which were recorded from DynamoDB.
    #[test]
    fn wrong_shapes_name_what_was_found() {
        let of_class = |class: &str| format!("Unrecognized collection type class {class}");
        let string = of_class("java.lang.String");
        let boolean = of_class("java.lang.Boolean");
        let bytes = of_class("java.nio.ByteBuffer");
        let value = of_class("com.amazonaws.dynamodb.v20120810.AttributeValue");
        for (json, expected) in [
            (r#"{"S":true}"#, "TRUE_VALUE cannot be converted to String"),
            (r#"{"S":false}"#, "FALSE_VALUE cannot be converted to String"),
            (r#"{"SS":[23]}"#, "NUMBER_VALUE cannot be converted to String"),
            (r#"{"NS":[34.56]}"#, "DECIMAL_VALUE cannot be converted to String"),
            (r#"{"S":[]}"#, &string),
            (r#"{"N":{}}"#, STRUCTURE),
            (r#"{"BOOL":"x"}"#, "Unexpected token received from parser"),
            (r#"{"BOOL":1}"#, "NUMBER_VALUE cannot be converted to Boolean"),
            (r#"{"NULL":1.5}"#, "DECIMAL_VALUE cannot be converted to Boolean"),
            (r#"{"NULL":[]}"#, &boolean),
            (r#"{"B":1}"#, "only base-64-encoded strings are convertible to bytes"),
            (r#"{"BS":[true]}"#, "only base-64-encoded strings are convertible to bytes"),
            (r#"{"B":[]}"#, &bytes),
            (
                r#"{"B":"23456"}"#,
                "Base64 encoded length is expected a multiple of 4 bytes but found: 5",
            ),
            (r#"{"B":"a!?="}"#, "Invalid Base64 character: '!'"),
            (r#"{"B":"=+/="}"#, "Invalid last non-pad Base64 character dectected"),
            (r#"{"B":"+/+="}"#, "Invalid last non-pad Base64 character dectected"),
            (r#"{"SS":"x"}"#, "Unexpected field type"),
            (r#"{"L":1}"#, "Unexpected field type"),
            (r#"{"L":{}}"#, STRUCTURE),
            (r#"{"L":[1]}"#, "Unexpected value type in payload"),
            (r#"{"L":[[]]}"#, &value),
            (r#"{"M":"x"}"#, "Unexpected field type"),
            (
                r#"{"M":[]}"#,
                "Unrecognized collection type java.util.Map<java.lang.String, com.amazonaws.dynamodb.v20120810.AttributeValue>",
            ),
            (r#"{"M":{"a":true}}"#, "Unexpected value type in payload"),
            (r#""a""#, "Unexpected value type in payload"),
        ] {
            assert_eq!(attribute_value_from_str(json).unwrap_err(), shape(expected), "{json}");
        }
    }

    #[test]
    fn nesting_ends_at_32_levels() {
        let nested = |levels: usize| {
            format!("{}{{\"S\":\"x\"}}{}", "{\"L\":[".repeat(levels), "]}".repeat(levels))
        };
        assert_eq!(attribute_value_from_str(&nested(31)).unwrap().nesting_levels(), 32);
        let error = attribute_value_from_str(&nested(32)).unwrap_err();
        assert_eq!(error, value_error(NESTED_TOO_DEEPLY));
        assert!(attribute_value_from_str(&nested(100_000)).is_err());
    }
}
