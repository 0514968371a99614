//! Defines which counters of a comparison count as differences between sources and targets.

use crate::migrate::report::progress::Progress;

/// The counters of a comparison's tasks that count differences.
pub(crate) const DIFFERENCES: [&str; 6] =
    ["missing", "different", "extra", "occupied", "refused", "not_invertible"];
/// Returns the number of differences that a comparison found.
pub(crate) fn differences(found: &Progress) -> u64 {
    DIFFERENCES.iter().map(|kind| found.count(kind)).sum()
}

/// Returns the number of differences that block the end of an in-place migration. Items that
/// `inverse` does not restore are not counted, because no revert is possible after the end.
pub(crate) fn in_the_way_of_an_end(found: &Progress) -> u64 {
    differences(found).saturating_sub(found.count("not_invertible"))
}

/// Returns the number of differences that a repair cannot remove: items that cannot be transformed
/// in one of the directions, and foreign items at the key of a target.
pub(crate) fn not_repaired(found: &Progress) -> u64 {
    ["refused", "not_invertible", "occupied"].iter().map(|kind| found.count(kind)).sum()
}
