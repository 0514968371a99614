//! Key: `[4] table-id:u64 shard:u32 log-index:u64 position:u32` of the last record. Value: a row, the
//! records that an entry of the log has in a shard, or some of them, one behind the other.
//!
//! The sequence number of a record is its place in the log, so the order in the stream is the
//! order in which the changes were committed. An entry may have thousands of records, which come
//! together, are read together and go together: so they cost the engine what a few rows do.

use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;

use model::encoded_item::Difference;
use model::{EncodedItem, EventName, Item, KeySchema};
use serde::{Deserialize, Serialize};

use super::{Family, QUEUE_PREFIX_BYTES, take};
use crate::TableId;
use crate::image::damaged;
use crate::storage::{Overlay, ReadError};
use crate::stream::{Sequence, ShardNumber};

/// The version byte of rows of records.
const ROW_VERSION: u8 = 3;

/// A row takes no further records when it has so many bytes: who reads one record has to read its row,
/// and a trim removes whole rows. What an entry of the log does depends on it, so it is what it is for
/// ever.
const ROW_BYTES_MAX: usize = 16 * 1024;

/// What stands in front of each record: its position in the entry and its length.
const RECORD_HEAD_BYTES: usize = 4 + 4;

/// A stream record without what the table and the stream already tell.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// What the keys of a shard's rows begin with.
pub(crate) fn shard_prefix(table: TableId, shard: ShardNumber) -> Vec<u8> {
    let mut key = Family::StreamRecord.of_table(table);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

/// The table whose stream a key has records of; `None` if it has other things.
#[must_use]
pub fn table_of_record(key: &[u8]) -> Option<TableId> {
    let (family, rest) = key.split_first()?;
    let (table, _) = take::<8>(rest)?;
    (*family == Family::StreamRecord as u8).then(|| TableId(u64::from_be_bytes(table)))
}

/// The key of the row whose last record has this place. No row whose key is before it has a record of
/// this place or of a later one.
pub(crate) fn encode(table: TableId, shard: ShardNumber, sequence: Sequence) -> Vec<u8> {
    let mut key = shard_prefix(table, shard);
    key.extend_from_slice(&sequence.index.to_be_bytes());
    key.extend_from_slice(&sequence.position.to_be_bytes());
    key
}

/// The place of the last record of the row with a key.
pub(crate) fn decode_sequence(key: &[u8]) -> Result<Sequence, ReadError> {
    let suffix = key.get(QUEUE_PREFIX_BYTES..).unwrap_or(&[]);
    let parts = take::<8>(suffix).and_then(|(index, rest)| Some((index, take::<4>(rest)?.0)));
    let (index, position) =
        parts.ok_or_else(|| ReadError(format!("damaged stream record key: {key:02x?}")))?;
    Ok(Sequence { index: u64::from_be_bytes(index), position: u32::from_be_bytes(position) })
}

/// A row that still takes records.
struct OpenRow {
    last: Sequence,
    bytes: Vec<u8>,
}

impl OpenRow {
    /// All records of an entry were made at one time.
    fn new(created_seconds: u64) -> Self {
        let mut bytes = vec![ROW_VERSION];
        bytes.extend_from_slice(&created_seconds.to_be_bytes());
        Self { last: Sequence::default(), bytes }
    }

    fn push(&mut self, sequence: Sequence, record: &TerseRecord<'_>) -> Result<(), ReadError> {
        debug_assert!(self.last < sequence, "who reads finds a row by its last record");
        self.last = sequence;
        self.bytes.extend_from_slice(&sequence.position.to_be_bytes());
        let head_end = self.bytes.len() + 4;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes = postcard::to_extend(record, mem::take(&mut self.bytes)).map_err(unwritable)?;
        let length = u32::try_from(self.bytes.len() - head_end).map_err(unwritable)?;
        let room = self.bytes.get_mut(head_end - 4..head_end);
        room.ok_or_else(|| unwritable("it has no length"))?.copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

fn unwritable(error: impl std::fmt::Display) -> ReadError {
    ReadError(format!("cannot encode a stream record: {error}"))
}

/// The rows of an entry that still take records. Who scans does not see them: they are closed before
/// that.
#[derive(Default)]
pub(crate) struct OpenRows(BTreeMap<(TableId, ShardNumber), OpenRow>);

impl OpenRows {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends them: keys and values, in the order of the keys.
    pub(crate) fn close(self) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let key = |((table, shard), row): (_, OpenRow)| (encode(table, shard, row.last), row.bytes);
        self.0.into_iter().map(key)
    }
}

/// Writes a record behind those of its shard; `keys` are asked for when no image tells them.
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
    let open = &mut overlay.open_rows().0;
    let row = open.entry((table, shard)).or_insert_with(|| OpenRow::new(record.created_seconds));
    row.push(sequence, &terse)?;
    if row.bytes.len() >= ROW_BYTES_MAX
        && let Some(row) = open.remove(&(table, shard))
    {
        overlay.insert_row(encode(table, shard, row.last), row.bytes);
    }
    Ok(())
}

/// Visits the records of a row of a table with this key schema that are not before a place, until the
/// visitor breaks.
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
            _ => return Err(unreadable("its row ends with another record than its key says")),
        }
    }
}

