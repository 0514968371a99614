//! Proof of a node's leadership without a message. [`crate::leadership`] explains why it is
//! correct.

use std::sync::atomic::Ordering;

use partition::mutation::{self, Mutation};

use super::Node;
use crate::leadership::Ballot;
use crate::types::NodeId;

impl Node {
    /// Returns true if views that are opened after this call are linearizable: they show all writes
    /// that any node acknowledged, or returned in a strong read, before the call. `false` means
    /// unknown; call [`Node::read_index`] in that case.
    #[must_use]
    pub fn shows_all(&self) -> bool {
        self.index_to_show().is_some_and(|told| self.inner.replica.has_applied(told))
    }

    /// Returns the log index that this node must have applied before its views are linearizable;
    /// `None` if the node is not known to lead.
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
        leads.then(|| self.inner.announced_commit.load(Ordering::SeqCst))
    }

    /// Returns whether `own` is the last vote of a majority of the voters.
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

    /// Returns the last vote in this node's log. A node logs its vote before it sends it.
    #[must_use]
    pub fn ballot(&self) -> Option<Ballot> {
        self.inner.log.ballot(self.inner.arc)
    }
}
