//! A partition: a token range of a table, and the split that it may be in.
//!
//! How a split goes on is in `split`.

use model::Token;
use serde::{Deserialize, Serialize};

use crate::table::identifiers::{PartitionNumber, ShardNumber};
use crate::table::placement::{ArcId, Placement};

/// Partitions of one table in one arc at most: each is a part of the table's description, which is written
/// whole whenever the table changes, and each is an open shard of its stream.
pub const PARTITIONS_MAX: usize = 1024;

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

/// Where a partition is to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SplitPoint {
    /// Where about half of its bytes are on either side; in the middle when it is empty.
    Half,
    /// The upper part begins at this token.
    Token(Token),
}

/// A split under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Where the upper part begins, when that is known.
    pub at: Option<Token>,
    /// The number of the partition that the lower part becomes; what was counted so far stands
    /// under it.
    pub lower: PartitionNumber,
    /// The key of the last item that was counted; `None` before the first one.
    pub(crate) cursor: Option<Vec<u8>>,
}

impl Split {
    /// Whether an item with this key, if it is there, is among those that were counted.
    pub(crate) fn has_counted(&self, stored: &[u8]) -> bool {
        self.cursor.as_deref().is_some_and(|cursor| stored <= cursor)
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
    fn ranges_cover_the_ring_evenly() {
        let partitions = even_partitions(4);
        let tokens: Vec<u64> = partitions.iter().map(|p| p.first_token.0).collect();
        assert_eq!(tokens, [0, 1 << 62, 1 << 63, 3 << 62]);
        assert_eq!(even_partitions(3).len(), 3);
    }
}
