//! Parses requests to a tree that contains the items to put in their stored form.
//!
//! Most requests are valid and small, and are parsed in one pass over their text. All other
//! requests are parsed by `tree`, which reports errors.

use std::borrow::Cow;
use std::cell::Cell;

use super::scan::Scanner;
use super::stored::{ItemBuffer, read_encoded_item};
use super::tree::{self, Json, JsonError};

/// The maximum length in bytes of a text that is parsed in one pass. `tree` parses longer texts,
/// because it takes less memory for nested values.
const BYTES_MAX: usize = 1024 * 1024;
/// The maximum nesting that is parsed in one pass. A request that puts items has six levels, plus
/// the levels of its expressions' values.
const DEPTH_MAX: usize = 100;
/// The minimum length of a cached string. Shorter strings are faster to parse again.
const REPEATED_BYTES_MIN: usize = 64;
/// The element of a path that matches any name.
pub const ANY_NAME: &str = "*";

/// Parses `text` as exactly one JSON value. `path` is the path of names to items, each name one
/// level below the previous name. An empty path means that the request has no items. Arrays have no
/// names; their members are at the same path. An item that is valid in the simplest form becomes
/// [`Json::Item`].
///
/// # Errors
/// The same as [`tree::parse_request`], which parses all texts that cannot be parsed in one pass.
pub fn parse_with_items<'t>(text: &'t [u8], path: &[&str]) -> Result<Json<'t>, JsonError> {
    let plain = Some(text).filter(|text| text.len() <= BYTES_MAX);
    match plain.and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| read(text, path)) {
        Some(json) => Ok(json),
        None => tree::parse_request(text),
    }
}

fn read<'t>(text: &'t str, path: &[&str]) -> Option<Json<'t>> {
    let mut scanner = Scanner::new(text);
    let values = Cell::new(tree::values_max(text.len()));
    let room = Buffer { values, item: Cell::default(), escaped: Cell::default() };
    let path = Some(path).filter(|path| !path.is_empty());
    let json = value(&mut scanner, path, &room, DEPTH_MAX)?;
    scanner.is_at_end().then_some(json)
}

/// The limits and the buffers of one parser run.
struct Buffer<'t> {
    /// The remaining number of values that the text may contain.
    values: Cell<usize>,
    /// The buffers for reading an item and for encoding it, whose length is not known in advance.
    item: Cell<ItemBuffer<'t>>,
    /// The last long string with escapes: its raw text and its unescaped text.
    escaped: Cell<Option<(&'t str, String)>>,
}

/// Parses a value. `path` is the rest of the path to items, or `None` if the value is not on the
/// path.
fn value<'t>(
    scanner: &mut Scanner<'t>,
    path: Option<&[&str]>,
    room: &Buffer<'t>,
    depth: usize,
) -> Option<Json<'t>> {
    let depth = depth.checked_sub(1)?;
    room.values.set(room.values.get().checked_sub(1)?);
    Some(match scanner.peek()? {
        b'{' if path.is_some_and(<[&str]>::is_empty) => {
            let mut used = room.item.take();
            let item = read_encoded_item(scanner, &mut used)?;
            room.item.set(used);
            Json::Item(item)
        }
        b'{' => {
            let mut members = Vec::new();
            scanner.object(|scanner, name| {
                // Most objects, and all attribute values, have only one member, so no capacity is
                // reserved for more.
                if members.is_empty() {
                    members.reserve_exact(1);
                }
                let below = path.and_then(|path| step(path, &name));
                members.push((name, value(scanner, below, room, depth)?));
                Some(())
            })?;
            Json::Object(members)
        }
        b'[' => {
            let mut members = Vec::new();
            scanner.array(|scanner| {
                members.push(value(scanner, path, room, depth)?);
                Some(())
            })?;
            Json::Array(members)
        }
        b'"' => Json::String(string(scanner, room)?),
        b't' | b'f' => Json::Bool(scanner.boolean()?),
        b'n' => scanner.null().then_some(Json::Null)?,
        _ => tree::parse(scanner.raw()?.as_bytes()).ok()?,
    })
}

