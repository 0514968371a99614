//! A table's stream and its shards.
//!
//! How shards open, rotate and are trimmed and read is in the crate's module `stream`.

use model::{EpochMillis, StreamViewType};
use serde::{Deserialize, Serialize};

use crate::entry::sequence::Sequence;
use crate::table::identifiers::ShardNumber;

/// A table's stream: from the moment at which it was enabled to the moment at which it was disabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The time of enabling as text; part of the ARN. Grows from stream to stream of one table.
    pub label: String,
    /// What the records carry.
    pub view_type: StreamViewType,
    /// When it was enabled.
    pub created_at: EpochMillis,
    /// When it was disabled.
    pub disabled_at: Option<EpochMillis>,
    /// Its shards, parents before children.
    pub shards: Vec<Shard>,
}

/// A part of a stream: the records of one partition over some hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number.
    pub number: ShardNumber,
    /// `shardId-<20 digits of milliseconds>-<8 hexadecimal digits>`.
    pub id: String,
    /// The shard whose records come before its own.
    pub parent: Option<String>,
    /// The place from which it takes records, inclusive.
    pub first: Sequence,
    /// The place at which it was closed, inclusive; `None` while it is open.
    pub last: Option<Sequence>,
    /// When it was opened.
    pub opened_at: EpochMillis,
    /// When it was closed.
    pub closed_at: Option<EpochMillis>,
    /// The last record that was removed because of its age; a reader that has not come so far has
    /// missed something.
    pub trimmed: Option<Sequence>,
}
