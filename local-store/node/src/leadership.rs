//! Whether a node leads at this moment, told without a message: where the logs of its peers are in the
//! same process, it looks at their last votes itself.
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

use std::sync::atomic::Ordering;

use openraft::Membership;
use openraft::impls::EmptyNode;
use partition::mutation::{self, Mutation};

use crate::Node;
use crate::types::NodeId;

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
pub(super) struct Electorate {
    /// The term of the entry.
    pub(super) term: u64,
    /// The voters; none while two sets of them have to agree.
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

impl Node {
    /// Whether this node's views, taken from now on, are known to show everything that was
    /// acknowledged, by any node, or shown by a strong read of any, before the call. `false` says
    /// nothing: see [`Node::read_index`].
    #[must_use]
    pub fn shows_all(&self) -> bool {
        self.index_to_show().is_some_and(|told| self.inner.replica.has_applied(told))
    }

    /// If this node is known to lead: up to where it must have applied its log to show everything.
    pub(super) fn index_to_show(&self) -> Option<u64> {
        let own = self.ballot()?;
        if own.node != self.inner.id || own.term <= self.inner.earlier_term {
            return None;
        }
        let leads = self.inner.replica.with_electorate(|electorate| {
            electorate.term == own.term
                && electorate.voters.contains(&self.inner.id)
                && self.is_majority(own, &electorate.voters)
        });
        leads.then(|| self.inner.told.load(Ordering::SeqCst))
    }

    /// Whether more than half of the voters noted this vote last.
    fn is_majority(&self, own: Ballot, voters: &[NodeId]) -> bool {
        if mutation::is_active(Mutation::TrustOwnVote) {
            return true;
        }
        let has_voted = |voter: &NodeId| {
            let ballot_of = |node| self.inner.transport.ballot_of(node, self.inner.arc);
            *voter == self.inner.id || ballot_of(*voter) == Some(own)
        };
        let majority = voters.len() / 2 + 1;
        voters.iter().copied().filter(has_voted).take(majority).count() == majority
    }

    /// The last vote that this node has noted, which it gave after that.
    #[must_use]
    pub fn ballot(&self) -> Option<Ballot> {
        self.inner.log.ballot(self.inner.arc)
    }
}
