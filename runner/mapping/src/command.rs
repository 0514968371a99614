//! The inputs, commands and events of the mapping. Their only behaviour is their text form for logs
//! and test cases.

use std::fmt;
use std::sync::Arc;

use super::checkpoint::CheckpointPosition;
use super::failure::{Condition, FailureObject};
use super::id::{BatchId, DeliveryId, ShardId};
use super::record::{Delivery, Record};
use super::sequence::SequenceNumber;
use super::tumbling::{Window, WindowInvocation};

/// The maximum number of characters of a window's state in the text form of a command.
const STATE_CHARACTERS_SHOWN: usize = 64;

/// The current time on two clocks, passed with each input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The store's time in milliseconds since 1970, used for the age of records and of tombstones.
    /// This clock may stop or jump.
    pub time_ms: i64,
    /// The monotonic time in milliseconds since a fixed moment, used for polls, batching windows
    /// and back-off.
    pub tick_ms: u64,
}

/// An input of the mapping.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Time has passed; the input has no other content.
    Tick,
    /// The complete list of the stream's shards, from all pages of `DescribeStream`.
    Described {
        /// Whether the stream still accepts new records.
        enabled: bool,
        /// The stream's shards, in any order.
        shards: Vec<ShardDescription>,
    },
    /// The stream's shards could not be listed.
    DescribeFailed {
        /// The reason why the listing failed.
        reason: String,
    },
    /// The store reports that the stream does not exist.
    StreamMissing {
        /// The error message of the store.
        reason: String,
    },
    /// Records may have arrived in any shard of the stream.
    Arrived,
    /// The checkpoints requested by `Save` are durable, including the positions of
    /// all shards.
    Saved,
    /// A requested read returned a page.
    Page {
        /// The shard that was read.
        shard: ShardId,
        /// The page's records in ascending order. The page of an open shard may be empty.
        records: Vec<Record>,
        /// True if the shard has ended, because the page has no next iterator. The records of this
        /// page must still be delivered.
        end: bool,
    },
    /// A requested read failed.
    ReadFailed {
        /// The shard that could not be read.
        shard: ShardId,
        /// The cause of the failure.
        failure: ReadFailure,
    },
    /// A requested invocation has ended.
    Invoked {
        /// The attempt that has ended.
        batch: BatchId,
        /// The result of the attempt.
        outcome: InvokeOutcome,
    },
    /// The destination has stored a failure record.
    FailureDelivered {
        /// The delivery that succeeded.
        delivery: DeliveryId,
    },
    /// The destination has not stored a failure record.
    FailureNotDelivered {
        /// The delivery that failed.
        delivery: DeliveryId,
        /// The error of the destination.
        reason: String,
    },
    /// The operator accepts a gap: the mapping continues without the lost records.
    AcceptGap {
        /// The shard with the gap.
        shard: ShardId,
    },
    /// Stop reading and invoking. Running invocations may still end.
    Stop,
}

/// A shard in a listing of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardDescription {
    /// The shard's id.
    pub id: ShardId,
    /// The parent shard, which this shard continues. The parent may no longer be listed.
    pub parent: Option<ShardId>,
    /// Whether the shard accepts no more records.
    pub closed: bool,
}

/// The cause of a failed read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFailure {
    /// The iterator is older than 15 minutes.
    IteratorExpired,
    /// The records at the position are older than the stream's retention of 24 hours.
    Trimmed {
        /// The error message of the stream.
        reason: String,
    },
    /// The shard or its stream does not exist. It may not exist yet, may be deleted, or may be
    /// invisible to these credentials.
    ShardGone {
        /// The error message of the stream.
        reason: String,
    },
    /// A temporary failure: a throttled call, an unreachable stream, or an error of the stream.
    Unavailable {
        /// The error message of the stream or of the client.
        reason: String,
    },
}

/// The result of one invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvokeOutcome {
    /// The function succeeded. The value is its response as JSON text.
    Ok(bytes::Bytes),
    /// The function was invoked, but it failed, crashed or timed out.
    FunctionError {
        /// The value of `X-Amz-Function-Error`: `Unhandled` or `Handled`.
        kind: String,
        /// The error message, for people.
        message: String,
        /// The function's error as JSON text; empty if there is none.
        payload: bytes::Bytes,
    },
    /// The function was not reached, because the call was throttled or the function did not start.
    /// Such an attempt does not count as a retry.
    NotInvoked(String),
}

/// The start position of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the iterator that the previous page returned.
    Iterator,
    /// At the oldest record of the shard.
    TrimHorizon,
    /// After the newest record of the shard.
    Latest,
    /// At the record that directly follows this record.
    After(SequenceNumber),
}

