//! Invokes a function again with the records of a failure object.
//!
//! The function gets the same records as in the failed attempt, so its effects must be idempotent.
//! The failure object is kept; the operator decides when to delete it. `weir streams redrive` and
//! the console use this module.

pub mod discarded;
pub mod log;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use self::log::Redrive;
use crate::journal::{MappingFacts, Reader, history_of, records_between};
use client::endpoint;
use client::failure::{Context, Failure, Result, fatal, refused};
use client::interruption;
use client::invocation::invoke;
use client::running::Running;
use client::shards::{self, Place, Refusal, Start};
use mapping::{self, Answer, FilterCriteria, Record, SequenceNumber, read_answer};

/// The maximum number of pages that are read to find the records in the stream. A batch has up to
/// 10,000 records.
const PAGES_MAX: usize = 1_000;

/// The number of consecutive empty pages after which the search ends. A shard in DynamoDB has periods without
/// records.
const EMPTY_PAGES_MAX: usize = 50;

/// The records of a failure object, and the event that contains them.
struct Records {
    event: Bytes,
    sequences: Vec<SequenceNumber>,
}

/// The result of a redrive of one failure object.
#[derive(Clone, Debug)]
pub struct Redriven {
    /// The name of the function.
    pub function: String,
    /// The number of records of the failure object.
    pub records: usize,
    /// The sequence number of the first of these records.
    pub first: Option<String>,
    /// The sequence number of the last of these records.
    pub last: Option<String>,
    /// The number of records at the beginning that the function processed; `None` if it was not invoked.
    pub done: Option<usize>,
    /// The reason why the response of the function is invalid; `None` if it is valid. The reason is
    /// empty if the function itself failed.
    pub fault: Option<String>,
    /// The sequence number of the first record to retry.
    pub retry: Option<String>,
    /// The response of the function; empty if it was not invoked.
    pub answer: Bytes,
    /// The request id of the invocation.
    pub request_id: String,
    /// The reason why this redrive could not be recorded; `None` if it was recorded.
    pub unrecorded: Option<String>,
}

impl Redriven {
    /// Returns whether the function processed all records.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.done == Some(self.records)
    }

    /// Returns the outcome in a few words.
    #[must_use]
    pub fn outcome(&self) -> String {
        match (self.done, &self.fault) {
            (None, _) => "not invoked".to_owned(),
            (Some(_), Some(reason)) if reason.is_empty() => "failed".to_owned(),
            (Some(_), Some(reason)) => format!("failed: {reason}"),
            (Some(_), None) if self.is_complete() => "done".to_owned(),
            (Some(place), None) => format!("{place} of {} done", self.records),
        }
    }
}

