//! The ring: the nodes that have a replica of each arc.
//!
//! An arc is one consensus group. The number of arcs is fixed when a data directory is created. A
//! table's placement determines which part of the table an arc stores (see
//! `docs/decisions/0007-several-arcs.md`). This module moves no data and contains no addresses.

pub use partition::{ArcId, NODES_MAX, REPLICAS};

/// The id of a node: its slot in the lowest eight bits, and above them the number of rebuilds of
/// the slot. Ids are never reused, so a node that lost its disk cannot vote as its predecessor.
pub type NodeId = u64;

/// Returns the nodes with a replica of an arc, at most [`REPLICAS`]: the node at the arc's end, and
/// the nodes after it in the ring. Each arc ends at the position of a node, in the order of
/// `nodes`.
#[must_use]
pub fn holders(arc: ArcId, nodes: &[NodeId]) -> Vec<NodeId> {
    let first = usize::try_from(arc.0).unwrap_or(0) % nodes.len().max(1);
    nodes.iter().cycle().skip(first).take(nodes.len().min(REPLICAS)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arc_is_held_by_the_next_three_nodes() {
        let replicas = |arcs, nodes: &[NodeId]| -> Vec<Vec<NodeId>> {
            (0..arcs).map(|arc| holders(ArcId(arc), nodes)).collect()
        };
        assert_eq!(replicas(1, &[1, 2, 3, 4]), [[1, 2, 3]]);
        assert_eq!(replicas(3, &[1, 2, 3, 4]), [[1, 2, 3], [2, 3, 4], [3, 4, 1]]);
        assert_eq!(replicas(2, &[1]), [[1], [1]]);
    }
}
