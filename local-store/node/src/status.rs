//! How a replica does, for people and programs: role, leader, progress, log, snapshot.

use std::collections::BTreeMap;

use openraft::{Instant as _, RaftMetrics, ServerState};
use serde::{Deserialize, Serialize};

use crate::ring::ArcId;
pub use crate::scrub::Progress;
use crate::types::{NodeId, TypeConfig};

/// What a replica is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It orders the writes.
    Leader,
    /// It follows a leader and can take its place.
    Follower,
    /// It asks to lead.
    Candidate,
    /// It is being filled and has no vote yet.
    Learner,
    /// It has ended.
    Stopped,
}

impl Role {
    /// The role as text, in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Learner => "learner",
            Self::Stopped => "stopped",
        }
    }
}

/// One replica of one arc. Log indexes are `None` before the first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The node that holds the replica.
    pub node: NodeId,
    /// The arc.
    pub arc: ArcId,
    /// What the replica is.
    pub role: Role,
    /// The term it is in.
    pub term: u64,
    /// The leader it knows of.
    pub leader: Option<NodeId>,
    /// The nodes that vote.
    pub voters: Vec<NodeId>,
    /// The nodes that are being filled.
    pub learners: Vec<NodeId>,
    /// The last entry in its log.
    pub last_log: Option<u64>,
    /// The last entry that it knows to be committed.
    pub committed: Option<u64>,
    /// The last entry that its state contains.
    pub applied: Option<u64>,
    /// The entry up to which its state is durable by itself.
    pub snapshot: Option<u64>,
    /// The entry up to which its log was shortened.
    pub purged: Option<u64>,
    /// Of a leader: for each other node that it fills, the last entry that the node is known to have
    /// made durable. Empty for any other replica.
    pub acknowledged: BTreeMap<NodeId, u64>,
    /// Of a leader of several: how long ago, in milliseconds, a majority last answered it. One that
    /// leads hears it with each heartbeat.
    pub silent_ms: Option<u64>,
    /// What the files of the node's log take, in bytes.
    pub log_bytes: u64,
    /// Syncs of the node's log since it started.
    pub log_syncs: u64,
    /// Whether damage was found on the node's disk: it is set aside and filled again when its peers
    /// can go on without it, and does not lead until then if another one can.
    pub is_damaged: bool,
    /// How far the verifying of its files is.
    pub scrub: Progress,
}

impl Status {
    /// What the consensus says of a replica. The usage is that of its log: syncs and bytes.
    pub(super) fn new(
        node: NodeId,
        arc: ArcId,
        metrics: &RaftMetrics<TypeConfig>,
        (log_syncs, log_bytes): (u64, u64),
    ) -> Self {
        let membership = metrics.membership_config.membership();
        let filled = metrics.replication.iter().flatten().filter(|(peer, _)| **peer != node);
        Self {
            node,
            arc,
            role: match metrics.state {
                _ if metrics.running_state.is_err() => Role::Stopped,
                ServerState::Leader => Role::Leader,
                ServerState::Follower => Role::Follower,
                ServerState::Candidate => Role::Candidate,
                ServerState::Learner => Role::Learner,
                ServerState::Shutdown => Role::Stopped,
            },
            term: metrics.current_term,
            leader: metrics.current_leader,
            voters: membership.voter_ids().collect(),
            learners: membership.learner_ids().collect(),
            last_log: metrics.last_log_index,
            committed: metrics.local_committed.map(|at| at.index),
            applied: metrics.last_applied.map(|at| at.index),
            snapshot: metrics.snapshot.map(|at| at.index),
            purged: metrics.purged.map(|at| at.index),
            acknowledged: filled
                .filter_map(|(peer, at)| Some((*peer, at.as_ref()?.index)))
                .collect(),
            silent_ms: silent_ms(node, metrics),
            log_bytes,
            log_syncs,
            is_damaged: false,
            scrub: Progress::default(),
        }
    }
}

#[cfg(test)]
impl Status {
    /// Of a replica that holds nothing.
    pub(super) fn of_nothing(node: NodeId, arc: ArcId) -> Self {
        Self {
            node,
            arc,
            role: Role::Learner,
            term: 0,
            leader: None,
            voters: Vec::new(),
            learners: Vec::new(),
            last_log: None,
            committed: None,
            applied: None,
            snapshot: None,
            purged: None,
            acknowledged: BTreeMap::new(),
            silent_ms: None,
            log_bytes: 0,
            log_syncs: 0,
            is_damaged: false,
            scrub: Progress::default(),
        }
    }
}

/// Who was elected and answered by nobody since has its own time alone.
fn silent_ms(node: NodeId, metrics: &RaftMetrics<TypeConfig>) -> Option<u64> {
    let is_one_of_several = metrics.membership_config.membership().voter_ids().count() > 1;
    let own = || *metrics.heartbeat.as_ref()?.get(&node)?;
    let at = metrics.last_quorum_acked.or_else(own);
    let at = at.filter(|_| metrics.state == ServerState::Leader && is_one_of_several)?;
    Some(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
}
