//! `weir streams redrive`: invokes a function again with the records of a failure object.
//!
//! The function gets the same records as before, and its effects are idempotent. The failure object
//! is kept; the operator decides when to delete it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};

use super::redrives::{self, Redrive};
use super::{discarded, since};
use client::endpoint;
use client::exit::Exit;
use client::interruption;
use client::invocation::invoke;
use client::output::{self, Output};
use client::running::Running;
use client::shards::{self, Place, Refusal, Start};
use local::journal::{MappingFacts, Reader, history_of, records_between};
use mapping::{self, Answer, FilterCriteria, Record, SequenceNumber, read_answer};

/// The maximum number of pages that are read to find the records again. A batch has up to 10,000 records.
const PAGES_MAX: usize = 1_000;

/// The number of consecutive empty pages after which the search ends. A shard in DynamoDB has periods without
/// records.
const EMPTY_PAGES_MAX: usize = 50;

/// Arguments of `weir streams redrive`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams redrive aws/lambda/ArchiveFunctionExpired/shardId-…/2026/11/20/2026-11-20T15.02.11-…\n  weir streams redrive .weir/up/s3/failures-bucket/aws/lambda/… --dry-run\n  weir streams redrive --since 14:05        # every failure object since this time, oldest first\n\nExit codes: 0 the function processed all records, 1 it failed, 4 the stream no longer has the records"
)]
pub struct RedriveArguments {
    /// The key in a bucket, s3://BUCKET/KEY, or a file
    #[arg(required_unless_present = "since", conflicts_with = "since")]
    pub object: Option<String>,
    /// Redrive each failure object that this folder's `weir up` wrote since this time and that was not
    /// redriven: 14:05 (UTC), 10m, 2026-11-28T14:05:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Show the records without invoking the function
    #[arg(long)]
    pub dry_run: bool,
}

/// The records of a failure object.
struct Records {
    event: Bytes,
    sequences: Vec<SequenceNumber>,
}

const HEADINGS: [&str; 7] =
    ["function", "records", "first", "last", "outcome", "to retry", "object"];

pub(super) async fn run(arguments: &RedriveArguments, output: Output) -> Result<Exit, String> {
    let running = Running::read()?;
    let objects = match (&arguments.object, &arguments.since) {
        (Some(object), _) => vec![object.clone()],
        (None, since) => since_then(&running, since.as_deref().unwrap_or_default()).await?,
    };
    let (mut rows, mut exit) = (Vec::new(), Exit::Done);
    for object in &objects {
        let (row, ended) = match redrive(&running, object, arguments.dry_run).await {
            Ok(redriven) => redriven,
            // If there are several objects, the remaining objects are still redriven.
            Err(reason) if arguments.since.is_none() => return Err(reason),
            Err(reason) => {
                output::say(&format!("error: {reason}"));
                (None, Exit::Failed)
            }
        };
        rows.extend(row);
        // The exit code of a failed redrive takes precedence over that of an object that can no longer
        // be redriven.
        exit = if exit == Exit::Failed { exit } else { worse(exit, ended) };
        interruption::reached(format!("{} of {} objects redriven", rows.len(), objects.len()));
    }
    if !rows.is_empty() || arguments.since.is_some() {
        output::rows(output, &HEADINGS, &rows);
    }
    Ok(exit)
}

fn worse(before: Exit, now: Exit) -> Exit {
    if now == Exit::Done { before } else { now }
}

/// Returns the failure objects since a time, except those whose records were all redriven and processed.
async fn since_then(running: &Running, since: &str) -> Result<Vec<String>, String> {
    let seconds = since::read(since, now_ms(running).await.div_euclid(1_000));
    let seconds = seconds.map_err(|error| error.to_string())?;
    let found = discarded::since(&running.directory, seconds.saturating_mul(1_000));
    let found = found.map_err(|error| error.to_string())?;
    if found.done > 0 {
        let objects = output::counted(found.done, "object was", "objects were");
        output::say(&format!("{objects} redriven and processed before"));
    }
    if found.without_object > 0 {
        let batches = output::counted(found.without_object, "batch has", "batches have");
        output::say(&format!(
            "{batches} no failure object: the mapping has no `OnFailure` destination, or the destination was unreachable until the records expired"
        ));
    }
    if found.objects.is_empty() {
        output::say("no failure object is left to redrive");
    }
    Ok(found.objects)
}

