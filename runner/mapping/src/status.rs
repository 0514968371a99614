//! What can be seen of a mapping from outside, at one moment.
//!
//! A status is a copy: nothing changes by it.

use super::command::ShardId;
use super::context::Totals;
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
    /// Whether the stream takes new records.
    pub stream_enabled: bool,
    /// Whether it reads nothing yet because where its shards begin is not durable.
    pub unsaved: bool,
    /// What keeps the stream from being listed, if anything does.
    pub unavailable: Option<String>,
    /// Every shard that is known, by id.
    pub shards: Vec<ShardStatus>,
    /// Counts since the run began.
    pub totals: Totals,
}

/// The state of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardStatus {
    /// Its id.
    pub id: ShardId,
    /// The shard before it.
    pub parent: Option<ShardId>,
    /// Where it stands.
    pub phase: Phase,
    /// The last record that was read.
    pub last_read: Option<SequenceNumber>,
    /// The last record that is done, with all before it.
    pub checkpoint: Option<SequenceNumber>,
    /// The last read found nothing more, or the end.
    pub at_tip: bool,
    /// When that read was asked for, as [`Now::tick_ms`](super::Now::tick_ms).
    pub tip_tick_ms: Option<u64>,
    /// Records in the invocation that is under way.
    pub in_flight: usize,
    /// Records that were read and are neither done nor discarded, those in flight included.
    pub waiting: usize,
    /// Attempts that failed for the records that are tried now.
    pub failed_attempts: u32,
    /// The last read failed.
    pub unreachable: bool,
    /// The age of the oldest record that waits, in milliseconds of the store's time; 0 if none does.
    pub lag_ms: i64,
    /// It is done, and the child that must follow it is not known.
    pub lacks_child: bool,
}

impl Status {
    /// Whether every record that was in the stream at `tick_ms` is done or discarded: each shard is
    /// done, or was read to its tip by a read that was asked for at `tick_ms` or later, and
    /// nothing waits.
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

    /// The shards that stand still because records of them are lost.
    pub fn gaps(&self) -> impl Iterator<Item = &ShardStatus> {
        self.shards.iter().filter(|shard| shard.phase == Phase::Gap)
    }
}