/// Parses a string. The statements of one request are often equal and contain escaped quotation
/// marks, so the last string is cached.
fn string<'t>(scanner: &mut Scanner<'t>, room: &Buffer<'t>) -> Option<Cow<'t, str>> {
    let known = room.escaped.take();
    if let Some((written, said)) = &known
        && scanner.exactly(written.as_bytes())
    {
        let said = said.clone();
        room.escaped.set(known);
        return Some(Cow::Owned(said));
    }
    let (said, written) = scanner.try_read(Scanner::string)?;
    let escaped = match &said {
        Cow::Owned(text) if written.len() >= REPEATED_BYTES_MIN => Some((written, text.clone())),
        _ => known,
    };
    room.escaped.set(escaped);
    Some(said)
}

/// Returns the rest of a path after the element that matches `name`; `None` if the first element
/// does not match.
fn step<'p, 'n>(path: &'p [&'n str], name: &str) -> Option<&'p [&'n str]> {
    let (first, rest) = path.split_first()?;
    (*first == ANY_NAME || *first == name).then_some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::{decode_item, parse, parse_request};

    const PUTS: [&str; 4] = ["RequestItems", ANY_NAME, "PutRequest", "Item"];

    /// Returns the tree with each [`Json::Item`] replaced by an object.
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
        assert_eq!(encoded, &crate::EncodedItem::from(&decode_item(&tree).unwrap()));
        assert!(matches!(puts[1].get("DeleteRequest").unwrap().get("Key"), Some(Json::Object(_))));
        assert!(matches!(json.get("Item"), Some(Json::Object(_))));
        assert_eq!(spelled_out(json), parse(text.as_bytes()).unwrap());
    }

    proptest! {
        /// Goal: without a path, the result equals the result of `tree`. The texts are JSON, some
        /// of them damaged, with repeated long strings that have different ends.
        #[test]
        fn without_a_path_a_request_is_the_same_tree(
            parts in prop::collection::vec((0_usize..12, any::<bool>()), 1..20),
            damage in prop::option::weighted(0.3, (0_usize..600, any::<u8>())),
        ) {
            let long = "\\\"name\\\" = ? AND ".repeat(5);
            let part = |(kind, is_long): &(usize, bool)| {
                let text = if *is_long { long.as_str() } else { "a\\n" };
                match kind {
                    0 => "null".to_owned(),
                    1 => " [true, -1.5e3]".to_owned(),
                    2 => "123".to_owned(),
                    3 => r#"{"a":1,"a":2,"b":{}}"#.to_owned(),
                    4 => format!(r#"{{"S" : "{text}"}}"#),
                    5 => format!(r#"{{"{text}":[]}}"#),
                    6 => format!(r#""{text}\""#),
                    7 => format!(r#""{text}\\""#),
                    8 => format!(r#""{text}é""#),
                    _ => format!(r#""{text}""#),
                }
            };
            // A part of kind 6 ends with an escaped quotation mark, so the quotation mark does not
            // end the string.
            let is_right = parts.iter().all(|(kind, _)| *kind != 6);
            let parts: Vec<String> = parts.iter().map(part).collect();
            let mut text = format!(r#"{{"Statements":[{}]}}"#, parts.join(",")).into_bytes();
            if let Some((at, byte)) = damage
                && let Some(place) = text.get_mut(at)
            {
                *place = byte;
            }
            if damage.is_none() {
                prop_assert!(read(std::str::from_utf8(&text).unwrap(), &[]).is_some() == is_right);
            }
            match (parse_with_items(&text, &[]), parse_request(&text)) {
                (Ok(read), Ok(expected)) => prop_assert_eq!(read, expected),
                (Err(error), Err(expected)) => {
                    prop_assert_eq!(error.to_string(), expected.to_string());
                }
                (read, expected) => prop_assert!(false, "{:?} instead of {:?}", read, expected),
            }
        }
    }

    #[test]
    fn a_repeated_long_string_is_equal() {
        let written = "\\\"name\\\" = ? AND ".repeat(5);
        let said = written.replace('\\', "");
        let text = format!(r#"["{written}","{written}","{written}x","{written}"]"#);
        let json = read(&text, &[]).unwrap();
        let texts: Vec<_> = json.as_array().unwrap().iter().filter_map(Json::as_str).collect();
        assert_eq!(texts, [said.as_str(), &said, &format!("{said}x"), &said]);
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
            &format!(r#"{{"a":{{"S":"{}"}}}}"#, "x".repeat(BYTES_MAX)),
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
