//! The service that answers messages of peers, before this process's node has started and while it runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use partition::{Command, Reply, RingChange, Slot};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::super::directory;
use super::{JOINING, QUESTION, addresses};
use crate::peer::{
    Answer, ClockState, Handler, Invitation, Local, PeerIdentity, PeerTransport, Peers, Question,
    Who,
};
use crate::token_key::TokenKey;
use node::clock::Clock;
use node::remote::{RemoteGroup, RemoteParts};
use node::ring::ArcId;
use node::transport::{BoxFuture, Request, Response};
use node::{NodeId, Replicas, SubmitError, slot_of};

/// An invitation, and the sender for its answer.
pub(super) type PendingInvitation = (Invitation, oneshot::Sender<Answer>);

/// The service that answers messages of peers.
pub(super) struct PeerService {
    local: Arc<Local>,
    data: PathBuf,
    clock: Arc<Clock>,
    peers: Weak<Peers>,
    /// Whether the directory had data before the node started.
    had_data: bool,
    /// The replicas of the node, and its ring.
    running: OnceLock<Running>,
    invitations: mpsc::Sender<PendingInvitation>,
}

/// A node that has started.
struct Running {
    replicas: Weak<Replicas>,
    /// See [`Invitation::arcs`] and [`Invitation::founders`].
    arcs: u32,
    founders: Vec<u64>,
    /// The first arc, which has the ring.
    first: RemoteGroup,
}

impl PeerService {
    pub(super) fn new(
        local: Arc<Local>,
        data: &Path,
        clock: Arc<Clock>,
        peers: Weak<Peers>,
        had_data: bool,
    ) -> (Arc<Self>, mpsc::Receiver<PendingInvitation>) {
        let (invitations, invited) = mpsc::channel(1);
        let peer_service = Self {
            local,
            data: data.to_owned(),
            clock,
            peers,
            had_data,
            running: OnceLock::new(),
            invitations,
        };
        (Arc::new(peer_service), invited)
    }

    /// Forwards messages to the node from now on. Called after the node has started.
    pub(super) fn attend(&self, replicas: &Arc<Replicas>, arcs: u32, founders: &[u64]) {
        let (replicas, founders) = (Arc::downgrade(replicas), founders.to_vec());
        let Some(peers) = self.peers.upgrade() else { return };
        let first = RemoteGroup::new(RemoteParts {
            arc: ArcId::FIRST,
            own: Weak::clone(&replicas),
            transport: Arc::new(PeerTransport(peers)),
            clock: Arc::clone(&self.clock),
            timeout: JOINING / 2,
        });
        // A process starts its node only once, so setting the value never fails.
        let _ = self.running.set(Running { replicas, arcs, founders, first });
    }

    /// Returns the number of arcs of the ring; 1 before the node has started.
    pub(super) fn arcs(&self) -> u32 {
        self.running.get().map_or(1, |running| running.arcs)
    }

    pub(super) fn set_aside(&self) -> Vec<String> {
        directory::list_set_aside(&self.data, self.local.slot)
    }

    fn replicas(&self) -> Option<Arc<Replicas>> {
        self.running.get()?.replicas.upgrade()
    }

    fn who(&self) -> Who {
        let has_data = self.replicas().map_or(self.had_data, |replicas| replicas.holds_data());
        Who { identity: self.local.identity.borrow().clone(), has_data }
    }

    /// Asks the peer in a slot for its identity.
    pub(super) async fn identify(&self, slot: u64) -> Option<Who> {
        let peers = self.peers.upgrade()?;
        match peers.ask(slot, &Question::Who, QUESTION).await {
            Ok(Answer::Who(who)) => Some(who),
            _ => None,
        }
    }

    async fn join(&self, invitation: Invitation) -> Answer {
        let own = self.local.identity.borrow().clone();
        match own {
            Some(own) if own == invitation.identity => return Answer::Joined,
            Some(own) => {
                return Answer::Refused(format!(
                    "node {} is already in cluster {}",
                    self.local.slot, own.cluster
                ));
            }
            None => {}
        }
        let (answer, answered) = oneshot::channel();
        if self.invitations.try_send((invitation, answer)).is_err() {
            return Answer::Refused(format!("node {} already has an invitation", self.local.slot));
        }
        let failed = |_| Answer::Refused(format!("node {} failed to join", self.local.slot));
        answered.await.unwrap_or_else(failed)
    }

