//! How a replica does, for people and programs: role, leader, progress, log, snapshot.

use serde::{Deserialize, Serialize};

use super::types::NodeId;
use crate::ring::ArcId;

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
    /// What the files of the node's log take, in bytes.
    pub log_bytes: u64,
    /// Syncs of the node's log since it started.
    pub log_syncs: u64,
}
