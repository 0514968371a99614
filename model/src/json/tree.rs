//! A JSON tree that borrows from its text and loses nothing: names keep their order and their
//! duplicates, so that a caller can refuse them.
//!
//! It gives no meaning to anything. Reading is bounded: serde_json follows at most 128 levels, or what
//! is deeper is gone over without following it, and a text may have one value for every four of its
//! bytes, so that memory stays in proportion.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{
    Deserialize as _, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use thiserror::Error;

use crate::encoded_item::EncodedItem;

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
    /// An object that is an item; [`parse`] gives none, `parse_with_items` does.
    Item(EncodedItem),
}

/// Text that is not JSON: where and why.
#[derive(Debug, Error)]
#[error("not JSON: {0}")]
pub struct JsonError(#[from] serde_json::Error);

/// Bytes of text for each value: a set of strings of one letter (`"a",`) has four, and no other
/// value of a request has fewer.
const BYTES_PER_VALUE: usize = 4;
/// Values that a text may have beside.
const VALUES_BESIDE: usize = 1000;

/// The most values that a text of so many bytes may have.
pub(super) fn values_max(bytes: usize) -> usize {
    bytes / BYTES_PER_VALUE + VALUES_BESIDE
}

/// Levels of a request that are kept. An attribute value stands at the seventh level at most, and is
/// refused when it has more than 32 of its own, each of which takes two here. The service reads a
/// request otherwise where the 62nd of them begins, which is here; more levels `serde_json` has not.
const REQUEST_LEVELS_MAX: usize = 127;

/// Reads one JSON value from the whole of `text`.
///
/// # Errors
/// When the text is not JSON, is nested more than 128 levels deep, goes on after the value, or has
/// more values than any request of its length.
pub fn parse(text: &[u8]) -> Result<Json<'_>, JsonError> {
    // Before that many levels serde_json gives up.
    parse_levels(text, usize::MAX)
}

/// Reads one JSON value, which is a request, from the whole of `text`, however deep it is nested. What
/// is too deep to be a part of any request is gone over, and `null` stands in its place.
///
/// # Errors
/// When the text is not JSON, goes on after the value, or has more values than any request of its
/// length.
pub fn parse_request(text: &[u8]) -> Result<Json<'_>, JsonError> {
    parse_levels(text, REQUEST_LEVELS_MAX)
}

fn parse_levels(text: &[u8], levels: usize) -> Result<Json<'_>, JsonError> {
    let left = Cell::new(values_max(text.len()));
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let json = Value { left: &left, levels }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(json)
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

    /// Whether this, as a member of a request, reaches the last level that is kept: then what is deeper
    /// may be missing.
    #[must_use]
    pub fn reaches_last_level(&self) -> bool {
        self.has_levels(REQUEST_LEVELS_MAX - 1)
    }

    /// Whether arrays and objects stand in each other so often. As many at most as were read.
    fn has_levels(&self, levels: usize) -> bool {
        let below = levels.saturating_sub(1);
        match self {
            Json::Array(members) => {
                below == 0 || members.iter().any(|member| member.has_levels(below))
            }
            Json::Object(members) => {
                below == 0 || members.iter().any(|(_, member)| member.has_levels(below))
            }
            _ => false,
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

/// Room that is set aside for the members of an object that has more than one.
const MEMBERS_EXPECTED: usize = 8;

/// A value that is to be read.
#[derive(Clone, Copy)]
struct Value<'l> {
    /// How many more there may be.
    left: &'l Cell<usize>,
    /// How many levels are kept, from this one on.
    levels: usize,
}

impl Value<'_> {
    /// A member of this one.
    fn member(self) -> Self {
        Self { levels: self.levels.saturating_sub(1), ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => return Err(D::Error::custom("more values than a request of its length has")),
        }
        if self.levels == 0 {
            // serde_json goes over it in a loop: it takes no stack.
            return IgnoredAny::deserialize(deserializer).map(|_| Json::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
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
        while let Some(member) = access.next_element_seed(self.member())? {
            members.push(member);
        }
        Ok(Json::Array(members))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let mut members: Vec<(Cow<'de, str>, Json<'de>)> = Vec::new();
        while let Some(name) = access.next_key_seed(Name)? {
            // Most objects are attribute values, of one member.
            match members.len() {
                0 => members.reserve_exact(1),
                1 => members.reserve(MEMBERS_EXPECTED),
                _ => {}
            }
            members.push((name, access.next_value_seed(self.member())?));
        }
        Ok(Json::Object(members))
    }
}

/// The name of a member.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
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

    #[test]
    fn a_request_is_read_however_deep_it_is() {
        fn levels(json: &Json<'_>) -> usize {
            match json {
                Json::Array(members) => 1 + members.first().map_or(0, levels),
                _ => 0,
            }
        }
        for (depth, kept) in [(1, 1), (126, 126), (127, 127), (128, 127), (1_000_000, 127)] {
            let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(levels(&parse_request(text.as_bytes()).unwrap()), kept, "{depth}");
        }
        for wrong in ["[".repeat(1_000_000), "[".repeat(200) + "1}", "[1] x".to_owned()] {
            assert!(parse_request(wrong.as_bytes()).is_err());
        }
    }

    #[test]
    fn values_are_in_proportion_to_the_text() {
        let many = |value: &str, count: usize| format!("[{}0]", format!("{value},").repeat(count));
        // What a request can have: sets of short strings, numbers, empty lists.
        for value in ["\"a\"", r#"{"N":"1"}"#, r#"{"S":""}"#, r#"{"L":[]}"#, r#"{"BOOL":true}"#] {
            assert!(parse(many(value, 100_000).as_bytes()).is_ok(), "{value}");
        }
        for value in ["0", "[]", "{}", r#"{"":0}"#, "[[]]"] {
            assert!(parse(many(value, 900).as_bytes()).is_ok(), "{value}");
            let error = parse(many(value, 100_000).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("more values than a request"), "{value}: {error}");
        }
    }
}
