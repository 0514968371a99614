//! Describes and splits a table's partitions through the admin endpoint of the local store.
//!
//! DynamoDB has no such endpoint.

use http::Method;
use mapping::mix;
use serde_json::{Value, json};

use crate::endpoint;
use crate::failure::Result;

/// Returns the description of the partitions of `table` from the store's admin endpoint.
///
/// # Errors
/// When the store does not respond or has no such table.
pub async fn describe(endpoint: &str, table: &str) -> Result<Value> {
    endpoint::admin(Method::GET, endpoint, &format!("partitions/{table}"), &Value::Null).await
}

/// Splits a partition of `table` with the parameters in `request`.
///
/// # Errors
/// When the store does not respond or refuses the split.
pub async fn split(endpoint: &str, table: &str, request: &Value) -> Result<Value> {
    let path = format!("partitions/{table}/split");
    endpoint::admin(Method::POST, endpoint, &path, request).await
}

/// Splits a partition of `table`; the random number `draw` selects the partition and the token. Returns false
/// if no partition can be split.
///
/// # Errors
/// When the store does not respond or refuses the split.
pub async fn split_somewhere(endpoint: &str, table: &str, draw: u64) -> Result<bool> {
    let described = describe(endpoint, table).await?;
    let partitions = members(&described, "/partitions");
    let count = u64::try_from(partitions.len()).unwrap_or(u64::MAX).max(1);
    let chosen = usize::try_from(draw % count).unwrap_or(0);
    let Some(partition) = partitions.get(chosen) else { return Ok(false) };
    let token = |name: &str| {
        partition.get(name).and_then(Value::as_str).and_then(|text| text.parse::<u64>().ok())
    };
    let (Some(first), Some(last)) = (token("first_token"), token("last_token")) else {
        return Ok(false);
    };
    if first == last {
        return Ok(false);
    }
    let at = first + 1 + mix(draw) % (last - first);
    let number = partition.get("number").cloned().unwrap_or_default();
    split(endpoint, table, &json!({ "partition": number, "at": at.to_string() })).await?;
    Ok(true)
}

/// Returns the array at a JSON pointer; an empty array if there is none.
#[must_use]
pub fn members<'a>(described: &'a Value, pointer: &str) -> &'a [Value] {
    described.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
