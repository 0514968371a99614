//! Changes of items in their own table: the required item, and the condition of its write.
//!
//! `in-place` changes the attributes of each item, and `purge` deletes items. Finished items have
//! no mark: an item is finished if the transform leaves it unchanged. The effect "this item is as
//! the plan requires" contains no data. Any version of the item may therefore cause the effect, in
//! any order and any number of times. The processor applies the transform to the current version:
//! it **judges** the item. The result determines the write. The **guard**, a write condition,
//! covers every attribute that could change the result. The processor reads and writes the items.

use std::collections::BTreeSet;

use model::Item;
use model::stream_record::LambdaRecord;

use super::{Effect, ItemError, MARK, Migration, OutputKind, Target, is_bare_tombstone};
use crate::rule::Refusal;

/// The action of a plan on an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The item already is as the plan requires.
    Keep,
    /// Replace the item by this item, which has the same key.
    Change(Item),
    /// Delete the item.
    Delete,
}

/// The condition of a change. In addition, every attribute of the judged item must be unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The attributes that must be absent.
    pub absent: BTreeSet<String>,
    /// Whether the condition covers all attributes that can change the judgement. If false, the
    /// program can read more attributes than a condition can name. The replaced item must then be
    /// judged after the write.
    pub is_complete: bool,
}

/// The maximum number of attributes that an item has before or after a change. Each attribute is
/// one comparison in the guard, and a DynamoDB expression has at most 300 operators. Source:
/// DynamoDB developer guide, "Service quotas: expressions".
pub(super) const ATTRIBUTES_MAX: usize = 140;
/// The maximum size of an expression in bytes, minus the condition that the item exists. Source:
/// DynamoDB developer guide, "Service quotas: expressions".
const GUARD_BYTES_MAX: usize = 4096 - 32;
/// The size of one comparison in a guard, in bytes: `#a139 = :b139 AND `.
const EQUAL_BYTES: usize = 18;
/// The size of one condition on absence, in bytes: `attribute_not_exists(#a139) AND `.
const ABSENT_BYTES: usize = 32;
/// The maximum size of an attribute's name in bytes.
const NAME_BYTES_MAX: usize = 65_535;

/// Returns whether a write condition can compare the values of `equal` attributes and require
/// `absent` further attributes to be absent.
fn has_room(equal: usize, absent: usize) -> bool {
    equal + absent <= ATTRIBUTES_MAX
        && equal * EQUAL_BYTES + absent * ABSENT_BYTES <= GUARD_BYTES_MAX
}

/// Checks that a guard can compare all attributes that an item has before or after a change.
fn check_attributes(before: &Item, after: Option<&Item>) -> Result<(), ItemError> {
    let is_new = |name: &&String| !before.contains_key(*name);
    let new = after.map_or(0, |after| after.keys().filter(is_new).count());
    let attributes = before.len() + new;
    if has_room(before.len(), new) {
        return Ok(());
    }
    Err(match attributes > ATTRIBUTES_MAX {
        true => ItemError::TooManyAttributes(attributes),
        false => ItemError::TooManyNewAttributes { attributes, new },
    })
}

/// Applies the change from `before` to `after` to the item `met`, and returns the result. `met` may
/// have more attributes than `before`.
#[must_use]
pub fn changed(before: &Item, after: &Item, met: &Item) -> Item {
    let mut item = met.clone();
    item.retain(|name, _| !before.contains_key(name) || after.contains_key(name));
    item.extend(after.iter().map(|(name, value)| (name.clone(), value.clone())));
    item
}

impl Migration {
    /// Returns the action of the plan on an item of one of its tables. The tombstone of another
    /// migration does not count as an item: readers ignore it, and a change would make it visible
    /// again.
    ///
    /// # Errors
    /// When the transform fails for the item, changes its key, or yields a different result when it
    /// is applied twice.
    pub fn rewrite(&self, table: &str, item: &Item) -> Result<Rewrite, ItemError> {
        if self.schema(table).is_some_and(|schema| is_bare_tombstone(item, schema)) {
            return Ok(Rewrite::Keep);
        }
        let Some(wanted) = self.wanted(table, item)? else {
            check_attributes(item, None)?;
            return Ok(Rewrite::Delete);
        };
        if wanted == *item {
            return Ok(Rewrite::Keep);
        }
        if self.wanted(table, &wanted)?.as_ref() != Some(&wanted) {
            return Err(ItemError::NotIdempotent);
        }
        check_attributes(item, Some(&wanted))?;
        Ok(Rewrite::Change(wanted))
    }

