//! What the page of an item shows.

use serde::Serialize;

use crate::item_json::ItemJson;

/// The page of an item, or the form for a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    /// The version of this form.
    pub(crate) schema: &'static str,
    pub(crate) table: String,
    /// The names and types of the key attributes.
    pub(crate) keys: Vec<model::KeyAttribute>,
    /// The item; `None` for a new one.
    pub(crate) found: Option<Found>,
    /// The number of the first attribute that is shown, from 0.
    pub(crate) first: usize,
    /// Whether actions may write.
    pub(crate) allow_writes: bool,
}

/// An item as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    pub(crate) key: ItemJson,
    pub(crate) item: ItemJson,
    /// Its size as DynamoDB counts it.
    pub(crate) bytes: usize,
    /// Its fingerprint. An action that changes the item sends it as `read`.
    pub(crate) read: String,
}
