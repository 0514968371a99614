//! The set of nodes of this process. A rebuild replaces a damaged node in the set with a new node.

use std::sync::Arc;

use partition::ARCS_MAX;
use tokio::sync::watch;

use super::Store;
use node::ring::ArcId;
use node::{Node, SubmitError};

/// The replicas of each node, in the order of the arcs; the nodes are in the order of their slots.
pub(super) type Nodes = Arc<Vec<Vec<Node>>>;

/// The current nodes of a process, with notifications about replaced nodes. The set is never empty while
/// the store runs.
pub(super) type NodeSet = watch::Sender<Nodes>;

/// Creates a node set with the nodes of a new store.
pub(super) fn node_set(nodes: Vec<Vec<Node>>) -> NodeSet {
    watch::Sender::new(Arc::new(nodes))
}

/// The nodes that a handle is pinned to, and for each arc the position of the node to read from.
#[derive(Clone)]
pub(super) struct Pinned {
    nodes: Nodes,
    places: [u8; ARCS_MAX as usize],
}

/// Returns the position of the node to read an arc from. Prefers the leader, if it is known and in this
/// process, then a node with complete data, and last a node with a damaged disk.
fn place(nodes: &[Vec<Node>], arc: ArcId) -> usize {
    if nodes.len() < 2 {
        return 0;
    }
    let index = usize::try_from(arc.0).unwrap_or(usize::MAX);
    let find = |is_meant: &dyn Fn(&Node) -> bool| {
        nodes.iter().position(|node| {
            node.get(index)
                .is_some_and(|replica| replica.damage().reason().is_none() && is_meant(replica))
        })
    };
    let is_filled = |replica: &Node| replica.status().voters.contains(&replica.id());
    find(&Node::leads).or_else(|| find(&is_filled)).unwrap_or(0)
}

impl Store {
    /// Returns the nodes of this process, or the nodes that this handle is pinned to.
    pub(super) fn current_nodes(&self) -> Nodes {
        match &self.pinned {
            Some(pinned) => Arc::clone(&pinned.nodes),
            None => Arc::clone(&self.shared.nodes.borrow()),
        }
    }

    /// Returns the replica of an arc that this handle uses: the leader, if it is in this process, and
    /// otherwise another replica of this process.
    pub(crate) fn replica(&self, arc: ArcId) -> Node {
        let nodes = self.current_nodes();
        let index = usize::try_from(arc.0).unwrap_or(usize::MAX);
        let pinned = self.pinned.as_ref().and_then(|pinned| pinned.places.get(index));
        let place = pinned.map_or_else(|| place(&nodes, arc), |place| usize::from(*place));
        let node = nodes.get(place).and_then(|node| node.get(index)).cloned();
        #[expect(
            clippy::expect_used,
            reason = "the store rebuilds one node at a time, and only if another node remains; \
                      each node has every arc"
        )]
        node.expect("a store has at least one node")
    }

    /// Waits until the replica that serves requests has applied every acknowledged write. If another node
    /// becomes the leader during the wait, waits for its replica.
    pub(super) async fn wait_for_leader(&self, arc: ArcId) -> Result<(), SubmitError> {
        // The loop has one iteration more than there are nodes, because the leader changes only a
        // few times at the start.
        for _ in 0..=self.shared.nodes.borrow().len() {
            let replica = self.replica(arc);
            replica.read_index().await?;
            if self.replica(arc).id() == replica.id() {
                break;
            }
        }
        Ok(())
    }

    /// Returns a handle that always uses the same replicas. A later read with this handle never sees an older
    /// state than an earlier read, even after a leader change.
    #[must_use]
    pub(crate) fn pin(&self) -> Self {
        let nodes = self.current_nodes();
        let mut places = [0; ARCS_MAX as usize];
        for (arc, found) in self.arcs().zip(&mut places) {
            *found = u8::try_from(place(&nodes, arc)).unwrap_or(0);
        }
        Self { pinned: Some(Pinned { nodes, places }), ..self.clone() }
    }

    /// Returns whether this handle reads from a damaged node although the store has other nodes.
    pub(crate) fn reads_damaged(&self) -> bool {
        let is_damaged = |arc| {
            let replica = self.replica(arc);
            replica.damage().reason().is_some() || replica.damage().is_stopped()
        };
        self.current_nodes().len() > 1 && self.arcs().any(is_damaged)
    }

    /// Returns a handle on the same store that is not pinned to any node.
    pub(crate) fn unpinned(&self) -> Self {
        Self { pinned: None, ..self.clone() }
    }
}
