//! The parameters of a request, read from its JSON with their required types.
//!
//! A wrong type causes a `SerializationException` immediately. An attribute value with the right JSON
//! type but invalid contents becomes an error value. The operation reports this error later, in its
//! own order of checks.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use model::json::{self, DecodeError, Json};
use model::{AttributeValue, EncodedItem, Item};

use super::attribute_names;
use super::error::ApiError;
use super::wording::{Checked, Wording};

/// The members of a JSON object. A member that is `null` counts as absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'j>(&'j [(std::borrow::Cow<'j, str>, Json<'j>)]);

impl<'j> Parameters<'j> {
    /// Returns the parameters in a request's body.
    pub(crate) fn of_body(json: &'j Json<'j>) -> Result<Self, ApiError> {
        match json {
            Json::Object(members) => Ok(Self(members)),
            _ => Err(ApiError::serialization(NOT_A_MEMBER)),
        }
    }

    fn get(self, name: &str) -> Option<&'j Json<'j>> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value).filter(|value| **value != Json::Null)
    }

    /// Returns whether the request was nested so deeply that the parser discarded parts of it.
    pub(crate) fn nests_deeply(self) -> bool {
        self.0.iter().any(|(_, member)| member.reaches_last_level())
    }

    /// Returns whether a member is present.
    pub(crate) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn string(self, name: &str) -> Result<Option<&'j str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(other, "String")),
        }
    }

    /// Reads a boolean. Like DynamoDB, also accepts the strings `true` and `false`.
    pub(crate) fn boolean(self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(*flag)),
            Some(Json::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(Json::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(other) => Err(wrong_type(other, "Boolean")),
        }
    }

    /// Reads an integer. A value outside the range of `i64` is clamped to that range.
    pub(crate) fn integer(self, name: &str) -> Result<Option<i64>, ApiError> {
        self.whole_number(name, "Integer")
    }

    /// Reads an integer that DynamoDB's error messages call a `Long`.
    pub(crate) fn long(self, name: &str) -> Result<Option<i64>, ApiError> {
        self.whole_number(name, "Long")
    }

    fn whole_number(self, name: &str, kind: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Integer(number)) => {
                let nearest = if *number < 0 { i64::MIN } else { i64::MAX };
                Ok(Some(i64::try_from(*number).unwrap_or(nearest)))
            }
            Some(other) => Err(wrong_type(other, kind)),
        }
    }

    /// Reads a time: seconds since 1970 with an optional fraction. Returns milliseconds, rounded; a
    /// time before 1970 becomes 0.
    pub(crate) fn time_ms(self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Integer(seconds)) => {
                let ms = seconds.saturating_mul(1000).clamp(0, i128::from(u64::MAX));
                Ok(Some(u64::try_from(ms).unwrap_or(u64::MAX)))
            }
            Some(Json::Float(seconds)) => Ok(Some(milliseconds(*seconds))),
            Some(other) => Err(wrong_type(other, "Date")),
        }
    }

    pub(crate) fn list(self, name: &str) -> Result<Option<&'j [Json<'j>]>, ApiError> {
        self.get(name).map(elements).transpose()
    }

    /// Reads a list of structures. `kind` is the structures' name in DynamoDB's error messages.
    pub(crate) fn structures(self, name: &str, kind: &str) -> Result<Option<Vec<Self>>, ApiError> {
        let Some(members) = self.list(name)? else {
            return Ok(None);
        };
        members.iter().map(|json| member(json, kind)).collect::<Result<_, _>>().map(Some)
    }

    /// Reads a structure whose name in DynamoDB's error messages is the name of the parameter.
    pub(crate) fn structure(self, name: &str) -> Result<Option<Self>, ApiError> {
        self.structure_of(name, name)
    }

    /// Reads a structure. `kind` is its name in DynamoDB's error messages.
    pub(crate) fn structure_of(self, name: &str, kind: &str) -> Result<Option<Self>, ApiError> {
        let array = || format!("class {}", Class(kind));
        self.get(name).map(|json| object(json, array, NOT_A_FIELD)).transpose()
    }

    /// Reads a map. `values` is the Java type of its values in DynamoDB's error messages.
    pub(crate) fn map_of(self, name: &str, values: impl Display) -> Result<Option<Self>, ApiError> {
        let array = || format!("java.util.Map<java.lang.String, {values}>");
        self.get(name).map(|json| object(json, array, NOT_A_FIELD)).transpose()
    }

    /// Returns the members, in the order in which they were sent.
    pub(crate) fn map(self) -> impl ExactSizeIterator<Item = (&'j str, &'j Json<'j>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Reads a list of attribute values.
    pub(crate) fn value_list(
        self,
        name: &str,
    ) -> Result<Option<Vec<Checked<AttributeValue>>>, ApiError> {
        let Some(members) = self.list(name)? else {
            return Ok(None);
        };
        members.iter().map(attribute_value).collect::<Result<_, _>>().map(Some)
    }

    /// Reads an attribute value.
    pub(crate) fn attribute_value(
        self,
        name: &str,
    ) -> Result<Option<Checked<AttributeValue>>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(json @ (Json::Object(_) | Json::Array(_))) => attribute_value(json).map(Some),
            Some(_) => Err(ApiError::serialization(NOT_A_FIELD)),
        }
    }

    /// Reads a list of strings.
    pub(crate) fn texts(self, name: &str) -> Result<Option<Vec<&'j str>>, ApiError> {
        let Some(members) = self.list(name)? else {
            return Ok(None);
        };
        let text =
            |member: &'j Json<'j>| member.as_str().ok_or_else(|| wrong_type(member, "String"));
        members.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Reads an item or a key.
    pub(crate) fn item(self, name: &str) -> Result<Option<Checked<Item>>, ApiError> {
        self.get(name).map(item).transpose()
    }

    /// Reads an item in its stored form.
    pub(crate) fn encoded_item(self, name: &str) -> Result<Option<Checked<EncodedItem>>, ApiError> {
        match self.get(name) {
            Some(Json::Item(item)) => Ok(Some(Ok(item.clone()))),
            Some(json) => item(json).map(|item| Some(item.map(|item| EncodedItem::from(&item)))),
            None => Ok(None),
        }
    }

    /// Reads a map of strings.
    pub(crate) fn strings(self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let Some(map) = self.map_of(name, "java.lang.String")? else {
            return Ok(None);
        };
        let mut strings = BTreeMap::new();
        for (key, value) in map.map() {
            let text = value.as_str().ok_or_else(|| wrong_type(value, "String"))?;
            strings.insert(key.to_owned(), text.to_owned());
        }
        Ok(Some(strings))
    }

    /// Reads the values of expression placeholders.
    pub(crate) fn placeholder_values(
        self,
        name: &str,
        words: Wording,
    ) -> Result<Option<Checked<BTreeMap<String, AttributeValue>>>, ApiError> {
        let Some(map) = self.map_of(name, Class("AttributeValue"))? else {
            return Ok(None);
        };
        let mut values = BTreeMap::new();
        for (key, value) in map.map() {
            let decoded = match words {
                Wording::Current => attribute_value(value)?,
                Wording::Older => checked_value(json::decode_placeholder_value(value))?,
            };
            match decoded {
                Ok(value) => values.insert(key.to_owned(), value),
                Err(wrong) => return Ok(Some(Err(wrong.of_placeholder(key)))),
            };
        }
        Ok(Some(Ok(values)))
    }
}

