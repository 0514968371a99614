//! `weir streams explain`: explains why a function ran, or did not run, for a record.
//!
//! The journal has the attempts, and the stream has the record. If either no longer has the data, the
//! output says so.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use self::verdict::{REDRIVEN, Surroundings, Verdict, reports, verdicts};
use super::EndpointFlag;
use super::redrives;
use crate::logs::data_folder;
use crate::status::{self, hindrance};
use client::endpoint;
use client::exit::Exit;
use client::output::{self, Output};
use client::running::{Running, RunningState};
use client::shards;
use local::journal::{Attempt, History, Reader, history_of, newest_record};
use mapping::{Record, SequenceNumber};
use operations::item_key;

/// Arguments of `weir streams explain`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams explain --last\n  weir streams explain --last --table movies\n  weir streams explain --table movies --key '{\"year\":2013,\"title\":\"Rush\"}'\n  weir streams explain 1000000000000002400005 --output json\n\nExit codes: 0 explained, 1 the record is neither in a stream nor in the journal"
)]
pub struct ExplainArguments {
    /// A sequence number or an event id
    #[arg(required_unless_present_any = ["last", "key"], conflicts_with_all = ["last", "key"])]
    pub record: Option<String>,
    /// The newest record
    #[arg(long)]
    pub last: bool,
    /// The newest record of the item with this key (plain or DynamoDB JSON)
    #[arg(long, value_name = "KEY", requires = "table", conflicts_with = "last")]
    pub key: Option<String>,
    /// Only records of this table
    #[arg(long)]
    pub table: Option<String>,
    /// The data folder of `weir up` [default: the running one's, or .weir/up]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    #[command(flatten)]
    endpoint: EndpointFlag,
}

impl ExplainArguments {
    /// Returns the endpoint of the store to which the journal belongs: the value of the flag, or the
    /// endpoint of the `weir up` that writes the journal. Ignores the environment. Returns `None` if
    /// this `weir up` is not running.
    ///
    /// # Errors
    /// The flag is not an address.
    fn store(&self, running: Option<&Running>) -> Result<Option<String>, String> {
        if let Some(url) = &self.endpoint.endpoint {
            return endpoint::checked(url, "--endpoint").map(Some);
        }
        let Some(running) = running else { return Ok(None) };
        let own = running.store().map(str::to_owned);
        // An earlier version did not write DynamoDB's address, so it is taken from the environment.
        Ok(own.or_else(|| endpoint::find(None).ok()))
    }
}

/// The maximum number of gaps that are shown if a record is not found.
const GAPS_SHOWN: usize = 3;

/// A record that a stream still has.
struct Found {
    table: String,
    shard: String,
    record: Record,
}

/// The reason why the record itself was not found. Its journal may still exist.
enum NotFound {
    /// No stream has the record.
    Gone,
    /// Not every stream could be read; the field is the reason.
    NotRead(String),
}

impl NotFound {
    fn text(&self) -> String {
        match self {
            Self::Gone => "the record is no longer in a stream".to_owned(),
            Self::NotRead(why) => why.clone(),
        }
    }
}

pub(super) async fn run(arguments: &ExplainArguments, output: Output) -> Result<Exit, String> {
    let directory = data_folder(arguments.directory.as_deref());
    let running = RunningState::of_data(&directory).running();
    let endpoint = arguments.store(running.as_ref())?;
    let endpoint = endpoint.as_deref();
    let journal = directory.join("journal");
    let hindered = running.as_ref().and_then(|_| hindrance::now(&directory));
    if let Some(why) = &hindered {
        output::say(&format!("NOTE: {why}"));
    }
    let open = || Reader::open(&journal).map_err(|error| error.to_string());
    let table = arguments.table.as_deref();
    let wanted = wanted(arguments, endpoint, open).await?;
    // Reads the status before the journal, so that the journal has the outcome of every attempt that the
    // status counts as ended.
    let is_known = running.is_some() || endpoint.is_some();
    let status = status::read(&directory).filter(|_| is_known);
    let history = history_of(open()?, &wanted);
    let sequence = history.record.as_ref().map_or(&*wanted, |record| record.sequence()).to_owned();
    let found = match endpoint {
        Some(endpoint) => find_either(endpoint, &sequence, table, &history).await,
        None => Err(NotFound::NotRead(not_asked(running.is_some()).to_owned())),
    };
    if let Err(reason) = &found
        && history.record.is_none()
    {
        let why = match reason {
            NotFound::Gone => String::new(),
            NotFound::NotRead(why) => format!(" ({why})"),
        };
        let since = history.since_ms.map(time).unwrap_or_default();
        return Err(format!(
            "cannot find the record `{wanted}` in a stream{why} or in the journal, which begins at {since}; \
             a stream keeps records for 24 hours, the journal keeps the latest deliveries{}",
            gap_text(&history)
        ));
    }
    let place = Surroundings {
        found: found.as_ref().ok(),
        status: status.as_ref(),
        directory: &directory,
        redrives: &redrives::read(&directory),
        shard: history.shard.as_deref(),
        is_running: running.is_some(),
        hindered: hindered.as_deref(),
    };
    let verdicts = verdicts(&history, &place, &sequence);
    if output == Output::Table {
        output::show(&text(&sequence, &history, found.as_ref(), &verdicts));
        suggest(&verdicts);
    } else {
        let document = document(&sequence, &history, found.as_ref().ok(), &verdicts);
        output::show(&format!("{document}\n"));
    }
    Ok(Exit::Done)
}

