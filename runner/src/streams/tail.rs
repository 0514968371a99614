//! `weir streams tail`: shows records as they are written, parents before children.
//!
//! If an advance of the clock trims records before they are read, it reports the gap and shows the rest
//! of the shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{EndpointFlag, since};
use client::endpoint;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::output::{self, Output};
use client::shards::{self, Place, Refusal, Start, Stream};
use mapping::{FilterCriteria, Record};

/// The interval at which an open shard is read. Lambda uses the same interval.
const PERIOD: Duration = Duration::from_millis(250);

/// The number of reads after which the shards are listed again, to find new shards.
const ROUNDS_PER_LISTING: u32 = 20;

/// Arguments of `weir streams tail`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams tail movies\n  weir streams tail movies --filter '{\"eventName\":[\"REMOVE\"]}'\n  weir streams tail votes --from trim-horizon --no-follow --output ndjson\n  weir streams tail votes --since 14:05"
)]
pub struct TailArguments {
    /// The table
    pub table: String,
    /// Show only records that match this Lambda filter pattern
    #[arg(long, value_name = "PATTERN")]
    pub filter: Option<String>,
    /// The position at which reading starts
    #[arg(long, value_enum, default_value_t = From::Latest)]
    pub from: From,
    /// Start at the first record since this time: 14:05 (UTC), 10m, 2026-11-28T14:05:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "from")]
    pub since: Option<String>,
    /// Stop at the current end of the stream
    #[arg(long)]
    pub no_follow: bool,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub(super) endpoint: EndpointFlag,
}

impl TailArguments {
    /// Returns whether no record can be between the start and the end.
    fn shows_nothing(&self) -> bool {
        self.no_follow && self.since.is_none() && self.from == From::Latest
    }
}

/// Start positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// At the oldest record
    TrimHorizon,
    /// At the next record that is written
    Latest,
}

/// The reading state of a shard.
struct Reading {
    place: Place,
    /// Whether the first page of the shard was requested.
    was_read: bool,
    /// Whether the position was trimmed, so that the shard is read from its oldest record.
    from_horizon: bool,
}

impl Reading {
    fn new(start: Start) -> Self {
        Self { place: Place::new(start), was_read: false, from_horizon: false }
    }
}

struct Tail {
    filter: FilterCriteria,
    output: Output,
    left: usize,
    /// The number of records so far, if the output is one JSON document.
    in_document: Option<u64>,
    open: BTreeMap<String, Reading>,
    seen: BTreeSet<String>,
    start: Start,
}

pub(super) async fn run(arguments: &TailArguments, endpoint: &str, output: Output) -> Result<Exit> {
    let patterns: Vec<&str> = arguments.filter.as_deref().into_iter().collect();
    let mut tail = Tail {
        filter: FilterCriteria::compile(&patterns).map_err(Failure::fatal)?,
        output,
        left: arguments.limit.unwrap_or(usize::MAX),
        in_document: has_an_end(arguments, output)?.then_some(0),
        open: BTreeMap::new(),
        seen: BTreeSet::new(),
        start: start(arguments, endpoint).await?,
    };
    if arguments.shows_nothing() {
        output::no_effect(
            "--no-follow",
            "`--from latest` skips all existing records; add --since TIME or --from trim-horizon",
        );
    }
    let mut stream = shards::stream_of(endpoint, &arguments.table).await?;
    tail.add_shards(&stream, true);
    for round in 1_u32.. {
        let is_idle = tail.read(&stream).await?;
        if tail.left == 0 {
            break;
        }
        if round == 1 && !arguments.no_follow {
            let shards = tail.open.len();
            output::say(&format!(
                "following {} of table `{}` until Ctrl-C",
                output::counted(shards, "shard", "shards"),
                stream.table
            ));
        }
        let shards = tail.open.len();
        if is_idle || round % ROUNDS_PER_LISTING == 0 {
            stream = shards::describe(stream.client.clone(), &stream.arn).await?;
            tail.add_shards(&stream, false);
        }
        // A new shard is read at least once before the end is reported.
        let is_over = is_idle && tail.open.len() <= shards && !tail.has_unread();
        if is_over && (arguments.no_follow || !stream.enabled) {
            break;
        }
        if is_idle {
            tokio::time::sleep(PERIOD).await;
        }
    }
    match tail.in_document {
        Some(0) => output::show("[]\n"),
        Some(_) => output::show("]\n"),
        None => {}
    }
    Ok(Exit::Done)
}

/// Returns the start position. Reads the clock before the shards are listed, so that no record written
/// in between is missed.
async fn start(arguments: &TailArguments, endpoint: &str) -> Result<Start> {
    let now = async || endpoint::store_seconds(endpoint, &endpoint::client(endpoint)).await;
    match (&arguments.since, arguments.from) {
        (Some(text), _) => {
            let second = since::read(text, now().await).map_err(Failure::fatal)?;
            Ok(Start::Since(second))
        }
        (None, From::TrimHorizon) => Ok(Start::TrimHorizon),
        (None, From::Latest) => Ok(Start::Latest(now().await)),
    }
}

