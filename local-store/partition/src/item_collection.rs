//! Item collections: all items with one partition key, of a table with local indexes. Their size is
//! kept, and limited.
//!
//! Only such tables have them, in DynamoDB as here: a local index is what ties the items together.
//! Source: AWS, "Local secondary indexes", item collections and their size limit.

use model::PrimaryKey;

use crate::image::Image;
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
    let (before, after) = (bytes_of(table, key, old)?, bytes_of(table, key, new)?);
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
fn bytes_of(table: &Table, key: &PrimaryKey, image: Option<&Image>) -> Result<u64, ReadError> {
    let Some(image) = image else { return Ok(0) };
    let mut bytes = image.size();
    for index in table.indexes_of(IndexKind::Local) {
        bytes += index.entry_of(table, key, image.encoded())?.map_or(0, |entry| entry.size);
    }
    Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
}
