//! `weir streams tail`: records as they are written, parents before children.
//!
//! The clock may be advanced while it reads: an iterator that expires is replaced by one from the
//! same place, and what was trimmed before it was read is said, not passed over in silence.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::shards::{self, Refusal, Start, Stream};
use crate::exit::Exit;
use crate::mapping::{FilterCriteria, Record};
use crate::output::{self, Output};

/// How often an open shard is read: as often as Lambda does.
const PERIOD: Duration = Duration::from_millis(250);

/// How often the shards are listed, so that new ones are found.
const ROUNDS_PER_LISTING: u32 = 20;

/// What to show.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams tail movies\n  weir streams tail movies --filter '{\"eventName\":[\"REMOVE\"]}'\n  weir streams tail votes --from trim-horizon --no-follow --output ndjson"
)]
pub struct TailArguments {
    /// The table
    pub table: String,
    /// Only records that match this Lambda filter pattern
    #[arg(long, value_name = "PATTERN")]
    pub filter: Option<String>,
    /// Where to begin
    #[arg(long, value_enum, default_value_t = From::Latest)]
    pub from: From,
    /// End at the present end of the stream
    #[arg(long)]
    pub no_follow: bool,
    /// End after this many records
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// At the oldest record
    TrimHorizon,
    /// With what is written from now on
    Latest,
}

/// How far a shard is read.
#[derive(Default)]
struct Reading {
    /// The next page's; `None` when one must be asked for.
    iterator: Option<String>,
    /// The last record that was read.
    last: Option<String>,
    /// Whether its first page was asked for.
    was_read: bool,
    /// Whether its place was trimmed, so that it is read from the oldest record that is left.
    from_horizon: bool,
}

struct Tail {
    filter: FilterCriteria,
    output: Output,
    left: usize,
    open: BTreeMap<String, Reading>,
    seen: BTreeSet<String>,
    from: From,
}

pub(super) async fn run(
    arguments: &TailArguments,
    endpoint: &str,
    output: Output,
) -> Result<Exit, String> {
    let patterns: Vec<&str> = arguments.filter.as_deref().into_iter().collect();
    let mut tail = Tail {
        filter: FilterCriteria::compile(&patterns).map_err(|error| error.to_string())?,
        output,
        left: arguments.limit.unwrap_or(usize::MAX),
        open: BTreeMap::new(),
        seen: BTreeSet::new(),
        from: arguments.from,
    };
    let mut stream = shards::stream_of(endpoint, &arguments.table).await?;
    tail.add_shards(&stream, true);
    for round in 1_u32.. {
        let is_idle = tail.read(&stream).await?;
        if tail.left == 0 {
            return Ok(Exit::Done);
        }
        let shards = tail.open.len();
        if is_idle || round % ROUNDS_PER_LISTING == 0 {
            stream = shards::describe(stream.client.clone(), &stream.arn).await?;
            tail.add_shards(&stream, false);
        }
        // A shard that has just been found is read before the end is believed.
        let is_over = is_idle && tail.open.len() <= shards && !tail.has_unread();
        if is_over && (arguments.no_follow || !stream.enabled) {
            return Ok(Exit::Done);
        }
        if is_idle {
            tokio::time::sleep(PERIOD).await;
        }
    }
    Ok(Exit::Done)
}

impl Tail {
    /// Takes up the shards whose parents are done. Those that are there at the start and have
    /// children are of no use from the latest record on.
    fn add_shards(&mut self, stream: &Stream, at_start: bool) {
        for shard in &stream.shards {
            let Some(id) = &shard.shard_id else { continue };
            let closed = shard
                .sequence_number_range
                .as_ref()
                .is_some_and(|range| range.ending_sequence_number.is_some());
            if at_start && closed && self.from == From::Latest {
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
                self.open.insert(id.clone(), Reading::default());
            }
        }
        if !at_start {
            // Whatever appears later is wanted from its beginning.
            self.from = From::TrimHorizon;
        }
    }

    fn has_unread(&self) -> bool {
        self.open.values().any(|reading| !reading.was_read)
    }

    /// Reads a page of each shard; gives whether there was nothing.
    async fn read(&mut self, stream: &Stream) -> Result<bool, String> {
        let mut is_idle = true;
        for (shard, mut reading) in std::mem::take(&mut self.open) {
            let had_place = reading.iterator.is_some() || reading.last.is_some();
            let read = self.read_page(stream, &shard, &mut reading).await;
            reading.was_read = true;
            match read {
                Ok(Some(records)) => {
                    is_idle &= records.is_empty() && reading.iterator.is_some();
                    for record in &records {
                        self.show(&shard, record);
                    }
                    if reading.iterator.is_some() {
                        self.open.insert(shard, reading);
                    }
                }
                // The shard has ended; its children may begin.
                Ok(None) => is_idle = false,
                Err(Refusal::Expired) => {
                    is_idle = false;
                    reading.iterator = None;
                    self.open.insert(shard, reading);
                }
                Err(Refusal::Trimmed) => {
                    is_idle = false;
                    let behind = reading.last.as_deref().unwrap_or("its beginning");
                    output::say(&format!(
                        "{shard}: records behind {behind} were trimmed before they were read"
                    ));
                    if had_place {
                        let from_horizon = true;
                        self.open.insert(shard, Reading { from_horizon, ..Reading::default() });
                    }
                }
                Err(refusal) => return Err(refusal.to_string()),
            }
        }
        Ok(is_idle)
    }

    /// One page, or `None` at the end of the shard.
    async fn read_page(
        &self,
        stream: &Stream,
        shard: &str,
        reading: &mut Reading,
    ) -> Result<Option<Vec<Record>>, Refusal> {
        let iterator = match reading.iterator.take() {
            Some(iterator) => Some(iterator),
            None => {
                let start = match &reading.last {
                    Some(last) => Start::After(last),
                    None if reading.from_horizon => Start::TrimHorizon,
                    None if self.from == From::Latest => Start::Latest,
                    None => Start::TrimHorizon,
                };
                stream.iterator(shard, start).await?
            }
        };
        let Some(iterator) = iterator else { return Ok(None) };
        let (records, next) = stream.read(iterator).await?;
        if let Some(record) = records.last() {
            reading.last = Some(record.sequence.as_str().to_owned());
        }
        reading.iterator = next;
        Ok(Some(records))
    }

    fn show(&mut self, shard: &str, record: &Record) {
        if self.left == 0 || !self.filter.verdict(&record.event).matched {
            return;
        }
        self.left -= 1;
        if self.output == Output::Table {
            output::show(&format!("{}\n", line(shard, record)));
        } else {
            output::show(&format!("{}\n", record.event));
        }
    }
}

/// One record in one line: time, sequence number, what happened, to which key, and by whom.
fn line(shard: &str, record: &Record) -> String {
    let event = &record.event;
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
