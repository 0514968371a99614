//! The data of the pages of partitions.

use serde::{Deserialize, Serialize};

use crate::load_history::{Partition, Sample};

/// The data of the page on which the user selects a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Choice {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The tables of this page, by name.
    pub(crate) tables: Vec<String>,
    /// The name after which the next page begins.
    pub(crate) next: Option<String>,
}

/// The data of the page of a table's partitions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    pub(crate) table: String,
    /// The reason why the store does not report partitions; `None` if it does.
    pub(crate) unavailable: Option<String>,
    /// The partitions, ordered by their tokens.
    pub(crate) partitions: Vec<Partition>,
    /// The partition keys with the most traffic.
    pub(crate) hot_keys: HotKeys,
    /// The samples of the last minutes, oldest first.
    pub(crate) samples: Vec<Sample>,
    /// The index of the first partition in the list, from 0.
    pub(crate) first: usize,
    /// Whether actions may write.
    pub(crate) allow_writes: bool,
}

/// The partition keys with the most traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct HotKeys {
    pub(crate) reads: Vec<HotKey>,
    pub(crate) writes: Vec<HotKey>,
}

/// A partition key with much traffic, as the store's admin endpoint describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HotKey {
    /// The key as DynamoDB JSON.
    pub(crate) key: serde_json::Value,
    pub(crate) token: String,
    pub(crate) partition: u32,
    /// Capacity units per second over the last minute.
    pub(crate) units_per_second: f64,
    /// The maximum amount by which the rate may be overestimated.
    pub(crate) error_per_second: f64,
}
