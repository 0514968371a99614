//! What an archived item is when it is put back: its key as it was, and everything else but the time
//! to live and what others marked it with.
//!
//! Nothing is put here, and which rows are restored is not known.

use model::{AttributeValue, Item};
use rules::archive::restored::{RESTORED, stamp_of};
use rules::marks::without_marks;
use rules::migration::is_bare_tombstone_of;

/// How the items of a table are put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// The names of the key attributes, that of the partition key first.
    pub(super) keys: Vec<String>,
    /// The attribute that TTL goes by.
    pub(super) ttl_attribute: Option<String>,
    /// The new time to live, in seconds since 1970; `None` for none.
    pub(super) expires_at: Option<i64>,
}

/// What an archived item becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Formed {
    /// An item to put.
    Item(Item),
    /// Nothing: it was the tombstone of a migration.
    Tombstone,
    /// It cannot be put, and why.
    Refused(String),
}

impl Form {
    /// Whether this is a key attribute.
    pub(super) fn is_key(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key == name)
    }

    /// The partition key's name.
    pub(super) fn partition_key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// The attribute whose value is taken off or renewed: that of TTL, unless it is a part of the
    /// key, which with another time would be that of another item.
    pub(super) fn changed_ttl_attribute(&self) -> Option<&str> {
        self.ttl_attribute.as_deref().filter(|name| !self.is_key(name))
    }

    /// The attribute that TTL goes by, if it is restored as it was.
    pub(super) fn kept_ttl_attribute(&self) -> Option<&str> {
        self.ttl_attribute.as_deref().filter(|name| self.is_key(name))
    }

    /// What is put for an archived item.
    pub(super) fn of(&self, item: &Item) -> Formed {
        if is_bare_tombstone_of(item, |name| self.is_key(name)) {
            return Formed::Tombstone;
        }
        // One that was restored and changed before it expired again has the mark of that time.
        if item.contains_key(RESTORED) && stamp_of(item).is_none() {
            return Formed::Refused(format!(
                "the item has an attribute `{RESTORED}` of its own, whose place the mark of a restored item takes; read it from the archive's `_item` and put it under another name"
            ));
        }
        let mut item = without_marks(item);
        if let Some(name) = self.changed_ttl_attribute() {
            item.remove(name);
            if let Some(seconds) = self.expires_at {
                item.insert(name.to_owned(), AttributeValue::N(seconds.into()));
            }
        }
        Formed::Item(item)
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn a_key_stays_and_marks_go() {
        let gone = r#""_weir":{"M":{"at":{"S":"x"},"gone":{"BOOL":true}}}"#;
        let item = |text: &str| item_from_str(&text.replace("GONE", gone)).unwrap();
        for (ttl_attribute, expires_at, archived, expected) in [
            ("ttl", None, r#"{"id":{"S":"a"},"ttl":{"N":"5"}}"#, r#"{"id":{"S":"a"}}"#),
            (
                "ttl",
                Some(9),
                r#"{"id":{"S":"a"},"ttl":{"N":"5"}}"#,
                r#"{"id":{"S":"a"},"ttl":{"N":"9"}}"#,
            ),
            ("id", None, r#"{"id":{"N":"5"}}"#, r#"{"id":{"N":"5"}}"#),
            ("id", Some(9), r#"{"id":{"N":"5"}}"#, r#"{"id":{"N":"5"}}"#),
            (
                "ttl",
                None,
                r#"{"id":{"S":"a"},"_weir":{"M":{"at":{"S":"x"}}},"_weir_touch":{"S":"x"}}"#,
                r#"{"id":{"S":"a"}}"#,
            ),
            (
                "ttl",
                None,
                r#"{"id":{"S":"a"},"n":{"N":"1"},GONE}"#,
                r#"{"id":{"S":"a"},"n":{"N":"1"}}"#,
            ),
            (
                "ttl",
                None,
                r#"{"id":{"S":"a"},"_from_date":{"S":"x"},"_from_r":{"S":"{\"S\":\"o\"}@l/0000000000000000000000000000000000000007 1"}}"#,
                r#"{"id":{"S":"a"},"_from_date":{"S":"x"}}"#,
            ),
            ("ttl", None, r#"{"id":{"S":"a"},GONE}"#, "tombstone"),
            (
                "ttl",
                None,
                r#"{"id":{"S":"a"},"_restored":{"M":{"stamp":{"S":"x"}}}}"#,
                r#"{"id":{"S":"a"}}"#,
            ),
            ("ttl", None, r#"{"id":{"S":"a"},"_restored":{"S":"yesterday"}}"#, "refused"),
        ] {
            let ttl_attribute = Some(ttl_attribute.to_owned());
            let form = Form { keys: vec!["id".to_owned()], ttl_attribute, expires_at };
            match form.of(&item(archived)) {
                Formed::Item(found) => assert_eq!(found, item(expected), "{archived}"),
                Formed::Tombstone => assert_eq!(expected, "tombstone", "{archived}"),
                Formed::Refused(_) => assert_eq!(expected, "refused", "{archived}"),
            }
        }
    }
}
