//! A table's stream and its shards.
//!
//! The crate's module `stream` opens, rotates, trims and reads shards.

use model::{EpochMillis, StreamViewType};
use serde::{Deserialize, Serialize};

use crate::entry::sequence::Sequence;
use crate::table::identifiers::ShardNumber;

/// A table's stream, from the time when it is enabled to the time when it is disabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The time at which the stream was enabled, as a string; part of the ARN. Each new stream of a
    /// table has a greater label.
    pub label: String,
    /// The item images that records contain.
    pub view_type: StreamViewType,
    /// The time at which the stream was enabled.
    pub created_at: EpochMillis,
    /// The time at which the stream was disabled.
    pub disabled_at: Option<EpochMillis>,
    /// The stream's shards, parents before children.
    pub shards: Vec<Shard>,
}

/// A part of a stream: the records of one partition over some hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The shard's number.
    pub number: ShardNumber,
    /// The shard's id: `shardId-<20 digits of milliseconds>-<8 hexadecimal digits>`.
    pub id: String,
    /// The id of the parent: the shard whose records precede the records of this shard.
    pub parent: Option<String>,
    /// The first sequence for which the shard accepts records.
    pub first: Sequence,
    /// The sequence up to which the shard accepted records, inclusive; `None` while the shard is
    /// open.
    pub last: Option<Sequence>,
    /// The time at which the shard was opened.
    pub opened_at: EpochMillis,
    /// The time at which the shard was closed.
    pub closed_at: Option<EpochMillis>,
    /// The last record that was trimmed because of its age. A reader at an earlier position has
    /// missed records.
    pub trimmed: Option<Sequence>,
}
