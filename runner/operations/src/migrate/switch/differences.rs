//! What counts as a difference between sources and targets.

use crate::migrate::report::progress::Progress;

/// What is a difference, in the words of the workers.
pub(crate) const DIFFERENCES: [&str; 6] =
    ["missing", "different", "extra", "occupied", "refused", "not_invertible"];
/// Returns how many differences a comparison found.
pub(crate) fn differences(found: &Progress) -> u64 {
    DIFFERENCES.iter().map(|kind| found.count(kind)).sum()
}

/// Differences that are in the way of an end in place: the way back is closed, so nothing has to come
/// back.
pub(crate) fn in_the_way_of_an_end(found: &Progress) -> u64 {
    differences(found).saturating_sub(found.count("not_invertible"))
}

/// Differences that no repair helps: items that cannot be transformed, one way or the other.
pub(crate) fn not_repaired(found: &Progress) -> u64 {
    found.count("refused") + found.count("not_invertible")
}
