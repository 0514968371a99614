//! A JSON tree that borrows from its text and loses nothing: names keep their order and their
//! duplicates, so that a caller can refuse them.
//!
//! It gives no meaning to anything. Reading is bounded: serde_json follows at most 128 levels.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number that fits 64 bits, signed or unsigned.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object: names and values as they stand, duplicates included.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Text that is not JSON: where and why.
#[derive(Debug, Error)]
#[error("not JSON: {0}")]
pub struct JsonError(#[from] serde_json::Error);

/// Reads one JSON value from the whole of `text`.
///
/// # Errors
/// When the text is not JSON, is nested more than 128 levels deep, or goes on after the value.
pub fn parse(text: &[u8]) -> Result<Json<'_>, JsonError> {
    Ok(serde_json::from_slice(text)?)
}

impl<'a> Json<'a> {
    /// The first value under `name` of an object.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => {
                members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The text of a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// The members of an object.
    #[must_use]
    pub fn as_object(&self) -> Option<&[(Cow<'a, str>, Json<'a>)]> {
        match self {
            Json::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The members of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Json::Array(members) => Some(members),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

/// Room that is set aside at first for the members of an array or object.
const MEMBERS_EXPECTED: usize = 8;

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Float(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_element()? {
            members.push(member);
        }
        Ok(Json::Array(members))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let mut members = Vec::with_capacity(MEMBERS_EXPECTED);
        while let Some(name) = access.next_key::<Json<'de>>()? {
            let Json::String(name) = name else {
                return Err(A::Error::custom("an object's name is not a string"));
            };
            members.push((name, access.next_value()?));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_kept_and_depth_is_bounded() {
        let tree = parse(br#"{"a":1,"a":2.5,"b":[null,true,"\u00e9"]}"#).unwrap();
        assert_eq!(tree.as_object().unwrap().len(), 3);
        assert_eq!(tree.get("a"), Some(&Json::Integer(1)));
        assert_eq!(tree.get("b").unwrap().as_array().unwrap()[2].as_str(), Some("é"));
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
        assert!(parse(b"{} x").is_err());
        assert!(parse(b"\xff").is_err());
        assert!(parse(br#""\ud800""#).is_err());
    }
}
