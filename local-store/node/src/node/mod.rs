//! A running node: starting and stopping it, submitting commands to the leader, and opening views
//! of its state.
//!
//! The other modules of the crate implement parts of the node, and do not depend on this module.

mod handler;
mod leadership;
mod members;
mod settings;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use partition::mutation::{self, Mutation};
use partition::{ArcPosition, Catalogue, Command, Reply, Ring, TableId, View};
use storage::Storage;
use storage::disk::Damage;

use crate::clock::Clock;
use crate::error::{MembershipError, StartError, SubmitError};
use crate::failure::FailureHandler;
use crate::forward::{Submission, encode_submission};
use crate::node_log::NodeLog;
use crate::proposer::{PROPOSAL_BYTES_MAX, Proposer, Unproposed, refuse_as_too_large};
use crate::raft::Raft;
use crate::reader::Reader;
use crate::replica::{Replica, check_continuity};
use crate::ring::ArcId;
use crate::status::Status;
use crate::transport::{
    CallError, Envelope, FORWARD_TIMEOUT, Request, Response, Submitted, Transport,
};
use crate::types::{NodeId, Runtime};
use crate::{maintenance, network, receiver, replica, scrub};

pub use self::settings::{Parts, Settings};

/// The longest pause between two attempts if there is no leader, or the leader cannot be reached.
const RETRY: Duration = Duration::from_millis(20);
/// The maximum time to wait until this node has also applied a forwarded write, so that the client
/// can read its own write from this node. The write succeeds even if the wait times out.
const OWN_WRITE_WAIT: Duration = Duration::from_secs(1);

/// The state that the handles on a node share.
struct Inner {
    id: NodeId,
    arc: ArcId,
    raft: Raft,
    log: NodeLog,
    replica: Arc<replica::Shared>,
    receiver: receiver::Receiver,
    proposer: Proposer,
    reader: Reader,
    transport: Arc<dyn Transport>,
    clock: Arc<Clock>,
    settings: Settings,
    /// The last term before the node started. If the node led this term, it may have lost entries
    /// that it had applied, so leadership of this term proves nothing.
    earlier_term: u64,
    /// The last entry announced as committed: see [`network::Network::announced_commit`].
    announced_commit: Arc<AtomicU64>,
    /// Whether the node has heard from a leader since its start.
    has_heard_leader: AtomicBool,
    /// Whether this replica has ended, although the node may continue with other replicas.
    has_ended: AtomicBool,
    damage: Damage,
    scrub: scrub::Scrub,
}

/// A handle on a running node. The node runs while a handle exists.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

/// A handle on a node that does not keep the node running.
#[derive(Clone)]
pub struct WeakNode {
    inner: Weak<Inner>,
}

impl WeakNode {
    /// Returns a handle on the node, unless the node has ended because all its handles were
    /// dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Node> {
        Some(Node { inner: self.inner.upgrade()? })
    }
}

impl Node {
    /// Starts the replicas of one node in the given order, usually one for each arc. If a replica
    /// cannot be started, stops the replicas that were started before it, so that they do not vote
    /// or lead.
    ///
    /// # Errors
    /// The error of [`Node::start`] for the first replica that cannot be started.
    pub async fn start_all(parts: Vec<Parts>) -> Result<Vec<Self>, StartError> {
        let mut started = Vec::new();
        for parts in parts {
            match Self::start(parts).await {
                Ok(node) => started.push(node),
                Err(reason) => {
                    for node in &started {
                        node.shutdown().await;
                    }
                    return Err(reason);
                }
            }
        }
        Ok(started)
    }

