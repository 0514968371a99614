//! Streams and their shards: opening, rotation, trimming, reading.
//!
//! A shard holds the records of one partition. A record's sequence number is the position of its
//! command in the log. The server implements shard iterators and their lifetime. Source: AWS,
//! "Change data capture for DynamoDB Streams".

#[cfg(test)]
pub(crate) mod row_tests;
pub(crate) mod seek;

use std::ops::ControlFlow;

use model::limits::{SHARD_ROTATION_MS, STREAM_RETENTION_MS};
use model::{
    EncodedItem, EpochMillis, EventName, SequenceNumber, StreamRecord, StreamViewType, UserIdentity,
};
use serde::{Deserialize, Serialize};

use crate::entry::sequence::Sequence;
use crate::image::{Image, ItemChange, damaged};
use crate::keys::stream_record::{self, NewRecord, StoredRecord};
use crate::keys::stream_row;
use crate::machine::step::Allowance;
use crate::mutation::{self, Mutation};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View, end_of_prefix, successor};
use crate::table::Table;
use crate::table::identifiers::{ShardNumber, TableId};
use crate::table::stream::{Shard, Stream};

/// Formats a number as 32 hexadecimal digits.
fn hexadecimal(number: u128) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    let mut text = String::with_capacity(32);
    for byte in number.to_be_bytes() {
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// The position from which to read a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Position {
    /// At the given sequence, inclusive.
    At(Sequence),
    /// After the given sequence, exclusive.
    After(Sequence),
}

impl Position {
    /// Returns the first sequence that the position includes.
    fn first(self) -> Sequence {
        match self {
            Self::At(sequence) => sequence,
            Self::After(Sequence { index, position }) => match position.checked_add(1) {
                Some(position) => Sequence { index, position },
                None => Sequence { index: index.saturating_add(1), position: 0 },
            },
        }
    }
}

/// Writes the record of a change into the shard of its partition, if the table has a stream.
pub(crate) fn write_record(
    overlay: &mut Overlay<'_>,
    table: &Table,
    partition: usize,
    sequence: Sequence,
    now: EpochMillis,
    change: &ItemChange<'_>,
) -> Result<(), ReadError> {
    let shard = table.partitions.get(partition).and_then(|partition| partition.shard);
    let (Some(stream), Some(shard)) = (table.enabled_stream(), shard) else {
        return Ok(());
    };
    if is_dropped_by_mutation(stream, shard, sequence) {
        return Ok(());
    }
    let event_name = match (change.old, change.new) {
        (None, _) => EventName::Insert,
        (Some(_), Some(_)) => EventName::Modify,
        (Some(_), None) => EventName::Remove,
    };
    let record = NewRecord {
        event_name,
        time_to_live: change.time_to_live && !mutation::is_active(Mutation::LoseTimeToLiveIdentity),
        created_seconds: now.seconds(),
        old_image: change.old.filter(|_| stream.view_type.has_old_image()).map(Image::encoded),
        new_image: change.new.filter(|_| stream.view_type.has_new_image()).map(Image::encoded),
    };
    let place = (table.id, shard, sequence);
    stream_record::write(overlay, place, &record, || change.key.to_item(&table.key_schema))
}

/// Returns whether a deliberate fault drops the record.
fn is_dropped_by_mutation(stream: &Stream, shard: ShardNumber, sequence: Sequence) -> bool {
    let rotated = mutation::is_active(Mutation::DropRecordAtRotation);
    let split = mutation::is_active(Mutation::DropRecordAtSplit);
    if !rotated && !split {
        return false;
    }
    let Some(shard) = stream.shards.iter().find(|known| known.number == shard) else {
        return false;
    };
    let children = stream.shards.iter().filter(|known| known.parent == shard.parent).count();
    shard.parent.is_some()
        && sequence.index <= shard.first.index + 3
        && (if rotated { children == 1 } else { children > 1 })
}

/// Returns the label of the next stream of a table: `wanted` if it is greater than the last label,
/// otherwise the last label with one more digit. `wanted` comes from the clock of the process that
/// received the request, and may be too low because clocks differ. Labels must increase, because
/// consumers order stored records by label. A label with one more digit sorts before the label of
/// the next millisecond.
pub(crate) fn next_label(table: &Table, wanted: String) -> String {
    match table.streams.last() {
        Some(last) if wanted <= last.label => format!("{}1", last.label),
        _ => wanted,
    }
}

