//! Writes `ItemCollectionMetrics`: the sizes of the item collections that a request has changed.
//!
//! Only a table with local indexes has item collections.

use std::fmt::Write as _;

use model::Item;
use partition::{Table, Written};

use super::answer::{begin_member, item_member};

/// The number of bytes of a gigabyte, the unit of the estimate.
const GIGABYTE: u64 = 1024 * 1024 * 1024;

/// Returns whether `ReturnItemCollectionMetrics` requests the metrics.
pub(crate) fn are_asked_for(parameter: Option<&str>) -> bool {
    parameter == Some("SIZE")
}

/// Appends the member `ItemCollectionMetrics` of one write, if the table has item collections.
pub(crate) fn write_member(out: &mut String, table: &Table, written: &Written) {
    if written.collection.is_some() {
        begin_member(out, "ItemCollectionMetrics");
        write(out, table, written);
    }
}

/// Appends the member `ItemCollectionMetrics` of several writes, grouped by table name. Writes of one table
/// must be adjacent.
pub(crate) fn write_map_member<'w>(
    out: &mut String,
    writes: impl Iterator<Item = (&'w str, &'w Table, &'w Written)>,
) {
    let mut writes: Vec<_> =
        writes.filter(|(_, _, written)| written.collection.is_some()).collect();
    if writes.is_empty() {
        return;
    }
    writes.sort_by_key(|(name, _, _)| *name);
    begin_member(out, "ItemCollectionMetrics");
    out.push('{');
    let mut last = None;
    for (name, table, written) in writes {
        if last == Some(name) {
            out.push(',');
        } else {
            if last.is_some() {
                out.push(']');
            }
            begin_member(out, name);
            out.push('[');
            last = Some(name);
        }
        write(out, table, written);
    }
    out.push_str("]}");
}

fn write(out: &mut String, table: &Table, written: &Written) {
    let Some(collection) = &written.collection else { return };
    let mut key = Item::new();
    let name = table.key_schema.partition.name.clone();
    key.insert(name, collection.partition.to_attribute_value());
    out.push('{');
    item_member(out, "ItemCollectionKey", &key);
    begin_member(out, "SizeEstimateRangeGB");
    let whole = collection.bytes / GIGABYTE;
    let _ = write!(out, "[{whole}.0,{}.0]}}", whole + 1);
}
