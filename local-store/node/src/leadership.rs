//! Proof of leadership without a message, for nodes whose peers are in the same process: the last votes
//! in the peers' logs.
//!
//! A strong read has to show whatever was acknowledged before it began, and whatever another strong
//! read has shown. Its node won an election of term *t* in this life, and has applied an entry of *t*, so
//! its state has whatever earlier leaders acknowledged, and what it acknowledged itself. A later leader
//! was voted for by a majority, each of which had noted its vote before it gave it, and votes are never
//! taken back. So while the last notes of a majority are for *t*, there is no later leader, and nothing
//! was acknowledged that this state does not show. Other nodes may show more than was acknowledged, and
//! sooner than this one: entries of which it has told them that they are committed. It waits until it has
//! applied those, too.
//!
//! That asks for no clock and no message. Where voters are being exchanged, two sets of them count: then,
//! between processes, and for whoever does not lead, messages decide, see [`crate::reader`].

use openraft::Membership;
use openraft::impls::EmptyNode;

use crate::types::NodeId;

/// The last vote of a node, or the leader that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// The term.
    pub term: u64,
    /// The candidate or leader.
    pub node: NodeId,
}

/// The term and the voters as of the last applied entry.
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
