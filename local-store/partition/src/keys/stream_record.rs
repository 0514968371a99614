//! A record within a row of stream records: its stored form, encoding and decoding.
//!
//! The key of a row, and rows that still accept records, are in [`stream_row`](super::stream_row).

use std::ops::ControlFlow;

use model::encoded_item::Difference;
use model::{EncodedItem, EventName, Item, KeySchema};
use serde::{Deserialize, Serialize};

use super::stream_row::{ROW_VERSION, decode_sequence};
use super::take;
use crate::entry::sequence::Sequence;
use crate::image::damaged;
use crate::storage::ReadError;
use crate::storage::overlay::Overlay;
use crate::table::identifiers::{ShardNumber, TableId};

/// Bytes before each record: its position in the entry and its length.
const RECORD_HEAD_BYTES: usize = 4 + 4;

/// A stream record without the data that its table and stream determine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRecord {
    pub(crate) event_name: EventName,
    pub(crate) time_to_live: bool,
    pub(crate) created_seconds: u64,
    pub(crate) keys: Item,
    pub(crate) old_image: Option<EncodedItem>,
    pub(crate) new_image: Option<EncodedItem>,
}

/// A stream record to write, whose images are the stored bytes of the item.
#[derive(Debug)]
pub(crate) struct NewRecord<'a> {
    pub(crate) event_name: EventName,
    pub(crate) time_to_live: bool,
    pub(crate) created_seconds: u64,
    pub(crate) old_image: Option<&'a EncodedItem>,
    pub(crate) new_image: Option<&'a EncodedItem>,
}

/// The encoded form of a record.
#[derive(Debug, Serialize, Deserialize)]
struct TerseRecord<'a> {
    event_name: EventName,
    time_to_live: bool,
    #[serde(borrow)]
    content: Content<'a>,
}

/// The images of a record. Keys are stored only if there is no image.
#[derive(Debug, Serialize, Deserialize)]
enum Content<'a> {
    Keys(Item),
    Old(EncodedItem),
    New(EncodedItem),
    /// Both images: the old image, and the difference of the new image from it.
    Both(EncodedItem, #[serde(borrow)] Difference<'a>),
}

/// Appends a record to its shard. Calls `keys` only if the record has no image.
pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    (table, shard, sequence): (TableId, ShardNumber, Sequence),
    record: &NewRecord<'_>,
    keys: impl FnOnce() -> Item,
) -> Result<(), ReadError> {
    let terse = TerseRecord {
        event_name: record.event_name,
        time_to_live: record.time_to_live,
        content: match (record.old_image, record.new_image) {
            (None, None) => Content::Keys(keys()),
            (Some(old), None) => Content::Old(old.clone()),
            (None, Some(new)) => Content::New(new.clone()),
            (Some(old), Some(new)) => {
                Content::Both(old.clone(), new.difference_from(old).map_err(damaged)?)
            }
        },
    };
    let place = (table, shard, sequence);
    if let Some((key, row)) = overlay.open_rows().push(place, record.created_seconds, &terse)? {
        overlay.insert_row(key, row);
    }
    Ok(())
}

/// Visits the records of a row that are at or after a position, until the visitor breaks.
pub(crate) fn visit_row(
    (key, row): (&[u8], &[u8]),
    key_schema: &KeySchema,
    from: Sequence,
    visit: &mut dyn FnMut(Sequence, StoredRecord) -> Result<ControlFlow<()>, ReadError>,
) -> Result<ControlFlow<()>, ReadError> {
    let last = decode_sequence(key)?;
    let (created_seconds, mut rest) = split_row(row)?;
    loop {
        let (position, record, behind) = split_record(rest)?;
        rest = behind;
        let sequence = Sequence { position, ..last };
        if sequence >= from {
            let terse: TerseRecord<'_> =
                postcard::from_bytes(record).map_err(|error| unreadable(&error.to_string()))?;
            if visit(sequence, terse.into_stored(key_schema, created_seconds)?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        match (rest.is_empty(), sequence == last) {
            (true, true) => return Ok(ControlFlow::Continue(())),
            (false, false) => {}
            _ => {
                return Err(unreadable(
                    "the key's sequence number differs from that of the value's last record",
                ));
            }
        }
    }
}

/// Returns the creation time of a row's records, in seconds since 1970, without decoding the
/// records.
pub(crate) fn decode_created_seconds(row: &[u8]) -> Result<u64, ReadError> {
    split_row(row).map(|(created_seconds, _)| created_seconds)
}

/// Splits a row into the time of its records and the records.
fn split_row(row: &[u8]) -> Result<(u64, &[u8]), ReadError> {
    match row.split_first() {
        Some((&ROW_VERSION, rest)) => take::<8>(rest)
            .map(|(seconds, records)| (u64::from_be_bytes(seconds), records))
            .ok_or_else(|| unreadable("its row has no time")),
        first => Err(ReadError(format!(
            "stream records have an unknown version: {:?}",
            first.map(|f| f.0)
        ))),
    }
}

/// Returns the position of the first record, its bytes, and the remaining bytes.
fn split_record(records: &[u8]) -> Result<(u32, &[u8], &[u8]), ReadError> {
    let head = records.split_at_checked(RECORD_HEAD_BYTES).and_then(|(head, rest)| {
        let (position, length) = take::<4>(head)?;
        let length = usize::try_from(u32::from_be_bytes(take::<4>(length)?.0)).ok()?;
        let (record, behind) = rest.split_at_checked(length)?;
        Some((u32::from_be_bytes(position), record, behind))
    });
    head.ok_or_else(|| unreadable("the value ends too early"))
}

fn unreadable(what: &str) -> ReadError {
    ReadError(format!("damaged stream record: {what}"))
}

impl TerseRecord<'_> {
    fn into_stored(
        self,
        key_schema: &KeySchema,
        created_seconds: u64,
    ) -> Result<StoredRecord, ReadError> {
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
            created_seconds,
            keys,
            old_image,
            new_image,
        })
    }
}

