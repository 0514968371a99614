//! The read units of a Query or a Scan in production: the number of items that it reads, and the
//! number of pages.
//!
//! One execution of an access pattern reads all its pages, as the AWS CLI does.

use crate::capacity::{float, read_units_of};
use crate::command::{Command, Operation, key_condition};
use crate::data_model::{KeyElement, partition_key};

/// The maximum size of a page in bytes. Source: DynamoDB developer guide, "Paginating table query
/// results".
const PAGE_BYTES_MAX: f64 = 1_048_576.0;

/// The number of items that a request reads in production.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    /// At most this number of items; the command may limit it further.
    Items(f64),
    /// The number of items that the request read in the trial.
    AsTried,
    /// The number is unknown.
    Unknown,
}

/// Returns the extent of a request on a table or an index. `key`, `items` and `partition_keys`
/// describe this table or index.
pub(crate) fn extent(
    command: &Command,
    key: &[KeyElement],
    items: Option<f64>,
    partition_keys: Option<f64>,
) -> Extent {
    if command.operation == Operation::Scan {
        let segments = number(command, "TotalSegments").unwrap_or(1.0).max(1.0);
        return items.map_or(Extent::Unknown, |items| Extent::Items((items / segments).ceil()));
    }
    let partition_key = partition_key(key);
    let is_whole_key =
        key_condition(&command.request).iter().all(|name| partition_key.contains(&name.as_str()));
    match items.zip(partition_keys).filter(|_| is_whole_key) {
        Some((items, keys)) => Extent::Items((items / keys.max(1.0)).ceil()),
        None => Extent::AsTried,
    }
}

/// Returns the strongly consistent read units for an extent of items of this size; `None` if the
/// number or the size of the items is unknown.
pub(crate) fn read_units(command: &Command, extent: Extent, item_bytes: f64) -> Option<f64> {
    let items = match extent {
        Extent::Items(items) => items,
        Extent::Unknown => f64::INFINITY,
        Extent::AsTried => return None,
    };
    let limit = number(command, "Limit");
    let of_bytes = (PAGE_BYTES_MAX / item_bytes.max(1.0)).floor();
    let page = limit.unwrap_or(of_bytes).min(of_bytes).max(1.0);
    let is_filtered = command.request.contains_key("FilterExpression");
    let most = match (command.reads_all_pages, command.items_max) {
        (false, _) => page,
        (true, Some(most)) if !is_filtered => (float(most) / page).ceil() * page,
        (true, _) => f64::INFINITY,
    };
    let items = items.min(most);
    if !items.is_finite() || item_bytes <= 0.0 {
        return None;
    }
    // A page of 1 MB is a whole number of units. Each smaller page is rounded up.
    let pages = if limit.is_some() { (items / page).floor() } else { 0.0 };
    let rest = items - pages * page;
    // After a full page, the AWS CLI requests the next page, which may be empty. It stops only if
    // it already has the number of items of `--max-items`.
    let is_enough = !command.reads_all_pages
        || command.items_max.is_some_and(|most| !is_filtered && items >= float(most));
    let is_last_full = rest <= 0.0 && pages > 0.0 && is_enough;
    let of_rest = if is_last_full { 0.0 } else { read_units_of(rest * item_bytes) };
    Some(pages * read_units_of(page * item_bytes) + of_rest)
}

/// Returns the strongly consistent read units of items that are read from the table, because a
/// local index lacks requested attributes. Each item is rounded up separately.
pub(crate) fn fetch_units(extent: Extent, item_bytes: f64) -> Option<f64> {
    match extent {
        Extent::Items(items) if item_bytes > 0.0 => Some(items * read_units_of(item_bytes)),
        _ => None,
    }
}

fn number(command: &Command, parameter: &str) -> Option<f64> {
    command.request.get(parameter)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a scan reads all pages up to its bounds. A unit covers 4 KB, so 20 million items of
    /// 400 bytes are 1,953,125 units.
    #[test]
    fn a_scan_reads_all_pages_up_to_its_bounds() {
        for (options, items, bytes, expected) in [
            ("", Some(20_000_000.0), 400.0, Some(1_953_125.0)),
            ("", None, 400.0, None),
            ("", Some(1_000.0), 0.0, None),
            ("", Some(0.0), 400.0, Some(1.0)),
            ("--total-segments 4 --segment 0", Some(4_096.0), 1_024.0, Some(256.0)),
            // One page of 1 MB.
            ("--no-paginate", None, 1_024.0, Some(256.0)),
            ("--limit 10", Some(20_000_000.0), 400.0, Some(1.0)),
            ("--limit 10", Some(5.0), 1_024.0, Some(2.0)),
            // Each page of five items of 1 KB is rounded up to 8 KB.
            ("--page-size 5", Some(12.0), 1_024.0, Some(5.0)),
            // The fourth page is empty.
            ("--page-size 4", Some(12.0), 1_024.0, Some(4.0)),
            ("--max-items 12 --page-size 4", Some(12.0), 1_024.0, Some(3.0)),
            ("--max-items 6 --page-size 5", Some(100.0), 1_024.0, Some(4.0)),
            ("--max-items 6", Some(4_096.0), 1_024.0, Some(256.0)),
            ("--max-items 6 --filter-expression a=b", None, 1_024.0, None),
        ] {
            let command = Command::parse(&format!("aws dynamodb scan --table-name t {options}"));
            let command = command.unwrap();
            let found = read_units(&command, extent(&command, &[], items, None), bytes);
            assert_eq!(found, expected, "{options} {items:?} {bytes}");
        }
    }
}
