//! Converts the text values of a CSV file into attribute values, by declared or inferred types.
//!
//! Numbers are never converted to floating point: their text becomes a decimal number directly.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::{AttributeType, AttributeValue, Number};

use client::failure::{Failure, Result, fatal};

/// Parses a CSV text as a value of a type.
pub(crate) fn typed(text: &str, attribute_type: AttributeType) -> Result<AttributeValue> {
    match attribute_type {
        AttributeType::N => text.trim().parse().map(AttributeValue::N).map_err(Failure::fatal),
        AttributeType::Bool => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(AttributeValue::Bool(true)),
            "false" | "0" => Ok(AttributeValue::Bool(false)),
            _ => Err(fatal!("`{text}` is not a BOOL: write true or false")),
        },
        AttributeType::B => STANDARD
            .decode(text.trim())
            .map(AttributeValue::B)
            .map_err(|_| fatal!("`{text}` is not base64")),
        _ => Ok(AttributeValue::S(text.to_owned())),
    }
}

/// Returns true if the text of a number stays the same after the number is stored and read. This
/// excludes leading zeros (postal codes, telephone numbers), a plus sign, and an exponent.
pub(crate) fn is_plain_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain && !leading_zero && !digits.starts_with('.') && text.parse::<Number>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