#[cfg(test)]
mod tests {
    use model::{KeyAttribute, KeyAttributeType};

    use super::super::QUEUE_PREFIX_BYTES;
    use super::super::stream_row::{ROW_BYTES_MAX, encode, shard_prefix};
    use super::*;
    use crate::storage::testing::MapStorage;

    const SHARD: (TableId, ShardNumber) = (TableId(1), ShardNumber(2));

    fn sequence(index: u64, position: u32) -> Sequence {
        Sequence { index, position }
    }

    #[test]
    fn round_trip_and_order() {
        let key = |s| encode(SHARD.0, SHARD.1, s);
        for s in [sequence(0, 0), sequence(1, 4095), sequence(u64::MAX, u32::MAX)] {
            assert_eq!(decode_sequence(&key(s)), Ok(s));
            assert_eq!(key(s)[..QUEUE_PREFIX_BYTES], shard_prefix(SHARD.0, SHARD.1));
        }
        assert!(key(sequence(1, 9)) < key(sequence(1, 10)));
        assert!(key(sequence(1, 10)) < key(sequence(2, 0)));
    }

    fn schema() -> KeySchema {
        let partition = KeyAttribute { name: "a".to_owned(), attribute_type: KeyAttributeType::S };
        KeySchema { partition, sort: None }
    }

    type Images<'a> = (Option<&'a Item>, Option<&'a Item>);

    /// Returns the rows that contain the records with these positions and images.
    fn written(records: &[(u32, Images<'_>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let nothing = MapStorage::default();
        let mut overlay = Overlay::new(&nothing);
        for (position, (old, new)) in records {
            let (old, new) = (old.map(EncodedItem::from), new.map(EncodedItem::from));
            let record = NewRecord {
                event_name: EventName::Modify,
                time_to_live: false,
                created_seconds: 5,
                old_image: old.as_ref(),
                new_image: new.as_ref(),
            };
            let place = (SHARD.0, SHARD.1, sequence(7, *position));
            write(&mut overlay, place, &record, || Item::new().with("a", "b")).unwrap();
        }
        let mut storage = MapStorage::default();
        storage.apply(overlay.into_batch());
        storage.0.into_iter().collect()
    }

    fn read(
        rows: &[(Vec<u8>, Vec<u8>)],
        from: Sequence,
    ) -> Result<Vec<(Sequence, StoredRecord)>, ReadError> {
        let mut found = Vec::new();
        for (key, row) in rows {
            _ = visit_row((key, row), &schema(), from, &mut |sequence, record| {
                found.push((sequence, record));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(found)
    }

    fn expected((old, new): Images<'_>) -> StoredRecord {
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
    fn records_round_trip() {
        let old = Item::new().with("a", "b").with("c", "d").with("e", "x".repeat(200).as_str());
        let new = old.clone().with("c", "another text");
        let images = [
            (None, None),
            (Some(&old), None),
            (None, Some(&new)),
            (Some(&old), Some(&new)),
            (Some(&new), Some(&old)),
        ];
        // Not every command has a record, so positions have gaps.
        let records: Vec<_> = (0..).step_by(3).zip(images).collect();
        let rows = written(&records);
        assert_eq!(rows.len(), 1, "they share a row");
        assert_eq!(decode_sequence(&rows[0].0), Ok(sequence(7, 12)));
        assert_eq!(decode_created_seconds(&rows[0].1), Ok(5));
        let all: Vec<_> = records.iter().map(|(p, i)| (sequence(7, *p), expected(*i))).collect();
        for from in 0..14 {
            let rest: Vec<_> =
                all.iter().filter(|(s, _)| *s >= sequence(7, from)).cloned().collect();
            assert_eq!(read(&rows, sequence(7, from)), Ok(rest), "from {from}");
        }
        // A value that occurs in both images is stored once.
        let length = |images| written(&[(0, images)])[0].1.len();
        assert!(length((Some(&old), Some(&new))) < length((Some(&old), None)) + 30);
    }

    #[test]
    fn a_row_ends_when_it_is_large() {
        let new = Item::new().with("a", "b").with("e", "x".repeat(1000).as_str());
        let records: Vec<_> = (0..100).map(|position| (position, (None, Some(&new)))).collect();
        let rows = written(&records);
        let (_, full) = rows.split_last().unwrap();
        let is_full = |row: &Vec<u8>| (ROW_BYTES_MAX..ROW_BYTES_MAX + 1100).contains(&row.len());
        assert!(full.len() > 4 && full.iter().all(|(_, row)| is_full(row)));
        let read = read(&rows, Sequence::default()).unwrap();
        assert!(read.iter().map(|(sequence, _)| sequence.position).eq(0..100));
    }

    #[test]
    fn damage_is_an_error() {
        let old = Item::new().with("a", "b").with("c", "d");
        let whole = written(&[(0, (Some(&old), Some(&old))), (1, (Some(&old), None))]);
        let (key, row) = &whole[0];
        assert!(read(&whole, Sequence::default()).is_ok());
        for length in 0..row.len() {
            let cut = [(key.clone(), row[..length].to_vec())];
            assert!(read(&cut, Sequence::default()).is_err(), "{length} bytes");
        }
        let longer = [(key.clone(), [row.as_slice(), &row[9..]].concat())];
        assert!(read(&longer, Sequence::default()).is_err());
        let of_another_version = [(key.clone(), vec![9; 30])];
        assert!(read(&of_another_version, Sequence::default()).is_err());
        assert!(decode_created_seconds(&[9, 9, 9]).is_err());
    }
}
