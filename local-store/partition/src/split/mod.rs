//! Splits of partitions. A split counts the items of the partition's lower part step by step, and
//! then replaces the partition with two partitions.
//!
//! The last command of a split replaces the partition: its stream shard closes and two child shards
//! open. Until then, readers and writers see no change. A write to an item that is already counted
//! also updates the count, so that both halves have exact statistics. The server's ticks decide
//! when to split.

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use model::{EpochMillis, Token};

use crate::entry::sequence::Sequence;
use crate::image::stored_size;
use crate::keys::statistics::Statistics;
use crate::keys::{Family, item, statistics};
use crate::machine::step::STEP_BYTES_MAX;
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View, end_of_prefix, successor};
use crate::stream;
use crate::table::Table;
use crate::table::billing::partition_count;
use crate::table::identifiers::{PartitionNumber, TableId};
use crate::table::partition::{PARTITIONS_MAX, Partition, Split, SplitPoint};
use crate::table::placement::ArcPosition;
use crate::table::refusal::{SplitRefusal, TableRefusal};
use crate::table::token_range::TokenRange;

/// The maximum number of items that one step counts, so that no log entry takes long to apply.
const STEP_ITEMS_MAX: u64 = 2000;

/// The result of a counting step.
enum CountResult {
    /// There are more items to count.
    More(Split),
    /// The lower part was counted completely. The upper part begins at the given token.
    Whole(Token),
    /// All items have one partition key.
    Indivisible,
}

/// Begins to split a partition, or returns the reason why the partition cannot be split.
pub(crate) fn begin(
    table: &mut Table,
    number: PartitionNumber,
    at: SplitPoint,
) -> Result<(), TableRefusal> {
    let partition = number.0;
    let refuse = |why| Err(TableRefusal::Split { partition, table: table.name.clone(), why });
    let Some(place) = table.find_partition(number) else {
        return refuse(SplitRefusal::Unknown);
    };
    let Some(range) = table.token_range(place).filter(|range| range.middle().is_some()) else {
        return refuse(SplitRefusal::OneToken);
    };
    if table.partitions.len() + splits_of(table) >= PARTITIONS_MAX {
        return refuse(SplitRefusal::TooMany);
    }
    let at = match at {
        SplitPoint::Half => None,
        SplitPoint::Token(token) if range.first < token && token <= range.last => Some(token),
        SplitPoint::Token(_) => return refuse(SplitRefusal::InvalidToken),
    };
    let split = Split { at, lower: PartitionNumber(table.next_partition), cursor: None };
    match table.partitions.get_mut(place) {
        Some(partition) if partition.split.is_none() => partition.split = Some(split),
        _ => return refuse(SplitRefusal::InProgress),
    }
    table.next_partition += 1;
    Ok(())
}

/// Runs one step for the first partition that is being split. Returns whether more steps are
/// needed.
pub(crate) fn step(
    overlay: &mut Overlay<'_>,
    table: &mut Table,
    sequence: Sequence,
    now: EpochMillis,
) -> Result<bool, ReadError> {
    let found =
        table.partitions.iter().enumerate().find_map(|(place, partition)| {
            Some((place, partition.number, partition.split.clone()?))
        });
    let Some((place, number, split)) = found else {
        return Ok(false);
    };
    let lower = split.lower;
    match count_next(overlay, table, place, number, split)? {
        CountResult::More(split) => {
            if let Some(partition) = table.partitions.get_mut(place) {
                partition.split = Some(split);
            }
        }
        CountResult::Whole(at) => {
            divide(overlay, table, place, number, lower, at)?;
            let parent = table.partitions.get_mut(place).and_then(|lower| lower.shard.take());
            stream::split_shard(table, place, parent, sequence, now);
        }
        CountResult::Indivisible => {
            let bytes = statistics::read(overlay, table.id, number)?.bytes;
            statistics::delete(overlay, table.id, lower);
            if let Some(partition) = table.partitions.get_mut(place) {
                partition.split = None;
                partition.indivisible_bytes = bytes;
            }
        }
    }
    Ok(splits_of(table) > 0)
}

