//! Explains why a function ran, or did not run, for a record.
//!
//! The journal has the attempts, and the stream has the record. The answer reports when the journal
//! or the stream no longer has this data. `weir streams explain` and the console show the answer.

mod find;
mod newest;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeSet;
use std::path::Path;

use aws_sdk_dynamodbstreams::Client;
use serde_json::{Value, json};

use self::find::{Clues, find_either};
pub use self::verdict::{IN_PROGRESS, REDRIVEN, Verdict};
use self::verdict::{Surroundings, reports, verdicts};
use crate::journal::{Attempt, History, Reader, histories_of, history_of, newest_record};
use crate::redrive::log::{self, Redrive};
use crate::status::{self, hindrance};
use client::endpoint;
use client::failure::{Failure, Result, fatal};
use client::output;
use mapping::{Record, SequenceNumber};
use model::Item;

/// The record to explain.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// The record with this sequence number or event id.
    Record(&'a str),
    /// The newest record of the item with this key. [`Question::table`] must be set.
    Item(&'a Item),
    /// The newest record.
    Newest,
}

/// A question about a record.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The record to explain.
    pub wanted: Wanted<'a>,
    /// The table to which the record belongs, if it is known.
    pub table: Option<&'a str>,
    /// The shard that probably has the record. If the table is known too, this shard is read first.
    pub shard: Option<&'a str>,
    /// The data folder of the `weir up` that delivers the records.
    pub directory: &'a Path,
    /// The endpoint of the store; `None` if its streams cannot be searched.
    pub endpoint: Option<&'a str>,
    /// A client of the endpoint's streams, if the caller has one. To create a client, the
    /// certificates of the system must be read.
    pub streams: Option<&'a Client>,
    /// Whether the `weir up` of the data folder is running.
    pub is_running: bool,
}

/// The answer: the verdict of each mapping about the record.
pub struct Explanation {
    /// The sequence number of the record.
    pub sequence: String,
    /// The verdict of each mapping of the record's table.
    pub verdicts: Vec<Verdict>,
    history: History,
    found: Result<Found, NotFound>,
    /// The reason why `weir up` cannot write its status or its journal; `None` if it can write
    /// both.
    pub hindered: Option<String>,
}

impl Explanation {
    /// Returns the answer as JSON, with the schema `weir.explain/v1`.
    #[must_use]
    pub fn document(&self) -> Value {
        document(&self.sequence, &self.history, self.found.as_ref().ok(), &self.verdicts)
    }

    /// Returns the answer as text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        text(&self.sequence, &self.history, self.found.as_ref(), &self.verdicts)
    }

    /// Returns the record, if a stream still has it.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.found.as_ref().ok().map(|found| &found.record)
    }

    /// Returns why the stream does not have the record; `None` if it has it.
    #[must_use]
    pub fn absence(&self) -> Option<String> {
        self.found.as_ref().err().map(NotFound::text)
    }
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// Neither a stream nor the journal has the record. The user has to name a different record.
    #[error("{0}")]
    NoRecord(String),
    /// The journal or a stream cannot be read. The user has to retry, or to correct the cause.
    #[error(transparent)]
    Unreadable(#[from] Failure),
}

