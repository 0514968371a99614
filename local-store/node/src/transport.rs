//! The messages between nodes, and the trait that carries them.
//!
//! A message is a request; it gets one response or times out. Messages may be lost, delayed or
//! reordered, and Raft messages may also be duplicated. A [`Request::Submit`] is delivered at most
//! once, because proposing commands twice applies them twice. Therefore no transport retries a
//! request. Within a process a message is a function call; between processes the server's module
//! `peer` encodes it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use model::EpochMillis;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};
use partition::Reply;
use partition::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::SubmitError;
use crate::forward::decode_replies;
use crate::leadership::Ballot;
use crate::ring::ArcId;
use crate::status::Status;
use crate::types::{NodeId, Payload, SnapshotMeta, TypeConfig, Vote};

/// The time-out for the leader's response to a forwarded request. It is long enough for some slow
/// syncs of a majority.
pub(crate) const FORWARD_TIMEOUT: Duration = Duration::from_secs(3);

/// A boxed future, for use in trait objects.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// The sender.
    pub from: NodeId,
    /// The id of the receiver. A node with another id rejects the message.
    pub to: NodeId,
    /// The group.
    pub arc: ArcId,
    /// The request.
    pub request: Request,
}

/// A request of one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Raft: entries, or a heartbeat.
    Append(AppendEntriesRequest<TypeConfig>),
    /// Raft: a candidate requests a vote.
    Vote(VoteRequest<TypeConfig>),
    /// Raft: a node asks whether the receiver would vote for it (pre-vote).
    PreVote(VoteRequest<TypeConfig>),
    /// Raft: a part of a snapshot.
    Snapshot(Box<SnapshotPart>),
    /// Propose commands, encoded by [`crate::forward::encode_submission`]. This request is not
    /// idempotent: a transport delivers it at most once.
    Submit(Payload),
    /// Confirm leadership and return the log index that a strong read must see.
    ReadIndex,
    /// Read keys and ranges of the state: an encoded [`crate::remote::Wanted`], from a node without
    /// a replica of the group.
    Read(Payload),
    /// Return the status of the replica.
    Status,
    /// Raft: the leader transfers leadership to the receiver or to another node.
    TransferLeader(TransferLeaderRequest<TypeConfig>),
}

/// A part of a snapshot, of bounded size: keys and values in key order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// The leader's vote.
    pub vote: Vote,
    /// The metadata of the snapshot.
    pub meta: SnapshotMeta,
    /// The number of the transfer, unique in the sender's term.
    pub transfer: u64,
    /// The number of the part in its transfer, from 0.
    pub sequence: u64,
    /// Keys and values.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether this is the last part: the receiver installs the snapshot before it responds.
    pub last: bool,
}

/// The response to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Response {
    /// The response to [`Request::Append`].
    Append(AppendEntriesResponse<TypeConfig>),
    /// The response to [`Request::Vote`] and [`Request::PreVote`].
    Vote(VoteResponse<TypeConfig>),
    /// The response to the last [`Request::Snapshot`] of a transfer.
    Snapshot(SnapshotResponse<TypeConfig>),
    /// The response to the other parts of a snapshot: the part was accepted.
    PartTaken,
    /// The response to [`Request::Submit`]: the commands are committed and applied.
    Submitted {
        /// The log index of the entry with the commands.
        index: u64,
        /// The replies, encoded by [`crate::forward::encode_replies`].
        replies: Payload,
    },
    /// The response to [`Request::ReadIndex`]. A state with the entry at this log index contains
    /// every write that was acknowledged before the request was sent.
    ReadIndex {
        /// The log index.
        index: u64,
    },
    /// The response to [`Request::Read`]: an encoded [`crate::remote::Found`].
    Read(Payload),
    /// The response to [`Request::Status`].
    Status(Box<Status>),
    /// The receiver is not the leader and did nothing.
    NotLeader,
    /// The request is too old by the receiver's clock, and was not applied.
    TooOld {
        /// The time of the receiver's clock, to which the sender advances its own clock.
        now: EpochMillis,
    },
    /// The outcome is unknown.
    Unknown(String),
    /// The request was not applied and never will be, for this reason.
    Refused(String),
    /// The response to [`Request::TransferLeader`].
    LeaderTransferred,
}

impl Request {
    /// Returns whether the request is on behalf of a client. Every incarnation of a node may answer it,
    /// because the answer depends only on what the node leads or has applied.
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self, Self::Submit(_) | Self::ReadIndex | Self::Read(_) | Self::Status)
    }
}

/// The outcome of a [`Request::Submit`].
pub(crate) enum Submitted {
    /// The commands are committed and applied, in the entry at this log index.
    Done { index: u64, replies: Vec<Reply> },
    /// The receiver has not applied the commands, and never will: another node may lead.
    NotLeader,
    /// The request was too old by the receiver's clock, and was not applied.
    TooOld { now: EpochMillis },
}

impl Submitted {
    /// Interprets the answer to a [`Request::Submit`].
    ///
    /// # Errors
    /// When the request was refused, or its outcome is unknown.
    pub(crate) fn of(answer: Result<Response, CallError>) -> Result<Self, SubmitError> {
        match answer {
            Ok(Response::Submitted { index, replies }) => {
                let replies = decode_replies(&replies)
                    .map_err(|error| SubmitError::Unknown(error.to_string()))?;
                Ok(Self::Done { index, replies })
            }
            Ok(Response::NotLeader) | Err(CallError::Unreachable(_)) => Ok(Self::NotLeader),
            Ok(Response::TooOld { now }) => Ok(Self::TooOld { now }),
            Ok(Response::Refused(reason)) => Err(SubmitError::NotDone(reason)),
            Ok(Response::Unknown(reason)) => Err(SubmitError::Unknown(reason)),
            Ok(other) => Err(SubmitError::Unknown(format!("unexpected response: {other:?}"))),
            Err(CallError::Lost(reason)) if mutation::is_active(Mutation::FalseFailure) => {
                Err(SubmitError::NotDone(reason))
            }
            Err(CallError::Lost(_)) if mutation::is_active(Mutation::RepeatLostWrite) => {
                Ok(Self::NotLeader)
            }
            Err(CallError::Lost(reason)) => Err(SubmitError::Unknown(reason)),
        }
    }
}

/// The reason why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// The message was not sent.
    #[error("the node cannot be reached: {0}")]
    Unreachable(String),
    /// The message may have arrived, and its request may have been applied.
    #[error("no response: {0}")]
    Lost(String),
}

/// A transport of messages to other nodes.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message and waits for its response, for at most `timeout`.
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>>;

    /// Returns the last vote that another node has logged at the time of the call. Returns `None`
    /// if the vote cannot be read without a message.
    fn ballot_of(&self, _node: NodeId, _arc: ArcId) -> Option<Ballot> {
        None
    }

    /// Returns the other nodes of the store, in the order of their slots. Requests of clients may be sent to
    /// any incarnation of a node, so the ids may be outdated.
    fn nodes(&self) -> Vec<NodeId>;
}