/// Replaces one partition with two. The lower partition keeps the stream shard until the caller
/// splits the shard.
fn divide(
    overlay: &mut Overlay<'_>,
    table: &mut Table,
    place: usize,
    number: PartitionNumber,
    lower: PartitionNumber,
    at: Token,
) -> Result<(), ReadError> {
    let upper = PartitionNumber(table.next_partition);
    table.next_partition += 1;
    let all = statistics::read(overlay, table.id, number)?;
    let below = statistics::read(overlay, table.id, lower)?;
    let above = Statistics {
        items: all.items.saturating_sub(below.items),
        bytes: all.bytes.saturating_sub(below.bytes),
    };
    statistics::delete(overlay, table.id, number);
    statistics::write(overlay, table.id, lower, &below)?;
    statistics::write(overlay, table.id, upper, &above)?;
    if let Some(partition) = table.partitions.get_mut(place) {
        let shard = partition.shard;
        *partition = Partition { shard, ..Partition::new(lower, partition.first_token) };
        table.partitions.insert(place + 1, Partition::new(upper, at));
    }
    Ok(())
}

/// Counts the next items of the lower part.
fn count_next(
    overlay: &mut Overlay<'_>,
    table: &Table,
    place: usize,
    number: PartitionNumber,
    mut split: Split,
) -> Result<CountResult, ReadError> {
    let Some(range) = table.token_range(place) else {
        return Ok(CountResult::Indivisible);
    };
    let lower = split.lower;
    let all = statistics::read(overlay, table.id, number)?;
    let mut below = statistics::read(overlay, table.id, lower)?;
    let walk = walk(overlay, table, range, &split, all, &mut below)?;
    split.cursor = walk.cursor;
    let counted = match (walk.end, split.at) {
        (WalkEnd::Half(at), _) => CountResult::Whole(at),
        (WalkEnd::Limit, _) => CountResult::More(split),
        (WalkEnd::Bound, Some(at)) => CountResult::Whole(at),
        (WalkEnd::Bound, None) => match edge_token(overlay, table, range, true)? {
            // The items with the highest token have at least half of the bytes. Only these items
            // become the upper part, and all items below them must be counted again.
            Some(last) if edge_token(overlay, table, range, false)? != Some(last) => {
                below = Statistics::default();
                CountResult::More(Split { at: Some(last), cursor: None, ..split })
            }
            Some(_) => CountResult::Indivisible,
            None => range.middle().map_or(CountResult::Indivisible, CountResult::Whole),
        },
    };
    statistics::write(overlay, table.id, lower, &below)?;
    Ok(counted)
}

/// The reason why counting the lower part stopped.
enum WalkEnd {
    /// The items below the given token have at least half of the bytes.
    Half(Token),
    /// The step has counted its maximum number of items or bytes.
    Limit,
    /// All items below the split point are counted or, without a split point, all items of the
    /// partition.
    Bound,
}

struct Walk {
    cursor: Option<Vec<u8>>,
    end: WalkEnd,
}

fn walk(
    view: &dyn View,
    table: &Table,
    range: TokenRange,
    split: &Split,
    all: Statistics,
    below: &mut Statistics,
) -> Result<Walk, ReadError> {
    let (first, end) = bounds(table.id, range);
    let from = split.cursor.as_ref().map_or(first, |key| successor(key.clone()));
    let to = split.at.map_or(end, |at| item::token_prefix(table.id, at));
    let mut walk = Walk { cursor: split.cursor.clone(), end: WalkEnd::Bound };
    let mut last = split.cursor.as_deref().map(item::decode_token).transpose()?;
    let start = *below;
    let mut result = Ok(());
    view.scan(&from, &to, false, &mut |key, value| {
        let read = item::decode_token(key).and_then(|token| Ok((token, stored_size(value)?)));
        let (token, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                result = Err(error);
                return ControlFlow::Break(());
            }
        };
        // Items with one partition key are never separated.
        if split.at.is_none()
            && last.is_some_and(|last| last != token)
            && 2 * below.bytes >= all.bytes
        {
            walk.end = WalkEnd::Half(token);
            return ControlFlow::Break(());
        }
        if below.items - start.items >= STEP_ITEMS_MAX
            || below.bytes - start.bytes >= STEP_BYTES_MAX as u64
        {
            walk.end = WalkEnd::Limit;
            return ControlFlow::Break(());
        }
        below.items += 1;
        below.bytes += bytes;
        last = Some(token);
        walk.cursor = Some(key.to_vec());
        ControlFlow::Continue(())
    })?;
    result.map(|()| walk)
}

