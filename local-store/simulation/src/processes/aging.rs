//! Tests of expiry in store time: iterators expire after a quarter of an hour, and stream records after a
//! day. The tests advance the store's clock, so they do not wait.

use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::wire::{WireEndpoint, error_name};
use crate::checkers::Violation;
use crate::checkers::stream::ShardRecords;
use crate::error::HarnessError;
use crate::request::{Answer, Endpoint, Failure, Request, Start};

/// A time in milliseconds that is longer than the lifetime of an iterator.
const ITERATOR_LIFE_MS: u64 = 16 * 60 * 1_000;
/// A time in milliseconds that is longer than the retention of stream records.
const RETENTION_MS: u64 = 25 * 60 * 60 * 1_000;
/// The maximum number of checks whether the records have been trimmed. [`CHECK_PAUSE`] is the pause
/// between two checks.
const CHECKS_MAX: usize = 150;
const CHECK_PAUSE: Duration = Duration::from_millis(200);

/// Advances the time of an idle store that has these stream records. Returns descriptions of the
/// iterators and records that should have expired but did not.
///
/// # Errors
/// A request to the store fails.
pub async fn pass(
    cluster: &Cluster,
    endpoint: &WireEndpoint,
    shards: &[ShardRecords],
) -> Result<Vec<Violation>, HarnessError> {
    let mut wrong: Vec<String> = Vec::new();
    let Some((shard, first)) = shards
        .iter()
        .find_map(|found| Some((&found.shard.id, found.records.first()?.sequence_number.as_str())))
    else {
        return Ok(Vec::new());
    };
    let place = Start::At(first.to_owned());
    let iterator = endpoint.iterator(shard, &place).await?;
    cluster.advance_clock(ITERATOR_LIFE_MS).await?;
    let (status, answer) = read(endpoint, &iterator).await?;
    if (status, error_name(&answer)) != (400, "ExpiredIteratorException") {
        wrong.push(format!("an expired iterator got {status}: {answer}"));
    }
    // The iterator has expired, but a new iterator at its position must be valid.
    let page = records(endpoint, shard, place.clone()).await?;
    if page.first().map(String::as_str) != Some(first) {
        wrong.push(format!("a new iterator at {first} first reads {:?}", page.first()));
    }
    cluster.advance_clock(RETENTION_MS).await?;
    let mut left = 0;
    for _ in 0..CHECKS_MAX {
        left = 0;
        for found in shards {
            let old = |number: &str| {
                found.records.iter().any(|record| record.sequence_number.as_str() == number)
            };
            let page = records(endpoint, &found.shard.id, Start::TrimHorizon).await?;
            left += page.iter().filter(|number| old(number.as_str())).count();
        }
        if left == 0 {
            break;
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
    if left > 0 {
        wrong.push(format!("at least {left} records still exist after {RETENTION_MS} ms"));
    }
    Ok(wrong.into_iter().map(|what| Violation { checker: "retention", what }).collect())
}

async fn read(endpoint: &WireEndpoint, iterator: &str) -> Result<(u16, Value), Failure> {
    let request = json!({"ShardIterator": iterator});
    endpoint.send("DynamoDBStreams_20120810.GetRecords", &request).await
}

/// Returns the sequence numbers of a page of records; an empty list if the shard no longer exists.
async fn records(
    endpoint: &WireEndpoint,
    shard: &str,
    start: Start,
) -> Result<Vec<String>, HarnessError> {
    let request = Request::Records { shard: shard.to_owned(), start, limit: 1_000 };
    match endpoint.call(request).await {
        Ok(Answer::Records(page, _)) => {
            Ok(page.iter().map(|record| record.sequence_number.as_str().to_owned()).collect())
        }
        Ok(other) => Err(format!("a read of a stream shard returned {other:?}").into()),
        Err(Failure::Refused(reason)) if reason.contains("ResourceNotFoundException") => {
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}
