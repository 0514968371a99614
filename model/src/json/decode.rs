//! From JSON to items, with DynamoDB's checks, in DynamoDB's words.
//!
//! Knows nothing of key schemas or item sizes: those are checked by who knows the table.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

use super::tree::{Json, parse};
use super::view::ItemView;
use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::limits::NESTING_LEVELS_MAX;
use crate::number::{Number, NumberError};

/// Why JSON is not an attribute value or an item. The two kinds have two error types on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The JSON has the wrong shape: `SerializationException`.
    #[error("{0}")]
    Shape(String),
    /// The shape is right and the value is not: `ValidationException`.
    #[error("{0}")]
    Value(String),
}

fn shape(text: &str) -> DecodeError {
    DecodeError::Shape(text.to_owned())
}

fn value_error(text: &str) -> DecodeError {
    DecodeError::Value(text.to_owned())
}

impl From<NumberError> for DecodeError {
    fn from(error: NumberError) -> Self {
        Self::Value(error.to_string())
    }
}

/// A value in too many maps and lists, in the service's words.
const NESTED_TOO_DEEPLY: &str = "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit";

/// Reads an item: an object of attribute values.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn decode_item(json: &Json<'_>) -> Result<Item, DecodeError> {
    Ok(Item(decode_members(json, 1)?))
}

/// Reads one attribute value: an object with exactly one type descriptor.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn decode_attribute_value(json: &Json<'_>) -> Result<AttributeValue, DecodeError> {
    decode_value(json, 1)
}

/// Reads an item from text.
///
/// # Errors
/// Text that is not JSON, or JSON that is not an item.
pub fn item_from_str(text: &str) -> Result<Item, DecodeError> {
    // Most texts are right, and need no tree to be read.
    if let Some(view) = ItemView::from_text(text) {
        return Ok(view.into_item());
    }
    decode_item(&parse(text.as_bytes()).map_err(|error| shape(&error.to_string()))?)
}

/// Reads an attribute value from text.
///
/// # Errors
/// Text that is not JSON, or JSON that is not an attribute value.
pub fn attribute_value_from_str(text: &str) -> Result<AttributeValue, DecodeError> {
    decode_attribute_value(&parse(text.as_bytes()).map_err(|error| shape(&error.to_string()))?)
}

fn decode_members(
    json: &Json<'_>,
    level: usize,
) -> Result<BTreeMap<String, AttributeValue>, DecodeError> {
    let Json::Object(pairs) = json else {
        return Err(unexpected(json));
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

/// `level` is the value's own: 1 for an attribute, one more for each map or list around it.
fn decode_value(json: &Json<'_>, level: usize) -> Result<AttributeValue, DecodeError> {
    if level > NESTING_LEVELS_MAX {
        return Err(value_error(NESTED_TOO_DEEPLY));
    }
    let Json::Object(pairs) = json else {
        return Err(unexpected(json));
    };
    // The SDKs never send a null descriptor; a literal null means "not given".
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
            other => Err(unexpected(other)),
        },
        AttributeType::Null => match value {
            Json::Bool(true) => Ok(AttributeValue::Null),
            Json::Bool(false) => Err(value_error(
                "One or more parameter values were invalid: Null attribute value types must have the value of true",
            )),
            other => Err(unexpected(other)),
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
    json.as_str().map(Cow::Borrowed).ok_or_else(|| unexpected(json))
}

fn number(json: &Json<'_>) -> Result<Number, DecodeError> {
    Ok(text(json)?.parse()?)
}

fn binary(json: &Json<'_>) -> Result<Vec<u8>, DecodeError> {
    STANDARD.decode(text(json)?.as_bytes()).map_err(|_| {
        shape("Base64 encoded length is expected a multiple of 4 bytes and of valid characters")
    })
}

fn array<'j, 'a>(json: &'j Json<'a>) -> Result<&'j [Json<'a>], DecodeError> {
    json.as_array().ok_or_else(|| unexpected(json))
}

fn set<T: Ord>(
    json: &Json<'_>,
    kind: &str,
    member: impl Fn(&Json<'_>) -> Result<T, DecodeError>,
) -> Result<BTreeSet<T>, DecodeError> {
    let given = array(json)?;
    if given.is_empty() {
        return Err(DecodeError::Value(format!(
            "One or more parameter values were invalid: An {kind} set  may not be empty"
        )));
    }
    let mut members = BTreeSet::new();
    for json in given {
        if !members.insert(member(json)?) {
            let shown = || given.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(", ");
            return Err(match kind {
                "number" => value_error("Input collection contains duplicates"),
                // Without a space, as the service has it.
                "binary" => DecodeError::Value(format!(
                    "One or more parameter values were invalid: Input collection [{}]of type BS contains duplicates.",
                    shown()
                )),
                _ => DecodeError::Value(format!(
                    "One or more parameter values were invalid: Input collection [{}] contains duplicates.",
                    shown()
                )),
            });
        }
    }
    Ok(members)
}

/// What DynamoDB answers when JSON of one kind stands where another kind belongs.
fn unexpected(json: &Json<'_>) -> DecodeError {
    shape(match json {
        Json::Null => "Unexpected null value",
        Json::Bool(true) => "TRUE_VALUE can not be converted to the expected type",
        Json::Bool(false) => "FALSE_VALUE can not be converted to the expected type",
        Json::Integer(_) => "NUMBER_VALUE cannot be converted to String",
        Json::Float(_) => "DECIMAL_VALUE cannot be converted to String",
        Json::String(_) => "Unexpected value type in payload",
        Json::Array(_) => "Unrecognized collection type class java.util.ArrayList",
        Json::Object(_) | Json::Item(_) => "Start of structure or map found where not expected",
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
            (r#"{"S":true}"#, "TRUE_VALUE can not be converted to the expected type"),
            (
                r#"{"NULL":false}"#,
                "One or more parameter values were invalid: Null attribute value types must have the value of true",
            ),
            (
                r#"{"SS":[]}"#,
                "One or more parameter values were invalid: An string set  may not be empty",
            ),
            (
                r#"{"SS":["a","a"]}"#,
                "One or more parameter values were invalid: Input collection [a, a] contains duplicates.",
            ),
            (r#"{"NS":["1","1.0"]}"#, "Input collection contains duplicates"),
            (
                r#"{"M":{"a":{"S":"x"},"a":{"S":"y"}}}"#,
                "Duplicate attribute name in an item or map",
            ),
            (
                r#"{"B":"!"}"#,
                "Base64 encoded length is expected a multiple of 4 bytes and of valid characters",
            ),
            (r#""a""#, "Unexpected value type in payload"),
        ] {
            assert_eq!(attribute_value_from_str(json).unwrap_err().to_string(), expected, "{json}");
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