    /// Starts a node from its disk. Its peers may start later.
    ///
    /// # Errors
    /// When the node's log or state cannot be read, or they are inconsistent.
    pub fn start(parts: Parts) -> BoxFuture<'static, Result<Self, StartError>> {
        // Boxed, so that the consensus library is compiled in this crate only.
        Box::pin(Self::start_inner(parts))
    }

    async fn start_inner(parts: Parts) -> Result<Self, StartError> {
        let Parts { id, arc, log, worker, transport, clock, settings, .. } = parts;
        let (seed, damage, location) = (parts.seed, parts.damage, parts.state_location);
        let on_failure = FailureHandler::new(damage.clone(), parts.on_fatal);
        let position = ArcPosition { arc, arcs: settings.arcs };
        let (neighbours, end) = (settings.has_neighbours, on_failure.clone());
        let replica =
            Replica::open(position, Arc::clone(&location), Arc::clone(&worker), neighbours, end)?;
        clock.reach(replica.now());
        let shared = replica.shared();
        check_continuity(&log, arc, &*shared.view())?;
        if let Some(applied) = replica.applied() {
            log.cut_replaced(arc, applied)?;
        }
        let (earlier_term, _) = log.position(arc);
        let persist_due = replica.persist_due();
        let before_recent = replica.before_recent();
        let announced_commit = Arc::<AtomicU64>::default();
        let network = network::Network {
            id,
            arc,
            transport: Arc::clone(&transport),
            transfers: Arc::clone(&settings.transfers),
            next_transfer: Arc::default(),
            announced_commit: Arc::clone(&announced_commit),
            snapshot_part: settings.snapshot_part,
        };
        let config = Arc::new(settings.config()?);
        let group = log.group(arc);
        let raft = Runtime::scope(seed, Raft::new(id, config, network, group, replica)).await?;
        // Until the consensus library has published its state, this node would get no votes.
        raft.is_initialized().await?;
        let upkeep = maintenance::Maintenance {
            raft: raft.clone(),
            arc,
            due: persist_due,
            log: log.clone(),
            state: Arc::clone(&shared),
            quiet: settings.quiet,
            before_recent,
            entries_kept: settings.entries_kept,
            transport: Arc::clone(&transport),
            id,
        };
        tokio::spawn(maintenance::run(upkeep, on_failure));
        let inner = Inner {
            id,
            arc,
            receiver: receiver::Receiver::new(location, worker, settings.snapshot_part),
            proposer: Proposer::start(raft.clone(), Arc::clone(&clock)),
            clock,
            reader: Reader::start(raft.clone()),
            replica: shared,
            raft,
            log,
            transport,
            settings,
            earlier_term,
            announced_commit,
            has_heard_leader: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            damage,
            scrub: scrub::Scrub::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the identity of the node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.inner.id
    }

    /// Returns whether two handles are of the same running replica.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the arc that this node replicates.
    #[must_use]
    pub fn arc(&self) -> ArcId {
        self.inner.arc
    }

    /// Returns whether this node believes that it leads its group.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader() == Some(self.inner.id)
    }

    /// Returns a receiver of the index of the last applied entry.
    pub fn applied_entries(&self) -> tokio::sync::watch::Receiver<Option<u64>> {
        self.inner.replica.applied()
    }

    /// Returns a receiver that is notified when an entry that this node proposed may have added
    /// records to a table's stream.
    pub fn arrivals(&self, table: TableId) -> tokio::sync::watch::Receiver<()> {
        self.inner.replica.arrivals(table)
    }

    /// Returns a handle that does not keep the node running.
    #[must_use]
    pub fn downgrade(&self) -> WeakNode {
        WeakNode { inner: Arc::downgrade(&self.inner) }
    }

    /// Initializes a group with these members, including this node. Call it only if no member has
    /// data. The call is idempotent.
    ///
    /// # Errors
    /// When the node has stopped.
    pub fn initialize(
        &self,
        members: BTreeSet<NodeId>,
    ) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(async move {
            if self.inner.raft.is_initialized().await? {
                return Ok(());
            }
            Ok(self.inner.raft.initialize(members).await?)
        })
    }

    /// Applies commands, in order, in one log entry, even if another node leads. Returns one reply
    /// for each command after the leader, and usually also this node, has applied the committed
    /// entry.
    ///
    /// # Errors
    /// See [`SubmitError`]; a time-out is [`SubmitError::Unknown`].
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, SubmitError> {
        let timeout = self.inner.settings.request;
        let slow =
            |_| SubmitError::Unknown(format!("the request had no answer within {timeout:?}"));
        let submission = Submission { asked_at: self.inner.clock.now(), commands };
        tokio::time::timeout(timeout, self.submit_inner(submission)).await.map_err(slow)?
    }

    /// Submits the commands to the leader, and retries until a leader has applied them. The leader
    /// may be this node.
    async fn submit_inner(&self, mut submission: Submission) -> Result<Vec<Reply>, SubmitError> {
        let mut leader = self.leader();
        loop {
            if leader == Some(self.inner.id) {
                match self.inner.proposer.propose(submission).await {
                    Ok((_, replies)) => return Ok(replies),
                    Err(Unproposed::Failed(error)) => return Err(error),
                    Err(Unproposed::NotLeader(other, back)) => {
                        submission = back;
                        leader = other.filter(|other| *other != self.inner.id);
                    }
                }
            }
            if let Some(other) = leader
                && let Some(replies) = self.submit_to(other, &submission).await?
            {
                return Ok(replies);
            }
            self.wait_to_retry().await;
            if self.has_ended() {
                return Err(SubmitError::NotDone("the node has stopped".to_owned()));
            }
            leader = self.leader();
            // The client is still waiting, so the next attempt counts as a new submission.
            submission.asked_at = self.inner.clock.now();
        }
    }

    /// Submits the commands to another node that may lead. Returns `None` if that node has not
    /// applied the commands and never will.
    async fn submit_to(
        &self,
        leader: NodeId,
        submission: &Submission,
    ) -> Result<Option<Vec<Reply>>, SubmitError> {
        let encoded = encode_submission(submission)
            .map_err(|error| SubmitError::NotDone(error.to_string()))?;
        if encoded.bytes().len() > PROPOSAL_BYTES_MAX {
            // The leader would also reject commands of this size.
            return Ok(Some(refuse_as_too_large(&submission.commands)));
        }
        let answer = self.call_leader(leader, Request::Submit(encoded)).await;
        match Submitted::of(answer)? {
            Submitted::Done { index, replies } => {
                // The write has succeeded, even if this wait times out.
                let _ = tokio::time::timeout(OWN_WRITE_WAIT, self.applied(index)).await;
                Ok(Some(replies))
            }
            Submitted::NotLeader => Ok(None),
            Submitted::TooOld { now } => {
                self.inner.clock.reach(now);
                Ok(None)
            }
        }
    }

    /// Waits until this node's views show all writes that any node acknowledged before the call.
    ///
    /// # Errors
    /// When no leader is found in time, or the leader has no majority.
    pub async fn read_index(&self) -> Result<(), SubmitError> {
        if mutation::is_active(Mutation::ReadWithoutIndex) {
            return Ok(());
        }
        if self.shows_all() {
            return Ok(());
        }
        let timeout = self.inner.settings.request;
        let slow = |_| SubmitError::NotDone(format!("no leader answered within {timeout:?}"));
        tokio::time::timeout(timeout, self.read_index_inner()).await.map_err(slow)?
    }

    async fn read_index_inner(&self) -> Result<(), SubmitError> {
        if let Some(told) = self.index_to_show() {
            return self.applied(told).await;
        }
        while !self.has_ended() {
            let index = match self.leader() {
                Some(leader) if leader == self.inner.id => {
                    self.inner.reader.read_index().await.ok()
                }
                Some(leader) => match self.call_leader(leader, Request::ReadIndex).await {
                    Ok(Response::ReadIndex { index }) => Some(index),
                    _ => None,
                },
                None => None,
            };
            if let Some(index) = index {
                return self.applied(index).await;
            }
            self.wait_to_retry().await;
        }
        Err(SubmitError::NotDone("the node has stopped".to_owned()))
    }

    /// Waits until this node has applied the entry at `index`.
    async fn applied(&self, index: u64) -> Result<(), SubmitError> {
        let mut applied = self.inner.replica.applied();
        let is_stopped = || self.has_ended();
        let reached = applied.wait_for(|applied| *applied >= Some(index) || is_stopped()).await;
        match reached {
            Ok(applied) if *applied >= Some(index) => Ok(()),
            _ => Err(SubmitError::NotDone("the node has stopped".to_owned())),
        }
    }

    /// Returns a view of the state as of the last entry that this node has applied. Reads of the
    /// view are eventually consistent.
    #[must_use]
    pub fn view(&self) -> Box<dyn View + Send + Sync> {
        self.inner.replica.view()
    }

    /// Returns the tables as of the last entry that this node has applied.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.inner.replica.catalogue()
    }

    /// Returns the ring as of the last entry that this node has applied. Only replicas of the first arc have a
    /// ring.
    #[must_use]
    pub fn ring(&self) -> Arc<Ring> {
        self.inner.replica.ring()
    }

    /// Returns the leader, as far as this node knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.inner.raft.server_metrics().borrow_watched().current_leader
    }

    /// Returns the status of the replica.
    #[must_use]
    pub fn status(&self) -> Status {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let is_damaged = self.inner.damage.reason().is_some();
        let usage = self.inner.log.usage();
        let status = Status::new(self.inner.id, self.inner.arc, &metrics, usage);
        Status {
            is_damaged,
            scrub: self.inner.scrub.progress(),
            state_bytes: self.inner.replica.storage().disk_bytes(),
            transfers: self.inner.settings.transfers.of(self.inner.arc),
            ..status
        }
    }

    /// Returns the progress of the scrub of the node's files.
    pub fn scrub(&self) -> &scrub::Scrub {
        &self.inner.scrub
    }

    /// Returns the record of the damage of the node's disk.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.inner.damage
    }

    /// Returns the storage of the state, for verification.
    pub fn storage(&self) -> Arc<dyn Storage> {
        self.inner.replica.storage()
    }

    /// Returns the node's log, for verification.
    pub fn log(&self) -> &NodeLog {
        &self.inner.log
    }

    /// Returns whether this replica, or the whole node, has ended.
    fn has_ended(&self) -> bool {
        self.inner.has_ended.load(Ordering::Acquire) || self.inner.damage.is_stopped()
    }

    /// Stops the node cleanly, including the replicas of other arcs on the same disk. Waiting
    /// requests return an unknown outcome.
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.inner.damage.stop();
        Box::pin(self.end())
    }

    /// Stops this replica, but not the replicas of other arcs. Waiting requests return an unknown outcome.
    pub(crate) async fn end(&self) {
        self.inner.has_ended.store(true, Ordering::Release);
        self.inner.replica.wake_waiting();
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::debug!(%error, "a node did not stop cleanly");
        }
    }

    /// Sends a request to the leader. Stops waiting when this node learns of another leader.
    async fn call_leader(&self, leader: NodeId, request: Request) -> Result<Response, CallError> {
        let message = Envelope { from: self.inner.id, to: leader, arc: self.inner.arc, request };
        tokio::select! {
            biased;
            answer = self.inner.transport.call(message, FORWARD_TIMEOUT) => answer,
            () = self.leader_changes(Some(leader)) => {
                Err(CallError::Lost(format!("node {leader} is no longer the leader")))
            }
        }
    }

    /// Waits for the pause between two attempts, which ends early when this node learns of a leader.
    async fn wait_to_retry(&self) {
        let pause = tokio::time::sleep(RETRY);
        match self.leader() {
            Some(_) => pause.await,
            None => tokio::select! {
                () = pause => {}
                () = self.leader_changes(None) => {}
            },
        }
    }

    /// Waits until this node's leader is no longer `leader`. `None` means no leader. After the
    /// consensus has ended, waits for ever: otherwise, requests would retry without a pause.
    async fn leader_changes(&self, leader: Option<NodeId>) {
        let mut metrics = self.inner.raft.server_metrics();
        while metrics.borrow_watched().current_leader == leader {
            if metrics.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
