//! Tells the traffic counters what a request consumed of a table's partitions.
//!
//! What is consumed is computed in `capacity`; indexes have no partitions of their own.

use model::{Item, KeyValue, Token};
use partition::{ItemRange, Table, Written};

use super::capacity::Capacity;
use super::index_choice::Source;
use crate::store::Store;
use crate::traffic::Units;

/// A read of items with one partition key.
pub(crate) fn record_read(store: &Store, table: &Table, key: &KeyValue, capacity: Capacity) {
    let units = Units { read_halves: capacity.halves(), write_halves: 0 };
    store.traffic().record(table, key, units, store.now());
}

/// A write of one item.
pub(crate) fn record_write(store: &Store, table: &Table, key: &KeyValue, written: &Written) {
    let capacity = Capacity::of_write(written.old_bytes, written.new_bytes);
    let units = Units { read_halves: 0, write_halves: capacity.halves() };
    store.traffic().record(table, key, units, store.now());
}

/// A write whose condition failed: one unit, as if the item were small.
pub(crate) fn record_refused_write(store: &Store, table: &Table, key: &KeyValue) {
    record_write(store, table, key, &Written::default());
}

/// A page of a Query or a Scan that came to `last`; `None` when it found nothing.
pub(crate) fn record_page(
    store: &Store,
    source: Source<'_>,
    range: &ItemRange,
    last: Option<&Item>,
    capacity: Capacity,
) {
    if source.index.is_some() {
        return;
    }
    match range {
        ItemRange::Collection { partition, .. } => {
            record_read(store, source.table, partition, capacity);
        }
        // Only an index has these.
        ItemRange::Entries(_) => {}
        ItemRange::Tokens(tokens) => {
            let last = last.and_then(|item| source.table.key_schema.key_of_item(item).ok());
            let reached = last.map_or(tokens.first, |key| Token::of(&key.partition));
            let span = (tokens.first.min(reached), reached);
            store.traffic().record_scan(source.table, span, capacity.halves(), store.now());
        }
    }
}
