//! `weir streams explain`: why a function did, or did not, run for a record.
//!
//! The journal says what was tried; the stream, when it can be reached, what the record is. Where
//! neither reaches back far enough, that is said.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::EndpointFlag;
use super::redrives::{self, Redrive};
use super::shards;
use crate::endpoint;
use crate::exit::Exit;
use crate::item_key;
use crate::journal::{
    Attempt, End, History, MappingFacts, MappingHistory, PassedOver, Reader, history_of,
    newest_record,
};
use crate::logs::data_folder;
use crate::mapping::{FilterCriteria, Record, SequenceNumber};
use crate::output::{self, Output};
use crate::running::Look;
use crate::status;

/// Which record.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams explain --last\n  weir streams explain --last --table movies\n  weir streams explain --table movies --key '{\"year\":2013,\"title\":\"Rush\"}'\n  weir streams explain 000000000000000000041 --output json\n\nExit codes: 0 explained, 1 the record is neither in a stream nor in the journal"
)]
pub struct ExplainArguments {
    /// A sequence number or an event id
    #[arg(required_unless_present_any = ["last", "key"], conflicts_with_all = ["last", "key"])]
    pub record: Option<String>,
    /// The newest record
    #[arg(long)]
    pub last: bool,
    /// The newest record of the item with this key, in plain or DynamoDB JSON
    #[arg(long, value_name = "KEY", requires = "table", conflicts_with = "last")]
    pub key: Option<String>,
    /// Of this table only
    #[arg(long)]
    pub table: Option<String>,
    /// The data folder of `weir up` [default: the running one's, or .weir/up]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    #[command(flatten)]
    pub(super) endpoint: EndpointFlag,
}

impl ExplainArguments {
    /// The store that the journal is of: that of the `weir up` which writes it, whatever the
    /// environment says. `None` when that one does not run.
    pub(super) fn store(&self) -> Option<String> {
        let Look::Running(running) = Look::here() else { return None };
        let own = data_folder(self.directory.as_deref()) == running.directory;
        match running.dynamodb.is_empty() {
            // On AWS the environment is all that says where the streams are.
            true => endpoint::find(None).ok(),
            false => Some(running.dynamodb),
        }
        .filter(|_| own)
    }
}

/// A record that still is in a stream.
struct Found {
    table: String,
    shard: String,
    record: Record,
}

/// Why there is a record's journal, and not the record.
enum NotFound {
    /// All streams were asked.
    Gone,
    /// Not every stream could be asked; why not.
    NotAsked(String),
}

impl NotFound {
    fn text(&self) -> String {
        match self {
            Self::Gone => "the record is no longer in a stream".to_owned(),
            Self::NotAsked(why) => why.clone(),
        }
    }
}

