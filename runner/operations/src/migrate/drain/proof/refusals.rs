//! Refused items: items of a shard, written since the last comparison, that a new comparison would
//! refuse. They cannot be transformed, or do not convert back to the same item.
//!
//! An item that was written several times has one entry, because only its final state and the
//! targets of its earlier versions matter.

use std::collections::{BTreeMap, BTreeSet};

use model::Item;
use model::json::item_to_string;
use rules::migration::Target;

use crate::migrate::failure::Failure;

/// Maximum number of refused items that are stored for another check. If there are more refused
/// items, the plan is probably wrong.
const ITEMS_MAX: usize = 1_000;
/// Maximum number of targets that are stored for an item. They are the targets of the versions
/// before a version that cannot be transformed.
const TARGETS_MAX: usize = 1_000;

/// The refused items of one shard.
#[derive(Default)]
pub(crate) struct Refusals {
    items: BTreeMap<String, Refused>,
    /// True if more than `ITEMS_MAX` items were refused.
    is_full: bool,
    /// True if an item had more than `TARGETS_MAX` targets.
    is_wide: bool,
}

/// A refused item, identified by its key.
#[derive(Clone)]
pub(crate) struct Refused {
    pub(crate) key: Item,
    /// The targets of the item's versions before a version that could not be transformed.
    pub(crate) before: BTreeSet<Target>,
    /// The reason for the last version that could not be transformed; `None` if every version
    /// could.
    pub(crate) reason: Option<String>,
    /// True if the newest known version cannot be transformed.
    is_in_doubt: bool,
}

impl Refusals {
    /// Adds an item with a version that cannot be transformed. `before` are the targets of the
    /// previous version.
    pub(crate) fn refuse(
        &mut self,
        key: Item,
        before: impl IntoIterator<Item = Target>,
        reason: String,
    ) {
        let Some(refused) = self.of(key) else { return };
        refused.reason = Some(reason);
        refused.is_in_doubt = true;
        refused.before.extend(before);
        self.is_wide |= refused.before.len() > TARGETS_MAX;
    }

    /// Adds an item with a version that does not convert back to the same item.
    pub(crate) fn note_lossy(&mut self, key: Item) {
        let _ = self.of(key);
    }

    fn of(&mut self, key: Item) -> Option<&mut Refused> {
        let text = item_to_string(&key);
        if self.items.len() >= ITEMS_MAX && !self.items.contains_key(&text) {
            self.is_full = true;
            return None;
        }
        let new = || Refused { key, before: BTreeSet::new(), reason: None, is_in_doubt: false };
        Some(self.items.entry(text).or_insert_with(new))
    }

    /// Returns all refused items, for a new check.
    pub(crate) fn all(&self) -> Vec<Refused> {
        self.items.values().cloned().collect()
    }

    /// Returns the items whose newest version may not be transformable.
    pub(crate) fn in_doubt(&self) -> impl Iterator<Item = &Refused> {
        self.items.values().filter(|refused| refused.is_in_doubt)
    }

    /// Marks the newest versions of all items as transformable, after the caller has checked them.
    pub(crate) fn trust(&mut self) {
        self.items.values_mut().for_each(|refused| refused.is_in_doubt = false);
    }

    /// Removes an item that was found to be correct.
    pub(crate) fn forget(&mut self, refused: &Refused) {
        self.items.remove(&item_to_string(&refused.key));
    }

    /// Returns the message that there were more refused items or targets than the maximum; `None`
    /// if all are stored.
    pub(crate) fn too_many(&self, table: &str) -> Option<String> {
        if self.is_wide {
            return Some(format!(
                "an item of `{table}` that could not be transformed had more than {TARGETS_MAX} earlier targets: compare again"
            ));
        }
        self.is_full.then(|| {
            format!(
                "more than {ITEMS_MAX} items of `{table}` written since the last comparison cannot be transformed or converted back: correct them, and compare again"
            )
        })
    }
}

/// Returns the part of a message that an item cannot be transformed, with the reason.
pub(crate) fn not_made(reason: &Failure) -> String {
    format!("cannot be transformed ({reason})")
}

/// Returns the message about a wrong item, which the operator has to correct.
pub(crate) fn as_told(table: &str, key: &Item, what: &str) -> String {
    let key = item_to_string(key);
    format!(
        "an item of `{table}` was written that {what}: {key}; correct or delete the item, and compare again"
    )
}

#[cfg(test)]
mod tests {
    use model::PrimaryKey;
    use model::json::item_from_str;

    use super::*;

    fn key(number: usize) -> Item {
        item_from_str(&format!(r#"{{"p":{{"S":"k{number}"}}}}"#)).unwrap()
    }

    fn target(name: &str) -> Target {
        let key = PrimaryKey { partition: model::KeyValue::S(name.to_owned()), sort: None };
        Target { migration: "m".to_owned(), table: "pets".to_owned(), key, adopts: false }
    }

    /// Goal: an item that is written repeatedly counts as one item.
    #[test]
    fn an_item_counts_once_with_all_that_it_was() {
        let mut refusals = Refusals::default();
        for version in 0..3 * ITEMS_MAX {
            refusals.refuse(key(1), [target(&format!("t{}", version % 2))], version.to_string());
        }
        refusals.note_lossy(key(2));
        refusals.note_lossy(key(1));
        assert_eq!(refusals.too_many("cats"), None);
        let all = refusals.all();
        let [hot, lossy] = &all[..] else { panic!("{}", all.len()) };
        assert_eq!(hot.before, BTreeSet::from([target("t0"), target("t1")]));
        assert_eq!((hot.reason.as_deref(), lossy.reason.as_deref()), (Some("2999"), None));
        let in_doubt = |refusals: &Refusals| refusals.in_doubt().count();
        assert_eq!(in_doubt(&refusals), 1);
        refusals.trust();
        assert_eq!(in_doubt(&refusals), 0);
        refusals.refuse(key(1), [], "again".to_owned());
        assert_eq!(in_doubt(&refusals), 1);
        refusals.forget(hot);
        assert_eq!(refusals.all().len(), 1);
    }

    /// Goal: no refused item is dropped silently.
    #[test]
    fn too_many_items_are_reported() {
        let mut refusals = Refusals::default();
        (0..ITEMS_MAX).for_each(|number| refusals.note_lossy(key(number)));
        assert_eq!(refusals.too_many("cats"), None);
        refusals.refuse(key(ITEMS_MAX), [], "it is bad".to_owned());
        let told = refusals.too_many("cats").unwrap();
        assert!(told.starts_with("more than 1000 items of `cats` written"), "{told}");
    }
}
