//! Encodes items as DynamoDB JSON, directly into a string.
//!
//! The output has no white space; members are in the order of their names.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::attribute_value::AttributeValue;
use crate::item::Item;
use crate::number::Number;

/// Appends an item.
pub fn write_item(out: &mut String, item: &Item) {
    write_attributes(out, item.iter());
}

/// Appends attributes as an item; their names must differ.
pub fn write_attributes<'i>(
    out: &mut String,
    attributes: impl Iterator<Item = (&'i String, &'i AttributeValue)>,
) {
    out.push('{');
    for (position, (name, value)) in attributes.enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_attribute_value(out, value);
    }
    out.push('}');
}

/// Encodes an item as JSON text.
#[must_use]
pub fn item_to_string(item: &Item) -> String {
    let mut out = String::with_capacity(item.size() * 2);
    write_item(&mut out, item);
    out
}

/// Appends a value: `{"S":"…"}`.
pub fn write_attribute_value(out: &mut String, value: &AttributeValue) {
    out.push_str("{\"");
    out.push_str(value.attribute_type().descriptor());
    out.push_str("\":");
    match value {
        AttributeValue::S(text) => write_string(out, text),
        AttributeValue::N(number) => write_number(out, number),
        AttributeValue::B(bytes) => write_binary(out, bytes),
        AttributeValue::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        AttributeValue::Null => out.push_str("true"),
        AttributeValue::M(members) => write_attributes(out, members.iter()),
        AttributeValue::L(members) => write_array(out, members, write_attribute_value),
        AttributeValue::Ss(members) => {
            write_array(out, members, |out, member| write_string(out, member));
        }
        AttributeValue::Ns(members) => write_array(out, members, write_number),
        AttributeValue::Bs(members) => {
            write_array(out, members, |out, member| write_binary(out, member));
        }
    }
    out.push('}');
}

/// Appends a number as a JSON string, which is DynamoDB's form.
pub(super) fn write_number(out: &mut String, number: &Number) {
    out.push('"');
    number.write(out);
    out.push('"');
}

fn write_array<T>(
    out: &mut String,
    members: impl IntoIterator<Item = T>,
    write: impl Fn(&mut String, T),
) {
    out.push('[');
    for (position, member) in members.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, member);
    }
    out.push(']');
}

pub(super) fn write_binary(out: &mut String, bytes: &[u8]) {
    out.push('"');
    STANDARD.encode_string(bytes, out);
    out.push('"');
}

/// Appends a list. `write` appends each member.
pub fn write_list<T>(out: &mut String, members: &[T], write: impl Fn(&mut String, &T)) {
    out.push('[');
    for (position, member) in members.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, member);
    }
    out.push(']');
}

/// Appends a JSON string: quoted, with quotes, backslashes and control characters escaped.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some((plain, special)) = special_at(rest).and_then(|at| rest.split_at_checked(at)) {
        out.push_str(plain);
        let mut characters = special.chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control) => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Returns the position of the first character that must be escaped in a JSON string; all of these
/// are ASCII. Checks sixteen bytes at a time, because most strings have no such character.
fn special_at(text: &str) -> Option<usize> {
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    let (chunks, rest) = text.as_bytes().as_chunks::<16>();
    for (number, chunk) in chunks.iter().enumerate() {
        if chunk.iter().fold(false, |found, byte| found | is_special(*byte)) {
            return chunk.iter().position(|byte| is_special(*byte)).map(|at| 16 * number + at);
        }
    }
    rest.iter().position(|byte| is_special(*byte)).map(|at| 16 * chunks.len() + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::item_from_str;

    #[test]
    fn items_are_written_as_dynamodb_writes_them() {
        let text = r#"{"a":{"S":"q\"\\\n\u0001é"},"b":{"B":"AAH/"},"c":{"L":[{"N":"1.5"},{"NULL":true}]},"d":{"M":{"x":{"BOOL":false}}},"e":{"SS":["a","b"]},"f":{"NS":["-1","2"]},"g":{"BS":["AA==","AQ=="]}}"#;
        assert_eq!(item_to_string(&item_from_str(text).unwrap()), text);
    }
}
