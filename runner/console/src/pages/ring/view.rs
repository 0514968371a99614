//! What the page of the ring shows: nodes and their replicas, from the store's own status.

use serde::{Deserialize, Serialize};

/// The page of the ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct View {
    /// The version of this form.
    pub(crate) schema: &'static str,
    /// Why the store has no ring to show; `None` if it has.
    pub(crate) unavailable: Option<String>,
    pub(crate) nodes: Vec<Node>,
    /// The replicas: one for each reachable node and arc.
    pub(crate) replicas: Vec<Replica>,
    /// The number of the first replica in the list, from 0.
    pub(crate) first: usize,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its number.
    pub(crate) node: u64,
    /// The directories that were set aside because they were damaged.
    pub(crate) set_aside: Vec<String>,
    /// Why it does not respond; `None` if it does.
    pub(crate) unreachable: Option<String>,
}

/// A replica of an arc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Replica {
    /// The node that holds it.
    pub(crate) node: u64,
    pub(crate) arc: u64,
    /// `leader`, `follower`, `candidate`, `learner` or `stopped`.
    pub(crate) role: String,
    pub(crate) term: u64,
    /// The last entry that its state contains.
    pub(crate) applied: Option<u64>,
    /// Committed entries that it has not applied.
    pub(crate) lag: Option<u64>,
    /// Size of its node's log in bytes.
    pub(crate) log_bytes: u64,
    /// Whether its node's disk is damaged.
    pub(crate) damaged: bool,
    /// Whether its node is being filled, and does not vote yet.
    pub(crate) filled: bool,
    /// The percentage of its files whose checksums were verified in the current or last pass.
    pub(crate) verified: String,
    /// What an operator must know about it.
    pub(crate) notes: Vec<String>,
}
