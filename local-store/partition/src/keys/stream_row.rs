//! Key: `[4] table-id:u64 shard:u32 log-index:u64 position:u32` of the last record. Value: a row, the
//! records that an entry of the log has in a shard, or some of them, one behind the other.
//!
//! The sequence number of a record is its place in the log, so the order in the stream is the
//! order in which the changes were committed. An entry may have thousands of records, which come
//! together, are read together and go together: so they cost the engine what a few rows do.
//! What a record holds is in [`stream_record`](super::stream_record).

use std::collections::BTreeMap;
use std::mem;

use serde::Serialize;

use super::{Family, QUEUE_PREFIX_BYTES, take};
use crate::entry::sequence::Sequence;
use crate::storage::ReadError;
use crate::table::identifiers::{ShardNumber, TableId};

/// The version byte of rows of records.
pub(super) const ROW_VERSION: u8 = 3;

/// A row takes no further records when it has so many bytes: who reads one record has to read its row,
/// and a trim removes whole rows. What an entry of the log does depends on it, so it is what it is for
/// ever.
pub(super) const ROW_BYTES_MAX: usize = 16 * 1024;

/// The key of a row and its value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

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

    fn push(&mut self, sequence: Sequence, record: &impl Serialize) -> Result<(), ReadError> {
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

    /// Puts a record behind those of its shard. Returns the key and value of its row if the row is
    /// full: it takes no further records.
    pub(crate) fn push(
        &mut self,
        (table, shard, sequence): (TableId, ShardNumber, Sequence),
        created_seconds: u64,
        record: &impl Serialize,
    ) -> Result<Option<Row>, ReadError> {
        let row = self.0.entry((table, shard)).or_insert_with(|| OpenRow::new(created_seconds));
        row.push(sequence, record)?;
        if row.bytes.len() < ROW_BYTES_MAX {
            return Ok(None);
        }
        let row = self.0.remove(&(table, shard));
        Ok(row.map(|row| (encode(table, shard, row.last), row.bytes)))
    }

    /// Ends them: keys and values, in the order of the keys.
    pub(crate) fn close(self) -> impl Iterator<Item = Row> {
        let key = |((table, shard), row): (_, OpenRow)| (encode(table, shard, row.last), row.bytes);
        self.0.into_iter().map(key)
    }
}
