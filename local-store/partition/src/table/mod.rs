//! A table: its schema, its partitions and its streams, but not its items.
//!
//! This module contains only types. Other modules change tables and store their data.

pub(crate) mod billing;
pub(crate) mod identifiers;
pub(crate) mod index;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod partition;
pub(crate) mod placement;
pub(crate) mod refusal;
pub(crate) mod stream;
pub(crate) mod time_to_live;
pub(crate) mod token_range;

use model::{EpochMillis, KeySchema, Token};
use serde::{Deserialize, Serialize};

use crate::table::billing::Billing;
use crate::table::identifiers::{PartitionNumber, TableId};
use crate::table::index::{IndexKind, SecondaryIndex};
use crate::table::name::TableName;
use crate::table::options::TableOptions;
use crate::table::partition::Partition;
use crate::table::placement::Placement;
use crate::table::stream::{Shard, Stream};
use crate::table::time_to_live::TimeToLive;
use crate::table::token_range::TokenRange;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The table's id.
    pub id: TableId,
    /// The table's name.
    pub name: TableName,
    /// The table's key schema.
    pub key_schema: KeySchema,
    /// The table's billing mode.
    pub billing: Billing,
    /// The time at which the table was created.
    pub created_at: EpochMillis,
    /// Whether `DeleteTable` is rejected.
    pub deletion_protection: bool,
    /// The table's partitions, in the order of their first tokens. In a ring of several arcs, a
    /// table that was read from one arc has only the partitions of that arc.
    pub partitions: Vec<Partition>,
    /// The number that the next new partition will get.
    pub next_partition: u32,
    /// The table's streams, oldest first. Only the last stream can be enabled. A disabled stream
    /// can be read until its records are trimmed.
    pub streams: Vec<Stream>,
    /// The number that the next new shard will get.
    pub next_shard: u32,
    /// The table's TTL setting.
    pub time_to_live: TimeToLive,
    /// The table's secondary indexes, oldest first, including indexes that are being built or
    /// removed.
    pub indexes: Vec<SecondaryIndex>,
    /// The number that the next new index will get.
    pub next_index: u32,
    /// The table's options: class, tags, policies, throughput settings and others.
    pub options: TableOptions,
    /// The arcs of the table's parts. The placement is stored separately, and never sent with the
    /// table.
    #[serde(skip)]
    pub placement: Placement,
    /// Whether at least one arc has not adopted the current definition yet, because the table is
    /// being created or updated.
    #[serde(skip)]
    pub is_behind: bool,
    /// Whether at least one arc does not have the table yet. Such a table accepts no items.
    #[serde(skip)]
    pub is_partial: bool,
}

impl Table {
    /// Returns the index of the partition that holds a token.
    #[must_use]
    pub fn partition_of(&self, token: Token) -> usize {
        self.partitions
            .partition_point(|partition| partition.first_token <= token)
            .saturating_sub(1)
    }

    /// Returns the token range of the partition at an index; `None` if there is no such partition.
    #[must_use]
    pub fn token_range(&self, partition: usize) -> Option<TokenRange> {
        let first = self.partitions.get(partition)?.first_token;
        let next = self.partitions.get(partition + 1).map(|next| next.first_token.0);
        let last = Token(next.map_or(u64::MAX, |next| next.saturating_sub(1)));
        Some(TokenRange { first, last: last.min(self.placement.end_of(first)) })
    }

    /// Returns the index of the partition with a number; `None` if there is no such partition, or
    /// if it was split.
    #[must_use]
    pub fn find_partition(&self, number: PartitionNumber) -> Option<usize> {
        self.partitions.iter().position(|partition| partition.number == number)
    }

    /// Returns the enabled stream.
    #[must_use]
    pub fn enabled_stream(&self) -> Option<&Stream> {
        self.streams.last().filter(|stream| stream.disabled_at.is_none())
    }

    /// Returns the table without its partitions and the shards of its streams, which differ from
    /// arc to arc. With them, the table may be too large for one log entry.
    #[must_use]
    pub fn definition(&self) -> Self {
        let stream = self.enabled_stream().map(|stream| Stream {
            label: stream.label.clone(),
            view_type: stream.view_type,
            created_at: stream.created_at,
            disabled_at: None,
            shards: Vec::new(),
        });
        let streams = stream.into_iter().collect();
        Self { partitions: Vec::new(), streams, ..self.clone() }
    }

    /// Returns the stream with a label.
    #[must_use]
    pub fn stream(&self, label: &str) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.label == label)
    }

    /// Returns the index with a name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&SecondaryIndex> {
        self.indexes.iter().find(|index| index.definition.name == name)
    }

    /// Returns the table's status in the API: `CREATING`, `UPDATING` or `ACTIVE`.
    #[must_use]
    pub fn status_text(&self) -> &'static str {
        match (self.is_behind, self.is_partial) {
            (_, true) => "CREATING",
            (true, false) => "UPDATING",
            (false, false) => "ACTIVE",
        }
    }

    /// Returns the local or the global indexes of the table.
    pub fn indexes_of(&self, kind: IndexKind) -> impl Iterator<Item = &SecondaryIndex> {
        self.indexes.iter().filter(move |index| index.definition.kind == kind)
    }

    /// Returns every shard of every stream.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.streams.iter().flat_map(|stream| &stream.shards)
    }
}
