//! A row of a table in memory.

use super::key::Key;
use super::versions::Versions;

/// Changes that are made while readers wait for them, and rows that are fetched together.
pub(super) const ROWS_TOGETHER: usize = 32;

/// A key and what is known of it, which stand in two lines of the processor's memory.
#[repr(align(64))]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) versions: Versions,
}
