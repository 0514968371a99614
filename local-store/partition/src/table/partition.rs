//! A partition: a token range of a table, and its unfinished split.
//!
//! The module `split` performs splits.

use model::Token;
use serde::{Deserialize, Serialize};

use crate::table::identifiers::{PartitionNumber, ShardNumber};
use crate::table::placement::{ArcId, Placement};

/// The maximum number of partitions of one table in one arc. The table's description contains all
/// of them and is rewritten whenever the table changes, and each partition has an open shard.
pub const PARTITIONS_MAX: usize = 1024;

/// A token range of a table: from its first token (inclusive) to the next partition's first token
/// (exclusive).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// The partition's number. A split replaces the partition with two partitions that have new
    /// numbers.
    pub number: PartitionNumber,
    /// The partition's first token, inclusive.
    pub first_token: Token,
    /// The stream shard for the partition's new records, if the table has an enabled stream.
    pub shard: Option<ShardNumber>,
    /// The partition's unfinished split, if there is one.
    pub split: Option<Split>,
    /// The partition's size in bytes when a split last found only one partition key, which cannot
    /// be divided; 0 if no split has failed for this reason.
    pub indivisible_bytes: u64,
}

impl Partition {
    pub(crate) fn new(number: PartitionNumber, first_token: Token) -> Self {
        Self { number, first_token, shard: None, split: None, indivisible_bytes: 0 }
    }
}

/// The point at which to split a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SplitPoint {
    /// The token at which each side has about half of the bytes, or the middle of the range if the
    /// partition is empty.
    Half,
    /// The upper part begins at the given token.
    Token(Token),
}

/// An unfinished split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The first token of the upper part, once the token is known.
    pub at: Option<Token>,
    /// The id of the partition that will contain the lower part. The statistics under this number
    /// already include the items that were counted.
    pub lower: PartitionNumber,
    /// The key of the last item that was counted; `None` before the first item.
    pub(crate) cursor: Option<Vec<u8>>,
}

impl Split {
    /// Returns whether the split has already counted the item with this key, or would have counted
    /// it if it existed.
    pub(crate) fn has_counted(&self, stored: &[u8]) -> bool {
        self.cursor.as_deref().is_some_and(|cursor| stored <= cursor)
    }
}

/// Returns the partitions of a new table that are in an arc, with new numbers.
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

/// Returns `count` partitions of equal token ranges.
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
