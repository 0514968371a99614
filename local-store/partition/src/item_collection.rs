//! Item collections: all items with one partition key, of a table with local indexes. Their size is
//! kept, and limited.
//!
//! Only such tables have them, in DynamoDB as here: a local index is what ties the items together.
//! Source: AWS, "Local secondary indexes", item collections and their size limit.

use model::{Item, PrimaryKey};

use crate::image::{Image, item_of};
use crate::index::IndexKind;
use crate::keys::item_collection;
use crate::storage::{Overlay, ReadError};
use crate::table::Table;

/// What a write made of an item collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collection {
    /// The table has none.
    None,
    /// It has so many bytes now.
    Bytes(u64),
    /// It would become larger than it may be; nothing has changed.
    TooLarge,
}

/// Counts a change for its item collection; when `is_limited`, not if that would make it too large.
/// A change that makes it smaller is always allowed.
pub(crate) fn count(
    overlay: &mut Overlay<'_>,
    table: &Table,
    key: &PrimaryKey,
    old: Option<&Image>,
    new: Option<&Image>,
    is_limited: bool,
) -> Result<Collection, ReadError> {
    if table.indexes_of(IndexKind::Local).next().is_none() {
        return Ok(Collection::None);
    }
    let (before, after) =
        (bytes_of(table, key, item_of(old)?), bytes_of(table, key, item_of(new)?));
    let known = item_collection::read(overlay, table.id, &key.partition)?;
    let bytes = (known + after).saturating_sub(before);
    if is_limited && bytes > known && bytes > item_collection::read_bytes_max(overlay)? {
        return Ok(Collection::TooLarge);
    }
    if bytes != known {
        item_collection::write(overlay, table.id, &key.partition, bytes)?;
    }
    Ok(Collection::Bytes(bytes))
}

/// Bytes of an item and of its entries in local indexes.
fn bytes_of(table: &Table, key: &PrimaryKey, item: Option<&Item>) -> u64 {
    let Some(item) = item else { return 0 };
    let entries = table
        .indexes_of(IndexKind::Local)
        .filter_map(|index| Some(index.entry_of(table, key, item)?.item.size()));
    u64::try_from(item.size() + entries.sum::<usize>()).unwrap_or(u64::MAX)
}
