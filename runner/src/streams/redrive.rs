//! `weir streams redrive`: the function again, with the records of a failure object.
//!
//! The function sees the same records as the first time, so what it had done already stays as it
//! is. The object is kept: whether it may go is for a person to say.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};

use super::shards::{self, Place, Refusal, Start};
use crate::endpoint;
use crate::exit::Exit;
use crate::invoke;
use crate::journal::{Reader, history_of};
use crate::mapping::{self, Answer, FilterCriteria, SequenceNumber, read_answer};
use crate::output::{self, Output};
use crate::running::Running;

/// Pages that are read at most to find the records again: a batch has up to 10,000.
const PAGES_MAX: usize = 1_000;

/// Which failure object.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams redrive aws/lambda/ArchiveFunctionExpired/shardId-…/2026/11/20/2026-11-20T15.02.11-…\n  weir streams redrive .weir/up/s3/failures-bucket/aws/lambda/… --dry-run\n\nExit codes: 0 the function has done all records, 1 it has not, 4 the records are no longer there"
)]
pub struct RedriveArguments {
    /// The key in a bucket, s3://BUCKET/KEY, or a file
    pub object: String,
    /// Show what would be delivered, and invoke nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The records of a failure object.
struct Records {
    event: Bytes,
    sequences: Vec<SequenceNumber>,
}

pub(super) async fn run(arguments: &RedriveArguments, output: Output) -> Result<Exit, String> {
    let running = Running::read()?;
    let text = read_object(&running, &arguments.object).await?;
    let document: Value = serde_json::from_slice(&text)
        .map_err(|error| format!("`{}` is no failure object: {error}", arguments.object))?;
    let function = document
        .pointer("/requestContext/functionArn")
        .and_then(Value::as_str)
        .and_then(|arn| arn.split(":function:").nth(1))
        .map(|name| name.split(':').next().unwrap_or(name).to_owned())
        .ok_or_else(|| {
            format!("`{}` is no failure object: it names no function", arguments.object)
        })?;
    let records = match document.get("payload") {
        Some(payload) => Some(of_payload(payload)?),
        None => from_stream(&running, &document).await?,
    };
    let Some(records) = records else {
        output::say(
            "refused: not all of its records are in the stream any more (it keeps them for 24 hours), and the object has no payload",
        );
        return Ok(Exit::Refused);
    };
    let span = |place: Option<&SequenceNumber>| json!(place.map(SequenceNumber::as_str));
    let (first, last) = (span(records.sequences.first()), span(records.sequences.last()));
    let count = records.sequences.len();
    let headings = ["function", "records", "first", "last", "outcome", "to retry"];
    let row = |outcome: &str, retry: Value| {
        vec![json!(function), json!(count), first.clone(), last.clone(), json!(outcome), retry]
    };
    if arguments.dry_run {
        output::rows(output, &headings, &[row("not invoked", Value::Null)]);
        return Ok(Exit::Done);
    }
    let name = running.function(&function)?;
    let invoked = invoke::invoke(&running, name, records.event).await?;
    let places: Vec<&SequenceNumber> = records.sequences.iter().collect();
    let (outcome, retry, exit) = if invoked.failed {
        ("failed".to_owned(), first.clone(), Exit::Failed)
    } else {
        // Without ReportBatchItemFailures the answer is of another kind, which is success too.
        match read_answer(&invoked.body, true, &places) {
            Answer::Complete => ("done".to_owned(), Value::Null, Exit::Done),
            Answer::From(place) => (
                format!("{place} of {count} done"),
                span(records.sequences.get(place)),
                Exit::Failed,
            ),
            Answer::Failed(reason) => (format!("failed: {reason}"), first.clone(), Exit::Failed),
        }
    };
    output::rows(output, &headings, &[row(&outcome, retry)]);
    if exit != Exit::Done {
        output::say(&String::from_utf8_lossy(&invoked.body));
        let logs = format!("weir logs {name} --request {}", invoked.request_id);
        output::next(&[(&logs, "what the function wrote")]);
    }
    Ok(exit)
}

/// The object's bytes, from a file or a bucket.
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
    Err(format!("there is no file and no object `{object}` in the buckets {}", buckets.join(", ")))
}

fn of_payload(payload: &Value) -> Result<Records, String> {
    // Lambda writes the event as a text in the object.
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

/// Reads the records again by shard and sequence numbers; `None` if not all are there.
async fn from_stream(running: &Running, document: &Value) -> Result<Option<Records>, String> {
    let info = document
        .get("DDBStreamBatchInfo")
        .ok_or("the object has neither payload nor DDBStreamBatchInfo")?;
    let text = |name: &str| {
        let value = info.get(name).and_then(Value::as_str);
        value.ok_or_else(|| format!("DDBStreamBatchInfo has no {name}"))
    };
    let last = SequenceNumber::parse(text("endSequenceNumber")?).map_err(|e| e.to_string())?;
    let first = text("startSequenceNumber")?;
    let count = info.get("batchSize").and_then(Value::as_u64).unwrap_or_default();
    let filter = filter_of(running, document, text("streamArn")?);
    let client = endpoint::streams_client(&running.dynamodb);
    let stream = shards::describe(client, text("streamArn")?).await?;
    let shard = text("shardId")?;
    let mut place = Place::new(Start::At(first.to_owned()));
    let mut records = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = match stream.next_page(shard, &mut place).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(Refusal::Trimmed) => return Ok(None),
            Err(refusal) => return Err(refusal.to_string()),
        };
        let is_behind = page.last().is_none_or(|record| record.sequence >= last);
        records.extend(page.into_iter().filter(|record| record.sequence <= last));
        if is_behind {
            break;
        }
    }
    records.retain(|record| filter.passes(record));
    if u64::try_from(records.len()).ok() != Some(count) {
        return Ok(None);
    }
    let sequences = records.iter().map(|record| record.sequence.clone()).collect();
    let records: Vec<_> = records.into_iter().map(|record| Arc::new(record.into())).collect();
    Ok(Some(Records { event: Bytes::from(mapping::event(&records, "")), sequences }))
}

/// The filter of the mapping that gave the records up, as the journal knows it; without it, every
/// record of the range is taken, and their number says whether that is right.
fn filter_of(running: &Running, document: &Value, stream: &str) -> FilterCriteria {
    let arn = document.pointer("/requestContext/functionArn").and_then(Value::as_str);
    let Ok(reader) = Reader::open(&running.directory.join("journal")) else {
        return FilterCriteria::default();
    };
    let history = history_of(reader, "");
    let own = history.mappings.values().find(|mapping| {
        mapping.facts.stream == stream
            && arn.is_some_and(|arn| arn.ends_with(&format!(":{}", mapping.facts.function)))
    });
    own.and_then(|mapping| FilterCriteria::compile(&mapping.facts.filters).ok()).unwrap_or_default()
}
