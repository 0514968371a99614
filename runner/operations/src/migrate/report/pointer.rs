//! Places of a status or a plan's report in JSON.

use serde_json::Value;

/// What stands at a place of a document; null if nothing does.
pub(crate) fn at<'v>(value: &'v Value, place: &str) -> &'v Value {
    value.pointer(place).unwrap_or(&Value::Null)
}
