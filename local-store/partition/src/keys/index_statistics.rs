//! Key: `[9] table-id:u64 index:u32`. Value: the number of the index's entries, and their total
//! size in bytes.

use super::statistics::Statistics;
use super::{Family, decode_value, encode_value};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::identifiers::{IndexNumber, TableId};

pub(crate) fn key(table: TableId, index: IndexNumber) -> Vec<u8> {
    let mut key = Family::IndexStatistics.of_table(table);
    key.extend_from_slice(&index.0.to_be_bytes());
    key
}

pub(crate) fn read(
    view: &dyn View,
    table: TableId,
    index: IndexNumber,
) -> Result<Statistics, ReadError> {
    view.get(&key(table, index))?.map_or(Ok(Statistics::default()), |v| decode_value(&v))
}

pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    table: TableId,
    index: IndexNumber,
    statistics: &Statistics,
) -> Result<(), ReadError> {
    overlay.put(key(table, index), encode_value(statistics)?);
    Ok(())
}
