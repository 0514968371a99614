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
    /// The ARN of the mapping's stream.
    pub stream_arn: String,
    /// True if the stream has been listed at least once.
    pub described: bool,
    /// True if the stream accepts new records.
    pub stream_enabled: bool,
    /// True if the mapping cannot read yet, because the start positions of its shards are not
    /// durable.
    pub unsaved: bool,
    /// The reason why the stream cannot be listed; `None` if it can be listed.
    pub unavailable: Option<String>,
    /// All known shards, ordered by id.
    pub shards: Vec<ShardStatus>,
    /// The counts since the start of the run.
    pub totals: Totals,
    /// The attribute name of a pattern that the first filtered record did not have.
    pub unknown_name: Option<UnknownName>,
}

/// The state of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// The shard's id.
    pub id: ShardId,
    /// The parent shard, which this shard continues.
    pub parent: Option<ShardId>,
    /// The shard's phase.
    pub phase: Phase,
    /// The last record that was read.
    pub last_read: Option<SequenceNumber>,
    /// The last record up to which all records are done or discarded.
    pub checkpoint: Option<SequenceNumber>,
    /// True if the last read found no further records, or the end of the shard.
    pub at_tip: bool,
    /// The tick at which the last read was requested, if it found no further records; as in
    /// [`Now::tick_ms`](super::Now::tick_ms).
    pub tip_tick_ms: Option<u64>,
    /// Number of records in running invocations.
    pub in_flight: usize,
    /// Number of records that were read and are neither done nor discarded, including those in
    /// flight.
    pub waiting: usize,
    /// Number of failed attempts for the current records.
    pub failed_attempts: u32,
    /// True if the last read failed.
    pub unreachable: bool,
    /// The age of the oldest waiting record, in milliseconds of the store's time; 0 if there is
    /// none.
    pub lag_ms: i64,
    /// True if the shard is done and its child is not known yet.
    pub lacks_child: bool,
}

impl Status {
    /// Returns true if every record that was in the stream at `tick_ms` is done or discarded. Each
    /// shard must be done, or fulfil two conditions: it has no waiting records, and a read requested
    /// at `tick_ms` or later found no further records.
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

    /// Returns the shards that are blocked by a gap.
    pub fn gaps(&self) -> impl Iterator<Item = &ShardStatus> {
        self.shards.iter().filter(|shard| shard.phase == Phase::Gap)
    }
}
