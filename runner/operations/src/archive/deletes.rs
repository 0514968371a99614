//! Reads the TTL deletes in the streams of a table, over the Streams API.
//!
//! Every shard is read from its oldest record to its current end. A closed shard ends with a page
//! without a next iterator. An open shard does not show its end, because empty pages also occur
//! between records.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::types::Shard;
use model::Item;
use model::stream_record::lambda_record_from_str;
use rules::marks::restored;
use rules::migration::is_bare_tombstone_of;

use super::completeness::Deletes;
use client::failure::{Failure, Result, fatal};
use client::shards::{self, Place, Refusal, Start, Stream};
use mapping::Record;

/// Maximum number of TTL deletes in memory, which take about 500 MB.
const DELETES_MAX: usize = 5_000_000;
/// Number of consecutive empty pages after which an open shard counts as read. On AWS, a page
/// covers a section of the shard that may have no record, so a few empty pages do not show the end.
const EMPTY_PAGES_MAX: usize = 50;
/// Maximum time for which a closed shard may return only empty pages before the read fails.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(300);
/// Maximum number of attempts to read a shard. An attempt fails if the clock is advanced during the
/// read and the shard's oldest records are therefore trimmed.
const READINGS_MAX: usize = 3;

/// The table and the archives for which a deleted item may count as restored, so that no new row is
/// written for its delete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'k> {
    pub(super) table: &'k str,
    /// The names of the compared archives, as the marks of restored items contain them. There are
    /// several if prefixes overlap.
    pub(super) archives: &'k BTreeSet<String>,
}

impl Known<'_> {
    /// Returns true if an item needs no row because its mark names one of these archives. The
    /// function `archive` applies the same rule.
    fn has(self, item: &Item, keys: &Item) -> bool {
        let is_key = |name: &str| keys.contains_key(name);
        let mut archives = self.archives.iter();
        archives.any(|archive| restored::is_in_archive(item, archive, self.table, is_key))
    }
}

/// Reads all existing streams of a table.
///
/// # Errors
/// When a call fails, or the table has no stream.
pub(super) async fn read(client: &Client, known: Known<'_>) -> Result<Deletes> {
    let table = known.table;
    let mut found = Deletes::default();
    found.streams.extend(shards::arns(client, Some(table)).await?);
    if found.streams.is_empty() {
        return Err(fatal!("table `{table}` has no stream, so its archive cannot be checked"));
    }
    let mut restored = BTreeSet::new();
    for arn in found.streams.clone() {
        let stream = shards::describe(client.clone(), &arn).await?;
        for shard in &stream.shards {
            read_shard(&stream, (known, shard), &mut found, &mut restored).await?;
        }
    }
    found.restored = restored.len();
    Ok(found)
}

/// Reads a shard. Its trimmed records do not matter, because they are older than the compared time
/// range.
async fn read_shard(
    stream: &Stream,
    (known, shard): (Known<'_>, &Shard),
    found: &mut Deletes,
    restored: &mut BTreeSet<String>,
) -> Result<()> {
    let Some(id) = shard.shard_id.as_deref() else { return Ok(()) };
    let range = shard.sequence_number_range.as_ref();
    let is_closed = range.is_some_and(|range| range.ending_sequence_number.is_some());
    for _ in 0..READINGS_MAX {
        let mut place = Place::new(Start::TrimHorizon);
        let (mut empty, mut since) = (0, Instant::now());
        loop {
            let page = match stream.next_page(id, &mut place).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                Err(Refusal::Trimmed) => break,
                Err(refusal) => return Err(fatal!("shard `{id}`: {refusal}")),
            };
            if page.is_empty() {
                empty += 1;
            } else {
                (empty, since) = (0, Instant::now());
            }
            for record in page {
                note(&record, known, found, restored)?;
            }
            if found.deletes.len() > DELETES_MAX {
                return Err(fatal!(
                    "the stream has more than {DELETES_MAX} TTL deletes, more than a check can hold in memory"
                ));
            }
            if !is_closed && empty == EMPTY_PAGES_MAX {
                return Ok(());
            }
            if is_closed && empty > 0 && since.elapsed() > EMPTY_TIME_MAX {
                return Err(fatal!(
                    "closed shard `{id}` returned only empty pages for {} s: run the check again later",
                    EMPTY_TIME_MAX.as_secs()
                ));
            }
        }
    }
    Ok(())
}

