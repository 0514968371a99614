//! Defines what counts as a difference between sources and targets.

use crate::migrate::report::progress::Progress;

/// The workers' counters of differences.
pub(crate) const DIFFERENCES: [&str; 6] =
    ["missing", "different", "extra", "occupied", "refused", "not_invertible"];
/// Returns how many differences a comparison found.
pub(crate) fn differences(found: &Progress) -> u64 {
    DIFFERENCES.iter().map(|kind| found.count(kind)).sum()
}

/// Returns the differences that block an end in place; the way back is closed, so it does not
/// matter here.
pub(crate) fn in_the_way_of_an_end(found: &Progress) -> u64 {
    differences(found).saturating_sub(found.count("not_invertible"))
}

/// Returns the differences that no repair helps: items that cannot be transformed in either
/// direction.
pub(crate) fn not_repaired(found: &Progress) -> u64 {
    found.count("refused") + found.count("not_invertible")
}
