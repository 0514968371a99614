//! Numbers that identify a table and its parts.
//!
//! The state machine assigns these numbers.

use serde::{Deserialize, Serialize};

/// The id of a table, which is never reused: a table that is deleted and recreated has a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u64);

/// A partition's id, unique among all partitions that its table ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionNumber(pub u32);

/// A shard's id, unique among all shards that its table ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardNumber(pub u32);

/// An index's id, unique among all indexes that its table ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexNumber(pub u32);
