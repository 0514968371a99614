//! What nodes say to each other, and the trait that carries it.
//!
//! A message is a request and gets one response, or none in time. It may be lost, delayed or
//! reordered, and Raft's own may be duplicated: everything above holds for all of that. A
//! [`Request::Submit`] must be delivered once at most, because commands that are proposed twice are
//! carried out twice: no transport sends a request again. In one process messages are handed over as
//! they are; between processes the module `peer` encodes them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::EpochMillis;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::leadership::Ballot;
use crate::ring::ArcId;
use crate::status::Status;
use crate::types::{NodeId, SnapshotMeta, TypeConfig, Vote};
use crate::{Node, WeakNode};

/// A future that can be kept in a trait object.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Who sends it.
    pub from: NodeId,
    /// Whom it is meant for; any other node refuses it.
    pub to: NodeId,
    /// The group that it is about.
    pub arc: ArcId,
    /// What is wanted.
    pub request: Request,
}

/// What a node can ask another for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Raft: entries, or a heartbeat.
    Append(AppendEntriesRequest<TypeConfig>),
    /// Raft: a candidate asks for a vote.
    Vote(VoteRequest<TypeConfig>),
    /// Raft: would a vote be given?
    PreVote(VoteRequest<TypeConfig>),
    /// Raft: a part of a snapshot.
    Snapshot(Box<SnapshotPart>),
    /// Propose commands, as [`crate::forward::encode_submission`] writes them. Handled twice, it is
    /// proposed twice: a transport delivers it once at most.
    Submit(crate::types::Payload),
    /// Make sure that you lead, and say up to where a strong read has to see.
    ReadIndex,
    /// How do you do?
    Status,
    /// Raft: the leader wants this node, or another, to lead in its place.
    TransferLeader(TransferLeaderRequest<TypeConfig>),
}

/// A bounded part of a snapshot: keys and values in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// The leader's vote.
    pub vote: Vote,
    /// What the snapshot contains.
    pub meta: SnapshotMeta,
    /// Tells the transfers of one sender apart.
    pub transfer: u64,
    /// Counts the parts of a transfer from 0.
    pub sequence: u64,
    /// Keys and values.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether this is the last part: the receiver installs the snapshot before it responds.
    pub last: bool,
}

/// What a request is answered with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Response {
    /// To [`Request::Append`].
    Append(AppendEntriesResponse<TypeConfig>),
    /// To [`Request::Vote`] and [`Request::PreVote`].
    Vote(VoteResponse<TypeConfig>),
    /// To the last [`Request::Snapshot`] of a transfer.
    Snapshot(SnapshotResponse<TypeConfig>),
    /// To the other parts of a snapshot.
    PartTaken,
    /// To [`Request::Submit`]: the commands are committed and applied.
    Submitted {
        /// The log index of their entry.
        index: u64,
        /// The replies, as [`crate::forward::encode_replies`] writes them.
        replies: crate::types::Payload,
    },
    /// To [`Request::ReadIndex`]: a read that sees this log index sees everything that was
    /// acknowledged before the request was sent.
    ReadIndex {
        /// The log index.
        index: u64,
    },
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// This node does not lead, and did nothing.
    NotLeader,
    /// By this node's clock it was asked for too long ago, and nothing was done.
    TooOld {
        /// What this clock shows: one that is that far behind was not told that it was advanced.
        now: EpochMillis,
    },
    /// Whether it was done is not known.
    Unknown(String),
    /// It was not done, and never will be.
    Refused(String),
    /// To [`Request::TransferLeader`].
    LeaderTransferred,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// The message was not sent.
    #[error("the node cannot be reached: {0}")]
    Unreachable(String),
    /// The message may have arrived and may have been acted upon.
    #[error("no response: {0}")]
    Lost(String),
}

/// Carries messages to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message and waits for its response, at most for `timeout`.
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>>;

    /// The last vote that another node has noted, as of this moment; `None` where that can only be
    /// asked by a message.
    fn ballot_of(&self, _node: NodeId, _arc: ArcId) -> Option<Ballot> {
        None
    }
}

/// The transport between nodes of one process: function calls.
#[derive(Clone, Default)]
pub struct LocalTransport {
    nodes: Arc<Mutex<BTreeMap<(NodeId, ArcId), WeakNode>>>,
}

impl LocalTransport {
    /// Makes a node reachable for the others.
    pub fn add(&self, node: &Node) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.insert((node.id(), node.arc()), node.downgrade());
    }

    /// Makes a node unreachable.
    pub fn remove(&self, node: NodeId) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|(id, _), _| *id != node);
    }

    fn find(&self, node: NodeId, arc: ArcId) -> Option<Node> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).get(&(node, arc))?.upgrade()
    }
}

impl Transport for LocalTransport {
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>> {
        let node = self.find(message.to, message.arc);
        Box::pin(async move {
            let Some(node) = node else {
                return Err(CallError::Unreachable(format!("node {} is not here", message.to)));
            };
            let timed_out = |_| CallError::Lost(format!("none within {timeout:?}"));
            tokio::time::timeout(timeout, node.handle(message)).await.map_err(timed_out)
        })
    }

    fn ballot_of(&self, node: NodeId, arc: ArcId) -> Option<Ballot> {
        self.find(node, arc)?.ballot()
    }
}
