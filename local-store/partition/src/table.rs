//! A table: its schema, its partitions, its streams. Not its items.

use model::limits::{ON_DEMAND_PARTITIONS, PARTITION_READ_UNITS, PARTITION_WRITE_UNITS};
use model::{EpochMillis, KeySchema, Token};
use serde::{Deserialize, Serialize};

use crate::index::{IndexKind, SecondaryIndex};
use crate::options::TableOptions;
use crate::placement::{ArcId, Placement};
use crate::read::TokenRange;
use crate::split::{PARTITIONS_MAX, Split};
use crate::stream::{Shard, ShardNumber, Stream};
use crate::table_name::TableName;
use crate::time_to_live::TimeToLive;

/// Identifies a table for ever: a table that is deleted and created again has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u64);

/// How a table's throughput is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Billing {
    /// `PAY_PER_REQUEST`.
    OnDemand,
    /// `PROVISIONED`, with units per second.
    Provisioned {
        /// Read capacity units, at least 1.
        read_units: u64,
        /// Write capacity units, at least 1.
        write_units: u64,
    },
}

/// A partition's number among all partitions that its table ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionNumber(pub u32);

/// A token range of a table: from its first token (inclusive) to the next partition's (exclusive).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its number: a partition that is split has two successors with numbers of their own.
    pub number: PartitionNumber,
    /// Where it begins on the ring.
    pub first_token: Token,
    /// The stream shard that takes its records now, when the table has an enabled stream.
    pub shard: Option<ShardNumber>,
    /// The split that is under way, if there is one.
    pub split: Option<Split>,
    /// Its bytes when it was found to hold a single partition key, which no split can divide; 0
    /// when that was never found.
    pub indivisible_bytes: u64,
}

impl Partition {
    pub(crate) fn new(number: PartitionNumber, first_token: Token) -> Self {
        Self { number, first_token, shard: None, split: None, indivisible_bytes: 0 }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// Its name.
    pub name: TableName,
    /// Its key.
    pub key_schema: KeySchema,
    /// Its billing mode.
    pub billing: Billing,
    /// When it was created.
    pub created_at: EpochMillis,
    /// Whether `DeleteTable` is refused.
    pub deletion_protection: bool,
    /// Its partitions, by first token. A table that was read from one arc of several has only those
    /// that lie there.
    pub partitions: Vec<Partition>,
    /// The number that the next partition gets.
    pub next_partition: u32,
    /// Its streams, oldest first: at most one is enabled, and it is the last. A disabled stream
    /// can be read until its records are trimmed.
    pub streams: Vec<Stream>,
    /// The number that the next shard gets.
    pub next_shard: u32,
    /// Its TTL setting.
    pub time_to_live: TimeToLive,
    /// Its secondary indexes, oldest first, also those that are being built or removed.
    pub indexes: Vec<SecondaryIndex>,
    /// The number that the next index gets.
    pub next_index: u32,
    /// What it is labelled, paid and watched with.
    pub options: TableOptions,
    /// Which arc holds which part of it. Stored beside the table, and never sent with it.
    #[serde(skip)]
    pub placement: Placement,
    /// Whether some arc does not know the table as it is yet: it is being created or updated.
    #[serde(skip)]
    pub is_behind: bool,
    /// Whether some arc does not know the table at all yet: it takes no items before every arc does.
    #[serde(skip)]
    pub is_partial: bool,
}

/// Partitions of a new table (design, section 3): enough for its throughput, and four when it is on
/// demand; [`PARTITIONS_MAX`] at most, whatever throughput an entry of the log asks for.
#[must_use]
pub fn partition_count(billing: Billing) -> u32 {
    let for_throughput = match billing {
        Billing::OnDemand => u64::from(ON_DEMAND_PARTITIONS),
        Billing::Provisioned { read_units, write_units } => {
            // read/3000 + write/1000, rounded up once, in whole numbers.
            let for_reads = read_units.saturating_mul(PARTITION_WRITE_UNITS);
            let for_writes = write_units.saturating_mul(PARTITION_READ_UNITS);
            for_reads
                .saturating_add(for_writes)
                .div_ceil(PARTITION_READ_UNITS * PARTITION_WRITE_UNITS)
        }
    };
    u32::try_from(for_throughput.clamp(1, PARTITIONS_MAX as u64)).unwrap_or(u32::MAX)
}

impl Table {
    /// The index of the partition that a token belongs to.
    #[must_use]
    pub fn partition_of(&self, token: Token) -> usize {
        self.partitions
            .partition_point(|partition| partition.first_token <= token)
            .saturating_sub(1)
    }