    async fn rejoin(&self, slot: u64) -> Answer {
        let Some(running) = self.running.get() else {
            return Answer::Refused(format!("node {} is not running yet", self.local.slot));
        };
        // Asks the process at the slot's address whether it has data, because the request may come from
        // a different process.
        match self.identify(slot).await {
            Some(who) if !who.has_data => {}
            Some(_) => {
                return Answer::Refused(format!(
                    "another process with data is already running as node {slot} at the address that node {} has for node {slot}",
                    self.local.slot
                ));
            }
            None => {
                return Answer::Refused(format!(
                    "node {} cannot reach node {slot}",
                    self.local.slot
                ));
            }
        }
        match readmit(&running.first, slot).await {
            Ok(id) => self.invitation(id),
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    /// Adds a new node to the ring.
    async fn join_ring(&self, slot: u64, address: SocketAddr) -> Answer {
        let Some(running) = self.running.get() else {
            return Answer::Refused(format!("node {} is not running yet", self.local.slot));
        };
        match join(&running.first, slot, address).await {
            Ok(id) => self.invitation(id),
            Err(NotAdmitted::Unanswered(error)) => Answer::Refused(error.to_string()),
            Err(error) => Answer::NotAdmitted(error.to_string()),
        }
    }

    fn invitation(&self, node: NodeId) -> Answer {
        let own = self.local.identity.borrow().clone();
        let Some(own) = own else {
            return Answer::Refused(format!("node {} has no identity", self.local.slot));
        };
        // If this node lacks the token key, it must not create a new key for the invitation, because
        // the cluster uses a different key.
        let token_key = match TokenKey::of_member(&self.data) {
            Ok(token_key) => token_key,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        let identity = PeerIdentity { cluster: own.cluster, node };
        let running = self.running.get();
        let mut founders = running.map(|running| running.founders.clone()).unwrap_or_default();
        if founders.is_empty() && !self.local.slots.contains(&slot_of(node)) {
            // A node that joins later is no founder.
            founders = self.local.slots.iter().copied().collect();
        }
        let (arcs, token_key) = (self.arcs(), token_key.as_bytes().to_vec());
        let ring = running.map(|running| running.first.ring()).unwrap_or_default();
        let addresses = addresses::of_ring(&ring, &BTreeMap::new());
        Answer::Rejoined(Invitation { identity, arcs, founders, token_key, addresses })
    }

    fn set_clock(&self, state: ClockState) -> Answer {
        self.clock.follow(state.now, state.is_frozen);
        Answer::ClockSet
    }

    async fn answer_inner(&self, slot: u64, question: Question) -> Answer {
        match question {
            Question::Node(message) => match self.replicas() {
                Some(replicas) => Answer::Node(Box::new(replicas.handle(*message).await)),
                // The node has not started, so the message was not executed. The sender of a read or a
                // write retries until it finds a leader, which may be this node.
                None => match message.request {
                    Request::Submit(_) | Request::ReadIndex | Request::Read(_) => {
                        Answer::Node(Box::new(Response::NotLeader))
                    }
                    _ => {
                        let reason = format!("node {} is not running yet", self.local.slot);
                        Answer::Node(Box::new(Response::Refused(reason)))
                    }
                },
            },
            Question::Who => Answer::Who(self.who()),
            Question::Join(invitation) => self.join(invitation).await,
            Question::Rejoin { slot: asking } if asking == slot => self.rejoin(slot).await,
            Question::JoinRing { slot: asking, address } if asking == slot => {
                self.join_ring(slot, address).await
            }
            Question::Rejoin { .. } | Question::JoinRing { .. } => {
                Answer::Refused("a node requested the identity of another node".to_owned())
            }
            Question::Status => Answer::Status(
                self.replicas().map(|replicas| replicas.statuses()).unwrap_or_default(),
                self.set_aside(),
            ),
            Question::Clock(state) => self.set_clock(state),
        }
    }
}

/// The reason why a node gets no identity.
#[derive(Debug, Error)]
enum NotAdmitted {
    /// The ring does not have the node.
    #[error("node {0} does not belong to the ring")]
    UnknownNode(u64),
    /// The ring refuses the change.
    #[error("{0}")]
    Refused(String),
    /// The first arc did not answer.
    #[error(transparent)]
    Unanswered(#[from] SubmitError),
}

/// Adds a new node to the ring, and returns its id. A node that asks again gets a later id, because the earlier
/// id may have been used.
async fn join(first: &RemoteGroup, slot: u64, address: SocketAddr) -> Result<NodeId, NotAdmitted> {
    let unknown = || NotAdmitted::UnknownNode(slot);
    let number = u8::try_from(slot).ok().and_then(Slot::new).ok_or_else(unknown)?;
    let address = Some(address.to_string());
    first.refresh(true).await?;
    let ring = first.ring();
    // The node did not get the answer to an earlier request, or has lost its disk since.
    if ring.nodes.get(&number).is_some_and(|known| known.address == address) {
        return readmit(first, slot).await;
    }
    change(first, number, RingChange::Join { slot: number, address }).await
}

/// Changes the ring, and returns the id of a node.
async fn change(
    first: &RemoteGroup,
    slot: Slot,
    change: RingChange,
) -> Result<NodeId, NotAdmitted> {
    let replies = first.submit(vec![Command::ChangeRing(Box::new(change))]).await?;
    match replies.into_iter().next() {
        Some(Reply::Ring(ring)) => {
            ring.node_id(slot).ok_or_else(|| NotAdmitted::UnknownNode(slot.number().into()))
        }
        Some(Reply::Invalid(reason)) => Err(NotAdmitted::Refused(reason)),
        other => Err(NotAdmitted::Refused(format!("unexpected reply: {other:?}"))),
    }
}

/// Gives a slot its next incarnation, and returns the id of the node. The identity is committed before it is
/// returned, and the ring never gives it again.
async fn readmit(first: &RemoteGroup, slot: u64) -> Result<NodeId, NotAdmitted> {
    let unknown = || NotAdmitted::UnknownNode(slot);
    let number = u8::try_from(slot).ok().and_then(Slot::new).ok_or_else(unknown)?;
    first.refresh(true).await?;
    let lost = first.ring().nodes.get(&number).ok_or_else(unknown)?.incarnation;
    change(first, number, RingChange::Readmit { slot: number, lost }).await
}

impl Handler for PeerService {
    fn answer(self: Arc<Self>, slot: u64, question: Question) -> BoxFuture<Answer> {
        Box::pin(async move { self.answer_inner(slot, question).await })
    }
}
