//! The data of the page of the ring: nodes and their replicas, from the store's status.

use serde::{Deserialize, Serialize};

/// The data of the page of the ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The reason why the store reports no ring; `None` if it does.
    pub(crate) unavailable: Option<String>,
    pub(crate) nodes: Vec<Node>,
    /// The replicas, with one for each arc of each reachable node.
    pub(crate) replicas: Vec<Replica>,
    /// The index of the first replica in the list, from 0.
    pub(crate) first: usize,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// The number of the node.
    pub(crate) node: u64,
    /// The damaged directories that the node has set aside.
    pub(crate) set_aside: Vec<String>,
    /// The reason why the node does not respond; `None` if it does.
    pub(crate) unreachable: Option<String>,
}

/// A replica of an arc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Replica {
    /// The node of the replica.
    pub(crate) node: u64,
    pub(crate) arc: u64,
    /// `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub(crate) role: String,
    pub(crate) term: u64,
    /// The index of the last applied log entry.
    pub(crate) applied: Option<u64>,
    /// The number of committed entries that the replica has not applied.
    pub(crate) lag: Option<u64>,
    /// The size of the node's log in bytes.
    pub(crate) log_bytes: u64,
    /// Whether the node's disk is damaged.
    pub(crate) damaged: bool,
    /// Whether the node is being rebuilt, so that it does not vote yet.
    pub(crate) filled: bool,
    /// The percentage of the node's files whose checksums were verified in the current or last
    /// pass.
    pub(crate) verified: String,
    /// The problems that an operator must know.
    pub(crate) notes: Vec<String>,
}
