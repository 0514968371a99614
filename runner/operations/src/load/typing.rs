//! Converts the text values of a file into attribute values, by declared types, inferred types, or
//! plain JSON.
//!
//! Numbers are never converted to floating point: their text becomes a decimal number directly.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::{AttributeType, AttributeValue, Item, Number};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum nesting of plain JSON: that of an attribute value, plus one level for the item.
const DEPTH_MAX: usize = model::limits::NESTING_LEVELS_MAX + 1;

/// Parses a CSV text as a value of a type.
pub(crate) fn typed(text: &str, attribute_type: AttributeType) -> Result<AttributeValue, String> {
    match attribute_type {
        AttributeType::N => {
            text.trim().parse().map(AttributeValue::N).map_err(|error| format!("{error}"))
        }
        AttributeType::Bool => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(AttributeValue::Bool(true)),
            "false" | "0" => Ok(AttributeValue::Bool(false)),
            _ => Err(format!("`{text}` is not a BOOL: write true or false")),
        },
        AttributeType::B => STANDARD
            .decode(text.trim())
            .map(AttributeValue::B)
            .map_err(|_| format!("`{text}` is not base64")),
        _ => Ok(AttributeValue::S(text.to_owned())),
    }
}

/// Returns true if a number is read back with the same text. This excludes leading zeros (postal
/// codes, telephone numbers), a plus sign, and an exponent.
pub(crate) fn is_plain_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain && !leading_zero && !digits.starts_with('.') && text.parse::<Number>().is_ok()
}

/// Parses a plain JSON object as an item. Strings become S, numbers N, arrays L, and objects M.
pub(crate) fn item_from_plain_json(text: &str) -> Result<Item, String> {
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    match value_from_plain_json(raw, DEPTH_MAX)? {
        AttributeValue::M(members) => Ok(Item(members)),
        _ => Err("not a JSON object".to_owned()),
    }
}

/// The members of an object in text order, including duplicates.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

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

fn value_from_plain_json(raw: &RawValue, depth: usize) -> Result<AttributeValue, String> {
    let depth = depth.checked_sub(1).ok_or("nested more than 32 levels deep")?;
    let text = raw.get();
    let not_json = |error: serde_json::Error| format!("not JSON: {error}");
    match text.as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).map_err(not_json)?;
            let mut values = BTreeMap::new();
            for (name, raw) in members {
                if values.contains_key(&name) {
                    return Err(format!("it has two values for `{name}`"));
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
        _ => text.parse().map(AttributeValue::N).map_err(|error| format!("`{text}`: {error}")),
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
            assert_eq!(item_from_plain_json(twice), Err("it has two values for `a`".to_owned()));
        }
        assert!(item_from_plain_json(r#"{"a":1,"b":{"a":1}}"#).is_ok());
    }

    #[test]
    fn only_texts_that_survive_are_inferred_as_numbers() {
        for (text, expected) in [
            ("0", true),
            ("12", true),
            ("-3.50", true),
            ("0.5", true),
            ("", false),
            ("007", false),
            ("+1", false),
            ("1e3", false),
            (".5", false),
            ("1.2.3", false),
            ("-", false),
            ("12a", false),
            ("123456789012345678901234567890123456789", false),
        ] {
            assert_eq!(is_plain_number(text), expected, "{text}");
        }
    }
}