/// Explains what happened to a record.
///
/// # Errors
/// The record does not exist, or the journal or a stream cannot be read.
pub async fn explain(question: &Question<'_>) -> Result<Explanation, ExplainError> {
    let Question { directory, endpoint, streams, table, shard, is_running, .. } = *question;
    let journal = directory.join("journal");
    let open = || Reader::open(&journal).map_err(Failure::fatal);
    let wanted = wanted(question, open).await?;
    let number = SequenceNumber::parse(wanted.trim_start_matches('0')).ok();
    let client = streams.cloned().or_else(|| endpoint.map(endpoint::streams_client));
    // If the table is known, the record is found without the journal. Then only the journal's part
    // since the record is read.
    let search = async {
        let (client, table, _) = (client.as_ref()?, table?, number.as_ref()?);
        let clues = Clues { table: Some(table), shard, history: &History::default() };
        Some(find_either(client, &wanted, &clues).await)
    };
    let (early, surroundings) = tokio::join!(search, surroundings(directory));
    let (status, redrives) = surroundings?;
    let hindered = match is_running {
        true => hindrance::of_status(status.as_ref(), directory),
        false => None,
    };
    let status = status.filter(|_| is_running || endpoint.is_some());
    let lines = match &early {
        Some(Ok(found)) => open()?.since(begin_of(found)).of_tables(vec![found.table.clone()]),
        _ => open()?,
    };
    let lines = match number {
        Some(number) => lines.of_records(vec![number]),
        None => lines,
    };
    let (history, wanted) = blocking(move || (history_of(lines, &wanted), wanted)).await?;
    let sequence = history.record.as_ref().map_or(&*wanted, |record| record.sequence()).to_owned();
    let found = match (early, &client) {
        (Some(early), _) => early,
        (None, Some(client)) => {
            let clues = Clues { table, shard: None, history: &history };
            find_either(client, &sequence, &clues).await
        }
        (None, None) => Err(NotFound::NotAsked(not_asked(is_running).to_owned())),
    };
    if let Err(reason) = &found
        && history.record.is_none()
    {
        let why = match reason {
            NotFound::Gone => String::new(),
            NotFound::NotAsked(why) => format!(" ({why})"),
        };
        let since = history.since_ms.map(time).unwrap_or_default();
        return Err(ExplainError::NoRecord(format!(
            "the record `{wanted}` is in no stream{why} and not in the journal, which begins at {since}; \
             a stream keeps its records for 24 hours, and the journal keeps the last deliveries{}",
            lost(&history)
        )));
    }
    let place = Surroundings {
        found: found.as_ref().ok(),
        status: status.as_ref(),
        directory,
        redrives: &redrives,
        shard: history.shard.as_deref(),
        is_running,
        hindered: hindered.as_deref(),
    };
    let verdicts = verdicts(&history, &place, &sequence);
    Ok(Explanation { sequence, verdicts, history, found, hindered })
}

/// Reads the status and the redrives of a data folder. The status is read before the journal. The
/// journal then has the outcome of every attempt that this status counts as ended.
async fn surroundings(directory: &Path) -> Result<(Option<Value>, Vec<Redrive>)> {
    let directory = directory.to_owned();
    blocking(move || (status::read(&directory), log::read(&directory))).await
}

/// Runs a function that reads files on a thread that may block.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(read).await.map_err(|error| fatal!("cannot read files: {error}"))
}

/// The maximum time in milliseconds by which a delivery may appear to be older than its record.
/// Records have times in whole seconds, and on AWS the time of a delivery is estimated from
/// responses.
const SKEW_MS: i64 = 5_000;

/// Returns the earliest possible time of a delivery of a record, in milliseconds since 1970.
fn begin_of(found: &Found) -> Option<i64> {
    let created_s = found.record.creation_s?;
    Some(created_s.saturating_mul(1_000).saturating_sub(SKEW_MS))
}

/// The number of the journal's newest segments that are read for the newest records. They have
/// 8 MB, or about 70,000 deliveries, which can be read within 100 ms.
const NEWEST_SEGMENTS: usize = 2;

/// A record that was read from a stream, with its table and shard.
#[derive(Clone, Debug)]
pub struct Found {
    /// The name of the table.
    pub table: String,
    /// The shard.
    pub shard: String,
    /// The record to explain.
    pub record: Record,
}