/// Invokes a function with the records of one failure object. Returns the row of the result; `None` if
/// the redrive is refused.
async fn redrive(
    running: &Running,
    object: &str,
    dry_run: bool,
) -> Result<(Option<Vec<Value>>, Exit), String> {
    let text = read_object(running, object).await?;
    let document: Value = serde_json::from_slice(&text)
        .map_err(|error| format!("`{object}` is not a failure object: {error}"))?;
    let function = document
        .pointer("/requestContext/functionArn")
        .and_then(Value::as_str)
        .and_then(|arn| arn.split(":function:").nth(1))
        .map(|name| name.split(':').next().unwrap_or(name).to_owned())
        .ok_or_else(|| format!("`{object}` is not a failure object: it names no function"))?;
    let mapping = Mapping::of(running, &document);
    let records = match document.get("payload") {
        Some(payload) => Ok(of_payload(payload)?),
        None => from_stream(running, &document, mapping.as_ref()).await?,
    };
    let records = match records {
        Ok(records) => records,
        Err(reason) => {
            output::say(&format!("refused: `{object}`: {reason}, and the object has no payload"));
            return Ok((None, Exit::Refused));
        }
    };
    let span = |place: Option<&SequenceNumber>| json!(place.map(SequenceNumber::as_str));
    let (first, last) = (span(records.sequences.first()), span(records.sequences.last()));
    let count = records.sequences.len();
    let row = |outcome: &str, retry: Value| {
        let [object, function, count] = [json!(object), json!(function), json!(count)];
        Some(vec![function, count, first.clone(), last.clone(), json!(outcome), retry, object])
    };
    if dry_run {
        return Ok((row("not invoked", Value::Null), Exit::Done));
    }
    let name = running.function(&function)?;
    interruption::reached(format!(
        "`{name}` was invoked with {count} records and has not responded"
    ));
    let invoked = invoke(running, name, records.event).await?;
    let places: Vec<&SequenceNumber> = records.sequences.iter().collect();
    let (outcome, done) = if invoked.failed {
        ("failed".to_owned(), 0)
    } else {
        // Without the journal, the mapping is assumed to use `ReportBatchItemFailures`.
        let reports = mapping.is_none_or(|mapping| mapping.facts.report_batch_item_failures);
        match read_answer(&invoked.body, reports, &places) {
            Answer::Complete => ("done".to_owned(), count),
            Answer::From(place) => (format!("{place} of {count} done"), place),
            Answer::Failed(reason) => (format!("failed: {reason}"), 0),
        }
    };
    let retry = span(records.sequences.get(done));
    let exit = if outcome == "done" { Exit::Done } else { Exit::Failed };
    note(running, &document, &function, &records.sequences, done).await;
    if exit != Exit::Done {
        output::say(&String::from_utf8_lossy(&invoked.body));
        let logs = format!("weir logs {name} --request {}", invoked.request_id);
        output::next(&[(&logs, "the function's log")]);
    }
    Ok((row(&outcome, retry), exit))
}

/// Returns the store's time in milliseconds, like all times in the journal. On AWS it is this machine's time.
async fn now_ms(running: &Running) -> i64 {
    let clock = match running.dynamodb.as_str() {
        "" => None,
        url => endpoint::read_clock(url).await,
    };
    clock.map_or_else(|| jiff::Timestamp::now().as_millisecond(), |clock| clock.now_ms)
}

/// Records the redrive for `weir streams explain` and `weir status`.
async fn note(
    running: &Running,
    document: &Value,
    function: &str,
    sequences: &[SequenceNumber],
    done: usize,
) {
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
    if let Err(error) = redrives::note(&running.directory, &redrive) {
        output::say(&format!("cannot record this redrive for `weir streams explain`: {error}"));
    }
}

