//! The parameters of a request, taken out of its JSON with the type that each must have.
//!
//! A wrong type is a `SerializationException` at once. Whether a value is allowed is not decided
//! here: what has the right shape and a wrong value is kept as a refusal until its turn has come.

use std::collections::BTreeMap;

use model::json::{self, DecodeError, Json};
use model::{AttributeValue, EncodedItem, Item};

use super::attribute_names;
use super::error::ApiError;

/// A value, or the text of the `ValidationException` to answer with when its turn has come.
pub(crate) type Checked<T> = Result<T, String>;

/// The members of a JSON object. A member that is `null` is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'j>(&'j [(std::borrow::Cow<'j, str>, Json<'j>)]);

impl<'j> Parameters<'j> {
    /// The parameters of a request's body.
    pub(crate) fn of_body(json: &'j Json<'j>) -> Result<Self, ApiError> {
        match json {
            Json::Object(members) => Ok(Self(members)),
            _ => Err(ApiError::serialization("Unexpected value type in payload")),
        }
    }

    fn get(self, name: &str) -> Option<&'j Json<'j>> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value).filter(|value| **value != Json::Null)
    }

    /// Whether a member is there.
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

    pub(crate) fn boolean(self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(wrong_type(other, "Boolean")),
        }
    }

    /// A whole number; what does not fit 64 bits becomes the nearest that does.
    pub(crate) fn integer(self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Integer(number)) => {
                let nearest = if *number < 0 { i64::MIN } else { i64::MAX };
                Ok(Some(i64::try_from(*number).unwrap_or(nearest)))
            }
            Some(other) => Err(wrong_type(other, "Integer")),
        }
    }

    pub(crate) fn list(self, name: &str) -> Result<Option<&'j [Json<'j>]>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::Array(members)) => Ok(Some(members)),
            Some(Json::Object(_) | Json::Item(_)) => {
                Err(ApiError::serialization("Start of structure or map found where not expected"))
            }
            Some(_) => Err(ApiError::serialization("Unexpected field type")),
        }
    }

    /// A list of structures.
    pub(crate) fn structures(self, name: &str) -> Result<Option<Vec<Self>>, ApiError> {
        self.list(name)?.map(|members| members.iter().map(structure).collect()).transpose()
    }

    pub(crate) fn structure(self, name: &str) -> Result<Option<Self>, ApiError> {
        self.get(name).map(structure).transpose()
    }

    /// A map of structures, in the order in which they were sent.
    pub(crate) fn map(self) -> impl ExactSizeIterator<Item = (&'j str, &'j Json<'j>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// A list of attribute values.
    pub(crate) fn value_list(
        self,
        name: &str,
    ) -> Result<Option<Vec<Checked<AttributeValue>>>, ApiError> {
        let Some(members) = self.list(name)? else {
            return Ok(None);
        };
        members.iter().map(attribute_value).collect::<Result<_, _>>().map(Some)
    }

    /// A member as it is.
    pub(crate) fn value(self, name: &str) -> Option<&'j Json<'j>> {
        self.get(name)
    }

    /// A list of strings.
    pub(crate) fn texts(self, name: &str) -> Result<Option<Vec<&'j str>>, ApiError> {
        let Some(members) = self.list(name)? else {
            return Ok(None);
        };
        let text =
            |member: &'j Json<'j>| member.as_str().ok_or_else(|| wrong_type(member, "String"));
        members.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// An item or a key.
    pub(crate) fn item(self, name: &str) -> Result<Option<Checked<Item>>, ApiError> {
        self.get(name).map(item).transpose()
    }

    /// An item in its stored form.
    pub(crate) fn encoded_item(self, name: &str) -> Result<Option<Checked<EncodedItem>>, ApiError> {
        match self.get(name) {
            Some(Json::Item(item)) => Ok(Some(Ok(item.clone()))),
            Some(json) => item(json).map(|item| Some(item.map(|item| EncodedItem::from(&item)))),
            None => Ok(None),
        }
    }

    /// A map of strings.
    pub(crate) fn strings(self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let Some(map) = self.structure(name)? else {
            return Ok(None);
        };
        let mut strings = BTreeMap::new();
        for (key, value) in map.map() {
            let text = value.as_str().ok_or_else(|| wrong_type(value, "String"))?;
            strings.insert(key.to_owned(), text.to_owned());
        }
        Ok(Some(strings))
    }

    /// The values of expression placeholders.
    pub(crate) fn values(
        self,
        name: &str,
    ) -> Result<Option<Checked<BTreeMap<String, AttributeValue>>>, ApiError> {
        let Some(map) = self.structure(name)? else {
            return Ok(None);
        };
        let mut values = BTreeMap::new();
        for (key, value) in map.map() {
            match attribute_value(value)? {
                Ok(value) => values.insert(key.to_owned(), value),
                Err(text) => {
                    return Ok(Some(Err(format!(
                        "{name} contains invalid value: {text} for key {key}"
                    ))));
                }
            };
        }
        Ok(Some(Ok(values)))
    }
}

/// Reads a structure or map.
pub(crate) fn structure<'j>(json: &'j Json<'j>) -> Result<Parameters<'j>, ApiError> {
    match json {
        Json::Object(members) => Ok(Parameters(members)),
        Json::Array(_) => Err(ApiError::serialization("Unrecognized collection type class")),
        _ => Err(ApiError::serialization("Unexpected field type")),
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
    let value = checked(json::decode_attribute_value(json))?;
    Ok(value.and_then(|value| attribute_names::check_value(&value).map(|()| value)))
}

fn checked<T>(decoded: Result<T, DecodeError>) -> Result<Checked<T>, ApiError> {
    match decoded {
        Ok(value) => Ok(Ok(value)),
        Err(DecodeError::Shape(text)) => Err(ApiError::serialization(text)),
        Err(DecodeError::Value(text)) => Ok(Err(text)),
    }
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
        _ if expected == "Boolean" => {
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

    /// The message of a serialization error, or `ok`.
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
            (r#"{"x":"true"}"#, "boolean", "Unexpected token received from parser"),
            (r#"{"x":"a"}"#, "list", "Unexpected field type"),
            (r#"{"x":{}}"#, "list", "Start of structure or map found where not expected"),
            (r#"{"x":"a"}"#, "item", "Unexpected value type in payload"),
            (r##"{"x":{"#a":1}}"##, "strings", "NUMBER_VALUE cannot be converted to String"),
            (r#"{"x":{":a":"b"}}"#, "values", "Unexpected value type in payload"),
            (r#"{"x":null}"#, "string", "ok"),
        ] {
            let tree = json::parse(json.as_bytes()).unwrap();
            let parameters = Parameters::of_body(&tree).unwrap();
            let got = match member {
                "string" => outcome(parameters.string("x")),
                "integer" => outcome(parameters.integer("x")),
                "boolean" => outcome(parameters.boolean("x")),
                "list" => outcome(parameters.list("x")),
                "item" => outcome(parameters.item("x")),
                "strings" => outcome(parameters.strings("x")),
                _ => outcome(parameters.values("x")),
            };
            assert!(got.contains(message), "{json} as {member}: {got}");
        }
    }

    #[test]
    fn wrong_values_wait_for_their_turn() {
        let tree = json::parse(br#"{"x":{":a":{"N":"1e999"}}}"#).unwrap();
        let parameters = Parameters::of_body(&tree).unwrap();
        let refusal = parameters.values("x").unwrap().unwrap().unwrap_err();
        assert!(refusal.starts_with("x contains invalid value: Number overflow"), "{refusal}");
        assert!(refusal.ends_with(" for key :a"), "{refusal}");
    }
}
