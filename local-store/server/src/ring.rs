//! The ring: which arcs there are, and which nodes hold a replica of each.
//!
//! The hash of a partition key is a token; node positions cut the circle of tokens into arcs. An arc
//! is held by the node at whose position it ends and by the next two distinct ones. Today every ring
//! has one arc with all tables, so that a transaction is one command; see
//! `docs/decisions/0006-replication.md`. It moves no data and knows no addresses.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::node::NodeId;

/// Replicas of an arc, if there are as many nodes.
pub const REPLICAS: usize = 3;

/// A consensus group: the data of one arc of the ring.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ArcId(pub u32);

impl ArcId {
    /// The arc that holds everything while a ring has one.
    pub const WHOLE: Self = Self(0);
}

impl fmt::Display for ArcId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "arc-{}", self.0)
    }
}

/// An arc with the nodes that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arc {
    /// Its id.
    pub id: ArcId,
    /// The last token of the arc, inclusive.
    pub end: u64,
    /// The nodes with a replica, the one at whose position the arc ends first.
    pub replicas: Vec<NodeId>,
}

/// The arcs by the token at which they end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    arcs: BTreeMap<u64, Arc>,
}

impl Ring {
    /// A ring of one arc, held by the first nodes, at most [`REPLICAS`].
    #[must_use]
    pub fn whole(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let replicas = nodes.into_iter().take(REPLICAS).collect();
        let arc = Arc { id: ArcId::WHOLE, end: u64::MAX, replicas };
        Self { arcs: BTreeMap::from([(arc.end, arc)]) }
    }

    /// Every arc, in the order of the tokens.
    pub fn arcs(&self) -> impl Iterator<Item = &Arc> {
        self.arcs.values()
    }

    /// The arc that a token lies in.
    #[must_use]
    pub fn find(&self, token: u64) -> Option<&Arc> {
        self.arcs.range(token..).next().map(|(_, arc)| arc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_arc_holds_every_token() {
        let ring = Ring::whole([1, 2, 3, 4]);
        for token in [0, 1, u64::MAX / 2, u64::MAX] {
            assert_eq!(ring.find(token).unwrap().replicas, [1, 2, 3]);
        }
        assert_eq!(ring.arcs().count(), 1);
    }
}
