//! Key: `[4] table-id:u64 shard:u32 log-index:u64 position:u32`. Value: the stored record.
//!
//! The sequence number of a record is its place in the log, so the order in the stream is the
//! order in which the changes were committed.

use model::encoded_item::Difference;
use model::{EncodedItem, EventName, Item, KeySchema};
use serde::{Deserialize, Serialize};

use super::{Family, QUEUE_PREFIX_BYTES, VALUE_VERSION, decode_value, take};
use crate::TableId;
use crate::image::damaged;
use crate::storage::{Overlay, ReadError};
use crate::stream::{Sequence, ShardNumber};

/// The version byte of records that say nothing twice. In those of version 1 the keys are always
/// told, and both images in full.
const TERSE_RECORD_VERSION: u8 = 2;

/// A stream record without what the table and the stream already tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredRecord {
    pub(crate) event_name: EventName,
    pub(crate) time_to_live: bool,
    pub(crate) created_seconds: u64,
    pub(crate) keys: Item,
    pub(crate) old_image: Option<EncodedItem>,
    pub(crate) new_image: Option<EncodedItem>,
}

/// The same, before it is written: the images are the bytes that the item has or had.
#[derive(Debug)]
pub(crate) struct NewRecord<'a> {
    pub(crate) event_name: EventName,
    pub(crate) time_to_live: bool,
    pub(crate) created_seconds: u64,
    pub(crate) old_image: Option<&'a EncodedItem>,
    pub(crate) new_image: Option<&'a EncodedItem>,
}

/// What is written of a record.
#[derive(Debug, Serialize, Deserialize)]
struct TerseRecord<'a> {
    event_name: EventName,
    time_to_live: bool,
    created_seconds: u64,
    #[serde(borrow)]
    content: Content<'a>,
}

/// What a record holds of the item. Its keys are in each of its images.
#[derive(Debug, Serialize, Deserialize)]
enum Content<'a> {
    Keys(Item),
    Old(EncodedItem),
    New(EncodedItem),
    /// The new image is told by the old one.
    Both(EncodedItem, #[serde(borrow)] Difference<'a>),
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
    let suffix = key.get(QUEUE_PREFIX_BYTES..).unwrap_or(&[]);
    let parts = take::<8>(suffix).and_then(|(index, rest)| Some((index, take::<4>(rest)?.0)));
    let (index, position) =
        parts.ok_or_else(|| ReadError(format!("damaged stream record key: {key:02x?}")))?;
    Ok(Sequence { index: u64::from_be_bytes(index), position: u32::from_be_bytes(position) })
}

/// Writes a record; `keys` are asked for when no image tells them.
pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    key: Vec<u8>,
    record: &NewRecord<'_>,
    keys: impl FnOnce() -> Item,
) -> Result<(), ReadError> {
    let record = TerseRecord {
        event_name: record.event_name,
        time_to_live: record.time_to_live,
        created_seconds: record.created_seconds,
        content: match (record.old_image, record.new_image) {
            (None, None) => Content::Keys(keys()),
            (Some(old), None) => Content::Old(old.clone()),
            (None, Some(new)) => Content::New(new.clone()),
            (Some(old), Some(new)) => {
                Content::Both(old.clone(), new.difference_from(old).map_err(damaged)?)
            }
        },
    };
    overlay.put_written(key, |mut out| {
        out.push(TERSE_RECORD_VERSION);
        postcard::to_extend(&record, out)
            .map_err(|error| ReadError(format!("cannot encode a stream record: {error}")))
    })
}

/// Reads a record of a table with this key.
pub(crate) fn decode(bytes: &[u8], key_schema: &KeySchema) -> Result<StoredRecord, ReadError> {
    match bytes.split_first() {
        Some((&TERSE_RECORD_VERSION, rest)) => read_terse(rest)?.into_stored(key_schema),
        _ => decode_value(bytes),
    }
}

/// When a record was made, in seconds since 1970; nothing else of it is decoded.
pub(crate) fn decode_created_seconds(bytes: &[u8]) -> Result<u64, ReadError> {
    /// What records of both versions begin with.
    #[derive(Deserialize)]
    struct Beginning {
        _event_name: EventName,
        _time_to_live: bool,
        created_seconds: u64,
    }
    let read = match bytes.split_first() {
        Some((&(VALUE_VERSION | TERSE_RECORD_VERSION), rest)) => {
            postcard::take_from_bytes::<Beginning>(rest).map_err(|error| unreadable(&error))
        }
        _ => Err(ReadError(format!("stream record of an unknown version: {:?}", bytes.first()))),
    };
    read.map(|(beginning, _)| beginning.created_seconds)
}