/// Returns the verdicts of all mappings about each of the newest records, from the newest part of the journal.
/// It reads files, so an asynchronous caller must call it on a thread that may block.
#[must_use]
pub fn verdicts_of_newest(
    records: &[Found],
    directory: &Path,
    is_running: bool,
) -> Vec<Vec<Verdict>> {
    // The status is read before the journal, as in `explain`.
    let status = status::read(directory);
    let hindered = match is_running {
        true => hindrance::of_status(status.as_ref(), directory),
        false => None,
    };
    let wanted: Vec<SequenceNumber> =
        records.iter().map(|found| found.record.sequence.clone()).collect();
    // `None` sorts first, so all lines of the journal are used if a record has no time.
    let since_ms = records.iter().map(begin_of).min().flatten();
    let tables: BTreeSet<String> = records.iter().map(|found| found.table.clone()).collect();
    let histories = match Reader::open_newest(&directory.join("journal"), NEWEST_SEGMENTS) {
        Ok(lines) => {
            let lines = lines.since(since_ms).of_tables(tables.into_iter().collect());
            histories_of(lines.of_records(wanted.clone()), &wanted)
        }
        Err(_) => vec![History::default(); wanted.len()],
    };
    let redrives = log::read(directory);
    let of_record = |(found, history): (&Found, &History)| {
        let place = Surroundings {
            found: Some(found),
            status: status.as_ref(),
            directory,
            redrives: &redrives,
            shard: Some(&found.shard),
            is_running,
            hindered: hindered.as_deref(),
        };
        verdicts(history, &place, found.record.sequence.as_str())
    };
    records.iter().zip(&histories).map(of_record).collect()
}

/// Returns the sequence number of the record to explain.
async fn wanted(question: &Question<'_>, open: impl Fn() -> Result<Reader>) -> Result<String> {
    let Question { endpoint, table, .. } = *question;
    match (question.wanted, table) {
        (Wanted::Record(record), _) => return Ok(record.to_owned()),
        (Wanted::Item(key), Some(table)) => {
            let endpoint = endpoint.ok_or("`weir up` is not running, so the item's stream cannot be searched: start it, or name a record by its sequence number")?;
            return newest::of_item(endpoint, table, key).await;
        }
        _ => {}
    }
    if let Some(sequence) = newest::of_streams(endpoint, table).await {
        return Ok(sequence);
    }
    newest_record(open()?, table).map(|record| record.0).ok_or_else(|| match table {
        Some(table) => fatal!(
            "no stream record of table `{table}` found: write an item to the table; `weir streams ls` lists the tables with a stream"
        ),
        None => fatal!("no stream record found: write an item to a table with a stream"),
    })
}

/// The maximum number of gaps in the journal that are shown if a record is not found.
const GAPS_SHOWN: usize = 3;

/// The reason why no stream has the record. The journal may still have its attempts.
enum NotFound {
    /// The record is in none of the streams.
    Gone,
    /// Not every stream could be read, for this reason.
    NotAsked(String),
}

impl From<Failure> for NotFound {
    fn from(failure: Failure) -> Self {
        Self::NotAsked(failure.to_string())
    }
}

impl NotFound {
    fn text(&self) -> String {
        match self {
            Self::Gone => "the record is no longer in a stream".to_owned(),
            Self::NotAsked(why) => why.clone(),
        }
    }
}

/// Returns the reason why no stream was read.
fn not_asked(is_running: bool) -> &'static str {
    if is_running {
        "the endpoint of the running `weir up` is unknown, so no stream was searched: name the store with --endpoint"
    } else {
        "no `weir up` runs on this data folder, so no stream was searched"
    }
}

/// Returns a text about the journal's gaps, because a record that is not found may be in a gap.
fn lost(history: &History) -> String {
    let gaps = history.gaps.iter().map(|gap| {
        format!(
            "\n  {}: shard {} was trimmed before it was read, seen at {}",
            gap.mapping,
            gap.shard,
            time(gap.at_ms)
        )
    });
    let shown: String = gaps.clone().take(GAPS_SHOWN).collect();
    match gaps.count().saturating_sub(GAPS_SHOWN) {
        0 => shown,
        more => format!("{shown}\n  gaps not shown: {more}"),
    }
}

