//! Messages over TCP between nodes in separate processes.
//!
//! A node opens two connections to each peer: one for large transfers and slow answers, and one for all
//! other messages. Answers arrive in any order. This module writes each message at most once and never
//! retries it, so the outcome of an unanswered message is unknown. The [`Handler`] executes messages.
//! `docs/formats/peer-protocol.md` defines the protocol.

mod accept;
mod connection;
mod frame;
mod handshake;
mod secret;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use locks::RwLock;
use model::EpochMillis;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

pub(crate) use self::accept::serve;
use self::connection::Peer;
pub use self::secret::ClusterSecret;
use node::transport::{BoxFuture, CallError, Envelope, Request, Response, Transport};
use node::{NodeId, node_id, slot_of, status::Status};

/// The time without data after which a connection with an unanswered message counts as broken. It is
/// longer than the time-out of a write that waits for the leader. Messages whose answers may take
/// longer than this time use the connection for large transfers.
const SILENCE: Duration = Duration::from_secs(4);
/// The equivalent of [`SILENCE`] for the connection for large transfers. It is longer than the
/// time-out of any message, because the last part of a snapshot is answered only after its
/// installation.
const SILENCE_OF_TRANSFERS: Duration = Duration::from_secs(35);

/// A message from one process of a cluster to another, which must be answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// A message between two nodes.
    Node(Box<Envelope>),
    /// Requests the identity of the receiving process.
    Who,
    /// Invites the receiving process to a new cluster with the given identity.
    Join(Invitation),
    /// Requests that the sender becomes a node of the ring, with this address for peers.
    JoinRing {
        /// The slot of the sender.
        slot: u64,
        /// The address at which the sender listens for its peers.
        address: SocketAddr,
    },
    /// Requests a new identity for a slot that has no data, or has lost its data.
    Rejoin {
        /// The slot of the sender.
        slot: u64,
    },
    /// Requests the status of the receiver's replicas.
    Status,
    /// Reports the clock of the sender after a change.
    Clock(ClockState),
}

/// An answer to a [`Question`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The answer to [`Question::Node`].
    Node(Box<Response>),
    /// The answer to [`Question::Who`].
    Who(Who),
    /// The answer to [`Question::Join`]: the node has joined.
    Joined,
    /// The answer to [`Question::Rejoin`] and [`Question::JoinRing`].
    Rejoined(Invitation),
    /// The answer to [`Question::Status`]: the status of each replica, and the directories that were set
    /// aside.
    Status(Vec<Status>, Vec<String>),
    /// The answer to [`Question::Clock`].
    ClockSet,
    /// The message was not executed, for this reason.
    Refused(String),
    /// The ring does not admit the sender, for this reason.
    NotAdmitted(String),
}

/// The reason why a peer did not answer a question: ask again.
#[derive(Debug, Error)]
pub(crate) enum Unanswered {
    /// No answer arrived.
    #[error(transparent)]
    Lost(CallError),
    /// An answer to another question arrived, or the peer refused the question.
    #[error("unexpected answer: {0:?}")]
    Unexpected(Box<Answer>),
}

impl Unanswered {
    /// Converts a result of [`Peers::ask`] that is not the expected answer.
    pub(crate) fn of(result: Result<Answer, CallError>) -> Self {
        result.map_or_else(Self::Lost, |answer| Self::Unexpected(Box::new(answer)))
    }
}

/// The state of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    /// The identity of the process in its cluster; `None` if it has none yet.
    pub(crate) identity: Option<PeerIdentity>,
    /// Whether the process has any data: a log entry or a vote.
    pub(crate) has_data: bool,
}

/// The identity of a process in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerIdentity {
    pub(crate) cluster: String,
    /// The node, with its incarnation.
    pub(crate) node: NodeId,
}

/// The data with which a process becomes a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    /// The identity of the process.
    pub(crate) identity: PeerIdentity,
    /// The number of arcs of the cluster's ring.
    pub(crate) arcs: u32,
    /// The slots of the nodes that created the cluster, if each of them has only some arcs.
    pub(crate) founders: Vec<u64>,
    /// The key that authenticates the cluster's tokens, such as shard iterators.
    pub(crate) token_key: Vec<u8>,
    /// The addresses of the ring's nodes; empty when the cluster is created.
    pub(crate) addresses: BTreeMap<u64, SocketAddr>,
}

/// The state of a clock after it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockState {
    /// The time of the clock.
    pub(crate) now: EpochMillis,
    /// Whether the clock is frozen.
    pub(crate) is_frozen: bool,
}

/// The handler of messages from peers.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers a message from the peer in the given slot.
    fn answer(self: Arc<Self>, slot: u64, question: Question) -> BoxFuture<Answer>;
}

