//! Key: `[4] table-id:u64 shard:u32 log-index:u64 position:u32`, with the position of the row's
//! last record. Value: a row, which is the concatenation of some or all records of a log entry in a
//! shard.
//!
//! The sequence number of a record is its position in the log, so the order in the stream is the
//! order of commits. An entry may have thousands of records, which are written, read and removed
//! together. In rows, they cost the engine only as much as a few values. The content of a record is
//! in [`stream_record`](super::stream_record).

use std::collections::BTreeMap;
use std::mem;

use serde::Serialize;

use super::{Family, QUEUE_PREFIX_BYTES, take};
use crate::entry::sequence::Sequence;
use crate::storage::ReadError;
use crate::table::identifiers::{ShardNumber, TableId};

/// The version byte of a row of records.
pub(super) const ROW_VERSION: u8 = 3;

/// The size in bytes at which a row accepts no further record. It is bounded because a reader of
/// one record reads the entire row, and a trim removes entire rows. The effect of a log entry
/// depends on this value, so it must never change.
pub(super) const ROW_BYTES_MAX: usize = 16 * 1024;

/// The key and the value of a row.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// Returns the prefix of the keys of a shard's rows.
pub(crate) fn shard_prefix(table: TableId, shard: ShardNumber) -> Vec<u8> {
    let mut key = Family::StreamRecord.of_table(table);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

/// Returns the table of the stream records under a key; `None` for keys of other families.
#[must_use]
pub fn table_of_record(key: &[u8]) -> Option<TableId> {
    let (family, rest) = key.split_first()?;
    let (table, _) = take::<8>(rest)?;
    (*family == Family::StreamRecord as u8).then(|| TableId(u64::from_be_bytes(table)))
}

/// Returns the key of the row whose last record has this sequence. No row with a smaller key has a
/// record at or after this sequence.
pub(crate) fn encode(table: TableId, shard: ShardNumber, sequence: Sequence) -> Vec<u8> {
    let mut key = shard_prefix(table, shard);
    key.extend_from_slice(&sequence.index.to_be_bytes());
    key.extend_from_slice(&sequence.position.to_be_bytes());
    key
}

/// Returns the sequence of the last record of the row with a key.
pub(crate) fn decode_sequence(key: &[u8]) -> Result<Sequence, ReadError> {
    let suffix = key.get(QUEUE_PREFIX_BYTES..).unwrap_or(&[]);
    let parts = take::<8>(suffix).and_then(|(index, rest)| Some((index, take::<4>(rest)?.0)));
    let (index, position) =
        parts.ok_or_else(|| ReadError(format!("damaged stream record key: {key:02x?}")))?;
    Ok(Sequence { index: u64::from_be_bytes(index), position: u32::from_be_bytes(position) })
}

/// A row that still accepts records.
struct OpenRow {
    last: Sequence,
    bytes: Vec<u8>,
}

impl OpenRow {
    /// Creates an empty row. All records of an entry have the same creation time.
    fn new(created_seconds: u64) -> Self {
        let mut bytes = vec![ROW_VERSION];
        bytes.extend_from_slice(&created_seconds.to_be_bytes());
        Self { last: Sequence::default(), bytes }
    }

    fn push(&mut self, sequence: Sequence, record: &impl Serialize) -> Result<(), ReadError> {
        debug_assert!(self.last < sequence, "sequence numbers must be ascending");
        self.last = sequence;
        self.bytes.extend_from_slice(&sequence.position.to_be_bytes());
        let head_end = self.bytes.len() + 4;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes = postcard::to_extend(record, mem::take(&mut self.bytes)).map_err(unwritable)?;
        let length = u32::try_from(self.bytes.len() - head_end).map_err(unwritable)?;
        let room = self.bytes.get_mut(head_end - 4..head_end);
        room.ok_or_else(|| unwritable("the buffer lacks the four bytes of the record's length"))?
            .copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

fn unwritable(error: impl std::fmt::Display) -> ReadError {
    ReadError(format!("cannot encode a stream record: {error}"))
}

/// The rows of an entry that still accept records. Scans do not see these rows, so they are closed
/// before a scan.
#[derive(Default)]
pub(crate) struct OpenRows(BTreeMap<(TableId, ShardNumber), OpenRow>);

impl OpenRows {
    /// Returns whether there is no open row.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a record to the open row of its shard. Returns the key and value of the row if the
    /// row is now full.
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

    /// Closes all rows. Returns their keys and values, in key order.
    pub(crate) fn close(self) -> impl Iterator<Item = Row> {
        let key = |((table, shard), row): (_, OpenRow)| (encode(table, shard, row.last), row.bytes);
        self.0.into_iter().map(key)
    }
}