/// When the records of a row were made, in seconds since 1970; nothing else of it is decoded.
pub(crate) fn decode_created_seconds(row: &[u8]) -> Result<u64, ReadError> {
    split_row(row).map(|(created_seconds, _)| created_seconds)
}

/// When the records of a row were made, and the records.
fn split_row(row: &[u8]) -> Result<(u64, &[u8]), ReadError> {
    match row.split_first() {
        Some((&ROW_VERSION, rest)) => take::<8>(rest)
            .map(|(seconds, records)| (u64::from_be_bytes(seconds), records))
            .ok_or_else(|| unreadable("its row has no time")),
        first => Err(ReadError(format!(
            "stream records of an unknown version: {:?}",
            first.map(|f| f.0)
        ))),
    }
}

/// The position of the first record, its bytes, and what is behind it.
fn split_record(records: &[u8]) -> Result<(u32, &[u8], &[u8]), ReadError> {
    let head = records.split_at_checked(RECORD_HEAD_BYTES).and_then(|(head, rest)| {
        let (position, length) = take::<4>(head)?;
        let length = usize::try_from(u32::from_be_bytes(take::<4>(length)?.0)).ok()?;
        let (record, behind) = rest.split_at_checked(length)?;
        Some((u32::from_be_bytes(position), record, behind))
    });
    head.ok_or_else(|| unreadable("its row ends too early"))
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

    /// The rows of an entry's records with these images, at these positions.
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
    fn records_are_read_as_they_were() {
        let old = Item::new().with("a", "b").with("c", "d").with("e", "x".repeat(200).as_str());
        let new = old.clone().with("c", "another text");
        let images = [
            (None, None),
            (Some(&old), None),
            (None, Some(&new)),
            (Some(&old), Some(&new)),
            (Some(&new), Some(&old)),
        ];
        // Not every command has a record.
        let records: Vec<_> = (0..).step_by(3).zip(images).collect();
        let rows = written(&records);
        assert_eq!(rows.len(), 1, "they have a row together");
        assert_eq!(decode_sequence(&rows[0].0), Ok(sequence(7, 12)));
        assert_eq!(decode_created_seconds(&rows[0].1), Ok(5));
        let all: Vec<_> = records.iter().map(|(p, i)| (sequence(7, *p), expected(*i))).collect();
        for from in 0..14 {
            let rest: Vec<_> =
                all.iter().filter(|(s, _)| *s >= sequence(7, from)).cloned().collect();
            assert_eq!(read(&rows, sequence(7, from)), Ok(rest), "from {from}");
        }
        // What both images have alike is there once.
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
