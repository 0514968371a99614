//! A node's replica of one group: a log, a state, and Raft consensus with its peers.
//!
//! The crate is deterministic: a [`Node`] starts no thread, reads no system clock and never
//! iterates over an unordered collection. Disk, blocking work, peers, time and seed are injected
//! ([`Parts`]), so the simulation runs the same code. The crate also contains the implementations
//! for a real process: a thread ([`worker::ThreadWorker`]) and [`random_seed`]. The consensus
//! library is openraft; `docs/decisions/0006-replication.md` lists the properties that the store
//! relies on.
//!
//! Every node accepts every request. It forwards a write to the leader. For a strong read it
//! requests from the leader the log index that the read must see, and waits until it has applied
//! that entry. If a response times out, the outcome is unknown, and is never reported as a failure.

pub mod clock;
mod error;
mod failure;
mod forward;
mod leadership;
mod local_transport;
mod log_id;
mod maintenance;
mod network;
mod node;
mod node_log;
mod payload;
mod proposer;
mod raft;
mod reader;
mod receiver;
mod redundancy;
pub mod remote;
mod replica;
mod replicas;
pub mod ring;
pub mod scrub;
mod state_location;
pub mod status;
pub mod transfer;
pub mod transport;
mod types;
pub mod worker;

pub use self::error::{MembershipError, StartError, SubmitError};
pub use self::failure::{FailureHandler, OnFatal};
pub use self::forward::{
    ForwardError, Submission, decode_replies, decode_submission, encode_replies, encode_submission,
};
pub use self::leadership::Ballot;
pub use self::local_transport::LocalTransport;
pub use self::node::{Node, Parts, Settings, WeakNode};
pub use self::node_log::{GroupLog, NodeLog};
pub use self::redundancy::{InsufficientRedundancy, check_redundancy};
pub use self::replica::{Replica, SnapshotData, check_continuity};
pub use self::replicas::{NodeParts, Replicas, Running, States};
pub use self::state_location::{DirectoryLocation, MemoryLocation, StagedStorage, StateLocation};
pub use self::types::{
    NodeId, Payload, Replies, Runtime, TypeConfig, incarnation_of, node_id, random_seed, slot_of,
};

/// The largest record of a log, in bytes. The log's segments must have space for such a record.
pub const RECORD_BYTES_MAX: usize = proposer::ENTRY_BYTES_MAX + node_log::RECORD_HEAD_BYTES;
