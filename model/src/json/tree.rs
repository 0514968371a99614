//! A lossless JSON tree that borrows from its text: names keep their order and their duplicates, so
//! that a caller can reject them.
//!
//! The tree does not interpret values. Parsing is bounded. Levels deeper than the maximum cause an
//! error or are skipped, depending on the function. A text may have at most one value for every
//! four bytes, so that the memory is proportional to the text.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize as _, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use thiserror::Error;

use super::stored::encode_item;
use super::view::ItemView;
use crate::encoded_item::EncodedItem;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer that fits into 64 bits, signed or unsigned.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object: names and values in order, including duplicates.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
    /// An object that is an item. Only `parse_with_items` creates this variant.
    Item(EncodedItem),
}

/// The error for a text that is not JSON or exceeds a limit.
#[derive(Debug, Error)]
#[error("not JSON: {0}")]
pub struct JsonError(#[from] serde_json::Error);

/// The minimum number of bytes of text per value. Each member (`"a",`) of a set of one-letter
/// strings takes four bytes, and other values take more.
const BYTES_PER_VALUE: usize = 4;
/// The number of values that a text may have in addition to the number that [`BYTES_PER_VALUE`]
/// allows.
const VALUES_BESIDE: usize = 1000;

/// Returns the maximum number of values in a text of this length.
fn values_max(bytes: usize) -> usize {
    bytes / BYTES_PER_VALUE + VALUES_BESIDE
}

/// The number of levels of a request that the parser keeps. An attribute value begins at the
/// seventh level at most. Each level of a value takes two levels of JSON, and DynamoDB rejects
/// values with more than 32 levels. If a value has 62 levels of JSON or more, DynamoDB treats the
/// request differently. This maximum includes that level. `serde_json` cannot parse deeper levels.
const REQUEST_LEVELS_MAX: usize = 127;
/// The element of a path to items that matches any name.
pub const ANY_NAME: &str = "*";

/// Parses `text` as exactly one JSON value.
///
/// # Errors
/// When the text is not JSON, is nested more than 128 levels deep, continues after the value, or
/// has more values than any request of its length.
pub fn parse(text: &[u8]) -> Result<Json<'_>, JsonError> {
    // No level is replaced by `null`: `serde_json` itself fails at level 128.
    parse_levels(text, usize::MAX)
}

/// Parses `text` as one JSON request of any nesting. Levels that are too deep for any request are
/// replaced by `null`.
///
/// # Errors
/// When the text is not JSON, continues after the value, or has more values than any request of its
/// length.
pub fn parse_request(text: &[u8]) -> Result<Json<'_>, JsonError> {
    parse_levels(text, REQUEST_LEVELS_MAX)
}

/// Parses a request like [`parse_request`], and encodes its items for storage. `path` contains the names on
/// the way to the items, one name per level; an empty path means that there are no items. An array has the path
/// of its members. If one item is invalid or unusual, the result has no [`Json::Item`].
///
/// # Errors
/// Those of [`parse_request`].
pub fn parse_with_items<'t>(text: &'t [u8], path: &[&str]) -> Result<Json<'t>, JsonError> {
    let items = Items { path, buffer: &RefCell::default() };
    match Some(items)
        .filter(|_| !path.is_empty())
        .map(|_| parse_value(text, REQUEST_LEVELS_MAX, Some(items)))
    {
        Some(Ok(json)) => Ok(json),
        _ => parse_request(text),
    }
}

fn parse_levels(text: &[u8], levels: usize) -> Result<Json<'_>, JsonError> {
    parse_value(text, levels, None)
}

fn parse_value<'t>(
    text: &'t [u8],
    levels: usize,
    items: Option<Items<'_>>,
) -> Result<Json<'t>, JsonError> {
    let left = Cell::new(values_max(text.len()));
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let json = Value { left: &left, levels, items }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(json)
}

impl<'a> Json<'a> {
    /// Returns the first value of an object under `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => {
                members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Returns whether this member of a request reaches the last level that is kept, so that deeper
    /// levels may be missing.
    #[must_use]
    pub fn reaches_last_level(&self) -> bool {
        self.has_levels(REQUEST_LEVELS_MAX - 1)
    }

