//! A row of a table in memory.

use super::key::Key;
use super::versions::Versions;

/// The number of changes that are made while the lock is held, and the number of rows that are
/// prefetched together.
pub(super) const ROWS_TOGETHER: usize = 32;

/// A key and its versions, in two CPU cache lines.
#[repr(align(64))]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) versions: Versions,
}
