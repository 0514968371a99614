//! The service that answers messages of peers, before this process's node has started and while it runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::{Mutex, mpsc, oneshot};

use super::super::directory;
use super::{JOINING, QUESTION};
use crate::peer::{
    Answer, ClockState, Handler, Invitation, Local, PeerIdentity, Peers, Question, Who,
};
use crate::token_key::TokenKey;
use node::clock::Clock;
use node::ring::ArcId;
use node::transport::{BoxFuture, Request, Response};
use node::{Node, NodeId, WeakNode};

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
    /// The replicas of the node, in the order of their arcs.
    replicas: OnceLock<Vec<WeakNode>>,
    invitations: mpsc::Sender<PendingInvitation>,
    /// The lock for membership changes, which must not overlap.
    membership_lock: Mutex<()>,
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
            replicas: OnceLock::new(),
            invitations,
            membership_lock: Mutex::default(),
        };
        (Arc::new(peer_service), invited)
    }

    /// Forwards messages to the node from now on. Called after the node has started.
    pub(super) fn attend(&self, replicas: &[Node]) {
        // A process starts its node only once, so setting the value never fails.
        let _ = self.replicas.set(replicas.iter().map(Node::downgrade).collect());
    }

    pub(super) fn set_aside(&self) -> Vec<String> {
        directory::list_set_aside(&self.data, self.local.slot)
    }

    /// Returns the node's replica of an arc.
    fn replica(&self, arc: ArcId) -> Option<Node> {
        self.replicas.get()?.get(usize::try_from(arc.0).ok()?)?.upgrade()
    }

    fn replicas(&self) -> impl Iterator<Item = Node> {
        self.replicas.get().into_iter().flatten().filter_map(WeakNode::upgrade)
    }

    fn who(&self) -> Who {
        let first = self.replica(ArcId::FIRST);
        let has_data = first.map_or(self.had_data, |node| node.holds_data());
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

    /// Returns the slots of the peers.
    pub(super) fn peer_slots(&self) -> Vec<u64> {
        let own = self.local.slot;
        self.local.slots.iter().copied().filter(|slot| *slot != own).collect()
    }

    /// Waits until no other membership change is in progress, and blocks further membership
    /// changes.
    pub(super) async fn begin_change(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.membership_lock.lock().await
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
        // Only the leader of the first arc assigns identities; the other arcs adopt them.
        let Some(node) = self.replica(ArcId::FIRST) else {
            return Answer::Refused(format!("node {} is not running yet", self.local.slot));
        };
        if node.leader() != Some(node.id()) {
            return Answer::Refused(format!("node {} is not the leader", self.local.slot));
        }
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
        let admitted = async {
            let _turn = self.begin_change().await;
            node.admit(slot).await
        };
        match tokio::time::timeout(JOINING / 2, admitted).await {
            Ok(Ok(id)) => self.invitation(id),
            Ok(Err(error)) => Answer::Refused(error.to_string()),
            Err(_) => Answer::Refused("another membership change is in progress".to_owned()),
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
        let arcs = self.replicas.get().map_or(1, Vec::len);
        let arcs = u32::try_from(arcs).unwrap_or(1);
        Answer::Rejoined(Invitation { identity, arcs, token_key: token_key.as_bytes().to_vec() })
    }

    fn set_clock(&self, state: ClockState) -> Answer {
        self.clock.follow(state.now, state.is_frozen);
        Answer::ClockSet
    }

    async fn answer_inner(&self, slot: u64, question: Question) -> Answer {
        match question {
            Question::Node(message) => match self.replica(message.arc) {
                Some(node) => Answer::Node(Box::new(node.handle(*message).await)),
                // The node has not started, so the message was not executed. The sender of a read or a
                // write retries until it finds a leader, which may be this node.
                None => match message.request {
                    Request::Submit(_) | Request::ReadIndex => {
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
            Question::Rejoin { .. } => {
                Answer::Refused("a node requested the identity of another node".to_owned())
            }
            Question::Status => Answer::Status(
                self.replicas().map(|node| node.status()).collect(),
                self.set_aside(),
            ),
            Question::Clock(state) => self.set_clock(state),
        }
    }
}

impl Handler for PeerService {
    fn answer(self: Arc<Self>, slot: u64, question: Question) -> BoxFuture<Answer> {
        Box::pin(async move { self.answer_inner(slot, question).await })
    }
}
