//! The vocabulary of the mapping: what is told to it, what it asks for, what it reports.
//!
//! No behaviour, but for the texts that logs and test cases show.

use std::fmt;
use std::sync::Arc;

use super::checkpoint::CheckpointPosition;
use super::failure::{Condition, FailureObject};
use super::record::{Delivery, Record};
use super::sequence::SequenceNumber;
use super::tumbling::{Window, WindowInvocation};

/// How much of a window's state is shown.
const STATE_CHARACTERS_SHOWN: usize = 64;

/// A shard's id, as the stream names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(Arc<str>);

/// One attempt at a batch. Unique within a run of the mapping, and never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// One hand-over of a failure record. Unique within a run of the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryId(pub u64);

/// The two times that a mapping is told with each input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The store's time in milliseconds since 1970: the age of records, and the life of
    /// tombstones. It may stand still or leap.
    pub time_ms: i64,
    /// Milliseconds since any fixed moment, never standing still: polls, batching windows and
    /// back-off.
    pub tick_ms: u64,
}

/// What the mapping is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The stream's shards were listed, all pages.
    Described {
        /// Whether the stream still takes new records.
        enabled: bool,
        /// Its shards, in any order.
        shards: Vec<ShardDescription>,
    },
    /// The stream's shards could not be listed.
    DescribeFailed {
        /// Why.
        reason: String,
    },
    /// There is no such stream, as far as the store knows now.
    StreamMissing {
        /// What the stream said.
        reason: String,
    },
    /// Records may have come into any shard of the stream.
    Arrived,
    /// Checkpoints that were asked for are durable, the positions of all shards among them.
    Saved,
    /// A read that was asked for has brought a page.
    Page {
        /// The shard that was read.
        shard: ShardId,
        /// Its records, ascending; may be empty on an open shard.
        records: Vec<Record>,
        /// The shard has ended: there is no next iterator. The records still count.
        end: bool,
    },
    /// A read that was asked for has brought nothing.
    ReadFailed {
        /// The shard that was to be read.
        shard: ShardId,
        /// Why not.
        failure: ReadFailure,
    },
    /// An invocation that was asked for has ended.
    Invoked {
        /// The attempt.
        batch: BatchId,
        /// How it ended.
        outcome: InvokeOutcome,
    },
    /// The destination has stored a failure record.
    FailureDelivered {
        /// The hand-over.
        delivery: DeliveryId,
    },
    /// The destination has not stored a failure record.
    FailureNotDelivered {
        /// The hand-over.
        delivery: DeliveryId,
        /// Why not.
        reason: String,
    },
    /// Somebody has decided to go on after a gap, without the records that are lost.
    AcceptGap {
        /// The shard with the gap.
        shard: ShardId,
    },
    /// Read and invoke no more; what is under way may still end.
    Stop,
}

/// A shard, as the stream lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardDescription {
    /// Its id.
    pub id: ShardId,
    /// The shard it follows, which may no longer be listed.
    pub parent: Option<ShardId>,
    /// Whether it takes no more records.
    pub closed: bool,
}

/// Why a read has brought nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFailure {
    /// The iterator is older than 15 minutes.
    IteratorExpired,
    /// The position is older than the stream's 24 hours.
    Trimmed {
        /// What the stream said.
        reason: String,
    },
    /// The shard, or its stream, is not there: not yet, not any more, or not for who asked.
    ShardGone {
        /// What the stream said.
        reason: String,
    },
    /// Anything that may pass: throttled, unreachable, a fault of the stream.
    Unavailable {
        /// What happened.
        reason: String,
    },
}

/// How one invocation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeOutcome {
    /// The function answered; the answer as JSON text.
    Ok(bytes::Bytes),
    /// The function was invoked and failed, crashed or ran out of time.
    FunctionError {
        /// As in `X-Amz-Function-Error`: `Unhandled` or `Handled`.
        kind: String,
        /// What happened, for people.
        message: String,
        /// The error as JSON text, as far as there is one.
        payload: bytes::Bytes,
    },
    /// The function was never reached (throttled, not started): no retry is used up.
    NotInvoked(String),
}

/// Where a read starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// Where the last page ended: its next iterator.
    Iterator,
    /// At the oldest record of the shard.
    TrimHorizon,
    /// After the newest record of the shard.
    Latest,
    /// After this record, exclusive.
    After(SequenceNumber),
}