/// The error for a parameter that is a scalar instead of a structure, a map or a list.
const NOT_A_FIELD: &str = "Unexpected field type";
/// The error for an element of a list or map that is a scalar instead of a structure.
const NOT_A_MEMBER: &str = "Unexpected value type in payload";

/// The name of an API structure in DynamoDB's error messages: its Java class.
pub(crate) struct Class<'k>(pub(crate) &'k str);

impl Display for Class<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "com.amazonaws.dynamodb.v20120810.{}", self.0)
    }
}

/// Reads a list.
pub(crate) fn elements<'j>(json: &'j Json<'j>) -> Result<&'j [Json<'j>], ApiError> {
    match json {
        Json::Array(members) => Ok(members),
        Json::Object(_) | Json::Item(_) => {
            Err(ApiError::serialization("Start of structure or map found where not expected"))
        }
        _ => Err(ApiError::serialization(NOT_A_FIELD)),
    }
}

/// Reads a structure that is an element of a list or a map. `kind` is its name in DynamoDB's error messages.
pub(crate) fn member<'j>(json: &'j Json<'j>, kind: &str) -> Result<Parameters<'j>, ApiError> {
    object(json, || format!("class {}", Class(kind)), NOT_A_MEMBER)
}

/// Reads an object. `array` is the expected type in the error for an array.
fn object<'j>(
    json: &'j Json<'j>,
    array: impl FnOnce() -> String,
    scalar: &str,
) -> Result<Parameters<'j>, ApiError> {
    match json {
        Json::Object(members) => Ok(Parameters(members)),
        Json::Array(_) => {
            Err(ApiError::serialization(format!("Unrecognized collection type {}", array())))
        }
        _ => Err(ApiError::serialization(scalar)),
    }
}

