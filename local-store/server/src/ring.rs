//! The ring: which arcs there are, and which nodes hold a replica of each.
//!
//! An arc is one consensus group. How many there are is said when a data directory is made, and
//! stays; which part of a table an arc holds is said by the table's placement (see
//! `docs/decisions/0007-several-arcs.md`). It moves no data and knows no addresses.

use serde::{Deserialize, Serialize};

pub use partition::ArcId;

use crate::node::NodeId;

/// Replicas of an arc, if there are as many nodes.
pub const REPLICAS: usize = 3;

/// An arc with the nodes that hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arc {
    /// Its id.
    pub id: ArcId,
    /// The nodes with a replica, the one at whose position the arc ends first.
    pub replicas: Vec<NodeId>,
}

/// The arcs, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    arcs: Vec<Arc>,
}

impl Ring {
    /// A ring of this many arcs. They end at the positions of the nodes, in turn, and are held by
    /// the node there and the next ones: at most [`REPLICAS`].
    #[must_use]
    pub fn new(arcs: u32, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let arc = |id: u32| {
            let first = usize::try_from(id).unwrap_or(0) % nodes.len().max(1);
            let from_there = nodes.iter().cycle().skip(first).take(nodes.len().min(REPLICAS));
            Arc { id: ArcId(id), replicas: from_there.copied().collect() }
        };
        Self { arcs: (0..arcs.max(1)).map(arc).collect() }
    }

    /// Every arc.
    pub fn arcs(&self) -> impl Iterator<Item = &Arc> {
        self.arcs.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arc_is_held_by_the_next_three_nodes() {
        let replicas = |arcs, nodes: &[NodeId]| -> Vec<Vec<NodeId>> {
            let ring = Ring::new(arcs, nodes.iter().copied());
            ring.arcs().map(|arc| arc.replicas.clone()).collect()
        };
        assert_eq!(replicas(1, &[1, 2, 3, 4]), [[1, 2, 3]]);
        assert_eq!(replicas(3, &[1, 2, 3, 4]), [[1, 2, 3], [2, 3, 4], [3, 4, 1]]);
        assert_eq!(replicas(2, &[1]), [[1], [1]]);
    }
}
