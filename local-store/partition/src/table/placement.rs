//! Placement: the arc of each part of a table.
//!
//! An arc is one consensus group: one log, one state machine. When a table is created, its tokens
//! are divided into ranges, one for each initial partition, and the ranges are assigned to the arcs
//! round-robin. A partition is entirely in one arc, and its successors after a split are in the
//! same arc. Therefore all records of a stream shard come from one log. The first arc decides the
//! table's definition; the other arcs adopt it, version by version. See
//! `docs/decisions/0007-several-arcs.md`.

use std::fmt;

use model::Token;
use serde::{Deserialize, Serialize};

use crate::table::identifiers::TableId;

/// The maximum number of arcs in a ring. Each arc is on three nodes, and costs each of them an
/// engine and heartbeats.
pub const ARCS_MAX: u32 = 128;
/// Size of each arc's range of partition and shard numbers: arc 2 counts from 67,108,864, so that
/// no two arcs assign the same number. The ranges of all arcs together are the numbers of 32 bits.
const NUMBERS_PER_ARC: u32 = 1 << 25;
const _: () = assert!(ARCS_MAX as u64 * NUMBERS_PER_ARC as u64 == 1 << 32);

/// A consensus group: the data of one arc of the ring.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ArcId(pub u32);

impl ArcId {
    /// The first arc, which decides the definitions of tables. In a ring of one arc, it is the only
    /// arc.
    pub const FIRST: Self = Self(0);

    /// Returns the first number that the arc assigns to a partition or a shard.
    pub(crate) fn first_number(self) -> u32 {
        self.0.saturating_mul(NUMBERS_PER_ARC)
    }

    /// Returns the arc that assigned a number to a partition or a shard.
    #[must_use]
    pub fn of_number(number: u32) -> Self {
        Self(number / NUMBERS_PER_ARC)
    }
}

impl fmt::Display for ArcId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "arc-{}", self.0)
    }
}

/// The arc of a state machine, and the number of arcs in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArcPosition {
    /// The arc.
    pub arc: ArcId,
    /// The number of arcs in the ring: 1 to [`ARCS_MAX`].
    pub arcs: u32,
}

impl Default for ArcPosition {
    /// Returns the position of the only arc in a ring of one.
    fn default() -> Self {
        Self { arc: ArcId::FIRST, arcs: 1 }
    }
}

/// Tokens of a table that are in one arc: from `first` to the next range's `first`, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRange {
    /// The first token, inclusive.
    pub first: Token,
    /// The arc that holds the tokens.
    pub arc: ArcId,
}

/// The placement of a table. By default, the entire table is in the first arc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The version of the definition, which increases with each change; always 0 in a ring of one
    /// arc.
    pub version: u64,
    /// Ranges by their first tokens, beginning with 0; empty if the entire table is in the first
    /// arc.
    pub ranges: Vec<PlacementRange>,
}

impl Placement {
    /// Assigns the partitions of a new table to the arcs round-robin. The arc of the first
    /// partition differs from table to table.
    pub(crate) fn deal(table: TableId, firsts: impl Iterator<Item = Token>, arcs: u32) -> Self {
        if arcs <= 1 {
            return Self::default();
        }
        let arc = |number: u64| u32::try_from((table.0.wrapping_add(number)) % u64::from(arcs));
        let stretch =
            |(number, first)| PlacementRange { first, arc: ArcId(arc(number).unwrap_or(0)) };
        Self { version: 1, ranges: (0..).zip(firsts).map(stretch).collect() }
    }

    /// Returns the arc of a token.
    #[must_use]
    pub fn arc_of(&self, token: Token) -> ArcId {
        self.range_of(token).map_or(ArcId::FIRST, |stretch| stretch.arc)
    }

    fn range_of(&self, token: Token) -> Option<&PlacementRange> {
        let next = self.ranges.partition_point(|stretch| stretch.first <= token);
        self.ranges.get(next.checked_sub(1)?)
    }

    /// Returns the last token, inclusive, of the range that contains a token.
    #[must_use]
    pub fn end_of(&self, token: Token) -> Token {
        let next = self.ranges.partition_point(|stretch| stretch.first <= token);
        self.ranges.get(next).map_or(Token(u64::MAX), |next| Token(next.first.0.saturating_sub(1)))
    }

    /// Returns the arcs that store a part of the table, each arc once.
    #[must_use]
    pub fn arcs(&self) -> Vec<ArcId> {
        let mut arcs: Vec<ArcId> = self.ranges.iter().map(|stretch| stretch.arc).collect();
        arcs.sort_unstable();
        arcs.dedup();
        if arcs.is_empty() { vec![ArcId::FIRST] } else { arcs }
    }

    /// Returns the number of ranges that are in an arc, and the number of all ranges.
    pub(crate) fn share_of(&self, arc: ArcId) -> (usize, usize) {
        if self.ranges.is_empty() {
            return (usize::from(arc == ArcId::FIRST), 1);
        }
        let own = self.ranges.iter().filter(|stretch| stretch.arc == arc).count();
        (own, self.ranges.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::partition::even_partitions;

    fn deal(table: u64, partitions: u32, arcs: u32) -> Placement {
        let firsts = even_partitions(partitions).into_iter().map(|partition| partition.first_token);
        Placement::deal(TableId(table), firsts, arcs)
    }

    #[test]
    fn partitions_are_assigned_round_robin() {
        for (table, partitions, arcs, expected) in [
            (1, 4, 1, vec![0, 0, 0, 0]),
            (1, 4, 3, vec![1, 2, 0, 1]),
            (2, 4, 3, vec![2, 0, 1, 2]),
            (3, 1, 3, vec![0]),
            (4, 1, 3, vec![1]),
        ] {
            let placement = deal(table, partitions, arcs);
            let found: Vec<u32> = even_partitions(partitions)
                .iter()
                .map(|partition| placement.arc_of(partition.first_token).0)
                .collect();
            assert_eq!(found, expected, "table {table}, {partitions} partitions, {arcs} arcs");
        }
    }

    #[test]
    fn a_stretch_ends_where_the_next_begins() {
        let placement = deal(1, 4, 3);
        assert_eq!(placement.end_of(Token(0)), Token((1 << 62) - 1));
        assert_eq!(placement.end_of(Token(1 << 62)), Token((1 << 63) - 1));
        assert_eq!(placement.end_of(Token(u64::MAX)), Token(u64::MAX));
        assert_eq!(placement.arc_of(Token((1 << 62) - 1)), ArcId(1));
        assert_eq!(placement.arcs(), [ArcId(0), ArcId(1), ArcId(2)]);
        assert_eq!(Placement::default().end_of(Token(5)), Token(u64::MAX));
        assert_eq!(Placement::default().arcs(), [ArcId(0)]);
    }

    #[test]
    fn numbers_identify_their_arc() {
        for arc in 0..ARCS_MAX {
            let first = ArcId(arc).first_number();
            assert_eq!(ArcId::of_number(first), ArcId(arc));
            assert_eq!(ArcId::of_number(first + (NUMBERS_PER_ARC - 1)), ArcId(arc));
        }
    }
}
