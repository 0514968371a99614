//! Building an index of a table that already has items, and removing a deleted index, in bounded
//! steps.
//!
//! Writes maintain an index from its creation on (see `index::upkeep`). Building therefore only
//! adds the entries of older items, which it reads from the table.

use model::EncodedItem;

use crate::arcs::outbox;
use crate::index::upkeep::{IndexEntry, replace_entry};
use crate::keys::{index_entry, index_statistics, item, removal};
use crate::machine::step::{Allowance, remove_under, visit_items};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::Table;
use crate::table::identifiers::{IndexNumber, TableId};
use crate::table::index::{IndexStatus, SecondaryIndex};
use crate::table::placement::{ArcId, ArcPosition};

/// The maximum number of items that one step reads. It is small in tests, so that other commands
/// run between the steps.
const STEP_ITEMS_MAX: usize = if cfg!(test) { 2 } else { 1000 };
/// The maximum number of entries that one step removes; fewer if the entries are large. The number
/// is also small in tests.
const STEP_ENTRIES_MAX: usize = if cfg!(test) { 2 } else { 2000 };

/// Returns the tables with an index that is being built or removed.
#[must_use]
pub fn find_index_work<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<TableId> {
    let working = |table: &&Table| table.indexes.iter().any(|i| i.status != IndexStatus::Active);
    tables.filter(working).map(|table| table.id).collect()
}

/// Returns whether the next step for a table's indexes adds entries, because the first unfinished
/// index is being built.
#[must_use]
pub fn adds_entries(table: &Table) -> bool {
    let first = table.indexes.iter().find(|index| index.status != IndexStatus::Active);
    first.is_some_and(|index| matches!(index.status, IndexStatus::Creating { .. }))
}

/// Runs one step for the first unfinished index of a table. Returns whether more steps are needed.
pub(crate) fn step(
    overlay: &mut Overlay<'_>,
    table: &mut Table,
    position: ArcPosition,
) -> Result<bool, ReadError> {
    let working = |index: &SecondaryIndex| index.status != IndexStatus::Active;
    let Some(mut index) = table.indexes.iter().find(|index| working(index)).cloned() else {
        return Ok(false);
    };
    let number = index.number;
    match index.status.clone() {
        IndexStatus::Creating { cursor } => {
            index.status = match add_entries(overlay, table, &index, position.arc, cursor)? {
                Some(key) => IndexStatus::Creating { cursor: Some(key) },
                None => match outbox::unacknowledged_changes(overlay, position.arcs)? {
                    until if until.is_empty() => IndexStatus::Active,
                    until => IndexStatus::Delivering { until },
                },
            };
        }
        IndexStatus::Delivering { until } => {
            if !outbox::has_arrived(overlay, &until)? {
                // Some arc has not received its entries yet. The server's next tick sends this
                // command again.
                return Ok(false);
            }
            index.status = IndexStatus::Active;
        }
        IndexStatus::Deleting => {
            if !remove_entries(overlay, table, number)? {
                table.indexes.retain(|index| index.number != number);
            }
        }
        IndexStatus::Active => {}
    }
    if let Some(place) = table.indexes.iter_mut().find(|index| index.number == number) {
        *place = index;
    }
    Ok(table.indexes.iter().any(working))
}

/// Adds the entries of the next items. Returns the key to continue after, or `None` at the end of
/// the table. An item whose values cannot be the index's key gets no entry, as in DynamoDB.
fn add_entries(
    overlay: &mut Overlay<'_>,
    table: &Table,
    index: &SecondaryIndex,
    here: ArcId,
    cursor: Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, ReadError> {
    let mut entries = Vec::new();
    let mut left = Allowance::of_entries(STEP_ITEMS_MAX);
    let stopped_at = visit_items(overlay, table.id, cursor, &mut |key, value| {
        let primary = item::decode(&table.key_schema, key)?;
        let found = EncodedItem::from_stored(value);
        let entry = index.entry_of(table, &primary, &found)?;
        entries.extend(entry.map(IndexEntry::into_owned));
        Ok(left.take(&[], value))
    })?;
    for entry in entries {
        // An entry that already exists in this arc was added by a later write, so it is equal or
        // newer and must not be overwritten. An entry for another arc is always sent, because this
        // arc cannot look it up. Adding an entry twice is idempotent, because the entry is derived
        // from the current item.
        if entry.arc != here || overlay.get(&entry.key)?.is_none() {
            replace_entry(overlay, table, index, here, None, Some(entry))?;
        }
    }
    Ok(stopped_at)
}

/// Removes the next entries of an index. Returns whether more entries remain.
fn remove_entries(
    overlay: &mut Overlay<'_>,
    table: &Table,
    index: IndexNumber,
) -> Result<bool, ReadError> {
    let mut left = Allowance::of_entries(STEP_ENTRIES_MAX);
    let prefix = index_entry::index_prefix(table.id, index);
    let place = removal::place(table.id, &prefix);
    remove_under(overlay, &place, &prefix, &mut left)?;
    let more = left.is_used_up();
    if !more {
        overlay.delete(place);
        overlay.delete(index_statistics::key(table.id, index));
    }
    Ok(more)
}
