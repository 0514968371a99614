//! Proof of leadership without a message, for nodes whose peers are in the same process. The proof
//! uses the last votes in the peers' logs.
//!
//! A strong read must return every write that was acknowledged before it began, and everything that
//! an earlier strong read returned. Suppose that this node has won the election of term *t* since
//! it started, and has applied an entry of *t*. Then its state contains every write that it and
//! earlier leaders acknowledged. A later leader needs the votes of a majority. Each voter logs its
//! vote before it sends it, and votes are never withdrawn. Therefore, while the last votes of a
//! majority are for *t*, there is no later leader, and this state contains every acknowledged
//! write. Once the leader has announced that an entry is committed, followers may apply it before
//! the leader does. Therefore a read also waits until this node has applied all announced entries.
//!
//! The proof needs no clock and no message. It is not available during a joint membership change
//! (which needs majorities of two sets of voters), between processes, or on followers. In these
//! cases the node sends messages: see [`crate::reader`].

use openraft::Membership;
use openraft::impls::EmptyNode;

use crate::types::NodeId;

/// The last vote of a node: the term, and the candidate or leader that the node voted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The term.
    pub term: u64,
    /// The candidate or leader that the vote is for.
    pub node: NodeId,
}

/// The term and the voters as of the last applied entry, which the proof of leadership needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Electorate {
    /// The term of the entry.
    pub(super) term: u64,
    /// The voters; empty during a joint membership change, which needs majorities of two sets.
    pub(super) voters: Vec<NodeId>,
}

impl Electorate {
    pub(super) fn new(term: u64, membership: &Membership<NodeId, EmptyNode>) -> Self {
        let voters = match membership.get_joint_config().as_slice() {
            [only] => only.iter().copied().collect(),
            _ => Vec::new(),
        };
        Self { term, voters }
    }
}