pub(super) async fn run(
    arguments: &ExplainArguments,
    endpoint: Option<&str>,
    output: Output,
) -> Result<Exit, String> {
    let directory = data_folder(arguments.directory.as_deref());
    let journal = directory.join("journal");
    let open = || Reader::open(&journal).map_err(|error| error.to_string());
    let table = arguments.table.as_deref();
    let wanted = wanted(arguments, endpoint, open).await?;
    let history = history_of(open()?, &wanted);
    let sequence = history.record.as_ref().map_or(&*wanted, |record| record.sequence()).to_owned();
    let found = match endpoint {
        Some(endpoint) => find(endpoint, &sequence, table, &history).await,
        None => {
            Err(NotFound::NotAsked("nothing is running, so no stream could be asked".to_owned()))
        }
    };
    if let Err(reason) = &found
        && history.record.is_none()
    {
        let why = match reason {
            NotFound::Gone => String::new(),
            NotFound::NotAsked(why) => format!(" ({why})"),
        };
        let since = history.since_ms.map(time).unwrap_or_default();
        return Err(format!(
            "the record `{wanted}` is in no stream{why} and not in the journal, which begins at {since}; \
             a stream keeps its records for 24 hours, the journal keeps the last deliveries"
        ));
    }
    let status = status::read(&directory).filter(|_| endpoint.is_some());
    let place = Surroundings {
        found: found.as_ref().ok(),
        status: status.as_ref(),
        directory: &directory,
        redrives: &redrives::read(&directory),
        shard: history.shard.as_deref(),
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

/// The record that is meant.
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
        let endpoint = endpoint.ok_or("nothing is running, so the stream could not be asked for the records of an item: start `weir up`, or name a record by its number")?;
        return newest::of_item(endpoint, table, &key).await;
    }
    if let Some(sequence) = newest::of_streams(endpoint, table).await {
        return Ok(sequence);
    }
    newest_record(open()?, table).map(|record| record.0).ok_or_else(|| match table {
        Some(table) => format!(
            "no record of `{table}` was seen yet: write an item to it; `weir streams ls` shows the tables that have a stream"
        ),
        None => "no record was seen yet: write an item to a table with a stream".to_owned(),
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

/// What one mapping did.
struct Verdict {
    mapping: String,
    function: String,
    outcome: &'static str,
    detail: String,
    attempts: Vec<Attempt>,
    failure_object: Option<String>,
    filter: Vec<String>,
    missed: u64,
}

impl Verdict {
    fn json(&self) -> Value {
        let attempts = self.attempts.iter().map(|attempt| {
            json!({
                "batch": attempt.batch, "run": attempt.run, "attempt": attempt.attempt,
                "records": attempt.records.len(), "has_record": attempt.place.is_some(),
                "outcome": end(attempt), "at_ms": attempt.at_ms,
            })
        });
        json!({
            "mapping": self.mapping, "function": self.function, "outcome": self.outcome,
            "detail": self.detail, "filter": self.filter, "failure_object": self.failure_object,
            "attempts": attempts.collect::<Vec<_>>(), "missed_reports": self.missed,
        })
    }
}

/// What is known beside the journal.
struct Surroundings<'a> {
    found: Option<&'a Found>,
    status: Option<&'a Value>,
    /// The data folder.
    directory: &'a Path,
    /// What was redriven by hand.
    redrives: &'a [Redrive],
    /// The record's shard, if the journal names it.
    shard: Option<&'a str>,
}

fn verdicts(history: &History, place: &Surroundings<'_>, sequence: &str) -> Vec<Verdict> {
    let touched = |mapping: &MappingHistory| {
        mapping.passed_over.is_some() || mapping.attempts.iter().any(|it| it.place.is_some())
    };
    let own_table = place.found.map(|found| found.table.clone()).or_else(|| {
        history.mappings.values().find(|it| touched(it)).map(|it| it.facts.table.clone())
    });
    history
        .mappings
        .iter()
        .filter(|(_, mapping)| Some(&mapping.facts.table) == own_table.as_ref())
        .filter(|(_, mapping)| mapping.is_current || touched(mapping))
        .map(|(name, mapping)| verdict(name, mapping, place, sequence))
        .collect()
}

fn verdict(
    name: &str,
    mapping: &MappingHistory,
    place: &Surroundings<'_>,
    sequence: &str,
) -> Verdict {
    let Surroundings { found, status, directory, redrives, .. } = *place;
    let live = found.zip(FilterCriteria::compile(&mapping.facts.filters).ok());
    let live = live.map(|(found, filter)| {
        let event = found.record.event();
        (filter.verdict(event).matched, filter.explain(event))
    });
    // What the journal says of a range of records is of one shard, and the stream knows the record's.
    let is_here = |shard: &str| found.is_none_or(|found| found.shard == shard);
    let passed_over = mapping.passed_over.as_ref().filter(|passed_over| match passed_over {
        PassedOver::Why(_) => true,
        PassedOver::Among { shard, .. } => is_here(shard),
    });
    let given_up = mapping.given_up.as_ref().filter(|given_up| is_here(&given_up.shard));
    let why = match (passed_over, &live) {
        (Some(PassedOver::Why(why)), _) => why.clone(),
        (_, Some((_, why))) => why.clone(),
        (Some(PassedOver::Among { count, .. }), None) => vec![format!(
            "it is among {count} records of one page that did not pass; the clause is shown while `weir up` runs"
        )],
        (None, None) => Vec::new(),
    };
    let is_done = mapping.attempts.iter().any(Attempt::has_done_it);
    let was_tried = mapping.attempts.iter().any(|attempt| attempt.place.is_some());
    let key = given_up.and_then(|given_up| given_up.key.as_deref());
    let kept = key.map(|key| Kept::new(&mapping.facts, key, directory));
    let (outcome, detail) = if is_done {
        ("delivered", String::new())
    } else if let Some(given_up) = given_up {
        let place = kept.as_ref().map_or(KEPT_NOWHERE, |kept| &kept.place);
        let given_up = format!("{}, {place}", given_up.condition);
        match redriven(redrives, &mapping.facts, sequence) {
            Some((true, at)) => (REDRIVEN, format!("done at {at}; it was given up: {given_up}")),
            Some((false, at)) => ("given up", format!("{given_up}; not done by a redrive at {at}")),
            None => ("given up", given_up),
        }
    } else if was_tried && status.is_some_and(|status| status::is_disabled(status, name)) {
        ("not delivered", format!("no attempt was successful, and {DISABLED}"))
    } else if was_tried {
        let waits = |why: &String| format!("it was given up and waits for its destination: {why}");
        let tried = "no attempt was successful yet";
        ("being tried", mapping.undelivered.as_ref().map_or_else(|| tried.to_owned(), waits))
    } else if passed_over.is_some() || live.as_ref().is_some_and(|(matched, _)| !matched) {
        ("filtered out", why.join("; "))
    } else {
        let shard = found.map(|found| found.shard.as_str()).or(place.shard);
        ("not delivered", waiting(name, status, sequence, shard, mapping.missed))
    };
    Verdict {
        mapping: name.to_owned(),
        function: mapping.facts.function.clone(),
        outcome,
        detail,
        attempts: mapping.attempts.clone(),
        failure_object: kept.and_then(|kept| kept.object),
        filter: why,
        missed: mapping.missed,
    }
}

/// What `weir streams redrive` has brought to its function after it was given up.
const REDRIVEN: &str = "redriven";
const DISABLED: &str = "the mapping is disabled now (`Enabled: false` in the template)";
const KEPT_NOWHERE: &str = "kept nowhere: the mapping has no OnFailure destination, or it could not be reached until the records expired";

/// Whether a redrive brought a record to its mapping's function, and when: the first that did, or the
/// last that was tried.
fn redriven(redrives: &[Redrive], facts: &MappingFacts, sequence: &str) -> Option<(bool, String)> {
    let own = redrives.iter().filter_map(|redrive| {
        Some((redrive.has_done(&facts.function, &facts.stream, sequence)?, redrive.at_ms))
    });
    let own: Vec<(bool, i64)> = own.collect();
    let (done, at_ms) = own.iter().find(|(done, _)| *done).or(own.last())?;
    Some((*done, time(*at_ms)))
}

/// Where what was given up is kept.
struct Kept {
    /// In words.
    place: String,
    /// What `redrive` takes, if that is known.
    object: Option<String>,
}

impl Kept {
    fn new(facts: &MappingFacts, key: &str, directory: &Path) -> Self {
        let MappingFacts { bucket, messages, .. } = facts;
        if let Some(bucket) = bucket {
            let place = format!("kept in s3://{bucket}/{key}");
            return Self { place, object: Some(key.to_owned()) };
        }
        if let Some(messages) = messages {
            let file = messages.file(directory, key).display().to_string();
            return Self { place: format!("kept in {file}"), object: Some(file) };
        }
        // The journal of an older version does not name queues and topics.
        let name = key.rsplit('/').next().unwrap_or(key);
        let folder = directory.join("destinations");
        let place = format!("kept below {}, in a file `{name}.json`", folder.display());
        Self { place, object: None }
    }
}

/// Why a record that passes has not been delivered, as far as the mapping's state says it. Sequence
/// numbers say nothing of other shards than the record's own.
fn waiting(
    name: &str,
    status: Option<&Value>,
    sequence: &str,
    shard: Option<&str>,
    missed: u64,
) -> String {
    let Some(status) = status else {
        return "`weir up` does not run; it goes on from its checkpoint when it is started"
            .to_owned();
    };
    if status::is_disabled(status, name) {
        return DISABLED.to_owned();
    }
    let is_own = |mapping: &&Value| mapping.get("mapping").and_then(Value::as_str) == Some(name);
    let Some(mapping) = status::list(status, "mappings").iter().find(is_own) else {
        return "the mapping is not running: it is not enabled, or its stream is gone".to_owned();
    };
    if mapping.get("ended") == Some(&json!(true)) {
        let why = mapping.get("end").and_then(Value::as_str).unwrap_or("it has ended");
        return format!("the mapping runs no more: {why}; start `weir up` again");
    }
    let is_its = |candidate: &&Value| candidate.get("id").and_then(Value::as_str) == shard;
    let Some(shard) = status::list(mapping, "shards").iter().find(is_its) else {
        return "its shard is not read yet, or is over".to_owned();
    };
    let text = |name: &str| shard.get(name).and_then(Value::as_str);
    let is_behind = |mark: &str| {
        let parse = |text: &str| SequenceNumber::parse(text).ok();
        text(mark).and_then(parse).zip(parse(sequence)).is_some_and(|(mark, own)| own <= mark)
    };
    // A shard that is over has no checkpoint of its own any more.
    if text("state") == Some("done") || is_behind("checkpoint") {
        return match missed {
            0 => "it was passed before the journal begins".to_owned(),
            missed => format!("it is done or was given up; the journal misses {missed} reports"),
        };
    }
    match text("state") {
        Some("gap") => {
            "its shard stands still at a gap: records were trimmed before they were read".to_owned()
        }
        Some("retrying") => "it waits behind a batch that fails".to_owned(),
        Some("unreachable") => "its shard cannot be read; it is tried again".to_owned(),
        Some("waits for its parent") => "its shard waits until its parent is done".to_owned(),
        _ if is_behind("last_read") => "it was read and waits for its batch".to_owned(),
        _ => {
            "it has not been read yet, or was written before the mapping began at LATEST".to_owned()
        }
    }
}

fn end(attempt: &Attempt) -> String {
    match &attempt.end {
        Some(End::Succeeded { took_ms }) => format!("ok {took_ms} ms"),
        Some(End::Failed { took_ms, done, reason }) => {
            let done = if *done > 0 { format!(", {done} done") } else { String::new() };
            format!("error{done} after {took_ms} ms: {}", reason.lines().next().unwrap_or_default())
        }
        None => "no end is known: it runs, or the run was cut off".to_owned(),
    }
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
            // Where a batch was cut in parts, the part without the record is shown as the other.
            let depth = depth(attempt, &verdict.attempts);
            let other = if attempt.place.is_some() { "" } else { " (another part)" };
            let indent = "  ".repeat(depth + 1);
            text.push_str(&format!(
                "{stem}{indent}batch {}-{} ({}){other} · attempt {} · {}\n",
                attempt.run,
                attempt.batch,
                records(attempt.records.len()),
                attempt.attempt,
                end(attempt)
            ));
        }
        if verdict.missed > 0 {
            text.push_str(&format!(
                "{stem}  the journal misses {} reports of this mapping\n",
                verdict.missed
            ));
        }
    }
    if verdicts.is_empty() {
        text.push_str(" no mapping that ran reads this table's stream\n");
    }
    text
}

/// How often the batch was cut before this attempt: the larger sizes among the attempts before.
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
    if count == 1 { "1 record".to_owned() } else { format!("{count} records") }
}

fn suggest(verdicts: &[Verdict]) {
    for verdict in verdicts {
        if let Some(key) = verdict.failure_object.as_ref().filter(|_| verdict.outcome != REDRIVEN) {
            output::next(&[(
                &format!("weir streams redrive {}", output::shell_word(key)),
                "invoke the function with them again",
            )]);
        } else if !verdict.attempts.is_empty() {
            output::next(&[(
                &format!("weir logs {}", verdict.function),
                "what the function wrote",
            )]);
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

/// Looks for a record in the streams: in those of its mappings first.
async fn find(
    endpoint: &str,
    sequence: &str,
    table: Option<&str>,
    history: &History,
) -> Result<Found, NotFound> {
    SequenceNumber::parse(sequence).map_err(|_| NotFound::Gone)?;
    let client = endpoint::streams_client(endpoint);
    let mut arns = shards::arns(&client, table).await.map_err(NotFound::NotAsked)?;
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
            Err(error) => reason = NotFound::NotAsked(error),
        }
    }
    Err(reason)
}

mod newest;
#[cfg(test)]
mod tests;
