//! Removal of the data of a deleted table, in bounded steps.

use crate::keys::{Family, table};
use crate::machine::step::{Allowance, remove_under};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::identifiers::TableId;

/// The maximum number of entries that one command removes; fewer if the entries are large.
const PURGE_ENTRIES_MAX: usize = 2000;

/// The families of a table's keys, in key order. A removal step continues where the previous step
/// ended.
const FAMILIES: [Family; 8] = [
    Family::Item,
    Family::StreamRecord,
    Family::Expiry,
    Family::Statistics,
    Family::IndexEntry,
    Family::IndexStatistics,
    Family::ItemCollection,
    Family::Removal,
];

/// Removes the next entries of a deleted table. Returns whether more entries remain.
pub(crate) fn purge(overlay: &mut Overlay<'_>, id: TableId) -> Result<bool, ReadError> {
    let mut left = Allowance::of_entries(PURGE_ENTRIES_MAX);
    let place = table::deleted_place(id);
    for family in FAMILIES {
        if left.is_used_up() {
            break;
        }
        remove_under(overlay, &place, &family.of_table(id), &mut left)?;
    }
    let more = left.is_used_up();
    if !more {
        overlay.delete(place);
    }
    Ok(more)
}

/// Returns a deleted table that still has entries, if there is one.
///
/// # Errors
/// When the storage cannot be read.
pub fn find_deleted_table(view: &dyn View) -> Result<Option<TableId>, ReadError> {
    Ok(table::read_deleted(view)?.into_iter().next())
}
