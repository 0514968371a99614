//! Converts an archived item into the item to put: the key is unchanged, the time to live is
//! removed or replaced, and marks are removed.
//!
//! The module does not select or put rows.

use model::{AttributeValue, Item};
use rules::marks::restored::{RESTORED, stamp_of};
use rules::marks::without_marks;
use rules::migration::is_bare_tombstone_of;

/// The rules that convert archived items of a table into items to put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// The names of the key attributes, partition key first.
    pub(super) keys: Vec<String>,
    pub(super) ttl_attribute: Option<String>,
    /// The new time to live, in seconds since 1970; `None` if restored items get no time to live.
    pub(super) expires_at: Option<i64>,
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    /// The item to put.
    Item(Item),
    /// The row is a tombstone of a migration, so nothing is put.
    Tombstone,
    /// The item cannot be put, for this reason.
    Refused(String),
}

impl Form {
    /// Returns true for a key attribute.
    pub(super) fn is_key(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key == name)
    }

    /// Returns the partition key's name.
    pub(super) fn partition_key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }

    /// Returns the TTL attribute if it is removed or replaced. A TTL attribute in the key stays
    /// unchanged, because a new time would change the item's key.
    pub(super) fn changed_ttl_attribute(&self) -> Option<&str> {
        self.ttl_attribute.as_deref().filter(|name| !self.is_key(name))
    }

    /// Returns the TTL attribute if it stays unchanged because it is part of the key.
    pub(super) fn kept_ttl_attribute(&self) -> Option<&str> {
        self.ttl_attribute.as_deref().filter(|name| self.is_key(name))
    }

    /// Converts an archived item.
    pub(super) fn of(&self, item: &Item) -> Conversion {
        if is_bare_tombstone_of(item, |name| self.is_key(name)) {
            return Conversion::Tombstone;
        }
        // An item that was restored, changed, and expired again still has the mark of the earlier
        // restore.
        if item.contains_key(RESTORED) && stamp_of(item).is_none() {
            return Conversion::Refused(format!(
                "the item has its own attribute `{RESTORED}`, which the mark of restored items would overwrite; read the item from `_item` in the archive and put it with another attribute name"
            ));
        }
        let mut item = without_marks(item);
        if let Some(name) = self.changed_ttl_attribute() {
            item.remove(name);
            if let Some(seconds) = self.expires_at {
                item.insert(name.to_owned(), AttributeValue::N(seconds.into()));
            }
        }
        Conversion::Item(item)
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
                Conversion::Item(found) => assert_eq!(found, item(expected), "{archived}"),
                Conversion::Tombstone => assert_eq!(expected, "tombstone", "{archived}"),
                Conversion::Refused(_) => assert_eq!(expected, "refused", "{archived}"),
            }
        }
    }
}
