//! Maintenance of index entries when items change.
//!
//! An entry in the arc of its item changes in the batch of the item's write (see
//! `docs/decisions/0004-global-indexes-follow-in-the-same-batch.md`). A change of an entry in
//! another arc goes through the outbox. Building an index of a table that already has items is in
//! `index::build`.

use std::borrow::Cow;

use model::encoded_item::StoredValue;
use model::{EncodedItem, PrimaryKey};

use crate::arcs::delivery::Delivery;
use crate::arcs::outbox;
use crate::image::{Image, ItemChange, damaged};
use crate::keys::statistics::Statistics;
use crate::keys::{index_entry, index_statistics};
use crate::mutation::{self, Mutation};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::Table;
use crate::table::index::{IndexProjection, IndexStatus, IndexWrite, SecondaryIndex};
use crate::table::placement::ArcId;

/// An index entry: its key and its value. Most of the value borrows from the item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexEntry<'i> {
    pub(crate) key: Vec<u8>,
    pub(crate) item: Cow<'i, EncodedItem>,
    /// The size of the projected item in bytes, as DynamoDB counts it.
    pub(crate) size: usize,
    /// The arc that holds the entry. The token of the entry's partition key determines the arc.
    pub(crate) arc: ArcId,
}

impl IndexEntry<'_> {
    /// Copies the parts that the entry borrows from its item.
    pub(crate) fn into_owned(self) -> IndexEntry<'static> {
        IndexEntry { item: Cow::Owned(self.item.into_owned()), ..self }
    }
}

impl SecondaryIndex {
    /// Returns the entry of an item in this index, if the item has one.
    pub(crate) fn entry_of<'i>(
        &self,
        table: &Table,
        primary: &PrimaryKey,
        item: &'i EncodedItem,
    ) -> Result<Option<IndexEntry<'i>>, ReadError> {
        let definition = &self.definition;
        let values = definition.key_schema.values_of_encoded(item).map_err(damaged)?;
        let Some(values) = values else { return Ok(None) };
        let item = match definition.projection {
            IndexProjection::All => Cow::Borrowed(item),
            IndexProjection::KeysOnly | IndexProjection::Include(_) => {
                let part = item.decode_only(|name| definition.projects(&table.key_schema, name));
                Cow::Owned(EncodedItem::from(&part.map_err(damaged)?))
            }
        };
        let (key, token) = index_entry::encode_stored(table.id, self.number, &values, primary);
        Ok(Some(IndexEntry {
            arc: table.placement.arc_of(token),
            key,
            size: item.size().map_err(damaged)?,
            item,
        }))
    }
}

