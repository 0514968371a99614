//! The type parameters of the consensus library.

use std::hash::{BuildHasher, RandomState};

use openraft::RaftTypeConfig;
use openraft::impls::leader_id_std::LeaderId;
use openraft::impls::{BoxedErrorSource, EmptyNode, InlineBatch, TokioRuntime};
use openraft::raft::responder::Responder;
use openraft_rt::deterministic_rng::DeterministicRng;
use partition::Reply;
use serde::{Deserialize, Serialize};

pub use crate::payload::Payload;
pub use crate::ring::NodeId;

/// Returns the slot of a node: the number that the operator assigned to it.
#[must_use]
pub fn slot_of(node: NodeId) -> u64 {
    node & 0xff
}

/// Returns the incarnation of a node: the number of times that its slot was rebuilt.
#[must_use]
pub fn incarnation_of(node: NodeId) -> u64 {
    node >> 8
}

/// Returns the node id for an incarnation of a slot.
#[must_use]
pub fn node_id(slot: u64, incarnation: u64) -> NodeId {
    incarnation << 8 | slot_of(slot)
}

/// The runtime of the consensus library. Its timers use random numbers from a seed, so that a
/// simulated run is reproducible. In production the seed is random, and the only cost is one
/// task-local value per task.
pub type Runtime = DeterministicRng<TokioRuntime>;

/// Returns a seed that differs from process to process.
#[must_use]
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The configuration of the consensus library's types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Payload;
    type R = Replies;
    type NodeId = NodeId;
    type Node = EmptyNode;
    type Term = u64;
    type LeaderId = LeaderId<u64, NodeId>;
    type Vote = openraft::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Payload, NodeId, EmptyNode>;
    type Entry = openraft::Entry<openraft::alias::CommittedLeaderIdOf<Self>, Self::Payload>;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = OutcomeCallback<T>
    where
        T: Send + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type Entry = openraft::alias::EntryOf<TypeConfig>;
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// The replies to the commands of an entry, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Replies(pub Vec<Reply>);

/// A callback for the outcome of a proposal. The first task that gets the outcome calls it. If the
/// callback is dropped without a call, the outcome is unknown.
pub struct OutcomeCallback<T>(Box<dyn FnOnce(T) + Send>);

impl<T> OutcomeCallback<T> {
    /// Creates a callback from a function.
    pub fn new(function: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(function))
    }
}

impl<T: Send + 'static> Responder<TypeConfig, T> for OutcomeCallback<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_carry_slot_and_incarnation() {
        for (slot, incarnation) in [(1, 0), (3, 0), (2, 1), (255, 70_000)] {
            let id = node_id(slot, incarnation);
            assert_eq!((slot_of(id), incarnation_of(id)), (slot, incarnation));
        }
        assert_eq!(node_id(2, 0), 2);
    }
}
