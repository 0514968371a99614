//! Nodes in processes of their own: what they say to each other over TCP, and how.
//!
//! A node opens two connections to each peer, one for large transfers and what is answered late, one
//! for everything else, and asks on them; answers come back in any order. A question is written to a
//! socket once at most, so what was asked and not answered has an unknown outcome and is never asked
//! again from here.
//! The bytes are drawn in `docs/formats/peer-protocol.md`. What a question means is decided by the
//! [`Handler`].

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
use std::time::Duration;

use model::EpochMillis;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub(crate) use self::accept::serve;
use self::connection::Peer;
pub use self::secret::ClusterSecret;
use node::transport::{BoxFuture, CallError, Envelope, Request, Response, Transport};
use node::{NodeId, slot_of, status::Status};

/// Silence after which a connection on which an answer is due is taken for dead: longer than a write
/// waits for the leader. What waits longer for its answer goes the way of the large transfers.
const SILENCE: Duration = Duration::from_secs(4);
/// The same for large transfers, the last part of which is answered when it is installed: longer than
/// any question waits for its answer.
const SILENCE_OF_TRANSFERS: Duration = Duration::from_secs(35);

/// What the processes of a cluster ask each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// A message from node to node.
    Node(Box<Envelope>),
    /// Who are you?
    Who,
    /// Begin with this identity: a cluster is made.
    Join(Invitation),
    /// Who shall I be? Asked by a slot that has no data, or none any more.
    Rejoin {
        /// The slot that asks.
        slot: u64,
    },
    /// How do your replicas do?
    Status,
    /// The clock was changed at the node that was asked to.
    Clock(ClockState),
}

/// What questions are answered with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// To [`Question::Node`].
    Node(Box<Response>),
    /// To [`Question::Who`].
    Who(Who),
    /// To [`Question::Join`]: the node is there.
    Joined,
    /// To [`Question::Rejoin`].
    Rejoined(Invitation),
    /// To [`Question::Status`]: a status for each replica, and the directories that were set aside.
    Status(Vec<Status>, Vec<String>),
    /// To [`Question::Clock`].
    ClockSet,
    /// It was not done, and why.
    Refused(String),
}

/// What a process knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    /// Its place in a cluster, if it has one.
    pub(crate) identity: Option<PeerIdentity>,
    /// Whether it holds anything: an entry, a vote.
    pub(crate) has_data: bool,
}

/// A place in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerIdentity {
    /// The cluster.
    pub(crate) cluster: String,
    /// The node, with its incarnation.
    pub(crate) node: NodeId,
}

/// What a process needs to be a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    /// Who it is.
    pub(crate) identity: PeerIdentity,
    /// Arcs of the cluster's ring.
    pub(crate) arcs: u32,
    /// The key that marks what the cluster gives out, such as shard iterators.
    pub(crate) token_key: Vec<u8>,
}

/// A clock after it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockState {
    /// What it shows.
    pub(crate) now: EpochMillis,
    /// Whether it stands still.
    pub(crate) is_frozen: bool,
}

/// Answers the questions of peers.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one question of the peer in this slot.
    fn answer(self: Arc<Self>, slot: u64, question: Question) -> BoxFuture<Answer>;
}

/// What every connection of a process has to know about the process.
pub(crate) struct Local {
    /// The slot of its node.
    pub(crate) slot: u64,
    /// The slots of the cluster, its own included.
    pub(crate) slots: BTreeSet<u64>,
    /// What has to be the same on all of them, as text: Region and account.
    pub(crate) settings: String,
    /// What the processes prove to each other that they know.
    pub(crate) secret: Option<ClusterSecret>,
    /// Its place in a cluster, when it has one. Connections are made anew when it changes.
    pub(crate) identity: watch::Sender<Option<PeerIdentity>>,
}

/// The ways to all peers.
pub(crate) struct Peers {
    local: Arc<Local>,
    /// For each slot: the way for questions, and the one for large transfers and long waits.
    peers: BTreeMap<u64, (Peer, Peer)>,
}

impl Peers {
    /// Begins to connect to every peer, and goes on for as long as this is there.
    pub(crate) fn connect(local: &Arc<Local>, addresses: &BTreeMap<u64, SocketAddr>) -> Self {
        let others = addresses.iter().filter(|(slot, _)| **slot != local.slot);
        let peers = others.map(|(slot, address)| {
            let connect = |silence| Peer::connect(Arc::clone(local), *slot, *address, silence);
            (*slot, (connect(SILENCE), connect(SILENCE_OF_TRANSFERS)))
        });
        Self { local: Arc::clone(local), peers: peers.collect() }
    }

    /// The slots of the peers.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u64> + '_ {
        self.peers.keys().copied()
    }

    /// Asks the peer in a slot.
    pub(crate) async fn ask(
        &self,
        slot: u64,
        question: &Question,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let Some((usual, transfers)) = self.peers.get(&slot) else {
            return Err(CallError::Unreachable(format!("node {slot} is not a node of this store")));
        };
        let is_transfer = matches!(question, Question::Node(message)
            if matches!(message.request, Request::Snapshot(_)));
        debug_assert!(timeout < SILENCE_OF_TRANSFERS, "no way is silent for so long");
        let is_patient = timeout >= SILENCE;
        let peer = if is_transfer || is_patient { transfers } else { usual };
        peer.ask(question, timeout).await
    }

    /// What peers refuse this process for, or it them: they are of another cluster, say.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.peers.values().filter_map(|(usual, _)| usual.refusal()).collect()
    }
}

/// The peers as the transport of this process's nodes.
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
                other => Err(CallError::Lost(format!("a strange answer: {other:?}"))),
            }
        })
    }
}
