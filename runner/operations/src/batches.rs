//! Reads and writes several items of a table in one request, and sends again what was throttled.
//!
//! It does not split writes: a caller sends at most 25 items, each key once.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{AttributeValue as SdkValue, KeysAndAttributes, WriteRequest};
use model::limits::BATCH_GET_KEYS_MAX;
use model::{Item, KeySchema, PrimaryKey};

use client::attribute::{from_sdk_item, to_sdk_item};
use client::failure::{Context, Failure, Result, fatal};
use client::sdk_error::{error_text, is_throttle};

/// Maximum number of consecutive responses without any requested item. With one more, the read
/// fails, because DynamoDB throttles the table.
const THROTTLED_MAX: u32 = 8;
/// Pause after the first response without an item; each later pause is longer by the same time.
const THROTTLED_PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of consecutive attempts that write no item of a batch because the table is
/// throttled.
pub(crate) const ATTEMPTS_MAX: u32 = 12;

/// Reads items by their keys with strongly consistent reads. Omits missing items.
///
/// # Errors
/// When a request fails, or DynamoDB throttles the table for longer.
pub async fn get_all(
    client: &Client,
    table: &str,
    schema: &KeySchema,
    keys: impl IntoIterator<Item = &PrimaryKey>,
) -> Result<BTreeMap<PrimaryKey, Item>> {
    let keys = keys.into_iter().map(|key| to_sdk_item(&key.to_item(schema)));
    let mut missing: Vec<HashMap<String, SdkValue>> = keys.collect();
    let (mut items, mut without_progress) = (BTreeMap::new(), 0);
    while !missing.is_empty() {
        let some = missing.split_off(missing.len().saturating_sub(BATCH_GET_KEYS_MAX));
        let asked = some.len();
        let request = KeysAndAttributes::builder().set_keys(Some(some)).consistent_read(true);
        let request = request.build().map_err(|error| error.to_string())?;
        let answer = client.batch_get_item().request_items(table, request).send().await;
        let answer = answer.map_err(|error| {
            format!("cannot read items of table `{table}`: {}", error_text(&error))
        })?;
        for item in answer.responses.into_iter().flatten().flat_map(|(_, items)| items) {
            let item = from_sdk_item(item)?;
            let key = schema.key_of_item(&item).map_err(|error| error.to_string())?;
            items.insert(key, item);
        }
        let left = answer.unprocessed_keys.into_iter().flatten();
        let left: Vec<_> = left.flat_map(|(_, keys)| keys.keys).collect();
        without_progress = if left.len() < asked { 0 } else { without_progress + 1 };
        if without_progress > THROTTLED_MAX {
            return Err(fatal!(
                "DynamoDB throttles the reads of `{table}`; run the command again later"
            ));
        }
        if !left.is_empty() {
            tokio::time::sleep(THROTTLED_PAUSE * without_progress.max(1)).await;
        }
        missing.extend(left);
    }
    Ok(items)
}

/// Writes a batch of at most 25 items. Retries unprocessed items as long as attempts make progress.
///
/// # Errors
/// When the request fails, or DynamoDB throttles the table for longer.
pub async fn write_batch(client: &Client, table: &str, requests: Vec<WriteRequest>) -> Result<()> {
    write_batch_within(client, table, requests, ATTEMPTS_MAX).await
}

/// Like [`write_batch`], but with this maximum number of attempts without progress.
pub(crate) async fn write_batch_within(
    client: &Client,
    table: &str,
    mut requests: Vec<WriteRequest>,
    attempts_max: u32,
) -> Result<()> {
    let mut attempt = 0;
    while attempt < attempts_max {
        let request = client.batch_write_item();
        let left = match request.request_items(table, requests.clone()).send().await {
            Ok(answer) => {
                let left = answer.unprocessed_items.into_iter().flatten();
                left.flat_map(|(_, left)| left).collect()
            }
            Err(error) if error.code().is_some_and(is_throttle) => requests.clone(),
            Err(error) => {
                return Err(error).context(|| format!("cannot write table `{table}`"));
            }
        };
        if left.is_empty() {
            return Ok(());
        }
        attempt = if left.len() < requests.len() { 0 } else { attempt + 1 };
        requests = left;
        tokio::time::sleep(Duration::from_millis(10 << attempt.min(9))).await;
    }
    Err(Failure::Retry(format!("table `{table}` is throttled: some items were not written")))
}
