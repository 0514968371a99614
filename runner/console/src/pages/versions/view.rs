//! The data of the page `versions`, which is served as HTML and as JSON.

use serde::Serialize;
use serde_json::Value;

/// The data of the page Versions.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The tables that have histories.
    pub(crate) tables: Vec<String>,
    /// The table that the query names.
    pub(crate) table: Option<String>,
    /// The key that the query contains.
    pub(crate) key: Option<String>,
    /// The keys of up to ten items that have a history, if the query has no key.
    pub(crate) items: Vec<String>,
    /// The versions of the item, newest first.
    pub(crate) versions: Vec<Version>,
    /// The number of newer versions that are not shown.
    pub(crate) skipped: usize,
    /// The number of older versions that are not shown.
    pub(crate) left_out: usize,
    /// Descriptions of the places at which a change is missing.
    pub(crate) missing: Vec<String>,
    /// The difference between two versions.
    pub(crate) difference: Option<Difference>,
    /// The reason why there is no history or no difference.
    pub(crate) problem: Option<String>,
}

/// A version of an item.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Version {
    pub(crate) number: u64,
    /// The kind of change.
    pub(crate) event: &'static str,
    /// The time of the change in seconds since 1970.
    pub(crate) at: Option<i64>,
    /// Whether TTL deleted the item.
    pub(crate) by_ttl: bool,
    /// The size in bytes.
    pub(crate) bytes: usize,
    /// The item in DynamoDB JSON; `None` if it was deleted.
    pub(crate) item: Option<Value>,
}

/// The difference between two versions of an item.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Difference {
    /// The number of the earlier version.
    pub(crate) from: u64,
    /// The number of the later version.
    pub(crate) to: u64,
    /// The changed attributes.
    pub(crate) attributes: Vec<Attribute>,
}

/// A changed attribute.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Attribute {
    /// The path to the attribute: names separated by dots.
    pub(crate) path: String,
    /// `added`, `removed` or `changed`.
    pub(crate) change: &'static str,
    /// The earlier value in DynamoDB JSON.
    pub(crate) from: Option<Value>,
    /// The later value in DynamoDB JSON.
    pub(crate) to: Option<Value>,
}
