//! Key: `[6] table-id:u64 partition:u32`. Value: how much the partition holds.

use serde::{Deserialize, Serialize};

use super::{Family, decode_value, encode_value};
use crate::TableId;
use crate::storage::{Overlay, ReadError, View};
use crate::table::PartitionNumber;

/// What a partition holds. Exact, unlike the service's, which is some hours old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Number of items.
    pub items: u64,
    /// Their sizes as DynamoDB counts them, in bytes.
    pub bytes: u64,
}

fn key(table: TableId, partition: PartitionNumber) -> Vec<u8> {
    let mut key = Family::Statistics.of_table(table);
    key.extend_from_slice(&partition.0.to_be_bytes());
    key
}

pub(crate) fn read(
    view: &dyn View,
    table: TableId,
    partition: PartitionNumber,
) -> Result<Statistics, ReadError> {
    view.get(&key(table, partition))?.map_or(Ok(Statistics::default()), |v| decode_value(&v))
}

pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    table: TableId,
    partition: PartitionNumber,
    statistics: &Statistics,
) -> Result<(), ReadError> {
    overlay.put(key(table, partition), encode_value(statistics)?);
    Ok(())
}

pub(crate) fn delete(overlay: &mut Overlay<'_>, table: TableId, partition: PartitionNumber) {
    overlay.delete(key(table, partition));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::MapStorage;

    #[test]
    fn round_trip() {
        let mut storage = MapStorage::default();
        let below = storage.clone();
        let mut overlay = Overlay::new(&below);
        let statistics = Statistics { items: 3, bytes: 99 };
        write(&mut overlay, TableId(1), PartitionNumber(2), &statistics).unwrap();
        storage.apply(overlay.into_batch());
        assert_eq!(read(&storage, TableId(1), PartitionNumber(2)), Ok(statistics));
        assert_eq!(read(&storage, TableId(1), PartitionNumber(3)), Ok(Statistics::default()));
    }
}