    /// Returns whether arrays and objects are nested at least `levels` deep. The parser bounds the
    /// nesting, and therefore the recursion.
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

    /// Returns the content of a string; `None` for any other value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the members of an object; `None` for any other value.
    #[must_use]
    pub fn as_object(&self) -> Option<&[(Cow<'a, str>, Json<'a>)]> {
        match self {
            Json::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the members of an array; `None` for any other value.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Json::Array(members) => Some(members),
            _ => None,
        }
    }
}

/// The limits for parsing a value.
#[derive(Clone, Copy)]
struct Value<'l> {
    /// The remaining number of values that the text may contain.
    left: &'l Cell<usize>,
    /// The number of levels to keep, including the level of this value.
    levels: usize,
    /// The location of items in this value; `None` if it has no items.
    items: Option<Items<'l>>,
}

/// The location of items in a value.
#[derive(Clone, Copy)]
struct Items<'l> {
    /// The remaining path to the items.
    path: &'l [&'l str],
    /// A buffer for the encoded form of an item, whose length is not known in advance.
    buffer: &'l RefCell<Vec<u8>>,
}

impl<'l> Items<'l> {
    /// Returns the items in the member with this name.
    fn below(self, name: &str) -> Option<Self> {
        let (first, path) = self.path.split_first()?;
        (*first == ANY_NAME || *first == name).then_some(Self { path, ..self })
    }
}

impl Value<'_> {
    /// Returns the limits for a member of this value.
    fn member(self) -> Self {
        Self { levels: self.levels.saturating_sub(1), ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => {
                return Err(D::Error::custom(
                    "more JSON values than a request of this length can contain",
                ));
            }
        }
        if self.levels == 0 {
            // serde_json skips the value iteratively, so deep nesting does not overflow the stack.
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
            if members.len() < 2 {
                members.reserve_exact(1);
            }
            members.push(member);
        }
        Ok(Json::Array(members))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        if let Some(Items { path: [], buffer }) = self.items {
            let item = ItemView::deserialize(MapAccessDeserializer::new(access))?;
            let encoded = encode_item(&item, &mut buffer.borrow_mut());
            return encoded.map(Json::Item).ok_or_else(|| A::Error::custom("an invalid name"));
        }
        let mut members: Vec<(Cow<'de, str>, Json<'de>)> = Vec::new();
        while let Some(name) = access.next_key_seed(Name)? {
            // Most objects are attribute values, with one member. The capacity is at most twice the
            // number of members, so that the memory is proportional to the text.
            if members.len() < 2 {
                members.reserve_exact(1);
            }
            let items = self.items.and_then(|items| items.below(&name));
            members.push((name, access.next_value_seed(Self { items, ..self.member() })?));
        }
        Ok(Json::Object(members))
    }
}