fn note(
    record: &Record,
    known: Known<'_>,
    found: &mut Deletes,
    restored: &mut BTreeSet<String>,
) -> Result<()> {
    // Few records have a user identity, and only these records need to be decoded.
    if !record.json().contains("\"userIdentity\"") {
        return Ok(());
    }
    let record = lambda_record_from_str(record.json()).map_err(Failure::fatal)?.record;
    if !record.is_time_to_live() {
        return Ok(());
    }
    let is_key = |name: &str| record.keys.contains_key(name);
    if record.old_image.as_ref().is_some_and(|item| is_bare_tombstone_of(item, is_key)) {
        // A tombstone needs no row, and does not count as restored: the archive has no earlier row.
        return Ok(());
    }
    if record.old_image.as_ref().is_some_and(|item| known.has(item, &record.keys)) {
        restored.insert(record.event_id);
    } else if let Some(seconds) = record.approximate_creation_seconds {
        let time = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000);
        found.deletes.insert(record.event_id, time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use aws_sdk_dynamodbstreams::types::SequenceNumberRange;
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use model::json::item_from_str;
    use rules::marks::restored::{Origin, RESTORED, mark};
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;
    use client::endpoint;

    const ARN: &str =
        "arn:aws:dynamodb:eu-west-1:000000000000:table/films/stream/2026-11-21T00:00:00.000";

    /// Returns the page at a position of a shard: the page `delete_at` has a TTL delete, all other
    /// pages are empty. A shard that ends has three more pages.
    fn page(place: usize, delete_at: usize, ends: bool) -> Value {
        let delete = json!({
            "awsRegion": "eu-west-1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_795_228_199,
                "Keys": {"id": {"S": "a"}},
                "SequenceNumber": "100000000000000000042",
                "SizeBytes": 9,
                "StreamViewType": "KEYS_ONLY",
            },
            "eventID": "ab0e",
            "eventName": "REMOVE",
            "eventSource": "aws:dynamodb",
            "eventVersion": "1.1",
            "userIdentity": {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"},
        });
        let records = if place == delete_at { vec![delete] } else { Vec::new() };
        let mut page = json!({"Records": records});
        if !ends || place < delete_at + 3 {
            page["NextShardIterator"] = json!((place + 1).to_string());
        }
        page
    }

    /// Returns a client for a stream with one shard, whose pages are those of [`page`]. The shard's
    /// iterators are positions.
    async fn serve(delete_at: usize, ends: bool) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = service_fn(move |request: Request<Incoming>| async move {
                    let target = request.headers()["x-amz-target"].to_str().unwrap().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let answer = if target.ends_with(".GetShardIterator") {
                        json!({"ShardIterator": "0"})
                    } else {
                        let place = body["ShardIterator"].as_str().unwrap().parse().unwrap();
                        page(place, delete_at, ends)
                    };
                    let answer = Full::new(Bytes::from(answer.to_string()));
                    Ok::<_, Infallible>(Response::new(answer))
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
            }
        });
        endpoint::streams_client(&url)
    }

    /// A closed shard has no record after its last page, and may have any number of empty pages.
    #[tokio::test]
    async fn a_closed_shard_is_read_to_its_end_however_many_of_its_pages_are_empty() {
        for (is_closed, delete_at, expected) in
            [(true, 0, 1), (true, 3 * EMPTY_PAGES_MAX, 1), (false, 40, 1), (false, 1_000, 0)]
        {
            let range = SequenceNumberRange::builder().starting_sequence_number("1");
            let range = range.set_ending_sequence_number(is_closed.then(|| "9".to_owned()));
            let shard = Shard::builder().shard_id("shard-1").sequence_number_range(range.build());
            let shard = shard.build();
            let stream = Stream {
                client: serve(delete_at, is_closed).await,
                arn: ARN.to_owned(),
                table: "films".to_owned(),
                view: "KEYS_ONLY".to_owned(),
                enabled: true,
                made_at: None,
                shards: vec![shard.clone()],
            };
            let known = Known { table: "films", archives: &BTreeSet::new() };
            let (mut found, mut restored) = (Deletes::default(), BTreeSet::new());
            read_shard(&stream, (known, &shard), &mut found, &mut restored).await.unwrap();
            assert_eq!(found.deletes.len(), expected, "closed {is_closed}, at {delete_at}");
        }
    }

    #[test]
    fn only_what_was_restored_from_the_archive_that_is_compared_needs_no_row() {
        let archives = BTreeSet::from(["b/archive/".to_owned(), "b/archive2/".to_owned()]);
        for (archive, from, is_changed, expected) in [
            (Some("b/archive/"), "films", false, true),
            (Some("b/archive2/"), "films", false, true),
            (Some("b/archive/"), "films", true, false),
            (Some("b/archive/"), "other", false, false),
            (Some("c/archive/"), "films", false, false),
            (None, "films", false, false),
        ] {
            let mut item = item_from_str(r#"{"id":{"S":"a"}}"#).unwrap();
            let keys = item.clone();
            let origin = Origin { archive, table: from, event_id: "e", stamp: "s" };
            let marked = mark(&item, origin, None);
            item.insert(RESTORED.to_owned(), marked);
            if is_changed {
                item.insert("n".to_owned(), model::AttributeValue::Null);
            }
            let known = Known { table: "films", archives: &archives };
            assert_eq!(known.has(&item, &keys), expected, "{archive:?} {from} {is_changed}");
            // A folder has no archive name.
            assert!(!Known { table: "films", archives: &BTreeSet::new() }.has(&item, &keys));
        }
    }
}
