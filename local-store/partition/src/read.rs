//! Reading items and entries of indexes: one by key, or ranges in the order of a Query or a Scan.
//!
//! No filters, projections or page sizes here: the visitor decides how far a read goes.

use std::ops::ControlFlow;

use expression::{IndexCondition, SortCondition};
use model::{Item, KeyValue, PrimaryKey, Token};

use crate::keys::statistics::{self, Statistics};
use crate::keys::{Family, index_entry, index_statistics, item};
use crate::storage::{ReadError, Value, View, behind, end_of_prefix};
use crate::table::Table;
use crate::table::identifiers::{IndexNumber, PartitionNumber};
use crate::table::index::IndexKey;
use crate::table::token_range::TokenRange;

/// The sort keys that a Query asks for, as a key condition states them.
pub type SortRange = Option<SortCondition>;

/// Which items to read.
#[derive(Clone, Debug)]
pub enum ItemRange {
    /// The items with one partition key, in the order of their sort keys.
    Collection {
        /// The partition key.
        partition: KeyValue,
        /// Only these sort keys; all of them when `None`.
        sort: SortRange,
    },
    /// The entries of an index with one partition key of the index, in the order of its sort key.
    Entries(IndexCondition),
    /// The items whose tokens lie in a range.
    Tokens(TokenRange),
}

/// Reads one item.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_item(
    view: &dyn View,
    table: &Table,
    key: &PrimaryKey,
) -> Result<Option<Item>, ReadError> {
    view.get(&item::encode(table.id, key))?.map(|bytes| item::decode_value(&bytes)).transpose()
}

/// Reads one item as its stored bytes (`model::encoding`).
///
/// # Errors
/// When the storage cannot be read.
pub fn read_encoded_item(
    view: &dyn View,
    table: &Table,
    key: &PrimaryKey,
) -> Result<Option<Value>, ReadError> {
    view.get(&item::encode(table.id, key))
}

/// Reads items of a range in order (`forward`) or in reverse, beginning behind `start_after`
/// (exclusive; it need not exist), until the visitor breaks. It is given an item's stored bytes.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_encoded_items(
    view: &dyn View,
    table: &Table,
    range: &ItemRange,
    start_after: Option<&PrimaryKey>,
    forward: bool,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let bounds = match range {
        ItemRange::Collection { partition, sort } => {
            collection_bounds(&item::prefix(table.id, partition), sort.as_ref())
        }
        ItemRange::Entries(_) => {
            return Err(ReadError("a range of an index was asked of a table".to_owned()));
        }
        ItemRange::Tokens(tokens) => {
            let end = end_of_prefix(&Family::Item.of_table(table.id));
            token_bounds(*tokens, end, |token| item::token_prefix(table.id, token))
        }
    };
    let start_after = start_after.map(|key| item::encode(table.id, key));
    visit_behind(view, bounds, start_after, forward, visit)
}

/// Reads entries of an index, as [`read_encoded_items`] reads items: the range is one of the index's keys,
/// and what is visited is the part of the item that the index holds.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_encoded_entries(
    view: &dyn View,
    table: &Table,
    index: IndexNumber,
    range: &ItemRange,
    start_after: Option<&IndexKey>,
    forward: bool,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let bounds = match range {
        ItemRange::Collection { partition, sort } => {
            let partition = std::slice::from_ref(partition);
            entry_bounds(&index_entry::prefix(table.id, index, partition), sort.as_ref())
        }
        ItemRange::Entries(condition) => {
            let mut prefix = index_entry::prefix(table.id, index, &condition.partition);
            condition.equal.iter().for_each(|part| index_entry::append(&mut prefix, part));
            entry_bounds(&prefix, condition.sort.as_ref())
        }
        ItemRange::Tokens(tokens) => {
            let end = end_of_prefix(&index_entry::index_prefix(table.id, index));
            token_bounds(*tokens, end, |token| index_entry::token_prefix(table.id, index, token))
        }
    };
    let start_after = start_after.map(|place| index_entry::encode(table.id, index, place));
    visit_behind(view, bounds, start_after, forward, visit)
}

/// Keys from (inclusive) and to (exclusive).
type Bounds = (Vec<u8>, Vec<u8>);

