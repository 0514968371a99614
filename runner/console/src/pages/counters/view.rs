//! The data of the page, and its JSON twin.

use serde::Serialize;

/// What the page shows.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The version of this document.
    pub(crate) schema: &'static str,
    /// The table of the slots.
    pub(crate) slots_table: String,
    /// The table of the totals.
    pub(crate) totals_table: String,
    /// The number of slots of each counter.
    pub(crate) slot_count: u32,
    /// The counter of the query.
    pub(crate) counter: Option<String>,
    pub(crate) counters: Vec<Counter>,
    /// The name after which the next page begins.
    pub(crate) next: Option<String>,
    /// Why the counters cannot be read.
    pub(crate) problem: Option<String>,
}

/// A counter. Numbers are texts, because they have up to 38 digits.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    /// The total that the function keeps; `None` if there is none.
    pub(crate) total: Option<String>,
    /// The sum of the slots.
    pub(crate) sum: Option<String>,
    /// The sum minus the total, if they differ.
    pub(crate) difference: Option<String>,
    pub(crate) slots: usize,
    /// The stamp of the last stream record in the total.
    pub(crate) as_of: Option<String>,
    /// Another value in the attribute `total`, which another program has written.
    pub(crate) otherwise: Option<String>,
    /// Why the counter cannot be read.
    pub(crate) problem: Option<String>,
}