/// Reads the object's bytes from a file or a bucket.
async fn read_object(running: &Running, object: &str) -> Result<Vec<u8>, String> {
    if Path::new(object).is_file() {
        return std::fs::read(object).map_err(|error| format!("cannot read `{object}`: {error}"));
    }
    let (buckets, key) = match object.strip_prefix("s3://").and_then(|rest| rest.split_once('/')) {
        Some((bucket, key)) => (vec![bucket.to_owned()], key),
        None => (running.buckets.clone(), object),
    };
    let client = endpoint::s3_client(&running.s3);
    for bucket in &buckets {
        let Ok(answer) = client.get_object().bucket(bucket).key(key).send().await else { continue };
        let body = answer.body.collect().await.map_err(|error| format!("`{object}`: {error}"))?;
        return Ok(body.to_vec());
    }
    let known = running.buckets.join(", ");
    if let Some(bucket) = buckets.first().filter(|bucket| !running.buckets.contains(bucket)) {
        return Err(format!("no bucket `{bucket}`; the buckets of the template are {known}"));
    }
    Err(format!(
        "no file `{object}`, and no object of that name in the buckets {}",
        buckets.join(", ")
    ))
}

fn of_payload(payload: &Value) -> Result<Records, String> {
    // Lambda writes the event into the object as a JSON string.
    let event = payload.as_str().map_or_else(|| payload.to_string(), str::to_owned);
    let parsed: Value = serde_json::from_str(&event)
        .map_err(|error| format!("the payload is not JSON: {error}"))?;
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
const GONE: &str = "the stream no longer has all of its records (it keeps them for 24 hours)";

/// Reads the records again by shard and sequence numbers. Returns the reason if this is impossible.
async fn from_stream(
    running: &Running,
    document: &Value,
    mapping: Option<&Mapping>,
) -> Result<Result<Records, String>, String> {
    let info = document
        .get("DDBStreamBatchInfo")
        .ok_or("the object has neither payload nor DDBStreamBatchInfo")?;
    let text = |name: &str| {
        let value = info.get(name).and_then(Value::as_str);
        value.ok_or_else(|| format!("DDBStreamBatchInfo has no {name}"))
    };
    let (first, last) = (text("startSequenceNumber")?, text("endSequenceNumber")?);
    let count = info.get("batchSize").and_then(Value::as_u64).unwrap_or_default();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let store = running
        .store()
        .ok_or("this `weir up` uses AWS, but its endpoint is unknown: restart `weir up`")?;
    let client = endpoint::streams_client(store);
    let stream = shards::describe(client, text("streamArn")?).await?;
    let shard = text("shardId")?;
    let end = SequenceNumber::parse(last).map_err(|error| error.to_string())?;
    let mut place = Place::new(Start::At(first.to_owned()));
    let (mut records, mut empty) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let page = match stream.next_page(shard, &mut place).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(Refusal::Trimmed) => return Ok(Err(GONE.to_owned())),
            Err(refusal) => return Err(refusal.to_string()),
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
    Ok(of_batch(records, batch.as_deref(), &filter, count).map(|records| {
        let sequences = records.iter().map(|record| record.sequence.clone()).collect();
        let records: Vec<_> = records.into_iter().map(|record| Arc::new(record.into())).collect();
        Records { event: Bytes::from(mapping::event(&records, "")), sequences }
    }))
}

/// Selects the records of a batch from the records between the batch's first and last record. The
/// journal names the records of the batch. Without the journal, the batch consists of all records that
/// pass the filter, if their number is `count`.
fn of_batch(
    mut records: Vec<Record>,
    batch: Option<&[String]>,
    filter: &FilterCriteria,
    count: usize,
) -> Result<Vec<Record>, String> {
    match batch {
        Some(batch) => {
            let names: BTreeSet<&str> = batch.iter().map(String::as_str).collect();
            records.retain(|record| names.contains(record.sequence.as_str()));
        }
        None => records.retain(|record| filter.passes(record)),
    }
    if records.len() > count {
        return Err(format!(
            "the stream has {} records between the first and the last record of the batch, but the batch had {count}; \
             the journal no longer has their sequence numbers",
            records.len()
        ));
    }
    if records.len() < count { Err(GONE.to_owned()) } else { Ok(records) }
}

/// The mapping that discarded the records, as the journal describes it.
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
        let more = "the stream has 3 records between the first and the last record of the batch, but the batch had 2; the journal no longer has their sequence numbers";
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
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{batch:?} {count}");
        }
    }
}
