//! Item collections: all items with one partition key in a table with local indexes. The store
//! tracks and limits their size.
//!
//! As in DynamoDB, only tables with local indexes have item collections. Source: AWS, "Local
//! secondary indexes", item collections and their size limit.

use crate::image::{Image, ItemChange};
use crate::index::upkeep::{EntryChange, IndexEntry};
use crate::keys::item_collection;
use crate::storage::ReadError;
use crate::storage::overlay::Overlay;
use crate::table::Table;
use crate::table::index::IndexKind;

/// The effect of a write on its item collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collection {
    /// The table has no item collections.
    None,
    /// The size of the collection after the write, in bytes.
    Bytes(u64),
    /// The collection would exceed its limit; nothing has changed.
    TooLarge,
}

/// Updates the size of the item collection that a change belongs to. If `is_limited`, rejects a
/// change that would exceed the limit. A change that makes the collection smaller is always
/// accepted.
pub(crate) fn count(
    overlay: &mut Overlay<'_>,
    table: &Table,
    change: &ItemChange<'_>,
    entries: &[EntryChange<'_, '_>],
    is_limited: bool,
) -> Result<Collection, ReadError> {
    if table.indexes_of(IndexKind::Local).next().is_none() {
        return Ok(Collection::None);
    }
    let partition = &change.key.partition;
    let known = item_collection::read(overlay, table.id, partition)?;
    // `entries` contains only the changed entries. Unchanged entries would add the same bytes to
    // both sums.
    let local = || entries.iter().filter(|entry| entry.index.definition.kind == IndexKind::Local);
    let before = bytes_of(change.old, local().map(|entry| &entry.before));
    let after = bytes_of(change.new, local().map(|entry| &entry.after));
    let bytes = (known + after).saturating_sub(before);
    if is_limited && bytes > known && bytes > item_collection::read_bytes_max(overlay)? {
        return Ok(Collection::TooLarge);
    }
    if bytes != known {
        item_collection::write(overlay, table.id, partition, bytes)?;
    }
    Ok(Collection::Bytes(bytes))
}

/// Returns the total bytes of an item and its entries.
fn bytes_of<'e>(
    image: Option<&Image>,
    entries: impl Iterator<Item = &'e Option<IndexEntry<'e>>>,
) -> u64 {
    let bytes = image.map_or(0, Image::size) + entries.flatten().map(|e| e.size).sum::<usize>();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