impl SecondaryIndex {
    /// Returns true if two images of one item have equal entry attributes, and therefore the same
    /// entry in this index, or no entry. Most changes leave an index's attributes unchanged, so
    /// this check usually avoids building both entries.
    fn has_same_entry(&self, old: &EncodedItem, new: &EncodedItem) -> Result<bool, ReadError> {
        let definition = &self.definition;
        let included = match &definition.projection {
            IndexProjection::All => return Ok(false),
            IndexProjection::KeysOnly => &[],
            IndexProjection::Include(names) => names.as_slice(),
        };
        let value_in = |item, name| EncodedItem::stored_value(item, name).map_err(damaged);
        for key in definition.key_schema.attributes() {
            // Values of types that cannot be keys compare as equal, because an item with such a
            // value has no entry in the index.
            if value_in(old, &key.name)? != value_in(new, &key.name)? {
                return Ok(false);
            }
        }
        for name in included {
            let value = value_in(old, name)?;
            if value == StoredValue::Other || value != value_in(new, name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The change of an item's entry in one index.
pub(crate) struct EntryChange<'t, 'i> {
    pub(crate) index: &'t SecondaryIndex,
    pub(crate) before: Option<IndexEntry<'i>>,
    pub(crate) after: Option<IndexEntry<'i>>,
}

/// Returns the changes of an item's entries in every maintained index of its table.
pub(crate) fn entry_changes<'t, 'i>(
    table: &'t Table,
    change: &ItemChange<'i>,
) -> Result<Vec<EntryChange<'t, 'i>>, ReadError> {
    if table.indexes.is_empty() || change.old == change.new {
        return Ok(Vec::new());
    }
    let mut changes = Vec::with_capacity(table.indexes.len());
    if change.new.is_none() && mutation::is_active(Mutation::SkipIndexEntries) {
        return Ok(changes);
    }
    for index in table.indexes.iter().filter(|index| index.is_maintained()) {
        if index.status != IndexStatus::Active
            && mutation::is_active(Mutation::IgnoreUnfinishedIndex)
        {
            continue;
        }
        let entry = |image: Option<&'i Image>| match image {
            Some(image) => index.entry_of(table, change.key, image.encoded()),
            None => Ok(None),
        };
        if let (Some(old), Some(new)) = (change.old, change.new)
            && index.has_same_entry(old.encoded(), new.encoded())?
        {
            debug_assert_eq!(entry(change.old), entry(change.new));
            continue;
        }
        let (before, after) = (entry(change.old)?, entry(change.new)?);
        if before != after {
            changes.push(EntryChange { index, before, after });
        }
    }
    Ok(changes)
}

/// Updates the entries of an item in all indexes, and returns the changes.
pub(crate) fn update_entries(
    overlay: &mut Overlay<'_>,
    table: &Table,
    primary: &PrimaryKey,
    changes: Vec<EntryChange<'_, '_>>,
) -> Result<Vec<IndexWrite>, ReadError> {
    let mut writes = Vec::with_capacity(2 * changes.len());
    // An item and its entries in local indexes are always in one arc.
    let here = table.placement.arc_of(primary.token());
    for EntryChange { index, mut before, after } in changes {
        // An index that is being built lacks the entries of some items, so an old entry in this arc
        // is looked up first. An entry in another arc cannot be looked up, but deleting a missing
        // entry has no effect.
        if matches!(index.status, IndexStatus::Creating { .. })
            && let Some(entry) = before.as_ref().filter(|entry| entry.arc == here)
            && overlay.get(&entry.key)?.is_none()
        {
            before = None;
        }
        describe_change(&mut writes, index, before.as_ref(), after.as_ref());
        replace_entry(overlay, table, index, here, before, after)?;
    }
    Ok(writes)
}

/// Replaces the entry `before` with the entry `after`, and updates the statistics. An entry in this
/// arc changes immediately; a change of an entry in another arc goes through the outbox.
pub(crate) fn replace_entry<'i>(
    overlay: &mut Overlay<'_>,
    table: &Table,
    index: &SecondaryIndex,
    here: ArcId,
    before: Option<IndexEntry<'i>>,
    after: Option<IndexEntry<'i>>,
) -> Result<(), ReadError> {
    let is_same_place = before.as_ref().map(|entry| &entry.key) == after.as_ref().map(|e| &e.key);
    let apart = |entry: Option<IndexEntry<'i>>| match entry {
        Some(entry) if entry.arc == here => (Some(entry), None),
        entry => (None, entry),
    };
    let ((old_here, old_there), (new_here, new_there)) = (apart(before), apart(after));
    if old_here.is_some() || new_here.is_some() {
        replace_here(overlay, table, index, old_here, new_here)?;
    }
    let delivery = |key, entry| Delivery { table: table.id, index: index.number, key, entry };
    if let Some(old_there) = old_there.filter(|_| !is_same_place) {
        outbox::push(overlay, old_there.arc, &delivery(old_there.key, None))?;
    }
    if let Some(new_there) = new_there {
        let value = new_there.item.as_bytes().to_vec();
        outbox::push(overlay, new_there.arc, &delivery(new_there.key, Some(value)))?;
    }
    Ok(())
}

/// Appends a description of the entries that a change puts, replaces or removes.
fn describe_change(
    writes: &mut Vec<IndexWrite>,
    index: &SecondaryIndex,
    before: Option<&IndexEntry<'_>>,
    after: Option<&IndexEntry<'_>>,
) {
    let write = |entry: &IndexEntry<'_>, old_bytes, new_bytes| IndexWrite {
        index: index.number,
        token: index_entry::token_of(&entry.key),
        old_bytes,
        new_bytes,
    };
    match (before, after) {
        (Some(before), Some(after)) if before.key == after.key => {
            writes.push(write(after, before.size, after.size));
        }
        (before, after) => {
            writes.extend(before.map(|entry| write(entry, entry.size, 0)));
            writes.extend(after.map(|entry| write(entry, 0, entry.size)));
        }
    }
}

fn replace_here(
    overlay: &mut Overlay<'_>,
    table: &Table,
    index: &SecondaryIndex,
    before: Option<IndexEntry<'_>>,
    after: Option<IndexEntry<'_>>,
) -> Result<(), ReadError> {
    let of = |entry: &Option<IndexEntry<'_>>| {
        let size = |entry: &IndexEntry<'_>| u64::try_from(entry.size).unwrap_or(u64::MAX);
        Statistics::of_one(entry.as_ref().map(size))
    };
    let (old, new) = (of(&before), of(&after));
    if old != new {
        let statistics = index_statistics::read(overlay, table.id, index.number)?;
        let statistics = statistics.with_replaced(old, new);
        index_statistics::write(overlay, table.id, index.number, &statistics)?;
    }
    // In a complete index, the only entry that an item can have is its entry before the change.
    let is_new = index.status == IndexStatus::Active
        && before.as_ref().map(|entry| &entry.key) != after.as_ref().map(|entry| &entry.key);
    if let Some(before) = before {
        overlay.delete(before.key);
    }
    match after {
        Some(after) if is_new => overlay.insert(after.key, after.item.to_shared()),
        Some(after) => overlay.put(after.key, after.item.to_shared()),
        None => {}
    }
    Ok(())
}
