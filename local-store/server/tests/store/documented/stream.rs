//! Compares the stream of a table with the model's changes.
//!
//! According to the documentation of DynamoDB Streams, each change of an item appears exactly once, and the
//! changes of one item appear in order. A write that does not change its item does not appear.

use std::collections::BTreeMap;

use model::Item;
use model::json::Json;
use proptest::test_runner::TestCaseError;

use super::answer::{item, succeed};
use super::check::{Outcome, Play, same};
use super::state::Written;
use super::table::KINDS;

/// An event: its name and its images.
type Event = (String, Written);

fn text(answer: &Json<'_>, name: &str) -> Option<String> {
    answer.get(name).and_then(Json::as_str).map(str::to_owned)
}

/// Reads every shard and compares its records with the model's changes, item by item.
pub(super) async fn check(play: &Play<'_>, table: usize) -> Outcome {
    let kind = &KINDS[table];
    let expected: BTreeMap<_, Vec<Event>> = play.state.tables[table]
        .changes
        .iter()
        .map(|(key, changes)| {
            let event = |change: &Written| match (&change.old, &change.new) {
                (None, _) => ("INSERT".to_owned(), change.clone()),
                (_, None) => ("REMOVE".to_owned(), change.clone()),
                _ => ("MODIFY".to_owned(), change.clone()),
            };
            (key.clone(), changes.iter().map(event).collect())
        })
        .collect();
    let mut got: BTreeMap<_, Vec<Event>> = BTreeMap::new();
    for (keys, event) in records(play, table).await? {
        got.entry(kind.order(&keys)).or_default().push(event);
    }
    same(&format!("the stream of {}", play.tables[table]), &expected, &got)
}

async fn call<T>(
    play: &Play<'_>,
    operation: &str,
    body: &str,
    read: impl FnOnce(&Json<'_>) -> T,
) -> Result<T, TestCaseError> {
    succeed(play.store, &format!("DynamoDBStreams_20120810.{operation}"), body, read).await
}

/// Returns the keys and the event of every record, shard by shard.
async fn records(play: &Play<'_>, table: usize) -> Result<Vec<(Item, Event)>, TestCaseError> {
    let body = format!(r#"{{"TableName":"{}"}}"#, play.tables[table]);
    let arn = call(play, "ListStreams", &body, |answer| {
        text(&answer.get("Streams").and_then(Json::as_array).unwrap()[0], "StreamArn").unwrap()
    })
    .await?;
    let shards: Vec<String> =
        call(play, "DescribeStream", &format!(r#"{{"StreamArn":"{arn}"}}"#), |answer| {
            let shards = answer.get("StreamDescription").unwrap().get("Shards");
            let shards = shards.and_then(Json::as_array).unwrap();
            shards.iter().map(|shard| text(shard, "ShardId").unwrap()).collect()
        })
        .await?;
    let mut all = Vec::new();
    for shard in shards {
        let body = format!(
            r#"{{"StreamArn":"{arn}","ShardId":"{shard}","ShardIteratorType":"TRIM_HORIZON"}}"#
        );
        let mut iterator =
            call(play, "GetShardIterator", &body, |answer| text(answer, "ShardIterator")).await?;
        while let Some(current) = iterator.take() {
            let body = format!(r#"{{"ShardIterator":"{current}","Limit":100}}"#);
            iterator = call(play, "GetRecords", &body, |answer| {
                let records = answer.get("Records").and_then(Json::as_array).unwrap();
                all.extend(records.iter().map(record));
                // The iterator of an open shard never ends, but a page that is not full is the last page with
                // records.
                text(answer, "NextShardIterator").filter(|_| records.len() == 100)
            })
            .await?;
        }
    }
    Ok(all)
}

fn record(record: &Json<'_>) -> (Item, Event) {
    let change = record.get("dynamodb").unwrap();
    let written = Written { old: item(change, "OldImage"), new: item(change, "NewImage") };
    (item(change, "Keys").unwrap(), (text(record, "eventName").unwrap(), written))
}
