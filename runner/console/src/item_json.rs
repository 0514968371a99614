//! Serialization of an item as DynamoDB JSON, in the JSON version of a page.

use model::{Item, json};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// An item that is serialized as DynamoDB JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ItemJson(pub(crate) Item);

impl ItemJson {
    /// Returns compact JSON, without white space.
    pub(crate) fn text(&self) -> String {
        json::item_to_string(&self.0)
    }
}

impl Serialize for ItemJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.text()).map_err(S::Error::custom)?.serialize(serializer)
    }
}
