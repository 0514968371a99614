//! The newest records of a table's stream, on the admin endpoint. The Streams API can read a stream only
//! from old to new.
//!
//! | request | response |
//! |---|---|
//! | `POST /_weir/streams/<table>/newest` with `{"limit":N}` or `{"limit":N,"key":{…}}` | `{"arn":…,"read":N,"complete":true,"shards":[{"id":…,"Records":[…]}]}` |
//!
//! `Records` has the form of `GetRecords`, the oldest record first. With `key`, it contains only the records
//! of this item. `complete` is false if older records were not read.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use http::StatusCode;
use model::json::{self, Json};
use model::{EncodedItem, Item, StreamRecord};
use partition::{ReadError, Sequence, Shard, Stream, Table, View, read_newest_shard_records};

use super::admin_answer::{Answer, InvalidBody, find_table, last_stream, refusal, success};
use super::partitions::unreadable;
use crate::api::streams::stream_arn;
use crate::store::Store;

/// The maximum number of records in a response.
const LIMIT_MAX: usize = 1_000;
/// The size in bytes at which a response accepts no further record, as in `GetRecords`.
const BYTES_MAX: u64 = 1024 * 1024;
/// The maximum number of records that a request reads when it searches the records of an item. Reading
/// them takes about 40 ms.
const READ_MAX: usize = 10_000;
const REQUESTS: &str = "{\"limit\":N} or {\"limit\":N,\"key\":{…}}, with N from 1 to 1000";

/// The parameters of a request.
#[derive(Debug, PartialEq)]
struct Wanted {
    limit: usize,
    key: Option<Item>,
}

/// The records that were found, and the number of records that were read.
#[derive(Default)]
struct Found<'s> {
    records: Vec<(&'s Shard, Sequence, StreamRecord<EncodedItem>)>,
    read: usize,
    is_cut: bool,
}

/// Returns the newest records of the latest stream of a table.
pub(super) async fn show(store: &Store, name: &str, body: &[u8]) -> Answer {
    let place = format!("POST /_weir/streams/{name}/newest");
    let wanted = match read_request(body) {
        Ok(wanted) => wanted,
        Err(error) => {
            return refusal(StatusCode::BAD_REQUEST, &error.to_string(), &place, REQUESTS);
        }
    };
    let table = match find_table(store, name, &place) {
        Ok(table) => table,
        Err(answer) => return answer,
    };
    let stream = match last_stream(&table, &place) {
        Ok(stream) => stream,
        Err(answer) => return answer,
    };
    let arn = stream_arn(store, &table, stream).to_string();
    let store = store.pin();
    loop {
        let view = store.view();
        let read = || {
            wanted
                .find(&*view, &table, stream)
                .and_then(|found| describe(&found, stream, &arn, store.region()))
        };
        let body = store.long_reads().run(read).await;
        match (store.fetch_missing().await, body) {
            (Ok(true), _) => {}
            (Ok(false), Ok(body)) => return success(body),
            (Ok(false), Err(error)) => return unreadable(&error, &place),
            (Err(error), _) => return unreadable(&error, &place),
        }
    }
}

fn read_request(body: &[u8]) -> Result<Wanted, InvalidBody> {
    let tree = json::parse(body).map_err(|error| error.to_string())?;
    let members = tree.as_object().ok_or("expected a JSON object")?;
    let (mut limit, mut key) = (None, None);
    for (name, value) in members {
        match (&**name, value) {
            ("limit", Json::Integer(number)) => limit = usize::try_from(*number).ok(),
            ("key", item) => {
                let item = json::decode_item(item).map_err(|error| format!("`key`: {error}"))?;
                key = Some(item);
            }
            (name, _) => return Err(format!("unknown member or invalid value: `{name}`").into()),
        }
    }
    let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
    Ok(Wanted { limit: limit.ok_or("`limit` must be from 1 to 1000")?, key })
}