/// The reason why a failure object was not redriven.
#[derive(Debug, thiserror::Error)]
pub enum RedriveError {
    /// The records no longer exist, so no retry can help.
    #[error("refused: `{object}`: {reason}, and the object has no payload")]
    Gone {
        /// The name of the failure object.
        object: String,
        /// The reason why the records no longer exist.
        reason: String,
    },
    /// Any other failure. A retry may succeed after the operator corrects the cause.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Invokes a function with the records of one failure object: the key in a bucket of the running `weir up`,
/// `s3://BUCKET/KEY`, or a file. With `dry_run` it only finds the records.
///
/// # Errors
/// The object or its records cannot be read, or the function cannot be invoked.
pub async fn redrive(
    running: &Running,
    object: &str,
    dry_run: bool,
) -> Result<Redriven, RedriveError> {
    let text = read_object(running, object).await?;
    let document: Value =
        serde_json::from_slice(&text).context(|| format!("`{object}` is not a failure object"))?;
    let function = document
        .pointer("/requestContext/functionArn")
        .and_then(Value::as_str)
        .and_then(|arn| arn.split(":function:").nth(1))
        .map(|name| name.split(':').next().unwrap_or(name).to_owned())
        .ok_or_else(|| fatal!("`{object}` is not a failure object: it names no function"))?;
    let mapping = Mapping::of(running, &document);
    let records = match document.get("payload") {
        Some(payload) => of_payload(payload)?,
        None => match from_stream(running, &document, mapping.as_ref()).await {
            Err(Failure::Refused(reason)) => {
                return Err(RedriveError::Gone { object: object.to_owned(), reason });
            }
            records => records?,
        },
    };
    let name = |place: Option<&SequenceNumber>| place.map(|it| it.as_str().to_owned());
    let count = records.sequences.len();
    let mut redriven = Redriven {
        records: count,
        first: name(records.sequences.first()),
        last: name(records.sequences.last()),
        done: None,
        fault: None,
        retry: None,
        answer: Bytes::new(),
        request_id: String::new(),
        unrecorded: None,
        function,
    };
    if dry_run {
        return Ok(redriven);
    }
    let own = running.function(&redriven.function)?.to_owned();
    interruption::reached(format!("`{own}` was invoked with {count} records and has not answered"));
    let invoked = invoke(running, &own, records.event).await?;
    let places: Vec<&SequenceNumber> = records.sequences.iter().collect();
    let (done, fault) = if invoked.failed {
        (0, Some(String::new()))
    } else {
        // Without the journal, the mapping is assumed to use `ReportBatchItemFailures`.
        let reports = mapping.is_none_or(|mapping| mapping.facts.report_batch_item_failures);
        match read_answer(&invoked.body, reports, &places) {
            Answer::Complete => (count, None),
            Answer::From(place) => (place, None),
            Answer::Failed(reason) => (0, Some(reason)),
        }
    };
    let noted = note(running, &document, &redriven.function, &records.sequences, done).await;
    redriven.unrecorded = noted.err().map(|error| error.to_string());
    redriven.retry = name(records.sequences.get(done));
    (redriven.done, redriven.fault) = (Some(done), fault);
    (redriven.answer, redriven.request_id) = (invoked.body, invoked.request_id);
    redriven.function = own;
    Ok(redriven)
}

/// Returns the store's time in milliseconds, like all times in the journal. On AWS it is this machine's time.
pub async fn now_ms(running: &Running) -> i64 {
    let clock = match running.dynamodb.as_str() {
        "" => None,
        url => endpoint::read_clock(url).await,
    };
    clock.map_or_else(|| jiff::Timestamp::now().as_millisecond(), |clock| clock.now_ms)
}

/// Appends the redrive to the file that `weir streams explain` and `weir status` read.
async fn note(
    running: &Running,
    document: &Value,
    function: &str,
    sequences: &[SequenceNumber],
    done: usize,
) -> std::io::Result<()> {
    let of_batch = |name: &str| {
        let value = document.get("DDBStreamBatchInfo").and_then(|info| info.get(name));
        value.and_then(Value::as_str).map(str::to_owned)
    };
    let redrive = Redrive {
        at_ms: now_ms(running).await,
        function: function.to_owned(),
        stream: of_batch("streamArn"),
        shard: of_batch("shardId"),
        sequences: sequences.iter().map(|sequence| sequence.as_str().to_owned()).collect(),
        done,
    };
    log::note(&running.directory, &redrive)
}

/// Reads the object's bytes from a file or a bucket.
async fn read_object(running: &Running, object: &str) -> Result<Vec<u8>> {
    if Path::new(object).is_file() {
        return std::fs::read(object).context(|| format!("cannot read `{object}`"));
    }
    let (buckets, key) = match object.strip_prefix("s3://").and_then(|rest| rest.split_once('/')) {
        Some((bucket, key)) => (vec![bucket.to_owned()], key),
        None => (running.buckets.clone(), object),
    };
    let client = endpoint::s3_client(&running.s3);
    for bucket in &buckets {
        let Ok(answer) = client.get_object().bucket(bucket).key(key).send().await else { continue };
        let body = answer.body.collect().await.map_err(|error| fatal!("`{object}`: {error}"))?;
        return Ok(body.to_vec());
    }
    let known = running.buckets.join(", ");
    if let Some(bucket) = buckets.first().filter(|bucket| !running.buckets.contains(bucket)) {
        return Err(fatal!("no bucket `{bucket}`; the template has {known}"));
    }
    Err(fatal!(
        "no file `{object}`, and no object of that name in the buckets {}",
        buckets.join(", ")
    ))
}

fn of_payload(payload: &Value) -> Result<Records> {
    // Lambda writes the event into the object as a JSON string.
    let event = payload.as_str().map_or_else(|| payload.to_string(), str::to_owned);
    let parsed: Value = serde_json::from_str(&event).context(|| "the payload is not JSON")?;
    let sequences = parsed.get("Records").and_then(Value::as_array).into_iter().flatten();
    let sequences: Option<Vec<SequenceNumber>> = sequences
        .map(|record| {
            let text = record.pointer("/dynamodb/SequenceNumber")?.as_str()?;
            SequenceNumber::parse(text).ok()
        })
        .collect();
    let sequences = sequences.ok_or("a record of the payload has no sequence number")?;
    Ok(Records { event: Bytes::from(event), sequences })
}

/// The reason why trimmed records cannot be delivered again.
const GONE: &str =
    "the stream no longer has all records of the batch (streams keep records for 24 hours)";

/// Reads the records again by shard and sequence numbers.
///
/// # Errors
/// The stream cannot be read. A refusal if the stream no longer has the records.
async fn from_stream(
    running: &Running,
    document: &Value,
    mapping: Option<&Mapping>,
) -> Result<Records> {
    let info = document
        .get("DDBStreamBatchInfo")
        .ok_or("the object has neither payload nor DDBStreamBatchInfo")?;
    let text = |name: &str| {
        let value = info.get(name).and_then(Value::as_str);
        value.ok_or_else(|| fatal!("DDBStreamBatchInfo has no {name}"))
    };
    let (first, last) = (text("startSequenceNumber")?, text("endSequenceNumber")?);
    let count = info.get("batchSize").and_then(Value::as_u64).unwrap_or_default();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let store = running
        .store()
        .ok_or("the endpoint of the running `weir up` is unknown: restart `weir up`")?;
    let client = endpoint::streams_client(store);
    let stream = shards::describe(client, text("streamArn")?).await?;
    let shard = text("shardId")?;
    let end = SequenceNumber::parse(last).map_err(Failure::fatal)?;
    let mut place = Place::new(Start::At(first.to_owned()));
    let (mut records, mut empty) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let page = match stream.next_page(shard, &mut place).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(Refusal::Trimmed) => return Err(refused!("{GONE}")),
            Err(refusal) => return Err(Failure::fatal(refusal)),
        };
        // A page may be empty although more records follow.
        empty = if page.is_empty() { empty + 1 } else { 0 };
        let is_behind = page.last().is_some_and(|record| record.sequence >= end);
        records.extend(page.into_iter().filter(|record| record.sequence <= end));
        interruption::reached(format!("{} records read again, none delivered yet", records.len()));
        if is_behind || empty >= EMPTY_PAGES_MAX {
            break;
        }
    }
    let filter = mapping.map(Mapping::filter).unwrap_or_default();
    let batch = mapping.and_then(|mapping| mapping.batch(running, shard, (first, last), count));
    let records = of_batch(records, batch.as_deref(), &filter, count)?;
    let sequences = records.iter().map(|record| record.sequence.clone()).collect();
    let records: Vec<_> = records.into_iter().map(|record| Arc::new(record.into())).collect();
    Ok(Records { event: Bytes::from(mapping::event(&records, "")), sequences })
}