/// Visits the values of a range in order or in reverse, from behind a key on if there is one.
fn visit_behind(
    view: &dyn View,
    (mut from, mut to): Bounds,
    start_after: Option<Vec<u8>>,
    forward: bool,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    match start_after {
        Some(key) if forward => from = from.max(behind(key)),
        Some(key) => to = to.min(key),
        None => {}
    }
    view.scan(&from, &to, !forward, &mut |_, value| visit(value))
}

/// The keys of a stretch of the ring, given where the last token's end and how a token's begin.
fn token_bounds(tokens: TokenRange, end: Vec<u8>, first: impl Fn(Token) -> Vec<u8>) -> Bounds {
    let to = tokens.last.0.checked_add(1).map(|next| first(Token(next)));
    (first(tokens.first), to.unwrap_or(end))
}

/// The items whose sort key a condition allows.
fn collection_bounds(prefix: &[u8], sort: Option<&SortCondition>) -> Bounds {
    let at = |value: &KeyValue| {
        let mut key = prefix.to_vec();
        value.encode_ordered(&mut key);
        key
    };
    sort_bounds(prefix, sort, at, |value| behind(at(value)), at)
}

/// The entries whose sort key a condition allows. Token and key of the item stand behind the sort key,
/// so what is equal to a value is a range too.
fn entry_bounds(prefix: &[u8], sort: Option<&SortCondition>) -> Bounds {
    let at = |value: &KeyValue| {
        let mut key = prefix.to_vec();
        index_entry::append(&mut key, value);
        key
    };
    let begin = |value: &KeyValue| {
        let mut key = prefix.to_vec();
        index_entry::append_open(&mut key, value);
        key
    };
    sort_bounds(prefix, sort, at, |value| end_of_prefix(&at(value)), begin)
}

/// The keys under a prefix whose sort key a condition allows, given where those of a value begin,
/// where they end (exclusive), and the prefix of those whose value begins with one.
fn sort_bounds(
    prefix: &[u8],
    sort: Option<&SortCondition>,
    at: impl Fn(&KeyValue) -> Vec<u8>,
    behind: impl Fn(&KeyValue) -> Vec<u8>,
    begin: impl Fn(&KeyValue) -> Vec<u8>,
) -> Bounds {
    let (start, end) = (prefix.to_vec(), end_of_prefix(prefix));
    match sort {
        None => (start, end),
        Some(SortCondition::Equal(value)) => (at(value), behind(value)),
        Some(SortCondition::Less(value)) => (start, at(value)),
        Some(SortCondition::LessOrEqual(value)) => (start, behind(value)),
        Some(SortCondition::Greater(value)) => (behind(value), end),
        Some(SortCondition::GreaterOrEqual(value)) => (at(value), end),
        Some(SortCondition::Between(low, high)) => (at(low), behind(high)),
        Some(SortCondition::BeginsWith(value)) => {
            let first = begin(value);
            let last = end_of_prefix(&first);
            (first, last)
        }
    }
}

/// What an index holds.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_index_statistics(
    view: &dyn View,
    table: &Table,
    index: IndexNumber,
) -> Result<Statistics, ReadError> {
    index_statistics::read(view, table.id, index)
}

/// What one partition of a table holds.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_partition_statistics(
    view: &dyn View,
    table: &Table,
    partition: PartitionNumber,
) -> Result<Statistics, ReadError> {
    statistics::read(view, table.id, partition)
}

/// What a table holds, over all its partitions.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_statistics(view: &dyn View, table: &Table) -> Result<Statistics, ReadError> {
    let mut total = Statistics::default();
    for partition in &table.partitions {
        let partition = statistics::read(view, table.id, partition.number)?;
        total.items += partition.items;
        total.bytes += partition.bytes;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_the_ring_once() {
        for total in [1, 2, 3, 7, 1_000_000] {
            let mut expected = 0u64;
            for segment in 0..total.min(50) {
                let range = TokenRange::segment(segment, total);
                assert_eq!(range.first.0, expected, "{segment}/{total}");
                assert!(range.last >= range.first);
                expected = range.last.0.wrapping_add(1);
            }
            assert_eq!(TokenRange::segment(total - 1, total).last.0, u64::MAX);
        }
    }
}
