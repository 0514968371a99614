//! The mark on an item that was restored from an archive, and what it means when the item expires
//! again: nothing new for that archive, as long as nobody changed it.
//!
//! The mark is an attribute of the item. It names the archive, the row and its table, and
//! fingerprints what was restored, so an item that still is what the archive of its table holds is
//! not archived there twice. One that was changed, or restored from another archive, another table's,
//! or one that nobody can name, is. Who restores, and how, is not known here.

use model::{AttributeValue, Item, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::marks::without_marks;

/// The attribute that holds the mark.
pub const RESTORED: &str = "_restored";
const ARCHIVE: &str = "archive";
const TABLE: &str = "table";
pub(crate) const STAMP: &str = "stamp";
const EVENT_ID: &str = "event_id";
const TTL_ATTRIBUTE: &str = "ttl_attribute";
const FINGERPRINT: &str = "fingerprint";

/// Which archived row an item was restored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'o> {
    /// The archive that the row is in, as [`archive_name`] names it. `None` if nobody can tell, as of
    /// a copy in a folder: then no function takes the archived row for one of its own.
    pub archive: Option<&'o str>,
    /// The table in whose archive the row is.
    pub table: &'o str,
    /// The row's event id.
    pub event_id: &'o str,
    /// The row's place in time.
    pub stamp: &'o str,
}

/// The name of the archive whose objects are in this bucket, and whose names begin with this prefix:
/// empty, or ending in `/`. No two archives of one S3 have the same.
#[must_use]
pub fn archive_name(bucket: &str, prefix: &str) -> String {
    format!("{bucket}/{prefix}")
}

/// The mark as an attribute: of an item that was restored from a row, and whose time to live is in
/// `ttl_attribute`; `None` also if that is a part of its key, which is restored as it was.
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

/// The stamp in an item's mark; `None` if it has no mark.
#[must_use]
pub fn stamp_of(item: &Item) -> Option<&str> {
    text_of(item, STAMP)
}

/// Whether the item is still what was restored from the archive of `table`, apart from its time to
/// live, unless that is a part of its key: then another time is another item. Marks that say no
/// table are older than this part of them, and count for any.
#[must_use]
pub fn is_as_restored(item: &Item, table: &str, is_key: impl Fn(&str) -> bool) -> bool {
    let ttl_attribute = text_of(item, TTL_ATTRIBUTE).filter(|name| !is_key(name));
    text_of(item, TABLE).is_none_or(|known| known == table)
        && text_of(item, FINGERPRINT).is_some_and(|known| {
            known == fingerprint(&without_marks(item), ttl_attribute)
                // As an earlier edition restored it, with the marks that the archived item had.
                || known == fingerprint(item, ttl_attribute)
        })
}

/// Whether the item is still what was restored from the rows of `table` in `archive`, as
/// [`archive_name`] names it. Marks that name no archive, as older ones do, are of none.
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

/// Of everything but the mark and the time to live; 128 bits, as it stands for equality.
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
        // What Weir itself writes into it is no change of it.
        let touched = renewed.clone().with(crate::migration::TOUCH, "m");
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
        // Where the time to live is a part of the key, another time is another item.
        assert!(!is_as_restored(&renewed, "films", |name| name == "ttl"));

        // The archive of another table has no row of it.
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
