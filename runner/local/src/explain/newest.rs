//! Finds the newest record of all streams, of a table, or of an item.

use std::time::{Duration, Instant};

use http::Method;
use model::{Item, json};
use serde_json::Value;

use crate::status;
use client::aws_host;
use client::endpoint;
use client::failure::{Result, fatal};
use client::output;
use client::shards::{self, Place, Start, Stream};
use mapping::{Record, SequenceNumber};

/// The number of consecutive empty pages after which an open shard counts as completely read. A
/// single page may be empty although more records follow.
const EMPTY_PAGES_MAX: u32 = 5;
/// The interval of progress messages.
const PROGRESS: Duration = Duration::from_secs(2);

/// Returns the newest sequence number in the streams, from the store's admin endpoint.
pub(super) async fn of_streams(endpoint: Option<&str>, table: Option<&str>) -> Option<String> {
    // AWS has no admin endpoint, so there the caller uses the last record in the journal.
    let endpoint = endpoint.filter(|endpoint| !aws_host::is_on_aws(endpoint))?;
    let client = endpoint::streams_client(endpoint);
    let mut newest: Option<SequenceNumber> = None;
    for arn in shards::arns(&client, table).await.ok()? {
        let (_, rest) = arn.split_once(":table/")?;
        let path = format!("streams/{}", rest.split('/').next()?);
        let Ok(stream) = endpoint::admin(Method::GET, endpoint, &path, &Value::Null).await else {
            continue;
        };
        for shard in status::list(&stream, "shards") {
            let last = shard.get("last_sequence").and_then(Value::as_str);
            let last = last.and_then(|text| SequenceNumber::parse(text).ok());
            newest = newest.max(last);
        }
    }
    newest.map(|sequence| sequence.as_str().to_owned())
}

/// Returns the newest record of an item in its table's stream.
///
/// # Errors
/// The stream has no record of the item, or cannot be read.
pub(super) async fn of_item(endpoint: &str, table: &str, key: &Item) -> Result<String> {
    let stream = shards::stream_of(endpoint, table).await?;
    let begins = |shard: &aws_sdk_dynamodbstreams::types::Shard| {
        let range = shard.sequence_number_range.as_ref();
        let start = range.and_then(|range| range.starting_sequence_number.as_deref());
        start.and_then(|start| SequenceNumber::parse(start).ok())
    };
    let mut shards: Vec<_> = stream.shards.iter().collect();
    // Later records of an item are in the same shard or in a later one, so later shards are searched first.
    shards.sort_by_key(|shard| std::cmp::Reverse(begins(shard)));
    let mut search = Search { key, seen: 0, last_report: Instant::now() };
    for shard in shards.iter().filter_map(|shard| shard.shard_id.as_deref()) {
        if let Some(sequence) = search.shard(&stream, shard).await? {
            return Ok(sequence);
        }
    }
    Err(fatal!(
        "none of the {} in the stream of table `{table}` belongs to the item {}: check the names and types of the key; a stream keeps records for 24 hours",
        output::counted(search.seen, "record", "records"),
        json::item_to_string(key)
    ))
}

struct Search<'k> {
    key: &'k Item,
    seen: u64,
    last_report: Instant,
}

impl Search<'_> {
    /// Returns the last record of the item in a shard.
    async fn shard(&mut self, stream: &Stream, shard: &str) -> Result<Option<String>> {
        let (mut place, mut found, mut empty) = (Place::new(Start::TrimHorizon), None, 0);
        while empty < EMPTY_PAGES_MAX {
            let page = stream.next_page(shard, &mut place).await;
            let page = page.map_err(|refusal| fatal!("{shard}: {refusal}"))?;
            let Some(records) = page else { break };
            empty = if records.is_empty() { empty + 1 } else { 0 };
            self.seen += records.len() as u64;
            let of_item = records.iter().rev().find(|record| is_of(record, self.key));
            found = of_item.map(|record| record.sequence.as_str().to_owned()).or(found);
            if self.last_report.elapsed() > PROGRESS {
                self.last_report = Instant::now();
                let seen = output::counted(self.seen, "record was", "records were");
                output::say(&format!("{seen} searched; searching shard {shard}"));
            }
        }
        Ok(found)
    }
}

/// Returns whether a record belongs to the item with this key. Numbers are compared by value.
fn is_of(record: &Record, key: &Item) -> bool {
    let keys = record.event().pointer("/dynamodb/Keys").map(Value::to_string);
    keys.and_then(|keys| json::item_from_str(&keys).ok()).is_some_and(|keys| keys == *key)
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;

    use super::*;
    use testing::store::TestStore;

    #[tokio::test]
    async fn an_items_newest_record_is_found_by_its_key() {
        let store = TestStore::open().await;
        store.table("orders").await;
        let mut newest = String::new();
        for (key, value) in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")] {
            let put = store.client.put_item().table_name("orders");
            let put = put.item("p", AttributeValue::S(key.to_owned()));
            put.item("v", AttributeValue::N(value.to_owned())).send().await.unwrap();
            if key == "a" {
                newest = of_streams(Some(&store.url), Some("orders")).await.unwrap();
            }
        }
        let find = async |key: &str| {
            of_item(&store.url, "orders", &json::item_from_str(key).unwrap()).await
        };
        assert_eq!(find(r#"{"p":{"S":"a"}}"#).await, Ok(newest));
        assert!(
            find(r#"{"p":{"S":"d"}}"#)
                .await
                .unwrap_err()
                .to_string()
                .starts_with("none of the 4 records")
        );
        assert!(find(r#"{"p":{"N":"7"}}"#).await.is_err(), "of another type");
    }
}
