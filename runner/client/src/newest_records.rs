//! Reads the newest records of a table's stream through the admin endpoint of the local store.
//!
//! DynamoDB has no such endpoint: its streams can only be read forwards.

use http::Method;
use mapping::Record;
use model::Item;
use serde_json::{Value, json};

use crate::endpoint;
use crate::failure::{Failure, Result};
use crate::stream_page::page_of;

/// The newest records of a stream, and how much of the stream was read.
#[derive(Debug, Default)]
pub struct NewestRecords {
    /// The records, each with its shard.
    pub records: Vec<(String, Record)>,
    /// The number of records that the store has read to find them.
    pub read: usize,
    /// Whether the store has read all records of the stream.
    pub is_complete: bool,
}

/// Returns at most `limit` of the newest records of a table's latest stream. With a key, returns
/// only records of this item.
///
/// # Errors
/// When the store does not respond or is not a local store, or the table has no stream.
pub async fn newest_records(
    endpoint: &str,
    table: &str,
    limit: usize,
    key: Option<&Item>,
) -> Result<NewestRecords> {
    let asked = match key.map(model::json::item_to_string) {
        None => json!({ "limit": limit }),
        Some(key) => json!({ "limit": limit, "key": key.parse::<Value>().unwrap_or_default() }),
    };
    let path = format!("streams/{table}/newest");
    let answer = endpoint::admin(Method::POST, endpoint, &path, &asked).await?;
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let arn = text(&answer, "arn");
    let read = answer.get("read").and_then(Value::as_u64).unwrap_or_default();
    let read = usize::try_from(read).unwrap_or(usize::MAX);
    let is_complete = answer.get("complete").and_then(Value::as_bool).unwrap_or_default();
    let mut newest = NewestRecords { read, is_complete, ..NewestRecords::default() };
    for shard in answer.get("shards").and_then(Value::as_array).into_iter().flatten() {
        let page = page_of(shard.to_string().as_bytes(), &arn).map_err(Failure::fatal)?;
        let id = text(shard, "id");
        newest.records.extend(page.records.into_iter().map(|record| (id.clone(), record)));
    }
    Ok(newest)
}