/// A deserializer of the name of a member.
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
    use crate::json::decode_item;

    /// Goal: the allocated memory of small objects and arrays is at most the size that callers
    /// assume.
    #[test]
    fn capacity_is_at_most_twice_the_members() {
        for count in 1..40 {
            let objects = format!("{{{}}}", vec![r#""":0"#; count].join(","));
            let Json::Object(members) = parse(objects.as_bytes()).unwrap() else { panic!() };
            assert!(members.capacity() < (2 * count).max(2), "{count}: {}", members.capacity());
            let arrays = format!("[{}]", vec!["0"; count].join(","));
            let Json::Array(members) = parse(arrays.as_bytes()).unwrap() else { panic!() };
            assert!(members.capacity() < (2 * count).max(2), "{count}: {}", members.capacity());
        }
    }

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
    fn a_request_of_any_depth_is_parsed() {
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
    fn the_number_of_values_is_bounded_by_the_text() {
        let many = |value: &str, count: usize| format!("[{}0]", format!("{value},").repeat(count));
        // Values that a request can have: sets of short strings, numbers, empty lists.
        for value in ["\"a\"", r#"{"N":"1"}"#, r#"{"S":""}"#, r#"{"L":[]}"#, r#"{"BOOL":true}"#] {
            assert!(parse(many(value, 100_000).as_bytes()).is_ok(), "{value}");
        }
        for value in ["0", "[]", "{}", r#"{"":0}"#, "[[]]"] {
            assert!(parse(many(value, 900).as_bytes()).is_ok(), "{value}");
            let error = parse(many(value, 100_000).as_bytes()).unwrap_err().to_string();
            assert!(error.contains("more JSON values than a request"), "{value}: {error}");
        }
    }

    const PUTS: [&str; 4] = ["RequestItems", ANY_NAME, "PutRequest", "Item"];

    /// Returns the tree with each item converted to an object.
    fn spelled_out(json: Json<'_>) -> Json<'_> {
        match json {
            Json::Array(members) => Json::Array(members.into_iter().map(spelled_out).collect()),
            Json::Object(members) => Json::Object(
                members.into_iter().map(|(name, value)| (name, spelled_out(value))).collect(),
            ),
            Json::Item(item) => {
                let text = crate::json::item_to_string(&item.decode().unwrap());
                let text: &'static str = Box::leak(text.into_boxed_str());
                parse(text.as_bytes()).unwrap()
            }
            other => other,
        }
    }

    #[test]
    fn items_are_at_the_path() {
        let item = r#"{"a":{"S":"x"},"n":{"N":"-1.5"}}"#;
        let text = format!(
            r#"{{"RequestItems":{{"Item":[{{"PutRequest":{{"Item":{item}}}}},{{"DeleteRequest":{{"Key":{item}}}}}]}},"Item":{item},"n":1.5,"b":[true,null]}}"#
        );
        let json = parse_with_items(text.as_bytes(), &PUTS).unwrap();
        let puts = json.get("RequestItems").unwrap().get("Item").unwrap().as_array().unwrap();
        let Some(Json::Item(encoded)) = puts[0].get("PutRequest").unwrap().get("Item") else {
            panic!("{puts:?}")
        };
        let tree = parse(item.as_bytes()).unwrap();
        assert_eq!(encoded, &EncodedItem::from(&decode_item(&tree).unwrap()));
        assert!(matches!(puts[1].get("DeleteRequest").unwrap().get("Key"), Some(Json::Object(_))));
        assert!(matches!(json.get("Item"), Some(Json::Object(_))));
        assert_eq!(spelled_out(json), parse(text.as_bytes()).unwrap());
    }

    #[test]
    fn unusual_requests_are_left_to_the_tree() {
        let long_name = "n".repeat(65_536);
        for item in [
            "{}",
            r#"{"a":{"S":"x","N":"1"}}"#,
            r#"{"a":{"S":"x"},"a":{"S":"x"}}"#,
            r#"{"a":{"N":"x"}}"#,
            r#"{"":{"S":"x"}}"#,
            r#"{"a":{"M":{"":{"S":"x"}}}}"#,
            &format!(r#"{{"{long_name}":{{"S":"x"}}}}"#),
            "[]",
            "1",
        ] {
            let text = format!(r#"{{"Item":{item}}}"#);
            let json = parse_with_items(text.as_bytes(), &["Item"]).unwrap();
            assert_eq!(matches!(json.get("Item"), Some(Json::Item(_))), item == "{}");
            assert_eq!(spelled_out(json), parse(text.as_bytes()).unwrap());
        }
        let nested = format!("{}{}", r#"{"L":["#.repeat(1000), "]}".repeat(1000));
        let text = format!(r#"{{"Item":{{"a":{nested}}}}}"#);
        let json = parse_with_items(text.as_bytes(), &["Item"]).unwrap();
        assert_eq!(json, parse_request(text.as_bytes()).unwrap());
        let deep = "[".repeat(1_000_000);
        let many = format!("[{}0]", "0,".repeat(100_000));
        for wrong in ["", "{", r#"{"Item":{"a":{"S":"x"}}"#, r#"{"Item":{}} x"#, &deep, &many] {
            let expected = parse_request(wrong.as_bytes()).unwrap_err().to_string();
            let error = parse_with_items(wrong.as_bytes(), &["Item"]).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
    }
}
