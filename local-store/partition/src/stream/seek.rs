//! Search for the position of a time in a shard. The module `stream` reads records from that
//! position.
//!
//! The time of log entries never decreases, so a binary search over log indexes finds the position
//! with at most 64 seeks, for any number of records.

use std::ops::ControlFlow;

use model::EpochMillis;

use crate::entry::sequence::Sequence;
use crate::keys::{stream_record, stream_row};
use crate::storage::{ReadError, View, end_of_prefix};
use crate::stream::behind_trimmed;
use crate::table::Table;
use crate::table::stream::Shard;

/// Returns the position of the first record of a shard that was created at `time` or later; `None`
/// if there is no such record. The creation time of a record has whole seconds.
///
/// The position is inclusive. Earlier records of the same log entry may have been trimmed.
///
/// # Errors
/// When the storage cannot be read or contains damaged records.
pub fn find_first_since(
    view: &dyn View,
    table: &Table,
    shard: &Shard,
    time: EpochMillis,
) -> Result<Option<Sequence>, ReadError> {
    let rows = Rows {
        view,
        start: behind_trimmed(table.id, shard),
        end: end_of_prefix(&stream_row::shard_prefix(table.id, shard.number)),
        key_of: &|index| {
            stream_row::encode(table.id, shard.number, Sequence { index, position: 0 })
        },
    };
    let seconds = time.0.div_ceil(1000);
    let Some((last, _)) = rows.last()?.filter(|(_, created)| *created >= seconds) else {
        return Ok(None);
    };
    let (mut low, mut high) = (shard.first.index, last.index);
    while low < high {
        let middle = low + (high - low) / 2;
        match rows.first_from(middle)? {
            Some((row, created)) if created < seconds => low = row.index.saturating_add(1),
            _ => high = middle,
        }
    }
    Ok(Some(Sequence { index: low, position: 0 }.max(shard.first)))
}

/// The rows of a shard's records.
struct Rows<'a> {
    view: &'a dyn View,
    start: Vec<u8>,
    end: Vec<u8>,
    key_of: &'a dyn Fn(u64) -> Vec<u8>,
}

/// The sequence of the last record of a row, and the row's creation time in seconds since 1970.
type Row = (Sequence, u64);

impl Rows<'_> {
    fn last(&self) -> Result<Option<Row>, ReadError> {
        self.first_of(&self.start, true)
    }

    /// Returns the first row of a log entry at or after `index`.
    fn first_from(&self, index: u64) -> Result<Option<Row>, ReadError> {
        self.first_of(&(self.key_of)(index).max(self.start.clone()), false)
    }

    fn first_of(&self, from: &[u8], reverse: bool) -> Result<Option<Row>, ReadError> {
        let mut found = Ok(None);
        self.view.scan(from, &self.end, reverse, &mut |key, row| {
            let sequence = stream_row::decode_sequence(key);
            let created = stream_record::decode_created_seconds(row);
            found = sequence.and_then(|sequence| Ok(Some((sequence, created?))));
            ControlFlow::Break(())
        })?;
        found
    }
}