/// What the mapping asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// List the stream's shards, all pages; answer `Described` or `DescribeFailed`.
    Describe,
    /// Read one page; answer `Page` or `ReadFailed`. At most one read per shard is under way.
    Read {
        /// The shard.
        shard: ShardId,
        /// Where to start.
        from: ReadFrom,
    },
    /// Invoke the function; answer `Invoked`. At most one attempt per lane of a
    /// shard is under way, and all records of one item are in one lane.
    Invoke {
        /// The shard that the records are from.
        shard: ShardId,
        /// This attempt.
        batch: BatchId,
        /// Which attempt it is for these records, counted from 1.
        attempt: u32,
        /// The records, ascending; empty only in the last invocation of a window.
        records: Vec<Arc<Delivery>>,
        /// The tumbling window that the records belong to, if the mapping has windows.
        window: Option<Box<WindowInvocation>>,
    },
    /// The shard is done up to here: make the mapping's checkpoints durable, soon.
    Checkpoint {
        /// The shard.
        shard: ShardId,
        /// How far it is done now.
        position: CheckpointPosition,
    },
    /// Make the mapping's checkpoints durable, soon, and answer `Saved`: the mapping has seen its
    /// stream first, or a window has ended.
    Save,
    /// Store a failure record; answer `FailureDelivered` or `FailureNotDelivered`.
    DeliverFailure {
        /// The shard that the records are from.
        shard: ShardId,
        /// This hand-over.
        delivery: DeliveryId,
        /// What to store, and under which key.
        object: Arc<FailureObject>,
    },
    /// Tell whoever watches.
    Report(Event),
    /// Say `Tick` at this tick, if nothing else is said before. Replaces what was asked before;
    /// without it, nothing waits for time.
    Wake {
        /// In milliseconds, as [`Now::tick_ms`].
        tick_ms: u64,
    },
}

/// What has happened, for whoever watches. Nothing depends on events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Records of one page did not pass the filter.
    Filtered {
        /// The shard.
        shard: ShardId,
        /// How many records.
        count: usize,
        /// The first of them.
        first: SequenceNumber,
        /// The last of them; others in between may have passed.
        last: SequenceNumber,
    },
    /// An attempt was successful.
    Succeeded {
        /// The shard.
        shard: ShardId,
        /// The attempt.
        batch: BatchId,
        /// How many records.
        count: usize,
    },
    /// The same records will be delivered once more, on purpose.
    Duplicating {
        /// The shard.
        shard: ShardId,
        /// The attempt that was successful.
        batch: BatchId,
    },
    /// An attempt was not, or only partly, successful.
    Failed {
        /// The shard.
        shard: ShardId,
        /// The attempt.
        batch: BatchId,
        /// How many records at its start were done all the same.
        done: usize,
        /// Why.
        reason: String,
    },
    /// The failed records are tried in parts.
    Split {
        /// The shard.
        shard: ShardId,
        /// The last record of the first part.
        after: SequenceNumber,
    },
    /// The records will be tried again.
    RetryScheduled {
        /// The shard.
        shard: ShardId,
        /// When, in milliseconds, as [`Now::tick_ms`].
        tick_ms: u64,
    },
    /// Records were discarded, and the checkpoint moves past them.
    GaveUp {
        /// The shard.
        shard: ShardId,
        /// The first record.
        first: SequenceNumber,
        /// The last record.
        last: SequenceNumber,
        /// How many records.
        count: usize,
        /// Why.
        condition: Condition,
        /// The key of the failure record; `None` if there is no destination, or if it could not
        /// be reached until the records expired.
        key: Option<String>,
    },
    /// The function has dealt with the whole window, and its state is dropped.
    WindowEnded {
        /// The shard.
        shard: ShardId,
        /// The window.
        window: Window,
    },
    /// The last invocation of a window failed until it was discarded; its state is lost.
    WindowGivenUp {
        /// The shard.
        shard: ShardId,
        /// The window.
        window: Window,
    },
    /// The failure destination could not be reached; the shard waits.
    DestinationUnavailable {
        /// The shard.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// The stream could not be listed.
    StreamUnavailable {
        /// Why.
        reason: String,
    },
    /// A shard could not be read.
    ShardUnavailable {
        /// The shard.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// Records are lost: they were trimmed before they were read. The shard and its descendants
    /// stand still until somebody accepts the gap.
    Gap {
        /// The shard.
        shard: ShardId,
        /// The last record that is done; `None`: none is.
        after: Option<SequenceNumber>,
        /// What the stream said.
        reason: String,
    },
    /// A new shard was found.
    ShardFound {
        /// The shard.
        shard: ShardId,
    },
    /// A shard is done to its end.
    ShardDone {
        /// The shard.
        shard: ShardId,
    },
    /// The stream is disabled and every record of it is done.
    StreamEnded,
}

impl ShardId {
    /// A shard id from its text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "b{}", self.0)
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "d{}", self.0)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {}", self.start_s, self.end_s)
    }
}