/// Returns the reason why no stream was read.
fn not_asked(is_running: bool) -> &'static str {
    if is_running {
        "this `weir up` uses AWS, but its endpoint is unknown, so no stream was searched: name the endpoint with --endpoint"
    } else {
        "no `weir up` is running with this data folder, so no stream was searched"
    }
}

/// Describes the gaps, because a missing record may have been lost in a gap.
fn gap_text(history: &History) -> String {
    let gaps = history.gaps.iter().map(|gap| {
        format!(
            "\n  {}: shard {} was trimmed before it was read, detected at {}",
            gap.mapping,
            gap.shard,
            time(gap.at_ms)
        )
    });
    let shown: String = gaps.clone().take(GAPS_SHOWN).collect();
    match gaps.count().saturating_sub(GAPS_SHOWN) {
        0 => shown,
        more => format!("{shown}\n  and {more} more times"),
    }
}

/// Returns the sequence number of the record that the arguments select.
async fn wanted(
    arguments: &ExplainArguments,
    endpoint: Option<&str>,
    open: impl Fn() -> Result<Reader, String>,
) -> Result<String, String> {
    if let Some(record) = &arguments.record {
        return Ok(record.clone());
    }
    let table = arguments.table.as_deref();
    if let Some((key, table)) = arguments.key.as_deref().zip(table) {
        let key = item_key::parse(key)?;
        let endpoint = endpoint.ok_or("`weir up` is not running, so the item's stream cannot be searched: start `weir up`, or name a record by its sequence number")?;
        return newest::of_item(endpoint, table, &key).await;
    }
    if let Some(sequence) = newest::of_streams(endpoint, table).await {
        return Ok(sequence);
    }
    newest_record(open()?, table).map(|record| record.0).ok_or_else(|| match table {
        Some(table) => format!(
            "no record of table `{table}` has been read yet: write an item to the table; `weir streams ls` lists the tables with a stream"
        ),
        None => "no record has been read yet: write an item to a table with a stream".to_owned(),
    })
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
        text.push_str(&format!(" (from the journal alone: {})\n", reason.text()));
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
            // After a bisect, marks the half without the record.
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
        text.push_str(" no mapping in the journal reads this table's stream\n");
    }
    text
}

/// Returns the number of bisects before this attempt. Each larger batch size among the earlier attempts
/// stands for one bisect.
fn depth(attempt: &Attempt, all: &[Attempt]) -> usize {
    let larger: std::collections::BTreeSet<usize> = all
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

fn suggest(verdicts: &[Verdict]) {
    for verdict in verdicts {
        if let Some(key) = verdict.failure_object.as_ref().filter(|_| verdict.outcome != REDRIVEN) {
            output::next(&[(
                &format!("weir streams redrive {}", output::shell_word(key)),
                "invoke the function again with the discarded records",
            )]);
        } else if !verdict.attempts.is_empty() {
            output::next(&[(&format!("weir logs {}", verdict.function), "the function's log")]);
        }
    }
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

/// Searches for a record by the given number, then by the number without leading zeros. The archive pads
/// sequence numbers with zeros, so that they sort as strings.
async fn find_either(
    endpoint: &str,
    sequence: &str,
    table: Option<&str>,
    history: &History,
) -> Result<Found, NotFound> {
    let found = find(endpoint, sequence, table, history).await;
    let significant = sequence.trim_start_matches('0');
    match found {
        Err(_) if significant != sequence => find(endpoint, significant, table, history).await,
        found => found,
    }
}

/// Searches the streams for a record. Searches the streams of the record's mappings first.
async fn find(
    endpoint: &str,
    sequence: &str,
    table: Option<&str>,
    history: &History,
) -> Result<Found, NotFound> {
    SequenceNumber::parse(sequence).map_err(|_| NotFound::Gone)?;
    let client = endpoint::streams_client(endpoint);
    let mut arns = shards::arns(&client, table).await.map_err(NotFound::NotRead)?;
    let touched = |arn: &String| {
        history.mappings.values().any(|it| it.facts.stream == *arn && !it.attempts.is_empty())
    };
    arns.sort_by_key(|arn| !touched(arn));
    let mut reason = NotFound::Gone;
    for arn in arns {
        match shards::describe(client.clone(), &arn).await {
            Ok(stream) => {
                if let Some((shard, record)) = stream.find(sequence).await {
                    return Ok(Found { table: stream.table, shard, record });
                }
            }
            Err(error) => reason = NotFound::NotRead(error),
        }
    }
    Err(reason)
}

mod newest;
#[cfg(test)]
mod tests;
mod verdict;
