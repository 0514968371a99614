//! The TTL deletes in the streams of a table, over the Streams API.
//!
//! Every shard is read from its oldest record to its end, or to where it is now. Nothing is
//! compared here.

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::error::DisplayErrorContext;
use aws_sdk_dynamodbstreams::types::{OperationType, Record, Shard, ShardIteratorType};
use model::UserIdentity;
use model::stream_record::lambda_record_from_str;
use rules::archive::restored::{self, RESTORED};

use super::completeness::Deletes;
use crate::poller::record_of;

/// TTL deletes that are kept at most: some 500 MB.
const DELETES_MAX: usize = 5_000_000;
/// Empty pages in a row after which an open shard counts as read. DynamoDB answers empty pages
/// between records as well, so one alone says little.
const EMPTY_PAGES_MAX: usize = 5;
/// Pages of `ListStreams` or `DescribeStream`, of 100 entries each.
const LIST_PAGES_MAX: usize = 100;

/// Reads all streams of a table that are still readable.
///
/// # Errors
/// A call that failed, or a table that has no stream.
pub(super) async fn read(client: &Client, table: &str) -> Result<Deletes, String> {
    let mut found = Deletes::default();
    let mut last = None;
    for _ in 0..LIST_PAGES_MAX {
        let request = client.list_streams().table_name(table).set_exclusive_start_stream_arn(last);
        let page = request.send().await;
        let page = page.map_err(|error| failed("ListStreams", &DisplayErrorContext(&error)))?;
        found.streams.extend(
            page.streams().iter().filter_map(|stream| stream.stream_arn().map(str::to_owned)),
        );
        last = page.last_evaluated_stream_arn;
        if last.is_none() {
            break;
        }
    }
    if found.streams.is_empty() {
        return Err(format!("table `{table}` has no stream, so its archive cannot be checked"));
    }
    for arn in found.streams.clone() {
        for shard in shards(client, &arn).await? {
            if let Some(id) = shard.shard_id() {
                read_shard(client, &arn, id, &mut found).await?;
            }
        }
    }
    Ok(found)
}

fn failed(call: &str, reason: &dyn std::fmt::Display) -> String {
    format!("{call}: {reason}")
}

async fn shards(client: &Client, arn: &str) -> Result<Vec<Shard>, String> {
    let mut shards = Vec::new();
    let mut last = None;
    for _ in 0..LIST_PAGES_MAX {
        let request = client.describe_stream().stream_arn(arn).set_exclusive_start_shard_id(last);
        let page = request.send().await;
        let page = page.map_err(|error| failed("DescribeStream", &DisplayErrorContext(&error)))?;
        let Some(description) = page.stream_description else { break };
        shards.extend(description.shards.unwrap_or_default());
        last = description.last_evaluated_shard_id;
        if last.is_none() {
            return Ok(shards);
        }
    }
    Err(format!("stream `{arn}` has more than {} shards", shards.len()))
}

async fn read_shard(
    client: &Client,
    arn: &str,
    shard: &str,
    found: &mut Deletes,
) -> Result<(), String> {
    let request = client.get_shard_iterator().stream_arn(arn).shard_id(shard);
    let answer = request.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
    let answer =
        answer.map_err(|error| failed("GetShardIterator", &DisplayErrorContext(&error)))?;
    let mut iterator = answer.shard_iterator;
    let mut empty = 0;
    while let Some(current) = iterator {
        let page = client.get_records().shard_iterator(current).send().await;
        let page = page.map_err(|error| failed("GetRecords", &DisplayErrorContext(&error)))?;
        empty = if page.records().is_empty() { empty + 1 } else { 0 };
        for record in page.records.unwrap_or_default() {
            let Some((event_id, time)) = time_to_live_delete(&record) else { continue };
            if is_as_restored(record, arn)? {
                found.restored += 1;
            } else {
                found.deletes.insert(event_id, time);
            }
        }
        if found.deletes.len() > DELETES_MAX {
            return Err(format!("the stream has more than {DELETES_MAX} TTL deletes"));
        }
        if empty == EMPTY_PAGES_MAX {
            break;
        }
        iterator = page.next_shard_iterator;
    }
    Ok(())
}

/// Whether a delete is of an item that was restored from the archive and not changed since.
fn is_as_restored(record: Record, arn: &str) -> Result<bool, String> {
    let image = record.dynamodb().and_then(|change| change.old_image());
    if image.is_none_or(|image| !image.contains_key(RESTORED)) {
        return Ok(false);
    }
    let event = record_of(record, arn, "").map_err(|error| error.to_string())?.event;
    let record = lambda_record_from_str(&event.to_string()).map_err(|error| error.to_string())?;
    Ok(record.record.old_image.as_ref().is_some_and(restored::is_as_restored))
}

/// Event id and time of a record, if TTL made it.
fn time_to_live_delete(record: &Record) -> Option<(String, i64)> {
    let identity = record.user_identity()?;
    let expected = UserIdentity::time_to_live();
    let is_ttl = identity.principal_id() == Some(&expected.principal_id)
        && identity.r#type() == Some(&expected.identity_type);
    let is_remove = record.event_name() == Some(&OperationType::Remove);
    let time = record.dynamodb()?.approximate_creation_date_time()?.secs();
    (is_ttl && is_remove).then(|| Some((record.event_id()?.to_owned(), time * 1000)))?
}
