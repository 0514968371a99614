//! Reads of items and index entries: one item by key, or ranges in the order of a Query or a Scan.
//!
//! Filters, projections and page sizes are not part of this module: the visitor decides where a
//! read ends.

use std::ops::ControlFlow;

use expression::{IndexCondition, SortCondition};
use model::{Item, KeyValue, PrimaryKey, Token};

use crate::keys::statistics::{self, Statistics};
use crate::keys::{Family, index_entry, index_statistics, item};
use crate::storage::{ReadError, Value, View, end_of_prefix, successor};
use crate::table::Table;
use crate::table::identifiers::{IndexNumber, PartitionNumber};
use crate::table::index::IndexKey;
use crate::table::token_range::TokenRange;

/// The condition of a Query on the sort key, if it has one.
pub type SortRange = Option<SortCondition>;

/// The items to read.
#[derive(Clone, Debug)]
pub enum ItemRange {
    /// The items with one partition key, in the order of their sort keys.
    Collection {
        /// The partition key.
        partition: KeyValue,
        /// The range of sort keys; `None` for all sort keys.
        sort: SortRange,
    },
    /// The entries of an index with one partition key of the index, in the order of its sort key.
    Entries(IndexCondition),
    /// The items whose tokens are in a range.
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

/// Visits the stored bytes of a range's items in order (`forward`) or in reverse, after
/// `start_after` (exclusive; it need not exist), until the visitor breaks.
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
            return Err(ReadError(
                "the range has the bounds of an index, but the query reads a table".to_owned(),
            ));
        }
        ItemRange::Tokens(tokens) => {
            let end = end_of_prefix(&Family::Item.of_table(table.id));
            token_bounds(*tokens, end, |token| item::token_prefix(table.id, token))
        }
    };
    let start_after = start_after.map(|key| item::encode(table.id, key));
    visit_behind(view, bounds, start_after, forward, visit)
}

/// Visits the entries of an index, as [`read_encoded_items`] visits items: the range is over the
/// index's keys, and the visitor gets the projected attributes of the item.
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

/// The bounds of a key range: the first key (inclusive) and the end (exclusive).
type Bounds = (Vec<u8>, Vec<u8>);

/// Visits the values of a key range in order or in reverse. If `start_after` is given, begins after
/// this key.
fn visit_behind(
    view: &dyn View,
    (mut from, mut to): Bounds,
    start_after: Option<Vec<u8>>,
    forward: bool,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    match start_after {
        Some(key) if forward => from = from.max(successor(key)),
        Some(key) => to = to.min(key),
        None => {}
    }
    view.scan(&from, &to, !forward, &mut |_, value| visit(value))
}

/// Returns the key bounds of a token range. `end` is the exclusive end of the key space, and
/// `first` returns the first key of a token.
fn token_bounds(tokens: TokenRange, end: Vec<u8>, first: impl Fn(Token) -> Vec<u8>) -> Bounds {
    let to = tokens.last.0.checked_add(1).map(|next| first(Token(next)));
    (first(tokens.first), to.unwrap_or(end))
}

/// Returns the bounds of the items whose sort key meets a condition.
fn collection_bounds(prefix: &[u8], sort: Option<&SortCondition>) -> Bounds {
    let at = |value: &KeyValue| {
        let mut key = prefix.to_vec();
        value.encode_ordered(&mut key);
        key
    };
    sort_bounds(prefix, sort, at, |value| successor(at(value)), at)
}

/// Returns the bounds of the entries whose sort key meets a condition. In an entry's key, the
/// item's token and key follow the sort key. Therefore the entries with one sort key are
/// contiguous.
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

/// Returns the bounds of the keys under a prefix whose sort key meets a condition. `at` returns the
/// first key for a sort key value, and `behind` the exclusive end of its keys. `begin` returns the
/// common prefix of the keys of all values that begin with a value.
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

/// Returns the statistics of an index.
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

/// Returns the statistics of one partition of a table.
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

/// Returns the sum of the statistics of all partitions of a table.
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
