//! The progress of a mapping in each shard: everything that must survive a restart.
//!
//! The caller stores the checkpoints.

use std::collections::BTreeMap;

use super::id::ShardId;
use super::sequence::SequenceNumber;
use super::tumbling::OpenWindow;

/// The checkpoints of one mapping for one stream label: a consistent snapshot of its progress in
/// all shards of the stream.
///
/// If a child shard has progress in these checkpoints, its parent is closed in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoints {
    /// The time when the mapping first listed its stream, in milliseconds since 1970 on the store's
    /// clock.
    pub created_ms: i64,
    /// Every shard that the mapping has found, including shards that were finished in the last day.
    pub shards: BTreeMap<ShardId, ShardCheckpoint>,
}

/// The checkpoint of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardCheckpoint {
    /// The shard that must be finished before this shard is read.
    pub parent: Option<ShardId>,
    /// The position up to which the shard is done.
    pub position: CheckpointPosition,
    /// The open window with its state; `None` without tumbling windows.
    pub window: Option<OpenWindow>,
}

/// The position in a shard up to which every record is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointPosition {
    /// No record is done. Every record must be delivered.
    TrimHorizon,
    /// No record is done. Only records that were written after the mapping was created must be
    /// delivered.
    Latest,
    /// Every record up to and including this record is done or discarded.
    After(SequenceNumber),
    /// Every record of the shard is done or discarded. The checkpoint remains as a tombstone, so
    /// that the shard is not read again while the stream still lists it.
    Closed {
        /// The time when the shard was done, in milliseconds since 1970 on the store's clock.
        at_ms: i64,
    },
}