    /// Returns the condition of a change or removal of a judged item.
    ///
    /// The condition also covers absent attributes. If a writer adds an attribute after the
    /// judgement, the plan may require the item to stay unchanged. If not all absent attributes fit
    /// into the condition, the attributes that the change adds take precedence, because no value of
    /// a writer may be overwritten.
    #[must_use]
    pub fn guard(&self, table: &str, before: &Item, after: Option<&Item>) -> Guard {
        let new = after.into_iter().flat_map(|after| after.keys());
        let mut absent: BTreeSet<_> =
            new.filter(|name| !before.contains_key(*name)).cloned().collect();
        let readable = self.readable_attributes(table);
        let mut is_complete = readable.is_some();
        // An item with only a key becomes a tombstone if a writer adds this mark.
        let mark = MARK.to_owned();
        for name in readable.into_iter().flatten().chain([&mark]) {
            let can_be_there = (1..=NAME_BYTES_MAX).contains(&name.len());
            if !can_be_there || before.contains_key(name) || absent.contains(name) {
                continue;
            }
            let fits = has_room(before.len(), absent.len() + 1);
            is_complete &= fits;
            if fits {
                absent.insert(name.clone());
            }
        }
        Guard { absent, is_complete }
    }

    /// Returns whether the plan can read every attribute of the items that it changes in place. An
    /// attribute that a writer adds during a change can then be judged only after the write.
    #[must_use]
    pub fn looks_at_any(&self, table: &str) -> bool {
        self.kind.is_in_place() && self.reads(table) && self.readable_attributes(table).is_none()
    }

    /// Returns the attributes of a table's items that the plan can read; `None` if it can read
    /// every attribute.
    fn readable_attributes(&self, table: &str) -> Option<&BTreeSet<String>> {
        match &self.sources.get(table)?.first()?.kind {
            OutputKind::Purge(condition) => condition.looks_at(),
            OutputKind::Transform(transform) => transform.readable_attributes().of_change(),
            OutputKind::Split(_) => None,
        }
    }

    /// Returns whether the change of a judged item was wrong for `met`, the item that was replaced.
    /// `met` has all attributes of the judged item and may have more. A wrong change must be
    /// undone.
    #[must_use]
    pub fn is_misjudged(
        &self,
        table: &str,
        before: &Item,
        after: Option<&Item>,
        met: &Item,
    ) -> bool {
        if met.len() <= before.len() {
            return false;
        }
        match (self.rewrite(table, met), after) {
            (Ok(Rewrite::Delete), None) => false,
            (Ok(Rewrite::Change(wanted)), Some(after)) => wanted != changed(before, after, met),
            (Ok(Rewrite::Keep), Some(after)) => *met != changed(before, after, met),
            (Ok(_) | Err(_), _) => true,
        }
    }

    /// Returns the item that the plan requires; `None` if it requires a deletion.
    fn wanted(&self, table: &str, item: &Item) -> Result<Option<Item>, ItemError> {
        let Some(output) = self.sources.get(table).and_then(|outputs| outputs.first()) else {
            return Ok(Some(item.clone()));
        };
        let mut made = output.run(item)?;
        let schema = self.schema(table).ok_or_else(|| ItemError::NoTable(table.to_owned()))?;
        match (made.pop(), made.is_empty()) {
            (None, _) if self.kind.deletes() => Ok(None),
            (Some(wanted), true) => {
                match schema.key_of_item(&wanted)? == schema.key_of_item(item)? {
                    true => Ok(Some(wanted)),
                    false => Err(ItemError::ChangedKey),
                }
            }
            (None, _) => Err(ItemError::NoItem),
            (Some(_), false) => Err(ItemError::SeveralItems),
        }
    }

    /// Returns the effect that changes an item as the plan requires; an empty list if the item is
    /// already as the plan requires.
    pub(super) fn rewrite_effect(&self, table: &str, item: &Item) -> Result<Vec<Effect>, Refusal> {
        if self.rewrite(table, item)? == Rewrite::Keep {
            return Ok(Vec::new());
        }
        let schema = self.schema(table).ok_or_else(|| Refusal(format!("no table `{table}`")))?;
        let key = schema.key_of_item(item).map_err(ItemError::from)?;
        let target =
            Target { migration: self.name.clone(), table: table.to_owned(), key, adopts: false };
        Ok(vec![Effect::Rewrite { target }])
    }

    /// Decides about a record of a table that is changed in place. The record of a deletion has no
    /// effect.
    pub(super) fn decide_in_place(
        &self,
        table: &str,
        record: &LambdaRecord,
    ) -> Result<Vec<Effect>, Refusal> {
        match &record.record.new_image {
            Some(item) => self.rewrite_effect(table, item),
            None => Ok(Vec::new()),
        }
    }
}
