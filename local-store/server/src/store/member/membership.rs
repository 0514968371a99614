//! The connections of a running node to its peers: their statuses, their clocks, and the nodes of the ring.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures::future::join_all;
use partition::Ring;
use tokio::task::JoinSet;

use super::{QUESTION, addresses};
use crate::peer::{Answer, ClockState, PeerTransport, Peers, Question, Unanswered};
use node::clock::Clock;
use node::remote::{RemoteGroup, RemoteParts};
use node::ring::ArcId;
use node::status::Status;
use node::{Replicas, Settings};

/// The connections to the peers of a running node, and the background tasks. Dropping this value ends them.
pub(in crate::store) struct Membership {
    pub(super) peers: Arc<Peers>,
    /// The data directory of the process.
    pub(super) data: PathBuf,
    /// The addresses in the flags of this process. They win over the ring, because a process may reach a node at
    /// another address than the others.
    pub(super) flags: BTreeMap<u64, SocketAddr>,
    /// The replicas of this process.
    pub(super) own: Weak<Replicas>,
    /// The number of arcs of the ring.
    pub(super) arcs: u32,
    /// The tasks that serve the port for peers and repair the membership. They end when this value is
    /// dropped.
    pub(super) _tasks: JoinSet<()>,
}

impl Membership {
    /// Returns the number of arcs of the ring.
    pub(in crate::store) fn arcs(&self) -> u32 {
        self.arcs
    }

    /// Returns the bytes that this process has sent to its peers.
    pub(in crate::store) fn sent_bytes(&self) -> u64 {
        self.peers.sent_bytes()
    }

    /// Returns a client of each arc, in the order of the arcs.
    pub(in crate::store) fn remote_groups(&self, clock: &Arc<Clock>) -> Vec<Arc<RemoteGroup>> {
        let client = |arc| {
            let parts = RemoteParts {
                arc,
                own: Weak::clone(&self.own),
                transport: Arc::new(PeerTransport(Arc::clone(&self.peers))),
                clock: Arc::clone(clock),
                timeout: Settings::default().request,
            };
            Arc::new(RemoteGroup::new(parts))
        };
        (0..self.arcs).map(ArcId).map(client).collect()
    }

    /// Returns, for each peer, the status of its replicas and the directories that it set aside, or the
    /// reason why the peer did not report them.
    pub(in crate::store) async fn statuses(
        &self,
    ) -> Vec<(u64, Result<(Vec<Status>, Vec<String>), Unanswered>)> {
        let ask = async |slot| {
            let answer = match self.peers.ask(slot, &Question::Status, QUESTION).await {
                Ok(Answer::Status(replicas, set_aside)) => Ok((replicas, set_aside)),
                other => Err(Unanswered::of(other)),
            };
            (slot, answer)
        };
        join_all(self.peers.slots().map(ask)).await
    }

    /// Connects to the nodes of the ring at their addresses.
    pub(in crate::store) fn follow(&self, ring: &Ring) {
        let addresses = addresses::of_ring(ring, &self.flags);
        let changed = self.peers.set_ring(&addresses);
        if changed && let Err(error) = addresses::write(&self.data, &addresses) {
            tracing::warn!(%error, "cannot keep the addresses of the nodes");
        }
        let own = self.peers.own_slot();
        if changed && !addresses.contains_key(&own) {
            tracing::warn!(
                "node {own} has left the store: end this process, and remove its directory"
            );
        }
    }

    /// Sets the clocks of all peers. Returns the slots that did not answer.
    pub(in crate::store) async fn set_clocks(&self, state: ClockState) -> Vec<u64> {
        let ask = async |slot| {
            let answer = self.peers.ask(slot, &Question::Clock(state), QUESTION).await;
            (!matches!(answer, Ok(Answer::ClockSet))).then_some(slot)
        };
        join_all(self.peers.slots().map(ask)).await.into_iter().flatten().collect()
    }
}