/// Opens a shard for every partition of a table whose stream is being enabled.
pub(crate) fn enable(
    table: &mut Table,
    label: String,
    view_type: StreamViewType,
    sequence: Sequence,
    now: EpochMillis,
) {
    table.streams.push(Stream {
        label,
        view_type,
        created_at: now,
        disabled_at: None,
        shards: Vec::new(),
    });
    for partition in 0..table.partitions.len() {
        open_shard(table, partition, None, sequence, now);
    }
}

/// Closes every open shard of a table's stream. The stream remains readable.
pub(crate) fn disable(table: &mut Table, sequence: Sequence, now: EpochMillis) {
    for partition in 0..table.partitions.len() {
        close_shard(table, partition, sequence, now);
    }
    if let Some(stream) = table.streams.last_mut() {
        stream.disabled_at = Some(now);
    }
}

/// Closes each shard that has been open for about four hours, and opens its only child.
pub(crate) fn rotate(table: &mut Table, sequence: Sequence, now: EpochMillis) {
    for partition in 0..table.partitions.len() {
        let shard = table.partitions.get(partition).and_then(|p| p.shard);
        let due = table.shards().any(|s| Some(s.number) == shard && is_rotation_due(s, now));
        if due {
            let parent = close_shard(table, partition, sequence, now);
            open_shard(table, partition, parent, sequence, now);
        }
    }
}

fn is_rotation_due(shard: &Shard, now: EpochMillis) -> bool {
    shard.last.is_none() && now.since(shard.opened_at) >= SHARD_ROTATION_MS
}

/// Closes the shard of a partition that was split and opens one for each of its two successors, if
/// the table has an enabled stream.
pub(crate) fn split_shard(
    table: &mut Table,
    partition: usize,
    parent: Option<ShardNumber>,
    sequence: Sequence,
    now: EpochMillis,
) {
    let Some(parent) = parent.and_then(|number| close_numbered(table, number, sequence, now))
    else {
        return;
    };
    for child in [partition, partition + 1] {
        open_shard(table, child, Some(parent.clone()), sequence, now);
    }
}

/// Returns the suffix of a shard's id, which distinguishes the table's shards of one millisecond.
/// The shard's number is multiplied by an odd constant, so different numbers have different
/// suffixes.
fn id_suffix(table: TableId, number: ShardNumber) -> u32 {
    /// 2^32 divided by the golden ratio, which gives consecutive numbers dissimilar suffixes.
    const SCATTER: u32 = 0x9E37_79B1;
    let [a, b, c, d, ..] = xxhash_rust::xxh3::xxh3_64(&table.0.to_be_bytes()).to_be_bytes();
    number.0.wrapping_mul(SCATTER) ^ u32::from_be_bytes([a, b, c, d])
}

fn open_shard(
    table: &mut Table,
    partition: usize,
    parent: Option<String>,
    sequence: Sequence,
    now: EpochMillis,
) {
    let number = ShardNumber(table.next_shard);
    table.next_shard += 1;
    let suffix = id_suffix(table.id, number);
    // Shards are sorted by id, so a child's id must sort after its parent's id, even if both open
    // in the same millisecond.
    let behind_parent =
        parent.as_deref().and_then(millis_of).map_or(0, |millis| millis.saturating_add(1));
    let shard = Shard {
        number,
        id: format!("shardId-{:020}-{suffix:08x}", now.0.max(behind_parent)),
        parent,
        first: sequence,
        last: None,
        opened_at: now,
        closed_at: None,
        trimmed: None,
    };
    if let (Some(stream), Some(partition)) =
        (table.streams.last_mut(), table.partitions.get_mut(partition))
    {
        stream.shards.push(shard);
        partition.shard = Some(number);
    }
}

/// Returns the time in a shard's id, in milliseconds.
fn millis_of(id: &str) -> Option<u64> {
    id.strip_prefix("shardId-")?.split_once('-')?.0.parse().ok()
}

/// Closes the open shard of a partition and returns its id.
fn close_shard(
    table: &mut Table,
    partition: usize,
    sequence: Sequence,
    now: EpochMillis,
) -> Option<String> {
    let number = table.partitions.get_mut(partition)?.shard.take()?;
    close_numbered(table, number, sequence, now)
}

fn close_numbered(
    table: &mut Table,
    number: ShardNumber,
    sequence: Sequence,
    now: EpochMillis,
) -> Option<String> {
    let shard = table.streams.last_mut()?.shards.iter_mut().find(|s| s.number == number)?;
    shard.last = Some(sequence);
    shard.closed_at = Some(now);
    Some(shard.id.clone())
}

/// The maximum number of rows of records that one trim removes; fewer if the rows are large.
const TRIM_ROWS_MAX: usize = 1000;

