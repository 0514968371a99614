//! The report of a compaction: what it changed, and what is left for the next run.
//!
//! It is the answer to the event `compact`, and the source of the function's metrics.

use serde::Serialize;
use tracing::warn;

/// The report of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionReport {
    /// Hours with at least one part that is old enough to be compacted.
    pub hours: usize,
    /// Objects written.
    pub objects_written: usize,
    /// Parts that were compacted: the written objects contain their rows.
    pub parts_replaced: usize,
    /// Rows in the written objects.
    pub rows: usize,
    /// Bytes of the replaced parts.
    pub bytes_before: u64,
    /// Bytes of the written objects.
    pub bytes_after: u64,
    /// Removed parts whose rows an object contained already, because an earlier run was interrupted or the
    /// store did not respond to that run.
    pub leftovers_removed: usize,
    /// Hours that the next run must compact, because of a concurrent change or because the store
    /// did not respond. A day or a table that could not be listed counts as one hour.
    pub postponed_hours: usize,
    /// The reasons why hours could not be compacted and need an operator, such as an object that is
    /// not a part. The run compacts all other hours and then fails with the first reason.
    #[serde(skip)]
    pub refused: Vec<String>,
    /// Objects that were rewritten with the columns of the table's other objects.
    pub objects_aligned: usize,
    /// Objects that still lack columns of the table's other objects. The next runs add them.
    pub objects_to_align: usize,
    /// Whether all hours were checked. If not, increase the function's timeout, or invoke the function again.
    pub complete: bool,
}

impl CompactionReport {
    /// Records a folder that could not be listed. This run continues, and the next run lists the
    /// folder again.
    pub(super) fn postpone(&mut self, what: &str, reason: &str) {
        warn!(what, reason, "a folder could not be listed; the next compaction retries it");
        self.postponed_hours += 1;
    }
}
