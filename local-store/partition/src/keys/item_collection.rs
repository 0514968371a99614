//! Key: `[20] table-id:u64 token:u64 length:u16 partition-key`. Value: the bytes of the items with
//! that partition key and of their entries in local indexes, for tables with such indexes.
//!
//! Key: `[21]`. Value: the size limit of item collections in bytes.

use model::KeyValue;
use model::limits::ITEM_COLLECTION_BYTES_MAX;

use super::{Family, decode_value, encode_value, item};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::identifiers::TableId;

fn key(table: TableId, partition: &KeyValue) -> Vec<u8> {
    let mut key = Family::ItemCollection.of_table(table);
    key.extend(item::prefix(table, partition).into_iter().skip(9));
    key
}

pub(crate) fn read(
    view: &dyn View,
    table: TableId,
    partition: &KeyValue,
) -> Result<u64, ReadError> {
    view.get(&key(table, partition))?.map_or(Ok(0), |value| decode_value(&value))
}

/// Stores the size of a collection, or deletes it if the collection is empty.
pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    table: TableId,
    partition: &KeyValue,
    bytes: u64,
) -> Result<(), ReadError> {
    let key = key(table, partition);
    match bytes {
        0 => overlay.delete(key),
        bytes => overlay.put(key, encode_value(&bytes)?),
    }
    Ok(())
}

pub(crate) fn read_bytes_max(view: &dyn View) -> Result<u64, ReadError> {
    let stored = view.get(&[Family::ItemCollectionLimit as u8])?;
    stored.map_or(Ok(ITEM_COLLECTION_BYTES_MAX), |value| decode_value(&value))
}

pub(crate) fn write_bytes_max(overlay: &mut Overlay<'_>, bytes: u64) -> Result<(), ReadError> {
    overlay.put(vec![Family::ItemCollectionLimit as u8], encode_value(&bytes)?);
    Ok(())
}
