//! The data of the page `counters`, which is served as HTML and as JSON.

use serde::Serialize;

/// The data of the page Counters.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The table of the slots.
    pub(crate) slots_table: String,
    /// The table of the totals.
    pub(crate) totals_table: String,
    /// The number of slots of each counter.
    pub(crate) slot_count: u32,
    /// The counter that the query names.
    pub(crate) counter: Option<String>,
    pub(crate) counters: Vec<Counter>,
    /// The name after which the next page begins.
    pub(crate) next: Option<String>,
    /// The reason why the counters cannot be read.
    pub(crate) problem: Option<String>,
}

/// A counter. Numbers are strings, because they have up to 38 digits.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counter {
    pub(crate) name: String,
    /// The total that the function maintains; `None` if it does not exist.
    pub(crate) total: Option<String>,
    /// The sum of the slots.
    pub(crate) sum: Option<String>,
    /// The sum minus the total; `None` if they are equal.
    pub(crate) difference: Option<String>,
    pub(crate) slots: usize,
    /// The stamp of the last stream record in the total.
    pub(crate) as_of: Option<String>,
    /// The value of the attribute `total`, if another program has set it, so that it differs from
    /// the sum of the total item's slots.
    pub(crate) otherwise: Option<String>,
    /// The reason why the counter cannot be read.
    pub(crate) problem: Option<String>,
}