/// Selects the records of a batch from the records between its first and its last record. The
/// journal names the records of the batch. Without the journal, the batch has all records that pass
/// the filter, if their number is `count`.
fn of_batch(
    mut records: Vec<Record>,
    batch: Option<&[String]>,
    filter: &FilterCriteria,
    count: usize,
) -> Result<Vec<Record>> {
    match batch {
        Some(batch) => {
            let names: BTreeSet<&str> = batch.iter().map(String::as_str).collect();
            records.retain(|record| names.contains(record.sequence.as_str()));
        }
        None => records.retain(|record| filter.passes(record)),
    }
    if records.len() > count {
        return Err(refused!(
            "the stream has {} records between the batch's first and last record, but the batch had {count}; \
             the journal no longer has the list of the batch's records",
            records.len()
        ));
    }
    if records.len() < count { Err(refused!("{GONE}")) } else { Ok(records) }
}

/// The mapping that discarded the records, from the journal.
struct Mapping {
    name: String,
    facts: MappingFacts,
}

impl Mapping {
    fn of(running: &Running, document: &Value) -> Option<Self> {
        let arn = document.pointer("/requestContext/functionArn").and_then(Value::as_str)?;
        let stream = document.pointer("/DDBStreamBatchInfo/streamArn").and_then(Value::as_str)?;
        let history = history_of(Reader::open(&journal(running)).ok()?, "");
        let mut mappings = history.mappings.into_iter();
        let (name, own) = mappings.find(|(_, mapping)| {
            mapping.facts.stream == stream && arn.ends_with(&format!(":{}", mapping.facts.function))
        })?;
        Some(Self { name, facts: own.facts })
    }

    fn filter(&self) -> FilterCriteria {
        FilterCriteria::compile(&self.facts.filters).unwrap_or_default()
    }

    /// Returns the sequence numbers of the batch with this first and last record.
    fn batch(
        &self,
        running: &Running,
        shard: &str,
        ends: (&str, &str),
        count: usize,
    ) -> Option<Vec<String>> {
        let lines = Reader::open(&journal(running)).ok()?;
        records_between(lines, &self.name, shard, ends, count)
    }
}

fn journal(running: &Running) -> PathBuf {
    running.directory.join("journal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Records 10 to 15 of one shard. Even numbers pass the filter.
    fn records() -> Vec<Record> {
        let record = |number: u32| {
            let sequence = SequenceNumber::parse(&number.to_string()).unwrap();
            let name = if number.is_multiple_of(2) { "INSERT" } else { "REMOVE" };
            Record::of_event(sequence, None, &json!({"eventName": name}))
        };
        (10..16).map(record).collect()
    }

    #[test]
    fn a_batch_consists_of_the_journals_records_or_of_those_that_pass() {
        let filter = FilterCriteria::compile(&[r#"{"eventName":["INSERT"]}"#]).unwrap();
        let batch = ["10", "14"].map(str::to_owned);
        let gone = ["10", "14", "18"].map(str::to_owned);
        let more = "the stream has 3 records between the batch's first and last record, but the batch had 2; the journal no longer has the list of the batch's records";
        let cases = [
            (Some(&batch[..]), 2, Ok("10 14")),
            (Some(&gone[..]), 3, Err(GONE)),
            (None, 3, Ok("10 12 14")),
            (None, 2, Err(more)),
            (None, 4, Err(GONE)),
        ];
        for (batch, count, expected) in cases {
            let found = of_batch(records(), batch, &filter, count).map(|records| {
                let names: Vec<&str> = records.iter().map(|it| it.sequence.as_str()).collect();
                names.join(" ")
            });
            let found = found.as_deref().map_err(ToString::to_string);
            assert_eq!(found, expected.map_err(str::to_owned), "{batch:?} {count}");
        }
    }
}
