//! The marks of migrations: the attribute [`MARK`] of a target item, and [`TOUCH`] of a source
//! item.
//!
//! `migration::Registers` reads and writes the complete mark.

use std::collections::BTreeMap;

use model::{AttributeValue, Item, KeySchema};

use super::without_marks;

/// The attribute of a target item that holds its mark. It is kept until the migration is complete.
pub const MARK: &str = "_weir";
/// The attribute that a touch adds to a source item and removes again. Its value is the migration's
/// name.
pub const TOUCH: &str = "_weir_touch";
/// The value of [`TOUCH`] when a cut-over touches a target's item to detect its consumers. It is
/// not a valid name of a migration.
pub const TOUCH_OF_CUTOVER: &str = "*";
/// A member of the mark: the visible source item, see [`SourceItem`](crate::migration::SourceItem).
pub const MARK_FROM: &str = "from";
/// A member of the mark: the stamp of that source item's last statement.
pub const MARK_AT: &str = "at";
/// A member of the mark: true if that source item no longer has this target; otherwise absent.
pub const MARK_GONE: &str = "gone";
/// A member of the mark: the registers of the other source items, by source.
pub const MARK_MORE: &str = "more";

/// Returns whether a mark states that its source no longer produces the target.
pub(crate) fn is_gone(mark: &BTreeMap<String, AttributeValue>) -> bool {
    mark.get(MARK_GONE) == Some(&AttributeValue::Bool(true))
}

/// Returns an item without its migration marks, for a write to the same item. The marks of the
/// fan-out and of a restore are kept.
#[must_use]
pub fn unmarked(item: &Item) -> Item {
    let mut item = item.clone();
    item.remove(MARK);
    item.remove(TOUCH);
    item
}

/// Returns whether an item is a tombstone: its mark states that no source produces it, and it has
/// no attributes besides its key and mark. After an update by a writer, the item keeps the mark but
/// is not a tombstone.
#[must_use]
pub fn is_bare_tombstone(item: &Item, schema: &KeySchema) -> bool {
    is_bare_tombstone_of(item, |name| schema.contains(name))
}

/// Returns the same as [`is_bare_tombstone`], without a key schema. `is_key` returns whether a name
/// belongs to a key attribute.
#[must_use]
pub fn is_bare_tombstone_of(item: &Item, is_key: impl Fn(&str) -> bool) -> bool {
    let gone = item.get(MARK).and_then(AttributeValue::as_map).is_some_and(is_gone);
    gone && item.keys().all(|name| name == MARK || name == TOUCH || is_key(name))
}

/// Returns the item as a reader of the table sees it: without Weir's marks, or `None` if it is a
/// tombstone. Transforms and comparisons process only this visible form. A mark is therefore never
/// copied to another table, and comparisons ignore marks of the fan-out.
#[must_use]
pub fn visible(item: &Item, schema: &KeySchema) -> Option<Item> {
    (!is_bare_tombstone(item, schema)).then(|| without_marks(item))
}
