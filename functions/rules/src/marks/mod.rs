//! Marks: the attributes that Weir adds to items in a user's tables.
//!
//! A mark belongs to the item in its table. It is not copied into archive rows, targets of a
//! restructuring migration or restored items. A user's attribute may have the name of a mark. Such
//! an attribute is data and must be kept, so a mark is recognised by both its name and its content.

pub(crate) mod copy;
pub(crate) mod migration;
pub mod restored;

use model::json::ItemView;
use model::{AttributeValue, Item};

/// Returns whether a name is reserved for a mark. Rules and plans must not write other values under a
/// reserved name.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    [migration::MARK, migration::TOUCH, restored::RESTORED].contains(&name)
        || name.starts_with(copy::MARK_PREFIX)
}

/// Returns whether an attribute is a mark, by its name and content.
fn is_mark(name: &str, value: &AttributeValue) -> bool {
    let has_text = |member: &str| {
        let text = value.as_map().and_then(|members| members.get(member)?.as_str());
        text.is_some()
    };
    match name {
        migration::MARK => has_text(migration::MARK_AT),
        migration::TOUCH => value.as_str().is_some(),
        restored::RESTORED => has_text(restored::STAMP),
        _ if name.starts_with(copy::MARK_PREFIX) => {
            value.as_str().and_then(copy::Mark::parse).is_some()
        }
        _ => false,
    }
}

/// Returns the item without marks.
#[must_use]
pub fn without_marks(item: &Item) -> Item {
    let mut item = item.clone();
    item.retain(|name, value| !is_mark(name, value));
    item
}

/// Returns an item that was parsed from JSON, without its marks. Returns `None` if it has no mark,
/// which is the usual case.
pub(crate) fn stripped(item: &ItemView<'_>) -> Option<Item> {
    if !item.iter().any(|(name, _)| is_reserved(name)) {
        return None;
    }
    let whole = item.clone().into_item();
    let own = without_marks(&whole);
    (own.len() < whole.len()).then_some(own)
}

#[cfg(test)]
pub(crate) mod tests {
    use model::json::item_from_str;

    use super::*;

    /// Returns an item with every mark, and with attributes of the user whose names are similar.
    pub(crate) fn marked(user: &str) -> Item {
        let stamp = crate::Stamp::of_record("l", &"7".parse().unwrap());
        let mark = copy::Mark { origin: r#"{"S":"o"}"#.to_owned(), stamp: stamp.clone(), hops: 1 };
        let item = item_from_str(user).unwrap();
        let origin = restored::Origin { archive: None, table: "t", event_id: "e", stamp: "l#7" };
        let restored = restored::mark(&item, origin, None);
        let said = AttributeValue::M(
            [("at", stamp.as_str()), ("from", "t|{}")]
                .map(|(n, v)| (n.to_owned(), v.into()))
                .into(),
        );
        item.with(&copy::mark_attribute("products"), mark.text())
            .with(migration::MARK, said)
            .with(migration::TOUCH, "shop")
            .with(restored::RESTORED, restored)
    }

    pub(crate) const OWN: &str = r#"{"_from":{"S":"a"},"_from_date":{"S":"2026-11-28"},"_from_n":{"N":"1"},"_weird":{"BOOL":true},"id":{"S":"k"},"v":{"N":"1"}}"#;

    #[test]
    fn only_marks_are_removed() {
        let own = item_from_str(OWN).unwrap();
        let all = marked(OWN);
        assert_eq!(all.len(), own.len() + 4);
        for name in all.keys().filter(|name| !own.contains_key(*name)) {
            assert!(is_reserved(name), "{name}");
        }
        assert_eq!(without_marks(&all), own);
        assert_eq!(stripped(&ItemView::of(&all)).as_ref(), Some(&own));
        assert_eq!(stripped(&ItemView::of(&own)), None);
        // These attributes have the names of marks, but values that Weir never writes.
        for text in [
            r#"{"_weir":{"S":"x"}}"#,
            r#"{"_weir":{"M":{"at":{"N":"1"}}}}"#,
            r#"{"_weir_touch":{"N":"1"}}"#,
            r#"{"_restored":{"S":"yesterday"}}"#,
            r#"{"_restored":{"M":{"by":{"S":"me"}}}}"#,
            r#"{"_from_r":{"S":"{\"S\":\"o\"}@x 1"}}"#,
        ] {
            let item = item_from_str(text).unwrap();
            assert_eq!(without_marks(&item), item);
            assert_eq!(stripped(&ItemView::of(&item)), None);
        }
    }
}