fn read_terse(bytes: &[u8]) -> Result<TerseRecord<'_>, ReadError> {
    postcard::from_bytes(bytes).map_err(|error| unreadable(&error))
}

fn unreadable(error: &postcard::Error) -> ReadError {
    ReadError(format!("damaged stream record: {error}"))
}

impl TerseRecord<'_> {
    fn into_stored(self, key_schema: &KeySchema) -> Result<StoredRecord, ReadError> {
        let keys_of = |image: &EncodedItem| -> Result<Item, ReadError> {
            let is_key = |name: &str| key_schema.attributes().any(|key| key.name == name);
            image.decode_only(is_key).map_err(damaged)
        };
        let (keys, old_image, new_image) = match self.content {
            Content::Keys(keys) => (keys, None, None),
            Content::Old(old) => (keys_of(&old)?, Some(old), None),
            Content::New(new) => (keys_of(&new)?, None, Some(new)),
            Content::Both(old, difference) => {
                let new = old.changed(&difference).map_err(damaged)?;
                (keys_of(&new)?, Some(old), Some(new))
            }
        };
        Ok(StoredRecord {
            event_name: self.event_name,
            time_to_live: self.time_to_live,
            created_seconds: self.created_seconds,
            keys,
            old_image,
            new_image,
        })
    }
}

#[cfg(test)]
mod tests {
    use model::{KeyAttribute, KeyAttributeType};

    use super::*;
    use crate::storage::View;
    use crate::storage::testing::MapStorage;

    #[test]
    fn round_trip_and_order() {
        let sequence = |index, position| Sequence { index, position };
        let key = |s| encode(TableId(1), ShardNumber(2), s);
        for s in [sequence(0, 0), sequence(1, 4095), sequence(u64::MAX, u32::MAX)] {
            assert_eq!(decode_sequence(&key(s)), Ok(s));
            assert_eq!(key(s)[..QUEUE_PREFIX_BYTES], shard_prefix(TableId(1), ShardNumber(2)));
        }
        assert!(key(sequence(1, 9)) < key(sequence(1, 10)));
        assert!(key(sequence(1, 10)) < key(sequence(2, 0)));
    }

    fn schema() -> KeySchema {
        let partition = KeyAttribute { name: "a".to_owned(), attribute_type: KeyAttributeType::S };
        KeySchema { partition, sort: None }
    }

    fn written(old: Option<&Item>, new: Option<&Item>) -> Vec<u8> {
        let (old, new) = (old.map(EncodedItem::from), new.map(EncodedItem::from));
        let record = NewRecord {
            event_name: EventName::Modify,
            time_to_live: false,
            created_seconds: 5,
            old_image: old.as_ref(),
            new_image: new.as_ref(),
        };
        let nothing = MapStorage::default();
        let mut overlay = Overlay::new(&nothing);
        write(&mut overlay, vec![4], &record, || Item::new().with("a", "b")).unwrap();
        overlay.get(&[4]).unwrap().unwrap().to_vec()
    }

    fn read(old: Option<&Item>, new: Option<&Item>) -> StoredRecord {
        StoredRecord {
            event_name: EventName::Modify,
            time_to_live: false,
            created_seconds: 5,
            keys: Item::new().with("a", "b"),
            old_image: old.map(EncodedItem::from),
            new_image: new.map(EncodedItem::from),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was() {
        let old = Item::new().with("a", "b").with("c", "d").with("e", "x".repeat(200).as_str());
        let new = old.clone().with("c", "another text");
        for (old, new) in [
            (None, None),
            (Some(&old), None),
            (None, Some(&new)),
            (Some(&old), Some(&new)),
            (Some(&new), Some(&old)),
        ] {
            let bytes = written(old, new);
            assert_eq!(decode(&bytes, &schema()), Ok(read(old, new)));
            assert_eq!(decode_created_seconds(&bytes), Ok(5));
        }
        // What both images have alike is there once.
        assert!(written(Some(&old), Some(&new)).len() < written(Some(&old), None).len() + 30);
    }

    #[test]
    fn records_of_version_1_can_be_read() {
        let old = Item::new().with("a", "b").with("c", "d");
        let record = read(Some(&old), None);
        let bytes = super::super::encode_value(&record).unwrap();
        assert_eq!(decode(&bytes, &schema()), Ok(record));
        assert_eq!(decode_created_seconds(&bytes), Ok(5));
    }

    #[test]
    fn damage_is_an_error() {
        let old = Item::new().with("a", "b").with("c", "d");
        let whole = written(Some(&old), Some(&old));
        for length in 0..whole.len() {
            assert!(decode(&whole[..length], &schema()).is_err(), "{length} bytes");
        }
        assert!(decode(&[9, 9, 9], &schema()).is_err());
        assert!(decode_created_seconds(&[9, 9, 9]).is_err());
    }
}