/// Reads an item or a key.
pub(crate) fn item(json: &Json<'_>) -> Result<Checked<Item>, ApiError> {
    let decoded = checked(json::decode_item(json))?;
    let item = attribute_names::check_attributes(json).and(decoded);
    Ok(item.and_then(|item| attribute_names::check_members(&item).map(|()| item)))
}

/// Reads an attribute value.
pub(crate) fn attribute_value(json: &Json<'_>) -> Result<Checked<AttributeValue>, ApiError> {
    checked_value(json::decode_attribute_value(json))
}

fn checked_value(
    decoded: Result<AttributeValue, DecodeError>,
) -> Result<Checked<AttributeValue>, ApiError> {
    Ok(checked(decoded)?.and_then(|value| attribute_names::check_value(&value).map(|()| value)))
}

fn checked<T>(decoded: Result<T, DecodeError>) -> Result<Checked<T>, ApiError> {
    match decoded {
        Ok(value) => Ok(Ok(value)),
        Err(DecodeError::Shape(text)) => Err(ApiError::serialization(text)),
        Err(DecodeError::Value(fault)) => Ok(Err(fault.into())),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and converts NaN to 0"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

fn wrong_type(got: &Json<'_>, expected: &str) -> ApiError {
    let kind = match got {
        Json::Object(_) | Json::Item(_) => {
            return ApiError::serialization("Start of structure or map found where not expected");
        }
        Json::Array(_) => {
            return ApiError::serialization(format!(
                "Unrecognized collection type class java.lang.{expected}"
            ));
        }
        Json::String(_) if expected == "Boolean" => {
            return ApiError::serialization("Unexpected token received from parser");
        }
        Json::Null => "NULL_VALUE",
        Json::Bool(true) => "TRUE_VALUE",
        Json::Bool(false) => "FALSE_VALUE",
        Json::Integer(_) => "NUMBER_VALUE",
        Json::Float(_) => "DECIMAL_VALUE",
        Json::String(_) => "STRING_VALUE",
    };
    ApiError::serialization(format!("{kind} cannot be converted to {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message of the error, or `ok`.
    fn outcome<T>(result: Result<T, ApiError>) -> String {
        match result {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_response().body,
        }
    }

    #[test]
    fn wrong_types_are_serialization_errors() {
        for (json, member, message) in [
            (r#"{"x":1}"#, "string", "NUMBER_VALUE cannot be converted to String"),
            (r#"{"x":1.5}"#, "string", "DECIMAL_VALUE cannot be converted to String"),
            (r#"{"x":true}"#, "string", "TRUE_VALUE cannot be converted to String"),
            (r#"{"x":[]}"#, "string", "Unrecognized collection type class java.lang.String"),
            (r#"{"x":{}}"#, "string", "Start of structure or map found where not expected"),
            (r#"{"x":"1"}"#, "integer", "STRING_VALUE cannot be converted to Integer"),
            (r#"{"x":"1"}"#, "long", "STRING_VALUE cannot be converted to Long"),
            (r#"{"x":"23"}"#, "boolean", "Unexpected token received from parser"),
            (r#"{"x":"TRUE"}"#, "boolean", "ok"),
            (r#"{"x":"false"}"#, "boolean", "ok"),
            (r#"{"x":1}"#, "boolean", "NUMBER_VALUE cannot be converted to Boolean"),
            (r#"{"x":1.5}"#, "boolean", "DECIMAL_VALUE cannot be converted to Boolean"),
            (r#"{"x":"a"}"#, "list", "Unexpected field type"),
            (r#"{"x":{}}"#, "list", "Start of structure or map found where not expected"),
            (r#"{"x":"a"}"#, "structure", "Unexpected field type"),
            (
                r#"{"x":[]}"#,
                "structure",
                "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.x\"",
            ),
            (r#"{"x":["a"]}"#, "structures", "Unexpected value type in payload"),
            (
                r#"{"x":[[]]}"#,
                "structures",
                "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.Kind\"",
            ),
            (r#"{"x":{}}"#, "structures", "Start of structure or map found where not expected"),
            (r#"{"x":"a"}"#, "value", "Unexpected field type"),
            (r#"{"x":"a"}"#, "item", "Unexpected field type"),
            (
                r#"{"x":[]}"#,
                "item",
                "Unrecognized collection type java.util.Map<java.lang.String, com.amazonaws.dynamodb.v20120810.AttributeValue>\"",
            ),
            (r#"{"x":{"a":"b"}}"#, "item", "Unexpected value type in payload"),
            (
                r#"{"x":[]}"#,
                "strings",
                "Unrecognized collection type java.util.Map<java.lang.String, java.lang.String>\"",
            ),
            (r##"{"x":{"#a":1}}"##, "strings", "NUMBER_VALUE cannot be converted to String"),
            (r#"{"x":{":a":"b"}}"#, "values", "Unexpected value type in payload"),
            (r#"{"x":null}"#, "string", "ok"),
        ] {
            let tree = json::parse(json.as_bytes()).unwrap();
            let parameters = Parameters::of_body(&tree).unwrap();
            let got = match member {
                "string" => outcome(parameters.string("x")),
                "integer" => outcome(parameters.integer("x")),
                "long" => outcome(parameters.long("x")),
                "boolean" => outcome(parameters.boolean("x")),
                "structure" => outcome(parameters.structure("x")),
                "structures" => outcome(parameters.structures("x", "Kind")),
                "value" => outcome(parameters.attribute_value("x")),
                "list" => outcome(parameters.list("x")),
                "item" => outcome(parameters.item("x")),
                "strings" => outcome(parameters.strings("x")),
                _ => outcome(parameters.placeholder_values("x", Wording::Current)),
            };
            assert!(got.contains(message), "{json} as {member}: {got}");
        }
    }

    #[test]
    fn wrong_values_are_reported_later() {
        let tree = json::parse(br#"{"x":{":a":{"N":"1e999"}}}"#).unwrap();
        let parameters = Parameters::of_body(&tree).unwrap();
        for (words, start, end) in [
            (Wording::Current, "Number overflow", "supported range"),
            (
                Wording::Older,
                "ExpressionAttributeValues contains invalid value: Number overflow",
                " for key :a",
            ),
        ] {
            let wrong = parameters.placeholder_values("x", words).unwrap().unwrap().unwrap_err();
            let error = words.error(&wrong);
            let told = error.message();
            assert!(told.starts_with(start) && told.ends_with(end), "{told}");
        }
    }
}
