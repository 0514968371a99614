//! Key: `[4] table-id:u64 shard:u32 log-index:u64 position:u32`. Value: the stored record.
//!
//! The sequence number of a record is its place in the log, so the order in the stream is the
//! order in which the changes were committed.

use model::{EncodedItem, EventName, Item};
use serde::{Deserialize, Serialize};

use super::{Family, decode_value, encode_value_into, take};
use crate::TableId;
use crate::storage::{Overlay, ReadError};
use crate::stream::{Sequence, ShardNumber};

/// A stream record without what the table and the stream already tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredRecord {
    pub(crate) event_name: EventName,
    pub(crate) time_to_live: bool,
    pub(crate) created_seconds: u64,
    pub(crate) keys: Item,
    pub(crate) old_image: Option<Item>,
    pub(crate) new_image: Option<Item>,
}

/// The same, as it is written: the images are the bytes that the item has or had.
#[derive(Debug, Serialize)]
pub(crate) struct NewRecord<'a> {
    pub(crate) event_name: EventName,
    pub(crate) time_to_live: bool,
    pub(crate) created_seconds: u64,
    pub(crate) keys: &'a Item,
    pub(crate) old_image: Option<&'a EncodedItem>,
    pub(crate) new_image: Option<&'a EncodedItem>,
}

pub(crate) fn shard_prefix(table: TableId, shard: ShardNumber) -> Vec<u8> {
    let mut key = Family::StreamRecord.of_table(table);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

pub(crate) fn encode(table: TableId, shard: ShardNumber, sequence: Sequence) -> Vec<u8> {
    let mut key = shard_prefix(table, shard);
    key.extend_from_slice(&sequence.index.to_be_bytes());
    key.extend_from_slice(&sequence.position.to_be_bytes());
    key
}

pub(crate) fn decode_sequence(key: &[u8]) -> Result<Sequence, ReadError> {
    let suffix = key.get(13..).unwrap_or(&[]);
    let parts = take::<8>(suffix).and_then(|(index, rest)| Some((index, take::<4>(rest)?.0)));
    let (index, position) =
        parts.ok_or_else(|| ReadError(format!("damaged stream record key: {key:02x?}")))?;
    Ok(Sequence { index: u64::from_be_bytes(index), position: u32::from_be_bytes(position) })
}

pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    key: Vec<u8>,
    record: &NewRecord<'_>,
) -> Result<(), ReadError> {
    overlay.put_written(key, |out| encode_value_into(out, record))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<StoredRecord, ReadError> {
    decode_value(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_order() {
        let sequence = |index, position| Sequence { index, position };
        let key = |s| encode(TableId(1), ShardNumber(2), s);
        for s in [sequence(0, 0), sequence(1, 4095), sequence(u64::MAX, u32::MAX)] {
            assert_eq!(decode_sequence(&key(s)), Ok(s));
        }
        assert!(key(sequence(1, 9)) < key(sequence(1, 10)));
        assert!(key(sequence(1, 10)) < key(sequence(2, 0)));
        let (keys, old) = (Item::new().with("a", "b"), Item::new().with("c", "d"));
        let record = NewRecord {
            event_name: EventName::Modify,
            time_to_live: false,
            created_seconds: 5,
            keys: &keys,
            old_image: Some(&EncodedItem::from(&old)),
            new_image: None,
        };
        let read = StoredRecord {
            event_name: EventName::Modify,
            time_to_live: false,
            created_seconds: 5,
            keys: keys.clone(),
            old_image: Some(old.clone()),
            new_image: None,
        };
        assert_eq!(decode(&encode_value_into(Vec::new(), &record).unwrap()), Ok(read));
    }
}