impl Wanted {
    /// Reads each shard backwards, beginning with the newest shards, and returns the newest
    /// records.
    fn find<'s>(
        &self,
        view: &dyn View,
        table: &Table,
        stream: &'s Stream,
    ) -> Result<Found<'s>, ReadError> {
        let mut found = Found::default();
        // In `stream.shards`, parents precede their children.
        for shard in stream.shards.iter().rev() {
            let Found { records, read, is_cut } = &mut found;
            let (mut count, mut bytes) = (0, 0_u64);
            // A table with many items has many shards. Once the response is full, a shard whose newest
            // record is older than every record of the response costs one read.
            let oldest = records.last().filter(|_| records.len() == self.limit).map(time_of);
            read_newest_shard_records(view, table, stream, shard, &mut |sequence, record| {
                let time = (record.approximate_creation_seconds, sequence);
                let is_too_old = oldest.is_some_and(|oldest| time < oldest);
                if count == self.limit || bytes >= BYTES_MAX || *read == READ_MAX || is_too_old {
                    *is_cut = true;
                    return ControlFlow::Break(());
                }
                *read += 1;
                if self.key.as_ref().is_none_or(|key| record.keys == *key) {
                    count += 1;
                    bytes = bytes.saturating_add(record.size_bytes);
                    records.push((shard, sequence, record));
                }
                ControlFlow::Continue(())
            })?;
            self.keep_newest(records);
        }
        Ok(found)
    }

    /// Discards the oldest records beyond the limits of a response.
    fn keep_newest(&self, records: &mut Vec<(&Shard, Sequence, StreamRecord<EncodedItem>)>) {
        records.sort_by_key(|record| Reverse(time_of(record)));
        records.truncate(self.limit);
        let mut bytes = 0_u64;
        records.retain(|(.., record)| {
            let fits = bytes < BYTES_MAX;
            bytes = bytes.saturating_add(record.size_bytes);
            fits
        });
    }
}

/// Returns the order of a record among the records of all shards: its time, then its sequence number. The
/// sequence numbers of different arcs cannot be compared.
fn time_of(
    (_, sequence, record): &(&Shard, Sequence, StreamRecord<EncodedItem>),
) -> (Option<u64>, Sequence) {
    (record.approximate_creation_seconds, *sequence)
}

/// Returns the response as JSON.
fn describe(
    found: &Found<'_>,
    stream: &Stream,
    arn: &str,
    region: &str,
) -> Result<String, ReadError> {
    let mut out =
        format!("{{\"arn\":\"{arn}\",\"read\":{},\"complete\":{}", found.read, !found.is_cut);
    out.push_str(",\"shards\":[");
    for shard in &stream.shards {
        // `found.records` begins with the newest record; the response begins with the oldest.
        let own = found.records.iter().rev().filter(|(of, ..)| of.number == shard.number);
        let mut separator = format!("{{\"id\":\"{}\",\"Records\":[", shard.id);
        if !out.ends_with('[') {
            separator.insert(0, ',');
        }
        for (.., record) in own {
            out.push_str(&separator);
            let written = record.write_streams_json(&mut out, region);
            written.map_err(|error| ReadError(format!("cannot encode an item image: {error}")))?;
            separator = ",".to_owned();
        }
        if separator == "," {
            out.push_str("]}");
        }
    }
    out.push_str("]}");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_limit() {
        let key = Item::new().with("k", "a");
        for (body, expected) in [
            (r#"{"limit":25}"#, Some(Wanted { limit: 25, key: None })),
            (r#"{"limit":1,"key":{"k":{"S":"a"}}}"#, Some(Wanted { limit: 1, key: Some(key) })),
            ("{}", None),
            (r#"{"limit":0}"#, None),
            (r#"{"limit":1001}"#, None),
            (r#"{"limit":"1"}"#, None),
            (r#"{"limit":1,"key":{"k":"a"}}"#, None),
            (r#"{"limit":1,"before":1}"#, None),
            ("", None),
        ] {
            assert_eq!(read_request(body.as_bytes()).ok(), expected, "{body}");
        }
    }
}