/// Removes records older than 24 hours, then closed shards and disabled streams without records.
/// Returns whether more steps are needed.
pub(crate) fn trim(
    overlay: &mut Overlay<'_>,
    table: &mut Table,
    now: EpochMillis,
) -> Result<bool, ReadError> {
    let (id, mut left) = (table.id, Allowance::of_entries(TRIM_ROWS_MAX));
    for shard in table.streams.iter_mut().flat_map(|stream| &mut stream.shards) {
        let removed = old_rows(overlay, id, shard, now, &mut left)?;
        if let Some(last) = removed.last() {
            shard.trimmed = Some(stream_row::decode_sequence(last)?);
        }
        removed.into_iter().for_each(|key| overlay.delete(key));
    }
    let more = left.is_used_up();
    if !more {
        for stream in &mut table.streams {
            stream.shards.retain(|shard| !is_gone(shard.closed_at, now));
        }
        table.streams.retain(|stream| !is_gone(stream.disabled_at, now));
    }
    Ok(more)
}

/// Returns whether all records of a shard or stream that was closed at `closed_at` have expired;
/// false if it is still open.
fn is_gone(closed_at: Option<EpochMillis>, now: EpochMillis) -> bool {
    closed_at.is_some_and(|at| now.since(at) > STREAM_RETENTION_MS)
}

/// Returns the keys of a shard's next expired rows, oldest first.
fn old_rows(
    view: &dyn View,
    table: TableId,
    shard: &Shard,
    now: EpochMillis,
    left: &mut Allowance,
) -> Result<Vec<Vec<u8>>, ReadError> {
    let mut found = Ok(Vec::new());
    if left.is_used_up() {
        return found;
    }
    let from = behind_trimmed(table, shard);
    let to = end_of_prefix(&stream_row::shard_prefix(table, shard.number));
    view.scan(&from, &to, false, &mut |key, value| {
        let Ok(keys) = &mut found else { return ControlFlow::Break(()) };
        match stream_record::decode_created_seconds(value) {
            Ok(created_seconds) if is_trimmed(created_seconds, now) => {
                keys.push(key.to_vec());
                return left.take(key, value);
            }
            Ok(_) => {}
            Err(error) => found = Err(error),
        }
        ControlFlow::Break(())
    })?;
    found
}

/// Returns the first key of a shard's remaining rows. Scans begin at this key, because a scan from
/// the shard's prefix would read the tombstones of all trimmed rows.
pub(crate) fn behind_trimmed(table: TableId, shard: &Shard) -> Vec<u8> {
    match shard.trimmed {
        Some(trimmed) => successor(stream_row::encode(table, shard.number, trimmed)),
        None => stream_row::shard_prefix(table, shard.number),
    }
}

fn is_trimmed(created_seconds: u64, now: EpochMillis) -> bool {
    now.since(EpochMillis(created_seconds.saturating_mul(1000))) > STREAM_RETENTION_MS
}

/// Returns the tables with a shard to rotate.
#[must_use]
pub fn find_due_rotations<'a>(
    tables: impl Iterator<Item = &'a Table>,
    now: EpochMillis,
) -> Vec<TableId> {
    tables.filter(|t| t.shards().any(|s| is_rotation_due(s, now))).map(|t| t.id).collect()
}

/// Returns the tables with records, shards or streams to trim.
///
/// # Errors
/// When the storage cannot be read.
pub fn find_due_trims<'a>(
    view: &dyn View,
    tables: impl Iterator<Item = &'a Table>,
    now: EpochMillis,
) -> Result<Vec<TableId>, ReadError> {
    let mut due = Vec::new();
    for table in tables {
        let mut is_due = table.streams.iter().any(|stream| is_gone(stream.disabled_at, now));
        for shard in table.shards().filter(|shard| now.since(shard.opened_at) > STREAM_RETENTION_MS)
        {
            is_due = is_due || is_gone(shard.closed_at, now) || {
                let mut one = Allowance::of_entries(1);
                !old_rows(view, table.id, shard, now, &mut one)?.is_empty()
            };
        }
        if is_due {
            due.push(table.id);
        }
    }
    Ok(due)
}