/// Returns whether the output is one JSON document.
///
/// # Errors
/// The document would never end.
fn has_an_end(arguments: &TailArguments, output: Output) -> Result<bool> {
    match output {
        Output::Json if arguments.no_follow || arguments.limit.is_some() => Ok(true),
        Output::Json => Err(fatal!(
            "a followed stream never ends, so its output cannot be one JSON document: add --output ndjson, --no-follow or --limit"
        )),
        _ => Ok(false),
    }
}

impl Tail {
    /// Opens the shards whose parents were read completely. If reading starts at `LATEST`, shards
    /// that are closed at the start have no records to show.
    fn add_shards(&mut self, stream: &Stream, at_start: bool) {
        for shard in &stream.shards {
            let Some(id) = &shard.shard_id else { continue };
            let closed = shard
                .sequence_number_range
                .as_ref()
                .is_some_and(|range| range.ending_sequence_number.is_some());
            if at_start && closed && matches!(self.start, Start::Latest(_)) {
                self.seen.insert(id.clone());
                continue;
            }
            let parent = shard.parent_shard_id.as_ref();
            let waits = parent.is_some_and(|parent| {
                let is_listed =
                    stream.shards.iter().any(|other| other.shard_id.as_ref() == Some(parent));
                is_listed && (!self.seen.contains(parent) || self.open.contains_key(parent))
            });
            if !waits && self.seen.insert(id.clone()) {
                self.open.insert(id.clone(), Reading::new(self.start.clone()));
            }
        }
        if !at_start && matches!(self.start, Start::Latest(_)) {
            // Later shards are read from their beginning.
            self.start = Start::TrimHorizon;
        }
    }

    fn has_unread(&self) -> bool {
        self.open.values().any(|reading| !reading.was_read)
    }

    /// Reads a page of each open shard. Returns true if the pages had no record.
    async fn read(&mut self, stream: &Stream) -> Result<bool> {
        let mut is_idle = true;
        for (shard, mut reading) in std::mem::take(&mut self.open) {
            let read = stream.next_page(&shard, &mut reading.place).await;
            reading.was_read = true;
            match read {
                Ok(Some(records)) => {
                    is_idle &= records.is_empty() && !reading.place.is_over();
                    for record in &records {
                        self.show(&shard, record);
                    }
                    if !reading.place.is_over() {
                        self.open.insert(shard, reading);
                    }
                }
                // The shard has ended, so its children are read next.
                Ok(None) => is_idle = false,
                Err(Refusal::Trimmed) => {
                    is_idle = false;
                    if let Some(rest) = behind_the_gap(&shard, &reading) {
                        self.open.insert(shard, rest);
                    }
                }
                Err(refusal) => return Err(refusal.to_string().into()),
            }
        }
        Ok(is_idle)
    }

    fn show(&mut self, shard: &str, record: &Record) {
        if self.left == 0 || !self.filter.passes(record) {
            return;
        }
        self.left -= 1;
        match &mut self.in_document {
            Some(before) => {
                let mark = if *before == 0 { '[' } else { ',' };
                *before += 1;
                output::show(&format!("{mark}{}\n", record.json()));
            }
            None if self.output == Output::Table => {
                output::show(&format!("{}\n", line(shard, record)));
            }
            None => output::show(&format!("{}\n", record.json())),
        }
    }
}

/// Reports that records may be missing. Returns a state that reads the rest of the shard; `None` if
/// the rest was trimmed, too.
fn behind_the_gap(shard: &str, reading: &Reading) -> Option<Reading> {
    if reading.from_horizon {
        return None;
    }
    let behind = reading.place.last().unwrap_or("its beginning");
    output::say(&format!(
        "shard {shard} was trimmed while it was read; records after {behind} that are older than 24 hours are not shown"
    ));
    Some(Reading { from_horizon: true, ..Reading::new(Start::TrimHorizon) })
}

/// Formats a record as one line: time, sequence number, event, keys, shard, and the user if TTL deleted the
/// item.
fn line(shard: &str, record: &Record) -> String {
    let event = record.event();
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or("-");
    let time = record
        .creation_s
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map_or("-".to_owned(), |time| time.to_string());
    let keys = event.pointer("/dynamodb/Keys").cloned().unwrap_or_else(|| json!({}));
    let by = event.get("userIdentity").map_or("", |_| "  by TTL");
    let (sequence, name) = (record.sequence.as_str(), text("eventName"));
    format!("{time}  {sequence}  {name:<6}  {keys}  {shard}{by}")
}