impl fmt::Display for WindowInvocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A state may have megabytes; its beginning says which one it is.
        let state: String = self.open.state.chars().take(STATE_CHARACTERS_SHOWN).collect();
        write!(formatter, "window {} state {state}", self.open.window)?;
        let last = if self.is_final { " final" } else { "" };
        write!(formatter, "{last}{}", if self.is_terminated_early { " early" } else { "" })
    }
}

impl fmt::Display for CheckpointPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TrimHorizon => formatter.write_str("trim-horizon"),
            Self::Latest => formatter.write_str("latest"),
            Self::After(sequence) => write!(formatter, "after {sequence}"),
            Self::Closed { .. } => formatter.write_str("closed"),
        }
    }
}

impl fmt::Display for ReadFrom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iterator => formatter.write_str("on"),
            Self::TrimHorizon => formatter.write_str("from trim-horizon"),
            Self::Latest => formatter.write_str("from latest"),
            Self::After(sequence) => write!(formatter, "after {sequence}"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Describe => formatter.write_str("describe"),
            Self::Read { shard, from } => write!(formatter, "read {shard} {from}"),
            Self::Invoke { shard, batch, attempt, records, window } => {
                write!(formatter, "invoke {batch} {shard} attempt {attempt}:")?;
                records.iter().try_for_each(|record| write!(formatter, " {}", record.sequence))?;
                window.as_ref().map_or(Ok(()), |window| write!(formatter, " {window}"))
            }
            Self::Checkpoint { shard, position } => {
                write!(formatter, "checkpoint {shard} {position}")
            }
            Self::Save => formatter.write_str("save"),
            Self::DeliverFailure { shard, delivery, object } => {
                write!(formatter, "deliver {delivery} {shard} {}", object.key)
            }
            Self::Report(event) => write!(formatter, "report {event}"),
            Self::Wake { tick_ms } => write!(formatter, "wake {tick_ms}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filtered { shard, count, first, last } => {
                write!(formatter, "filtered {shard} {count} records, {first} to {last}")
            }
            Self::Succeeded { shard, batch, count } => {
                write!(formatter, "succeeded {batch} {shard} {count} records")
            }
            Self::Duplicating { shard, batch } => {
                write!(formatter, "duplicating {batch} {shard}")
            }
            Self::Failed { shard, batch, done, reason } => {
                write!(formatter, "failed {batch} {shard}, {done} done: {reason}")
            }
            Self::Split { shard, after } => write!(formatter, "split {shard} after {after}"),
            Self::RetryScheduled { shard, tick_ms } => {
                write!(formatter, "retry {shard} at {tick_ms}")
            }
            Self::GaveUp { shard, first, last, count, condition, key } => {
                let key = key.as_deref().unwrap_or("nowhere");
                write!(formatter, "discarded {shard} {count} records, {first} to {last}: ")?;
                write!(formatter, "{condition}, kept in {key}")
            }
            Self::WindowEnded { shard, window } => {
                write!(formatter, "window ended {shard} {window}")
            }
            Self::WindowGivenUp { shard, window } => {
                write!(formatter, "window discarded {shard} {window}: its state is lost")
            }
            Self::DestinationUnavailable { shard, reason } => {
                write!(formatter, "failure destination unavailable {shard}: {reason}")
            }
            Self::StreamUnavailable { reason } => {
                write!(formatter, "stream unavailable: {reason}")
            }
            Self::ShardUnavailable { shard, reason } => {
                write!(formatter, "shard unavailable {shard}: {reason}")
            }
            Self::Gap { shard, after, reason } => {
                let after = after.as_ref().map_or("the beginning", SequenceNumber::as_str);
                write!(formatter, "gap {shard} after {after}: {reason}")
            }
            Self::ShardFound { shard } => write!(formatter, "found {shard}"),
            Self::ShardDone { shard } => write!(formatter, "done {shard}"),
            Self::StreamEnded => formatter.write_str("stream ended"),
        }
    }
}