    /// The tokens of the partition at an index; `None` behind the last one.
    #[must_use]
    pub fn token_range(&self, partition: usize) -> Option<TokenRange> {
        let first = self.partitions.get(partition)?.first_token;
        let next = self.partitions.get(partition + 1).map(|next| next.first_token.0);
        let last = Token(next.map_or(u64::MAX, |next| next.saturating_sub(1)));
        Some(TokenRange { first, last: last.min(self.placement.end_of(first)) })
    }

    /// The index of the partition with a number; `None` when it is not there (any more).
    #[must_use]
    pub fn find_partition(&self, number: PartitionNumber) -> Option<usize> {
        self.partitions.iter().position(|partition| partition.number == number)
    }

    /// The stream that takes records now.
    #[must_use]
    pub fn enabled_stream(&self) -> Option<&Stream> {
        self.streams.last().filter(|stream| stream.disabled_at.is_none())
    }

    /// The table without what each arc has of its own: its partitions, and the shards of its streams.
    /// Of those there may be so many that they are too much for one entry of the log.
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

    /// The stream with a label.
    #[must_use]
    pub fn stream(&self, label: &str) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.label == label)
    }

    /// The index with a name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&SecondaryIndex> {
        self.indexes.iter().find(|index| index.definition.name == name)
    }

    /// `CREATING`, `UPDATING` or `ACTIVE`.
    #[must_use]
    pub fn status_text(&self) -> &'static str {
        match (self.is_behind, self.is_partial) {
            (_, true) => "CREATING",
            (true, false) => "UPDATING",
            (false, false) => "ACTIVE",
        }
    }

    /// Its local or its global indexes.
    pub fn indexes_of(&self, kind: IndexKind) -> impl Iterator<Item = &SecondaryIndex> {
        self.indexes.iter().filter(move |index| index.definition.kind == kind)
    }

    /// Every shard of every stream.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.streams.iter().flat_map(|stream| &stream.shards)
    }
}

/// The partitions of a new table that lie in an arc, with numbers of their own.
pub(crate) fn partitions_in(
    placement: &Placement,
    arc: ArcId,
    all: Vec<Partition>,
) -> Vec<Partition> {
    let own = all.into_iter().filter(|partition| placement.arc_of(partition.first_token) == arc);
    (arc.first_number()..)
        .zip(own)
        .map(|(number, partition)| Partition { number: PartitionNumber(number), ..partition })
        .collect()
}

/// `count` partitions of equal token ranges.
pub(crate) fn even_partitions(count: u32) -> Vec<Partition> {
    let first_token = |position: u32| {
        let token = (u128::from(position) << 64) / u128::from(count.max(1));
        Token(u64::try_from(token).unwrap_or(u64::MAX))
    };
    (0..count.max(1))
        .map(|position| Partition::new(PartitionNumber(position), first_token(position)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_counts_follow_the_formula() {
        let provisioned =
            |read_units, write_units| Billing::Provisioned { read_units, write_units };
        for (billing, count) in [
            (Billing::OnDemand, 4),
            (provisioned(1, 1), 1),
            (provisioned(3000, 0), 1),
            (provisioned(3000, 1), 2),
            (provisioned(1500, 500), 1),
            (provisioned(6000, 2000), 4),
            (provisioned(0, 1_024_000), 1024),
            (provisioned(1_000_000, 1_000_000), 1024),
            (provisioned(u64::MAX, u64::MAX), 1024),
        ] {
            assert_eq!(partition_count(billing), count, "{billing:?}");
        }
    }

    #[test]
    fn ranges_cover_the_ring_evenly() {
        let partitions = even_partitions(4);
        let tokens: Vec<u64> = partitions.iter().map(|p| p.first_token.0).collect();
        assert_eq!(tokens, [0, 1 << 62, 1 << 63, 3 << 62]);
        assert_eq!(even_partitions(3).len(), 3);
    }
}
