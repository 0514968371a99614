//! Requests that put items: read into a tree whose items are in their stored form already.
//!
//! Most requests are right and small, and are read in one go over their text. Whatever is not plainly
//! right, or large, is read by `tree`, which says what is wrong with it.

use std::cell::Cell;

use super::scan::Scanner;
use super::stored::{ItemRoom, read_encoded_item};
use super::tree::{self, Json, JsonError};

/// Longer texts are read by `tree`, which takes less memory for what is nested.
const BYTES_MAX: usize = 1024 * 1024;
/// Levels that are followed; requests that put items have six and those of an expression's values.
const DEPTH_MAX: usize = 100;
/// In a path: any name.
pub const ANY_NAME: &str = "*";

/// Reads one JSON value from the whole of `text`, in which items may stand under these names, each
/// one level below the one before it. Arrays have no names: they are looked into.
/// An item that is plainly right becomes [`Json::Item`].
///
/// # Errors
/// As [`tree::parse_request`], which reads what is not plainly right.
pub fn parse_with_items<'t>(text: &'t [u8], path: &[&str]) -> Result<Json<'t>, JsonError> {
    let plain = Some(text).filter(|text| text.len() <= BYTES_MAX);
    match plain.and_then(|text| std::str::from_utf8(text).ok()).and_then(|text| read(text, path)) {
        Some(json) => Ok(json),
        None => tree::parse_request(text),
    }
}

fn read<'t>(text: &'t str, path: &[&str]) -> Option<Json<'t>> {
    let mut scanner = Scanner::new(text);
    let room = Room { values: Cell::new(tree::values_max(text.len())), item: Cell::default() };
    let json = value(&mut scanner, Some(path), &room, DEPTH_MAX)?;
    scanner.is_at_end().then_some(json)
}

/// What there is room for.
struct Room<'t> {
    /// How many more values there may be.
    values: Cell<usize>,
    /// Where an item is read, and written before it is known how long it gets.
    item: Cell<ItemRoom<'t>>,
}

/// `path` is what is left of it, if it leads here.
fn value<'t>(
    scanner: &mut Scanner<'t>,
    path: Option<&[&str]>,
    room: &Room<'t>,
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
            // Most objects around items have one member.
            let mut members = Vec::with_capacity(1);
            scanner.object(|scanner, name| {
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
        b'"' => Json::String(scanner.string()?),
        b't' | b'f' => Json::Bool(scanner.boolean()?),
        b'n' => scanner.null().then_some(Json::Null)?,
        _ => tree::parse(scanner.raw()?.as_bytes()).ok()?,
    })
}

/// What is left of a path behind a name.
fn step<'p, 'n>(path: &'p [&'n str], name: &str) -> Option<&'p [&'n str]> {
    let (first, rest) = path.split_first()?;
    (*first == ANY_NAME || *first == name).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{decode_item, parse, parse_request};

    const PUTS: [&str; 4] = ["RequestItems", ANY_NAME, "PutRequest", "Item"];

    /// The same tree without items in it.
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
    fn items_stand_where_the_path_says() {
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

    #[test]
    fn what_is_not_plainly_right_is_left_to_the_tree() {
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
