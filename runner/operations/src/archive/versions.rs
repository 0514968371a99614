//! `weir archive get`: returns every archived version of one key.
//!
//! Keys are compared with the attribute values in `_item`, so a key that does not fit its column is
//! found too. Numbers are compared by exact decimal value. An event that is in two objects is
//! returned once.

use std::collections::BTreeMap;

use model::{AttributeValue, Item, KeyAttributeType};

use super::cell::{Row, time_text};
use super::reading::Reading;
use super::source::{Part, Source};
use client::failure::{Result, fatal};

/// Maximum number of versions of a key in memory. A version may have 400 KB.
const VERSIONS_MAX: usize = 10_000;

/// Checks a key against the key of its table. A key that lacks an attribute would match several
/// items, and a value of another type would match no item.
///
/// # Errors
/// When the key does not match; the message states why, and names the attributes of the key.
pub(crate) fn check_key(key: &Item, known: &[(String, KeyAttributeType)]) -> Result<()> {
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(", ");
    for (name, value) in key {
        let key_type = known.iter().find(|(known, _)| known == name).map(|(_, key_type)| *key_type);
        let Some(key_type) = key_type else {
            return Err(fatal!("--key: `{name}` is not a key attribute; the key is {names}"));
        };
        if key_type.attribute_type() != value.attribute_type() {
            let wanted = words(key_type.descriptor());
            // Plain JSON cannot express binary values.
            let typed = if key_type.descriptor() == "B" { binary_key(name) } else { String::new() };
            return Err(fatal!("--key: `{name}` must be {wanted}; the key is {names}{typed}"));
        }
    }
    match known.iter().find(|(name, _)| key.get(name).is_none()) {
        Some((missing, _)) => Err(fatal!("--key: `{missing}` is missing; the key is {names}")),
        None => Ok(()),
    }
}

/// Returns the message that no version was deleted at or before `as_of` (milliseconds since 1970),
/// with a probable reason.
pub(super) async fn none(
    source: &Source,
    parts: &[Part],
    key: &Item,
    as_of: Option<i64>,
) -> String {
    if let Some(as_of) = as_of
        && let Ok(later) = find(source, parts, key, None).await
        && let Some(first) = later.first()
    {
        return format!(
            "the archive has no version of this key deleted at or before {}: the first version was deleted at {}",
            time_text(as_of),
            time_text(first.deleted_at())
        );
    }
    format!("the archive has no version of this key{}", misfit(source, parts, key).await)
}

/// Explains why a key may have no rows: archived items lack the attribute, or the attribute has
/// another type. Returns an empty string if the first item matches the key's attributes, or if its
/// part was just compacted and cannot be read.
async fn misfit(source: &Source, parts: &[Part], key: &Item) -> String {
    let Some(item) = first_item(source, parts).await else { return String::new() };
    for (name, value) in key {
        match item.get(name) {
            None => return format!("; archived items of this table have no `{name}`"),
            Some(other) if other.attribute_type() != value.attribute_type() => {
                let is = words(other.attribute_type().descriptor());
                let is_binary = matches!(other, AttributeValue::B(_));
                let typed = if is_binary { binary_key(name) } else { String::new() };
                return format!("; `{name}` is {is} in archived items of this table{typed}");
            }
            Some(_) => {}
        }
    }
    String::new()
}

async fn first_item(source: &Source, parts: &[Part]) -> Option<Item> {
    let part = parts.first()?;
    let batches = source.open(part, Some(&["_item"])).await.ok()?;
    part.rows(batches).next()?.ok()?.item().ok()
}

/// Explains how to write a binary value of a key.
fn binary_key(name: &str) -> String {
    let key = serde_json::json!({ name: {"B": "AAE="} });
    format!("; write the key in DynamoDB JSON, with the bytes in base64, such as `{key}`")
}

/// Describes a key type in words, such as `a string`.
fn words(descriptor: &str) -> String {
    match descriptor {
        "S" => "a string".to_owned(),
        "N" => "a number".to_owned(),
        "B" => "binary".to_owned(),
        other => format!("of type {other}"),
    }
}

/// Returns the rows of a key, newest last. With `as_of` (milliseconds since 1970), only rows
/// deleted at or before that time are returned.
///
/// # Errors
/// When a part or an item cannot be read, or the key has too many versions.
pub(super) async fn find(
    source: &Source,
    parts: &[Part],
    key: &Item,
    as_of: Option<i64>,
) -> Result<Vec<Row>> {
    // Versions are ordered by time first, because sequence numbers start again when a table is
    // re-created.
    let mut versions: BTreeMap<(i64, String, String), Row> = BTreeMap::new();
    let mut reading = Reading::of(source, parts.iter().cloned());
    while let Some((part, batches)) = reading.next(None).await? {
        for row in part.rows(batches) {
            let row = row?;
            let time = row.deleted_at();
            if as_of.is_some_and(|as_of| time > as_of) {
                continue;
            }
            let item = part.item(&row)?;
            if key.iter().all(|(name, value)| item.get(name) == Some(value)) {
                let sequence = row.text("_sequence_number").to_owned();
                versions.insert((time, sequence, row.text("_event_id").to_owned()), row);
            }
            if versions.len() > VERSIONS_MAX {
                return Err(fatal!(
                    "the key has more than {VERSIONS_MAX} versions; read them with an engine (`weir archive ddl --engine duckdb`)"
                ));
            }
        }
    }
    Ok(versions.into_values().collect())
}
