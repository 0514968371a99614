//! The data of the page of an item, for HTML and JSON.

use serde::Serialize;

use crate::item_json::ItemJson;

/// The data of the page of an item, or of the form for a new item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    pub(crate) table: String,
    /// The names and types of the key attributes.
    pub(crate) keys: Vec<model::KeyAttribute>,
    /// The item; `None` for a new item.
    pub(crate) found: Option<Found>,
    /// The index of the first attribute that is shown, from 0.
    pub(crate) first: usize,
    /// Whether actions may write.
    pub(crate) allow_writes: bool,
}

/// An item that was read from the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    pub(crate) key: ItemJson,
    pub(crate) item: ItemJson,
    /// The size of the item in bytes, as DynamoDB counts it.
    pub(crate) bytes: usize,
    /// The fingerprint of the item. The form sends it back as `read`, so that an action can detect
    /// a concurrent change.
    pub(crate) read: String,
}