/// Returns the bounds of the item keys of a token range: from (inclusive) and to (exclusive).
fn bounds(table: TableId, range: TokenRange) -> (Vec<u8>, Vec<u8>) {
    let end = match range.last.0.checked_add(1) {
        Some(next) => item::token_prefix(table, Token(next)),
        None => end_of_prefix(&Family::Item.of_table(table)),
    };
    (item::token_prefix(table, range.first), end)
}

/// Returns the token of the first item of a range, or of the last item if `reverse`.
fn edge_token(
    view: &dyn View,
    table: &Table,
    range: TokenRange,
    reverse: bool,
) -> Result<Option<Token>, ReadError> {
    let (from, to) = bounds(table.id, range);
    let mut found = None;
    view.scan(&from, &to, reverse, &mut |key, _| {
        found = Some(item::decode_token(key));
        ControlFlow::Break(())
    })?;
    found.transpose()
}

fn splits_of(table: &Table) -> usize {
    table.partitions.iter().filter(|partition| partition.split.is_some()).count()
}

/// Returns the tables with an unfinished split.
#[must_use]
pub fn find_split_work<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<TableId> {
    tables.filter(|table| splits_of(table) > 0).map(|table| table.id).collect()
}

/// Returns the partitions to split regardless of their traffic: those with more than `bytes_max`
/// bytes, and the widest partition of a table that has too few partitions for its provisioned
/// throughput.
///
/// # Errors
/// When the storage cannot be read.
pub fn find_due_splits<'a>(
    view: &dyn View,
    position: ArcPosition,
    tables: impl Iterator<Item = &'a Table>,
    bytes_max: u64,
) -> Result<Vec<(TableId, PartitionNumber, SplitPoint)>, ReadError> {
    let mut due = Vec::new();
    for table in tables.filter(|table| table.partitions.len() + splits_of(table) < PARTITIONS_MAX) {
        for partition in table.partitions.iter().filter(|partition| partition.split.is_none()) {
            let bytes = statistics::read(view, table.id, partition.number)?.bytes;
            // An indivisible partition is tried again only after it has grown by a tenth.
            let tried = partition.indivisible_bytes;
            if bytes > bytes_max.max(tried.saturating_add(tried / 10)) {
                due.push((table.id, partition.number, SplitPoint::Half));
            }
        }
        let wanted = usize::try_from(partition_count(table.billing)).unwrap_or(usize::MAX);
        // The required number of partitions in this arc is proportional to its number of placement
        // ranges.
        let (own, all) = table.placement.share_of(position.arc);
        let wanted = wanted.saturating_mul(own).div_ceil(all.max(1));
        if table.partitions.len() + splits_of(table) < wanted.min(PARTITIONS_MAX) {
            due.extend(widest(table));
        }
    }
    Ok(due)
}

/// Returns the partition with the widest token range, and the middle of this range. Ignores
/// partitions that are already being split.
fn widest(table: &Table) -> Option<(TableId, PartitionNumber, SplitPoint)> {
    let candidates = table.partitions.iter().enumerate().filter(|(_, p)| p.split.is_none());
    let ranges = candidates.filter_map(|(place, p)| Some((table.token_range(place)?, p.number)));
    // `max_by_key` returns the last of several maxima, so the order is reversed to get the first
    // partition.
    let (range, number) =
        ranges.rev().max_by_key(|(range, _)| range.last.0.saturating_sub(range.first.0))?;
    Some((table.id, number, SplitPoint::Token(range.middle()?)))
}
