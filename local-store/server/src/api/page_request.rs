//! What one page of a Query, a Scan or a statement reads.
//!
//! How it is read is in `page`, what it costs in `metering`.

use expression::{Condition, Projection};
use partition::{IndexKey, ItemRange};

use super::capacity::CapacityDetail;
use super::index_choice::Source;

/// What to read and what to keep of it.
pub(crate) struct PageRequest<'r> {
    pub(crate) source: Source<'r>,
    /// The table's name, as it was sent.
    pub(crate) name: &'r str,
    /// Whether each item is fetched from the table, because the index does not hold all that is to
    /// be shown of it.
    pub(crate) is_fetched: bool,
    pub(crate) range: ItemRange,
    /// Those that are read behind it, as far as the page goes. For the traffic of partitions they
    /// count as the first.
    pub(crate) further: Vec<ItemRange>,
    pub(crate) start_after: Option<IndexKey>,
    pub(crate) forward: bool,
    /// Items to read at most, at least 1.
    pub(crate) limit: usize,
    pub(crate) filter: Option<Condition>,
    pub(crate) projection: Option<Projection>,
    pub(crate) counts_only: bool,
    pub(crate) is_consistent: bool,
    pub(crate) capacity_detail: CapacityDetail,
}

impl PageRequest<'_> {
    /// Returns true for a partition key of a table without sort key: one item at most, so there is
    /// no next page.
    pub(super) fn reads_one_item(&self) -> bool {
        let is_collection = matches!(self.range, ItemRange::Collection { .. });
        is_collection && self.further.is_empty() && !self.source.can_continue_query()
    }
}
