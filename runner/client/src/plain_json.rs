//! Converts plain JSON, without types, into attribute values.
//!
//! Numbers are never converted to floating point: their text becomes a decimal number directly.

use std::collections::BTreeMap;
use std::fmt;

use model::{AttributeValue, Item};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::failure::{Result, fatal};

/// Maximum nesting of plain JSON: the limit of an attribute value, plus one level for the item.
const DEPTH_MAX: usize = model::limits::NESTING_LEVELS_MAX + 1;

/// Parses a plain JSON object as an item. Strings become S, numbers N, arrays L, and objects M.
///
/// # Errors
/// When the text is not JSON, is not an object, is nested too deeply, or has a number that DynamoDB
/// cannot store.
pub fn item_from_plain_json(text: &str) -> Result<Item> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| fatal!("not JSON: {error}"))?;
    match value_from_plain_json(raw, DEPTH_MAX)? {
        AttributeValue::M(members) => Ok(Item(members)),
        _ => Err(fatal!("not a JSON object")),
    }
}

/// The members of an object in text order, including duplicates.
pub struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Reader)
    }
}

fn value_from_plain_json(raw: &RawValue, depth: usize) -> Result<AttributeValue> {
    let depth = depth.checked_sub(1).ok_or("the value is nested more than 32 levels deep")?;
    let text = raw.get();
    let not_json = |error: serde_json::Error| fatal!("not JSON: {error}");
    match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).map_err(not_json)?;
            let mut values = BTreeMap::new();
            for (name, raw) in members {
                if values.contains_key(&name) {
                    return Err(fatal!("an object has two values for `{name}`"));
                }
                let value = value_from_plain_json(raw, depth)?;
                values.insert(name, value);
            }
            Ok(AttributeValue::M(values))
        }
        Some(b'[') => {
            let members: Vec<&RawValue> = serde_json::from_str(text).map_err(not_json)?;
            let member = |raw| value_from_plain_json(raw, depth);
            members.into_iter().map(member).collect::<Result<_, _>>().map(AttributeValue::L)
        }
        Some(b'"') => serde_json::from_str(text).map(AttributeValue::S).map_err(not_json),
        Some(b't') => Ok(AttributeValue::Bool(true)),
        Some(b'f') => Ok(AttributeValue::Bool(false)),
        Some(b'n') => Ok(AttributeValue::Null),
        _ => text.parse().map(AttributeValue::N).map_err(|error| fatal!("`{text}`: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::json::item_to_string;

    #[test]
    fn numbers_keep_all_their_digits() {
        let item = item_from_plain_json(
            r#"{"a":12345678901234567890.123,"b":[8.3,-0,1e3],"c":{"d":null,"e":true}}"#,
        );
        assert_eq!(
            item_to_string(&item.unwrap()),
            r#"{"a":{"N":"12345678901234567890.123"},"b":{"L":[{"N":"8.3"},{"N":"0"},{"N":"1000"}]},"c":{"M":{"d":{"NULL":true},"e":{"BOOL":true}}}}"#
        );
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(40), "]".repeat(40));
        for wrong in ["", "[1]", "{\"a\":1", "{\"a\":1e999}", deep.as_str()] {
            assert!(item_from_plain_json(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_values_of_one_name_are_refused_at_every_depth() {
        for twice in [r#"{"a":1,"a":1}"#, r#"{"b":{"a":1,"a":2}}"#, r#"{"b":[{"a":1,"a":2}]}"#] {
            assert_eq!(
                item_from_plain_json(twice),
                Err(fatal!("an object has two values for `a`"))
            );
        }
        assert!(item_from_plain_json(r#"{"a":1,"b":{"a":1}}"#).is_ok());
    }
}
