//! Key: `[6] table-id:u64 partition:u32`. Value: the partition's statistics.

use serde::{Deserialize, Serialize};

use super::{Family, decode_value, encode_value};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::identifiers::{PartitionNumber, TableId};

/// The size of a partition, an index or a table. The values are exact, whereas DynamoDB updates its
/// values every few hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Number of items.
    pub items: u64,
    /// The total size of the items in bytes, as DynamoDB counts it.
    pub bytes: u64,
}

impl Statistics {
    /// Returns the statistics of one item of `bytes` bytes, or zeros for `None`.
    pub(crate) fn of_one(bytes: Option<u64>) -> Self {
        Self { items: u64::from(bytes.is_some()), bytes: bytes.unwrap_or(0) }
    }

    /// Returns these statistics, which include `old`, after `old` was replaced by `new`.
    pub(crate) fn with_replaced(self, old: Self, new: Self) -> Self {
        Self {
            items: (self.items + new.items).saturating_sub(old.items),
            bytes: (self.bytes + new.bytes).saturating_sub(old.bytes),
        }
    }
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
    fn a_replaced_item_is_no_longer_counted() {
        let (none, one) = (Statistics::of_one(None), Statistics::of_one(Some(7)));
        assert_eq!((none, one), (Statistics::default(), Statistics { items: 1, bytes: 7 }));
        let some = Statistics { items: 3, bytes: 99 };
        assert_eq!(some.with_replaced(none, one), Statistics { items: 4, bytes: 106 });
        assert_eq!(
            some.with_replaced(one, Statistics::of_one(Some(8))),
            Statistics { bytes: 100, ..some }
        );
        assert_eq!(some.with_replaced(one, none), Statistics { items: 2, bytes: 92 });
        assert_eq!(none.with_replaced(one, none), none);
    }

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
