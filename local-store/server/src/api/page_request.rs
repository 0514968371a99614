//! The request for one page of a Query, a Scan or a statement.
//!
//! `page` reads the page, and `metering` records its cost.

use expression::{Condition, Projection};
use partition::{IndexKey, ItemRange};

use super::capacity::CapacityDetail;
use super::index_choice::Source;

/// The items to read, and the parts of them to return.
pub(crate) struct PageRequest<'r> {
    pub(crate) source: Source<'r>,
    /// The name of the table, as it was sent.
    pub(crate) name: &'r str,
    /// Whether each item must be fetched from the table, because the index does not project all
    /// requested attributes.
    pub(crate) is_fetched: bool,
    pub(crate) range: ItemRange,
    /// The ranges that are read after `range`, until the page is full. The throughput limits of
    /// partitions charge their cost to the first range.
    pub(crate) further: Vec<ItemRange>,
    pub(crate) start_after: Option<IndexKey>,
    pub(crate) forward: bool,
    /// The maximum number of items to read, at least 1.
    pub(crate) limit: usize,
    pub(crate) filter: Option<Condition>,
    pub(crate) projection: Option<Projection>,
    pub(crate) counts_only: bool,
    pub(crate) is_consistent: bool,
    pub(crate) capacity_detail: CapacityDetail,
}

impl PageRequest<'_> {
    /// Returns whether the page can have at most one item, because it reads a partition key of a table
    /// without a sort key. Such a page has no next page.
    pub(super) fn reads_one_item(&self) -> bool {
        let is_collection = matches!(self.range, ItemRange::Collection { .. });
        is_collection && self.further.is_empty() && !self.source.can_continue_query()
    }
}
