//! Parses an item's key, or attributes, from the command line.
//!
//! This module does not compare the key with the table's key schema.

use model::{AttributeValue, Item, json};

use crate::failure::{Failure, Result, fatal};
use crate::plain_json::item_from_plain_json;

/// Parses a key in plain JSON (`{"year":2013}`) or DynamoDB JSON (`{"year":{"N":"2013"}}`).
///
/// # Errors
/// When the text is neither plain JSON nor DynamoDB JSON, or is not one or two attributes of types S, N, B.
pub fn parse(text: &str) -> Result<Item> {
    let wrong = |reason: Failure| {
        fatal!(
            "cannot parse the key `{text}`: {reason}; write, for example, {{\"year\":2013,\"title\":\"Rush\"}}, or DynamoDB JSON"
        )
    };
    let key = attributes(text).map_err(wrong)?;
    let is_key = key.values().all(|value| {
        matches!(value, AttributeValue::S(_) | AttributeValue::N(_) | AttributeValue::B(_))
    });
    if is_key && (1..=2).contains(&key.len()) {
        Ok(key)
    } else {
        Err(wrong("a key has one or two attributes of types S, N, B".into()))
    }
}

/// Parses attributes in plain JSON, or in DynamoDB JSON if each value is an object.
///
/// # Errors
/// When the text is neither plain JSON nor DynamoDB JSON.
pub fn attributes(text: &str) -> Result<Item> {
    let plain = item_from_plain_json(text)?;
    let is_typed = plain.values().all(|value| matches!(value, AttributeValue::M(_)));
    if is_typed && !plain.is_empty() {
        json::item_from_str(text).map_err(Failure::fatal)
    } else {
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_plain_or_dynamodb_json() {
        for (text, expected) in [
            (r#"{"productID":7}"#, r#"{"productID":{"N":"7"}}"#),
            (r#"{"productID":{"N":"7"}}"#, r#"{"productID":{"N":"7"}}"#),
            (r#"{"b":"x","a":7.0}"#, r#"{"a":{"N":"7"},"b":{"S":"x"}}"#),
        ] {
            assert_eq!(json::item_to_string(&parse(text).unwrap()), expected);
        }
        for (text, expected) in [
            (
                "1",
                "cannot parse the key `1`: not a JSON object; write, for example, {\"year\":2013,",
            ),
            (
                "{}",
                "cannot parse the key `{}`: a key has one or two attributes of types S, N, B; write, ",
            ),
            (
                r#"{"a":1,"b":2,"c":3}"#,
                r#"cannot parse the key `{"a":1,"b":2,"c":3}`: a key has one or two "#,
            ),
            (
                r#"{"a":true}"#,
                r#"cannot parse the key `{"a":true}`: a key has one or two attributes of types "#,
            ),
            ("productID", "cannot parse the key `productID`: not JSON: "),
            (r#"{"productID":{"X":"7"}}"#, r#"cannot parse the key `{"productID":{"X":"7"}}`: "#),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
