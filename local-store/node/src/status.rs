//! The status of a replica: role, leader, progress, log and snapshot.

use std::collections::BTreeMap;

use openraft::{Instant as _, RaftMetrics, ServerState};
use serde::{Deserialize, Serialize};

use crate::ring::ArcId;
pub use crate::scrub::Progress;
pub use crate::transfer::Transfer;
use crate::types::{NodeId, TypeConfig};

/// The role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The replica leads its group and orders the writes.
    Leader,
    /// The replica follows a leader and can replace it.
    Follower,
    /// The replica is a candidate in an election.
    Candidate,
    /// The replica receives the state and has no vote yet.
    Learner,
    /// The replica has stopped.
    Stopped,
}

impl Role {
    /// Returns the role as lower-case text.
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

/// The work of a node's log since the node started, and the size of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogUsage {
    /// The number of syncs.
    pub syncs: u64,
    /// The bytes of the records that were synced.
    pub synced_bytes: u64,
    /// The size of the files, in bytes.
    pub file_bytes: u64,
}

/// One replica of one arc. Log indexes are `None` before the first entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The node that holds the replica.
    pub node: NodeId,
    /// The arc.
    pub arc: ArcId,
    /// The role of the replica.
    pub role: Role,
    /// The replica's term.
    pub term: u64,
    /// The leader, as far as the replica knows.
    pub leader: Option<NodeId>,
    /// The nodes that vote.
    pub voters: Vec<NodeId>,
    /// The nodes that receive the state and have no vote yet.
    pub learners: Vec<NodeId>,
    /// The last entry in the replica's log.
    pub last_log: Option<u64>,
    /// The last committed entry, as far as the replica knows.
    pub committed: Option<u64>,
    /// The last entry that the replica's state contains.
    pub applied: Option<u64>,
    /// The entry up to which the replica's state is persisted.
    pub snapshot: Option<u64>,
    /// The entry up to which the replica's log is purged.
    pub purged: Option<u64>,
    /// On a leader: the last entry that each follower or learner has acknowledged as durable. Empty
    /// on any other replica.
    pub acknowledged: BTreeMap<NodeId, u64>,
    /// On a leader of several nodes: milliseconds since a majority last responded to the leader.
    /// Each acknowledged heartbeat resets the value.
    pub silent_ms: Option<u64>,
    /// Size of the files of the node's log, in bytes.
    pub log_bytes: u64,
    /// Syncs of the node's log since the node started.
    pub log_syncs: u64,
    /// Bytes of the records that these syncs made durable.
    pub log_synced_bytes: u64,
    /// Whether the node's disk is damaged. The node is set aside and rebuilt once its peers can
    /// continue without it. Until then the node does not lead if another node can lead.
    pub is_damaged: bool,
    /// The progress of the verification of the replica's files.
    pub scrub: Progress,
    /// The size of the files of the replica's state, in bytes. The newest changes are not in files yet.
    pub state_bytes: u64,
    /// The transfers of the state to other nodes that run now.
    pub transfers: Vec<Transfer>,
}

impl Status {
    /// Creates the status from the metrics of the consensus library and the usage of the node's log
    /// (syncs and bytes).
    pub(super) fn new(
        node: NodeId,
        arc: ArcId,
        metrics: &RaftMetrics<TypeConfig>,
        log: LogUsage,
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
            log_bytes: log.file_bytes,
            log_syncs: log.syncs,
            log_synced_bytes: log.synced_bytes,
            is_damaged: false,
            scrub: Progress::default(),
            state_bytes: 0,
            transfers: Vec::new(),
        }
    }
}

#[cfg(test)]
impl Status {
    /// Creates the status of a replica without data.
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
            log_synced_bytes: 0,
            is_damaged: false,
            scrub: Progress::default(),
            state_bytes: 0,
            transfers: Vec::new(),
        }
    }
}

/// Returns how long a leader of several nodes has had no response from a majority. Before the first
/// response from a majority in its term, the time counts from the leader's own last heartbeat.
fn silent_ms(node: NodeId, metrics: &RaftMetrics<TypeConfig>) -> Option<u64> {
    let is_one_of_several = metrics.membership_config.membership().voter_ids().count() > 1;
    let own = || *metrics.heartbeat.as_ref()?.get(&node)?;
    let at = metrics.last_quorum_acked.or_else(own);
    let at = at.filter(|_| metrics.state == ServerState::Leader && is_one_of_several)?;
    Some(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
}