/// The properties of a process that every connection needs.
pub(crate) struct Local {
    /// The slot of the process's node.
    pub(crate) slot: u64,
    /// The slots in the `--peer` flags, including the slot of this process.
    pub(crate) slots: BTreeSet<u64>,
    /// Whether this process runs a new node, which joins a running cluster.
    pub(crate) joins: bool,
    /// The addresses of the nodes of the ring, including this process; `None` until they are known.
    pub(crate) ring: watch::Sender<Option<BTreeMap<u64, SocketAddr>>>,
    /// The settings that must be equal on all nodes, as a string: Region and account.
    pub(crate) settings: String,
    /// The secret of the cluster, if it has one.
    pub(crate) secret: Option<ClusterSecret>,
    /// The bytes that this process has sent to its peers, after the handshakes.
    pub(crate) sent_bytes: Arc<AtomicU64>,
    /// The identity of the process in a cluster; `None` if it has none yet. When it changes,
    /// connections are re-established.
    pub(crate) identity: watch::Sender<Option<PeerIdentity>>,
}

/// The connections to all peers.
pub(crate) struct Peers {
    local: Arc<Local>,
    peers: RwLock<BTreeMap<u64, Connections>>,
}

/// The connections to one peer.
#[derive(Clone)]
struct Connections {
    address: SocketAddr,
    /// The connection for most messages.
    usual: Arc<Peer>,
    /// The connection for large transfers and slow answers.
    transfers: Arc<Peer>,
}

impl Peers {
    /// Starts connecting to every peer. Keeps the connections open, and reconnects, until the
    /// returned value is dropped.
    pub(crate) fn connect(local: &Arc<Local>, addresses: &BTreeMap<u64, SocketAddr>) -> Self {
        let peers = Self { local: Arc::clone(local), peers: RwLock::default() };
        peers.follow(addresses);
        peers
    }

    /// Connects to the peers at these addresses, and ends the connections to all others. An unchanged
    /// connection stays open.
    pub(crate) fn follow(&self, addresses: &BTreeMap<u64, SocketAddr>) {
        let local = &self.local;
        let mut peers = self.peers.write();
        peers.retain(|slot, known| addresses.get(slot) == Some(&known.address));
        for (slot, address) in addresses.iter().filter(|(slot, _)| **slot != local.slot) {
            let connect =
                |silence| Arc::new(Peer::connect(Arc::clone(local), *slot, *address, silence));
            peers.entry(*slot).or_insert_with(|| Connections {
                address: *address,
                usual: connect(SILENCE),
                transfers: connect(SILENCE_OF_TRANSFERS),
            });
        }
    }

    /// Connects to the nodes of the ring, and accepts only them from now on. Returns whether the ring has changed.
    pub(crate) fn set_ring(&self, addresses: &BTreeMap<u64, SocketAddr>) -> bool {
        let changed = self.local.ring.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(addresses);
            *known = Some(addresses.clone());
            is_new
        });
        if changed {
            self.follow(addresses);
        }
        changed
    }

    /// Returns the bytes that this process has sent to its peers.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.local.sent_bytes.load(Ordering::Relaxed)
    }

    /// Returns the slot of this process.
    pub(crate) fn own_slot(&self) -> u64 {
        self.local.slot
    }

    /// Returns the slots of the peers.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u64> + use<> {
        self.peers.read().keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// Sends a message to the peer in the given slot, and returns the answer.
    pub(crate) async fn ask(
        &self,
        slot: u64,
        question: &Question,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let connections = self.peers.read().get(&slot).cloned();
        let Some(Connections { usual, transfers, .. }) = connections else {
            return Err(CallError::Unreachable(format!("node {slot} is not a node of this store")));
        };
        let is_transfer = matches!(question, Question::Node(message)
            if matches!(message.request, Request::Snapshot(_)));
        debug_assert!(timeout < SILENCE_OF_TRANSFERS, "no connection may be silent for so long");
        let is_patient = timeout >= SILENCE;
        let peer = if is_transfer || is_patient { transfers } else { usual };
        peer.request(question, timeout).await
    }

    /// Returns the reasons why peers refuse this process, or this process refuses peers. For
    /// example, a peer may be in another cluster.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.peers.read().values().filter_map(|known| known.usual.refusal()).collect()
    }
}

/// The transport of this process's nodes, which uses the connections to peers.
pub(crate) struct PeerTransport(pub(crate) Arc<Peers>);

impl Transport for PeerTransport {
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>> {
        let peers = Arc::clone(&self.0);
        Box::pin(async move {
            let slot = slot_of(message.to);
            debug_assert_ne!(slot, peers.local.slot, "a node does not ask itself");
            match peers.ask(slot, &Question::Node(Box::new(message)), timeout).await? {
                Answer::Node(response) => Ok(*response),
                Answer::Refused(reason) => Ok(Response::Refused(reason)),
                other => Err(CallError::Lost(format!("unexpected answer: {other:?}"))),
            }
        })
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.0.slots().map(|slot| node_id(slot, 0)).collect()
    }
}