fn document(
    sequence: &str,
    history: &History,
    found: Option<&Found>,
    verdicts: &[Verdict],
) -> Value {
    let name = history.record.as_ref().map(|record| record.event_name().to_owned());
    json!({
        "schema": "weir.explain/v1",
        "sequence_number": sequence,
        "event_id": event_id(history, found),
        "event_name": name.or_else(|| event_name(found)),
        "table": found.map(|found| &found.table),
        "shard": found.map(|found| &found.shard).or(history.shard.as_ref()),
        "in_stream": found.is_some(),
        "mappings": verdicts.iter().map(Verdict::json).collect::<Vec<_>>(),
    })
}

fn text(
    sequence: &str,
    history: &History,
    found: Result<&Found, &NotFound>,
    verdicts: &[Verdict],
) -> String {
    let not_found = found.err();
    let found = found.ok();
    let name = history.record.as_ref().map(|record| record.event_name().to_owned());
    let name = name.or_else(|| event_name(found)).unwrap_or_default();
    let of_journal = || {
        let name = &verdicts.first()?.mapping;
        history.mappings.get(name).map(|mapping| mapping.facts.table.clone())
    };
    let table = found.map(|found| found.table.clone()).or_else(of_journal).unwrap_or_default();
    let shard = found.map(|found| found.shard.clone()).or_else(|| history.shard.clone());
    let mut text = format!("record {sequence}  {table}  {name}");
    let created =
        found.and_then(|found| found.record.creation_s).map(|seconds| time(seconds * 1000));
    for part in created.into_iter().chain(shard) {
        text.push_str("  ");
        text.push_str(&part);
    }
    text.push('\n');
    if let Some(reason) = not_found {
        text.push_str(&format!(" (from the journal only: {})\n", reason.text()));
    }
    let width = verdicts.iter().map(|verdict| verdict.mapping.len()).max().unwrap_or(0);
    for (index, verdict) in verdicts.iter().enumerate() {
        let last = index + 1 == verdicts.len();
        let (branch, stem) = if last { (" └─", "   ") } else { (" ├─", " │ ") };
        let (mapping, outcome) = (&verdict.mapping, verdict.outcome);
        let line = format!("{branch} {mapping:<width$}  {outcome:<13}  {}", verdict.detail);
        text.push_str(line.trim_end());
        text.push('\n');
        for attempt in &verdict.attempts {
            // After a bisect, the half without the record is marked.
            let depth = depth(attempt, &verdict.attempts);
            let other = if attempt.place.is_some() { "" } else { " (another part)" };
            let indent = "  ".repeat(depth + 1);
            text.push_str(&format!(
                "{stem}{indent}batch {}-{} ({}){other} · attempt {} · {}\n",
                attempt.run,
                attempt.batch,
                records(attempt.records.len()),
                attempt.attempt,
                verdict.end(attempt)
            ));
        }
        if verdict.missed > 0 {
            text.push_str(&format!(
                "{stem}  the journal lacks {} of this mapping\n",
                reports(verdict.missed)
            ));
        }
    }
    if verdicts.is_empty() {
        text.push_str(" no mapping has read this table's stream\n");
    }
    text
}

/// Returns the number of bisects before `attempt`: the number of distinct larger batch sizes of
/// earlier attempts that include all records of `attempt`.
fn depth(attempt: &Attempt, all: &[Attempt]) -> usize {
    let larger: BTreeSet<usize> = all
        .iter()
        .take_while(|other| *other != attempt)
        .filter(|other| {
            other.records.len() > attempt.records.len()
                && attempt.records.iter().all(|record| other.records.contains(record))
        })
        .map(|other| other.records.len())
        .collect();
    larger.len()
}

fn records(count: usize) -> String {
    output::counted(count, "record", "records")
}

fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis).map_or("-".to_owned(), |time| format!("{time:.3}"))
}

fn event_name(found: Option<&Found>) -> Option<String> {
    found?.record.event().get("eventName")?.as_str().map(str::to_owned)
}

fn event_id(history: &History, found: Option<&Found>) -> Option<String> {
    let live = found.and_then(|found| found.record.event().get("eventID")?.as_str());
    live.or(history.record.as_ref().map(|record| record.event_id())).map(str::to_owned)
}