/// Visits the records of a shard from a position, in order, until the visitor breaks. Images are in
/// their stored form.
///
/// # Errors
/// When the storage cannot be read or contains damaged records.
pub fn read_shard_records(
    view: &dyn View,
    table: &Table,
    stream: &Stream,
    shard: &Shard,
    from: Position,
    visit: &mut dyn FnMut(Sequence, StreamRecord<EncodedItem>) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    // The key of a row contains the position of its last record, so the scan begins at the row that
    // contains the requested position.
    let start = stream_row::encode(table.id, shard.number, from.first());
    let start = start.max(behind_trimmed(table.id, shard));
    let to = end_of_prefix(&stream_row::shard_prefix(table.id, shard.number));
    let mut result = Ok(());
    view.scan(&start, &to, false, &mut |key, row| {
        let visit = &mut |sequence, stored| {
            Ok(visit(sequence, show_record(stream, shard, sequence, stored)?))
        };
        let visited = stream_record::visit_row((key, row), &table.key_schema, from.first(), visit);
        visited.unwrap_or_else(|error| {
            result = Err(error);
            ControlFlow::Break(())
        })
    })?;
    result
}

/// Visits the records of a shard, newest first, until the visitor breaks. Images are in their
/// stored form.
///
/// # Errors
/// When the storage cannot be read or contains damaged records.
pub fn read_newest_shard_records(
    view: &dyn View,
    table: &Table,
    stream: &Stream,
    shard: &Shard,
    visit: &mut dyn FnMut(Sequence, StreamRecord<EncodedItem>) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let from = behind_trimmed(table.id, shard);
    let to = end_of_prefix(&stream_row::shard_prefix(table.id, shard.number));
    let mut result = Ok(());
    view.scan(&from, &to, true, &mut |key, row| {
        let mut of_row = Vec::new();
        let keep = &mut |sequence, stored| {
            of_row.push((sequence, stored));
            Ok(ControlFlow::Continue(()))
        };
        let kept = stream_record::visit_row((key, row), &table.key_schema, shard.first, keep);
        let visited = kept.and_then(|_| {
            for (sequence, stored) in of_row.into_iter().rev() {
                if visit(sequence, show_record(stream, shard, sequence, stored)?).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        });
        visited.unwrap_or_else(|error| {
            result = Err(error);
            ControlFlow::Break(())
        })
    })?;
    result
}

/// Returns the sequence of the last record ever written to a shard, even if it was trimmed.
///
/// # Errors
/// When the storage cannot be read or contains damaged records.
pub fn read_last_sequence(
    view: &dyn View,
    table: &Table,
    shard: &Shard,
) -> Result<Option<Sequence>, ReadError> {
    let from = behind_trimmed(table.id, shard);
    let to = end_of_prefix(&stream_row::shard_prefix(table.id, shard.number));
    let mut last = Ok(None);
    view.scan(&from, &to, true, &mut |key, _| {
        last = stream_row::decode_sequence(key).map(Some);
        ControlFlow::Break(())
    })?;
    Ok(last?.or(shard.trimmed))
}

fn show_record(
    stream: &Stream,
    shard: &Shard,
    sequence: Sequence,
    stored: StoredRecord,
) -> Result<StreamRecord<EncodedItem>, ReadError> {
    let text = sequence.to_string();
    let seed = [&*stream.label, "/", &*shard.id, "/", &*text].concat();
    let images = [&stored.old_image, &stored.new_image];
    let mut size_bytes = stored.keys.size();
    for image in images.into_iter().flatten() {
        size_bytes += image.size().map_err(damaged)?;
    }
    Ok(StreamRecord {
        event_id: hexadecimal(xxhash_rust::xxh3::xxh3_128(seed.as_bytes())),
        event_name: stored.event_name,
        user_identity: stored.time_to_live.then(UserIdentity::time_to_live),
        approximate_creation_seconds: Some(stored.created_seconds),
        keys: stored.keys,
        old_image: stored.old_image,
        new_image: stored.new_image,
        sequence_number: shown_sequence(&text),
        size_bytes: u64::try_from(size_bytes).unwrap_or(u64::MAX),
        view_type: stream.view_type,
    })
}

#[expect(clippy::expect_used, reason = "a displayed sequence is 22 decimal digits")]
fn shown_sequence(text: &str) -> SequenceNumber {
    text.parse().expect("22 decimal digits are a sequence number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_a_table_have_unique_suffixes() {
        let numbers = (0..70_000).chain(u32::MAX - 10..=u32::MAX).map(ShardNumber);
        let suffixes: std::collections::BTreeSet<u32> =
            numbers.clone().map(|number| id_suffix(TableId(18), number)).collect();
        assert_eq!(suffixes.len(), numbers.count());
    }

    #[test]
    fn hexadecimal_numbers_keep_leading_zeros() {
        for number in [0, 1, 0x0123_4567_89ab_cdef_0fed_cba9_8765_4321, u128::MAX] {
            assert_eq!(hexadecimal(number), format!("{number:032x}"));
        }
    }
}
