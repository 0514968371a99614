//! Looks up values in the JSON of a status or a plan's report.

use serde_json::Value;

/// Returns the value at a JSON pointer; null if there is no value.
pub(crate) fn at<'v>(value: &'v Value, place: &str) -> &'v Value {
    value.pointer(place).unwrap_or(&Value::Null)
}
