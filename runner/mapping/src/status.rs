//! The status of a mapping at one moment, for observers.
//!
//! A status is a copy, so observers cannot change the mapping.

use super::context::Totals;
use super::filter::UnknownName;
use super::id::ShardId;
use super::sequence::SequenceNumber;
use super::shard::Phase;

/// The state of a mapping at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// The mapping's UUID.
    pub mapping_id: String,
    /// The ARN of its stream.
    pub stream_arn: String,
    /// Whether its shards are known.
    pub described: bool,
    /// Whether the stream accepts new records.
    pub stream_enabled: bool,
    /// Whether the mapping reads nothing yet, because the start positions of its shards are not durable.
    pub unsaved: bool,
    /// Why the stream cannot be listed; `None` if the stream can be listed.
    pub unavailable: Option<String>,
    /// Every known shard, by id.
    pub shards: Vec<ShardStatus>,
    /// Counts since the run began.
    pub totals: Totals,
    /// The attribute that the filter names and the first filtered record lacks.
    pub unknown_name: Option<UnknownName>,
}

/// The state of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// Its id.
    pub id: ShardId,
    /// The shard that this one continues.
    pub parent: Option<ShardId>,
    /// Its state.
    pub phase: Phase,
    /// The last record that was read.
    pub last_read: Option<SequenceNumber>,
    /// The last record that is done, including all before it.
    pub checkpoint: Option<SequenceNumber>,
    /// Whether the last read found no more records, or the shard's end.
    pub at_tip: bool,
    /// When the last read was requested, if it found no more records; as
    /// [`Now::tick_ms`](super::Now::tick_ms).
    pub tip_tick_ms: Option<u64>,
    /// Number of records in the running invocation.
    pub in_flight: usize,
    /// Number of records that were read and are neither done nor discarded, including those in
    /// flight.
    pub waiting: usize,
    /// Number of failed attempts for the current records.
    pub failed_attempts: u32,
    /// Whether the last read failed.
    pub unreachable: bool,
    /// The age of the oldest waiting record, in milliseconds of the store's time; 0 if there is
    /// none.
    pub lag_ms: i64,
    /// Whether the shard is done and its child is not known yet.
    pub lacks_child: bool,
}

impl Status {
    /// Returns true if every record that was in the stream at `tick_ms` is done or discarded. Each
    /// shard must be done, or a read requested at `tick_ms` or later must have found its end, and
    /// no record may wait.
    #[must_use]
    pub fn is_drained_after(&self, tick_ms: u64) -> bool {
        self.described
            && self.shards.iter().all(|shard| match shard.phase {
                Phase::Done { .. } => !shard.lacks_child,
                Phase::Reading => {
                    shard.waiting == 0 && shard.tip_tick_ms.is_some_and(|tip| tip >= tick_ms)
                }
                Phase::Waiting | Phase::Gap => false,
            })
    }

    /// Returns the shards that are blocked at a gap.
    pub fn gaps(&self) -> impl Iterator<Item = &ShardStatus> {
        self.shards.iter().filter(|shard| shard.phase == Phase::Gap)
    }
}
