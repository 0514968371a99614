//! The mark on an item that was restored from an archive. If the item is unchanged when it expires
//! again, that archive gets no second row.
//!
//! The mark is an attribute of the item. It names the archive, the row and its table, and contains
//! a fingerprint of the restored item. A changed item is archived again. The same applies to an
//! item that was restored from another archive, from another table's rows, or from an archive whose
//! name is unknown. The caller restores the items.

use model::{AttributeValue, Item, json};
use xxhash_rust::xxh3::xxh3_128;

use super::without_marks;

/// The attribute that holds the mark.
pub const RESTORED: &str = "_restored";
const ARCHIVE: &str = "archive";
const TABLE: &str = "table";
pub(crate) const STAMP: &str = "stamp";
const EVENT_ID: &str = "event_id";
const TTL_ATTRIBUTE: &str = "ttl_attribute";
const FINGERPRINT: &str = "fingerprint";

/// The archived row from which an item was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'o> {
    /// The archive of the row, as returned by [`archive_name`]. `None` if the name is unknown, for
    /// example for a local copy of the archive. An unknown archive never equals the archive of a
    /// function.
    pub archive: Option<&'o str>,
    /// The table whose item was archived in the row.
    pub table: &'o str,
    /// The row's event id.
    pub event_id: &'o str,
    /// The stamp of the row.
    pub stamp: &'o str,
}

/// Returns the name of the archive in this bucket whose object names begin with this prefix. The prefix
/// is empty or ends with `/`. Archive names are unique within one S3 endpoint.
#[must_use]
pub fn archive_name(bucket: &str, prefix: &str) -> String {
    format!("{bucket}/{prefix}")
}

/// Returns the mark of an item that was restored from a row, as an attribute. `ttl_attribute` is the
/// TTL attribute; `None` if that attribute is part of the key, because a key is restored unchanged.
#[must_use]
pub fn mark(item: &Item, origin: Origin<'_>, ttl_attribute: Option<&str>) -> AttributeValue {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let mut mark = Item::new()
        .with(TABLE, text(origin.table))
        .with(EVENT_ID, text(origin.event_id))
        .with(STAMP, text(origin.stamp))
        .with(FINGERPRINT, text(&fingerprint(item, ttl_attribute)));
    for (part, name) in [(ARCHIVE, origin.archive), (TTL_ATTRIBUTE, ttl_attribute)] {
        if let Some(name) = name {
            mark.insert(part.to_owned(), text(name));
        }
    }
    AttributeValue::M(mark.0)
}

/// Returns the stamp in an item's mark; `None` if it has no mark.
#[must_use]
pub fn stamp_of(item: &Item) -> Option<&str> {
    text_of(item, STAMP)
}

/// Returns whether the item is unchanged since it was restored from the rows of `table`, apart from
/// its time to live. If the time to live is part of the key, a changed time to live counts as a
/// change, because it identifies a different item. Marks of earlier releases name no table and
/// match any table.
#[must_use]
pub fn is_as_restored(item: &Item, table: &str, is_key: impl Fn(&str) -> bool) -> bool {
    let ttl_attribute = text_of(item, TTL_ATTRIBUTE).filter(|name| !is_key(name));
    text_of(item, TABLE).is_none_or(|known| known == table)
        && text_of(item, FINGERPRINT).is_some_and(|known| {
            known == fingerprint(&without_marks(item), ttl_attribute)
                // Earlier releases included the marks of the archived item in the fingerprint.
                || known == fingerprint(item, ttl_attribute)
        })
}

/// Returns whether the item is unchanged since it was restored from the rows of `table` in
/// `archive`, as returned by [`archive_name`]. Marks of earlier releases name no archive and match
/// no archive.
#[must_use]
pub fn is_in_archive(
    item: &Item,
    archive: &str,
    table: &str,
    is_key: impl Fn(&str) -> bool,
) -> bool {
    text_of(item, ARCHIVE) == Some(archive) && is_as_restored(item, table, is_key)
}

fn text_of<'i>(item: &'i Item, name: &str) -> Option<&'i str> {
    match item.get(RESTORED)? {
        AttributeValue::M(mark) => match mark.get(name)? {
            AttributeValue::S(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the 128-bit hash of the item without the mark and the time to live. Items with equal
/// hashes count as equal.
fn fingerprint(item: &Item, ttl_attribute: Option<&str>) -> String {
    let mut content = item.clone();
    content.remove(RESTORED);
    if let Some(name) = ttl_attribute {
        content.remove(name);
    }
    format!("{:032x}", xxh3_128(json::item_to_string(&content).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_as_restored_until_it_is_changed() {
        let item = |text: &str| json::item_from_str(text).unwrap();
        let is_key = |name: &str| name == "id";
        let archived =
            item(r#"{"id":{"S":"a"},"n":{"N":"1.0"},"s":{"SS":["b","a"]},"ttl":{"N":"5"}}"#);
        let mut restored = archived.clone();
        restored.remove("ttl");
        let own = Some("bucket/archive/");
        let origin = Origin { archive: own, table: "films", event_id: "e1", stamp: "2026#0001" };
        let marked = mark(&restored, origin, Some("ttl"));
        restored.insert(RESTORED.to_owned(), marked);
        assert_eq!(stamp_of(&restored), Some("2026#0001"));
        assert!(is_as_restored(&restored, "films", is_key));
        let mut renewed = restored.clone();
        renewed.insert("ttl".to_owned(), AttributeValue::N("99".parse().unwrap()));
        assert!(is_as_restored(&renewed, "films", is_key));
        // An attribute that Weir writes does not change the item.
        let touched = renewed.clone().with(crate::marks::migration::TOUCH, "m");
        assert!(is_as_restored(&touched, "films", is_key));
        for change in
            [r#"{"n":{"N":"2"}}"#, r#"{"new":{"NULL":true}}"#, r#"{"_restored":{"S":"x"}}"#]
        {
            let mut changed = renewed.clone();
            changed.extend(item(change));
            assert!(!is_as_restored(&changed, "films", is_key), "{change}");
            assert!(!is_in_archive(&changed, "bucket/archive/", "films", is_key), "{change}");
        }
        assert!(!is_as_restored(&archived, "films", is_key));
        for (archive, table, is_in) in [
            ("bucket/archive/", "films", true),
            ("bucket/archive/", "other", false),
            ("bucket/", "films", false),
            ("other/archive/", "films", false),
        ] {
            assert_eq!(is_in_archive(&renewed, archive, table, is_key), is_in, "{archive} {table}");
        }
        assert_eq!(stamp_of(&archived), None);
        // If the time to live is part of the key, a different time identifies a different item.
        assert!(!is_as_restored(&renewed, "films", |name| name == "ttl"));

        // The archive of another table has no row of this item.
        assert!(!is_as_restored(&restored, "other", is_key));
        let Some(AttributeValue::M(mark)) = restored.get_mut(RESTORED) else { panic!("a mark") };
        mark.remove(TABLE);
        assert!(
            is_as_restored(&restored, "films", is_key)
                && is_as_restored(&restored, "other", is_key)
        );
        let Some(AttributeValue::M(mark)) = restored.get_mut(RESTORED) else { panic!("a mark") };
        mark.remove(ARCHIVE);
        assert!(!is_in_archive(&restored, "bucket/archive/", "films", is_key));
    }
}
