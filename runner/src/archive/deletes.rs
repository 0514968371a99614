//! The TTL deletes in the streams of a table, over the Streams API.
//!
//! Every shard is read from its oldest record to its end, or to where it is now. Nothing is
//! compared here.

use std::collections::BTreeSet;

use aws_sdk_dynamodbstreams::Client;
use model::stream_record::lambda_record_from_str;
use rules::archive::restored;

use super::completeness::Deletes;
use crate::mapping::Record;
use crate::streams::shards::{self, Place, Refusal, Start, Stream};

/// TTL deletes that are kept at most: some 500 MB.
const DELETES_MAX: usize = 5_000_000;
/// Empty pages in a row after which an open shard counts as read. DynamoDB answers empty pages
/// between records as well, so one alone says little.
const EMPTY_PAGES_MAX: usize = 5;
/// Readings of a shard that are begun anew at most: each because its oldest records were trimmed
/// meanwhile, which takes a leap of the clock.
const READINGS_MAX: usize = 3;

/// Reads all streams of a table that are still readable.
///
/// # Errors
/// A call that failed, or a table that has no stream.
pub(super) async fn read(client: &Client, table: &str) -> Result<Deletes, String> {
    let mut found = Deletes::default();
    found.streams.extend(shards::arns(client, Some(table)).await?);
    if found.streams.is_empty() {
        return Err(format!("table `{table}` has no stream, so its archive cannot be checked"));
    }
    let mut restored = BTreeSet::new();
    for arn in found.streams.clone() {
        let stream = shards::describe(client.clone(), &arn).await?;
        for shard in stream.shards.iter().filter_map(|shard| shard.shard_id.as_deref()) {
            read_shard(&stream, (table, shard), &mut found, &mut restored).await?;
        }
    }
    found.restored = restored.len();
    Ok(found)
}

/// What is trimmed is not missed: it is older than what is compared.
async fn read_shard(
    stream: &Stream,
    (table, shard): (&str, &str),
    found: &mut Deletes,
    restored: &mut BTreeSet<String>,
) -> Result<(), String> {
    for _ in 0..READINGS_MAX {
        let mut place = Place::new(Start::TrimHorizon);
        let mut empty = 0;
        loop {
            let page = match stream.next_page(shard, &mut place).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                Err(Refusal::Trimmed) => break,
                Err(refusal) => return Err(format!("shard `{shard}`: {refusal}")),
            };
            empty = if page.is_empty() { empty + 1 } else { 0 };
            for record in page {
                note(&record, table, found, restored)?;
            }
            if found.deletes.len() > DELETES_MAX {
                return Err(format!("the stream has more than {DELETES_MAX} TTL deletes"));
            }
            if empty == EMPTY_PAGES_MAX {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn note(
    record: &Record,
    table: &str,
    found: &mut Deletes,
    restored: &mut BTreeSet<String>,
) -> Result<(), String> {
    // Few records say who made them, so the others need not be decoded.
    if !record.json().contains("\"userIdentity\"") {
        return Ok(());
    }
    let record = lambda_record_from_str(record.json()).map_err(|error| error.to_string())?.record;
    if !record.is_time_to_live() {
        return Ok(());
    }
    if record.old_image.as_ref().is_some_and(|item| restored::is_as_restored(item, table)) {
        restored.insert(record.event_id);
    } else if let Some(seconds) = record.approximate_creation_seconds {
        let time = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        found.deletes.insert(record.event_id, time);
    }
    Ok(())
}
