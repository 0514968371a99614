//! Whether a node leads at this moment, told without a message: where the logs of its peers are in the
//! same process, it looks at their last votes itself.
//!
//! A strong read has to know that no later leader acknowledged anything before it began. Its node won
//! an election of term *t* in this life, and has applied an entry of *t*, so its state has whatever
//! earlier leaders acknowledged, and what it acknowledged itself. A later leader was voted for by a
//! majority, each of which had noted its vote before it gave it, and votes are never taken back. So
//! while the last notes of a majority are for *t*, there is no later leader, and the state shows
//! everything. That asks for no clock, and for no wait either.
//!
//! Where voters are being exchanged, two sets of them count: then, and between processes, messages
//! decide, see [`super::reader`].

use openraft::Membership;
use openraft::impls::EmptyNode;
use partition::mutation::{self, Mutation};

use super::Node;
use super::types::NodeId;

/// Whom a node voted for last, or whom it knows to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ballot {
    /// In which term.
    pub term: u64,
    /// Whom.
    pub node: NodeId,
}

/// Who could have led when the last entry was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The term of the entry.
    pub(super) term: u64,
    /// The voters; none while two sets of them have to agree.
    pub(super) voters: Vec<NodeId>,
}

impl Standing {
    pub(super) fn new(term: u64, membership: &Membership<NodeId, EmptyNode>) -> Self {
        let voters = match membership.get_joint_config().as_slice() {
            [only] => only.iter().copied().collect(),
            _ => Vec::new(),
        };
        Self { term, voters }
    }
}

impl Node {
    /// Whether this node's views, taken from now on, are known to show everything that was
    /// acknowledged, by any node, before the call. `false` says nothing: see [`Node::read_index`].
    #[must_use]
    pub fn shows_all(&self) -> bool {
        let Some(own) = self.ballot() else { return false };
        if own.node != self.inner.id || own.term <= self.inner.earlier_term {
            return false;
        }
        self.inner.replica.with_standing(|standing| {
            let transport = &self.inner.transport;
            let agrees = |voter: &NodeId| {
                *voter == self.inner.id || transport.ballot_of(*voter, self.inner.arc) == Some(own)
            };
            let majority = standing.voters.len() / 2 + 1;
            let is_voter = standing.voters.contains(&self.inner.id);
            is_voter
                && standing.term == own.term
                && (mutation::is_active(Mutation::TrustOwnVote)
                    || standing.voters.iter().filter(|voter| agrees(voter)).take(majority).count()
                        == majority)
        })
    }

    /// The last vote that this node has noted, which it gave after that.
    #[must_use]
    pub fn ballot(&self) -> Option<Ballot> {
        self.inner.log.ballot(self.inner.arc)
    }
}
