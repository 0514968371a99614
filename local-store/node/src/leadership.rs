//! Proof of leadership without a message, for nodes whose peers are in the same process: the last
//! votes in the peers' logs.
//!
//! A strong read has to show every write that was acknowledged before it began, and everything that
//! another strong read has shown. If this node won an election of term *t* since it started and has
//! applied an entry of *t*, its state contains everything that it and earlier leaders acknowledged.
//! A later leader needs the votes of a majority. Each voter logs its vote before it sends it, and
//! votes are never withdrawn. Therefore, while the last votes of a majority are for *t*, there is
//! no later leader, and this state has every acknowledged write. Followers may apply an entry
//! before the leader does, once the leader has announced that the entry is committed. Therefore a
//! read also waits until this node has applied those entries.
//!
//! The proof needs no clock and no message. It does not work during a joint membership change, in
//! which two sets of voters count, nor between processes, nor on followers. In these cases messages
//! decide: see [`crate::reader`].

use openraft::Membership;
use openraft::impls::EmptyNode;

use crate::types::NodeId;

/// The last vote of a node: its term, and the candidate or leader that it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The term.
    pub term: u64,
    /// The candidate or leader.
    pub node: NodeId,
}

/// The term and the voters as of the last applied entry, which the proof of leadership needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Electorate {
    /// The term of the entry.
    pub(super) term: u64,
    /// The voters; empty during a joint membership change, in which two sets have to agree.
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