/// A command of the mapping.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// List all pages of the stream's shards; reply with `Described` or `DescribeFailed`.
    Describe,
    /// Read one page; reply with `Page` or `ReadFailed`. At most one read per shard is in flight.
    Read {
        /// The shard to read.
        shard: ShardId,
        /// The position at which the read starts.
        from: ReadFrom,
    },
    /// Invoke the function; reply with `Invoked`. Each lane of a shard has at most one attempt in
    /// flight, and all records of one item are in one lane.
    Invoke {
        /// The shard that the records are from.
        shard: ShardId,
        /// The id of this attempt.
        batch: BatchId,
        /// The number of this attempt for these records, counted from 1.
        attempt: u32,
        /// The records in ascending order. The list is empty only in the last invocation of a
        /// window.
        records: Vec<Arc<Delivery>>,
        /// The tumbling window that the records belong to, if the mapping has windows.
        window: Option<Box<WindowInvocation>>,
    },
    /// Save the mapping's checkpoints soon. Every record of the shard up to this position is done.
    Checkpoint {
        /// The shard whose position has changed.
        shard: ShardId,
        /// The new position.
        position: CheckpointPosition,
    },
    /// Save the mapping's checkpoints soon, and reply with `Saved`. The mapping sends this command
    /// after the first listing of its stream, and after a window has ended.
    Save,
    /// Store a failure record; reply with `FailureDelivered` or `FailureNotDelivered`.
    DeliverFailure {
        /// The shard that the records are from.
        shard: ShardId,
        /// The id of this delivery.
        delivery: DeliveryId,
        /// The failure record and its object key.
        object: Arc<FailureObject>,
    },
    /// Pass an event to the observers.
    Report(Event),
    /// Send `Tick` at this tick, unless another input comes earlier. Replaces the previous request.
    /// If a step returns no `Wake`, the mapping needs no timer.
    Wake {
        /// The tick in milliseconds, on the clock of [`Now::tick_ms`].
        tick_ms: u64,
    },
}

/// An event for observers. The mapping's behaviour does not depend on events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Records of one page did not pass the filter.
    Filtered {
        /// The id of the shard.
        shard: ShardId,
        /// The number of records that did not pass.
        count: usize,
        /// The first record that did not pass.
        first: SequenceNumber,
        /// The last record that did not pass. Records before it may have passed.
        last: SequenceNumber,
    },
    /// An attempt was successful.
    Succeeded {
        /// The id of the shard.
        shard: ShardId,
        /// The successful attempt.
        batch: BatchId,
        /// The number of records in the attempt.
        count: usize,
    },
    /// As an injected fault, the records of a successful attempt will be delivered again.
    Duplicating {
        /// The id of the shard.
        shard: ShardId,
        /// The successful attempt.
        batch: BatchId,
    },
    /// An attempt failed, or succeeded only partly.
    Failed {
        /// The id of the shard.
        shard: ShardId,
        /// The failed attempt.
        batch: BatchId,
        /// The number of records at the start of the batch that are done despite the failure.
        done: usize,
        /// The reason why the attempt failed.
        reason: String,
    },
    /// The failed records are split into two parts.
    Split {
        /// The id of the shard.
        shard: ShardId,
        /// The last record of the first part.
        after: SequenceNumber,
    },
    /// The records will be retried.
    RetryScheduled {
        /// The id of the shard.
        shard: ShardId,
        /// The time of the retry in milliseconds, as [`Now::tick_ms`].
        tick_ms: u64,
    },
    /// Records were discarded, and the checkpoint moves past them.
    Discarded {
        /// The id of the shard.
        shard: ShardId,
        /// The first discarded record.
        first: SequenceNumber,
        /// The last discarded record.
        last: SequenceNumber,
        /// The number of discarded records.
        count: usize,
        /// The reason why the records were discarded.
        condition: Condition,
        /// The key of the stored failure record. `None` if there is no destination, or if the
        /// destination was unreachable until the records expired.
        key: Option<String>,
    },
    /// The last invocation of the window succeeded. The window's state is discarded.
    WindowEnded {
        /// The id of the shard.
        shard: ShardId,
        /// The tumbling window.
        window: Window,
    },
    /// The last invocation of a window failed until its retries were exhausted or its maximum age
    /// was exceeded. The window's state is lost.
    WindowDiscarded {
        /// The id of the shard.
        shard: ShardId,
        /// The tumbling window.
        window: Window,
    },
    /// The failure destination is unreachable. The shard waits until it is reachable.
    DestinationUnavailable {
        /// The id of the shard.
        shard: ShardId,
        /// The reason why the destination is unreachable.
        reason: String,
    },
    /// The stream could not be listed.
    StreamUnavailable {
        /// The reason why the listing failed.
        reason: String,
    },
    /// A shard could not be read.
    ShardUnavailable {
        /// The id of the shard.
        shard: ShardId,
        /// The reason why the read failed.
        reason: String,
    },
    /// Records are lost: the stream trimmed them before they were read. The shard and its
    /// descendants are blocked until the operator accepts the gap.
    Gap {
        /// The id of the shard.
        shard: ShardId,
        /// The last record that was read or is done; `None` if there is no such record.
        after: Option<SequenceNumber>,
        /// The error message of the stream.
        reason: String,
    },
    /// A new shard was found.
    ShardFound {
        /// The id of the shard.
        shard: ShardId,
    },
    /// Every record of an ended shard is done or discarded.
    ShardDone {
        /// The id of the shard.
        shard: ShardId,
    },
    /// The stream is disabled, and every record of it is done or discarded.
    StreamEnded,
}

impl fmt::Display for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {}", self.start_s, self.end_s)
    }
}

impl fmt::Display for WindowInvocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A state may have megabytes. Its first characters are enough to recognize it.
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
            Self::Discarded { shard, first, last, count, condition, key } => {
                write!(formatter, "discarded {shard} {count} records, {first} to {last}: ")?;
                match key {
                    Some(key) => write!(formatter, "{condition}, stored in {key}"),
                    None => write!(formatter, "{condition}, not kept"),
                }
            }
            Self::WindowEnded { shard, window } => {
                write!(formatter, "window ended {shard} {window}")
            }
            Self::WindowDiscarded { shard, window } => {
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
