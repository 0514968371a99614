//! A running node: starts it, submits commands to the leader, and gives views of its state.
//!
//! The modules beside this folder are its parts; they do not depend on it.

mod handler;
mod leadership;
mod members;
mod settings;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use partition::mutation::{self, Mutation};
use partition::{Catalogue, Command, Reply, Seat, TableId, View};
use storage::Storage;
use storage::disk::Damage;

use crate::clock::Clock;
use crate::error::SubmitError;
use crate::failure::FailureHandler;
use crate::forward::{Submission, decode_replies, encode_submission};
use crate::node_log::NodeLog;
use crate::proposer::{PROPOSAL_BYTES_MAX, Proposer, Unproposed, refuse_as_too_large};
use crate::raft::Raft;
use crate::reader::Reader;
use crate::replica::{Replica, check_continuity};
use crate::ring::ArcId;
use crate::status::Status;
use crate::transport::{CallError, Envelope, Request, Response, Transport};
use crate::types::{NodeId, Runtime};
use crate::{maintenance, network, receiver, replica, scrub};

pub use self::settings::{Parts, Settings};

/// Time between two tries when there is no leader, or it cannot be reached.
const RETRY: Duration = Duration::from_millis(20);
/// Time for the leader to answer what was forwarded to it: some slow syncs of a majority.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to wait until a forwarded write is also applied here, so that this node shows it to whoever
/// asked for it. It is made, whatever comes of the wait.
const OWN_WRITE_WAIT: Duration = Duration::from_secs(1);

/// What the handles on a node share.
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
    /// The last term of an earlier life: its leader may lack now what it had applied then.
    earlier_term: u64,
    /// See [`network::Network::told`].
    told: Arc<AtomicU64>,
    /// Whether a leader was heard of since the start.
    heard_of_leader: AtomicBool,
    damage: Damage,
    scrub: scrub::Scrub,
}

/// A handle on a running node.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

/// A handle that does not keep the node alive.
#[derive(Clone)]
pub struct WeakNode {
    inner: Weak<Inner>,
}

impl WeakNode {
    /// The node, if somebody still keeps it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Node> {
        Some(Node { inner: self.inner.upgrade()? })
    }
}

impl Node {
    /// Starts a node from what its disk holds. Its peers may not be there yet.
    ///
    /// # Errors
    /// When its log or state cannot be read, or they contradict each other.
    pub async fn start(parts: Parts) -> Result<Self, String> {
        let Parts { id, arc, log, home, worker, transport, clock, settings, .. } = parts;
        let (seed, damage) = (parts.seed, parts.damage);
        let on_failure = FailureHandler::new(damage.clone(), parts.on_fatal);
        let describe = |error: io::Error| error.to_string();
        let seat = Seat { arc, arcs: settings.arcs };
        let (neighbours, end) = (settings.has_neighbours, on_failure.clone());
        let replica = Replica::open(seat, Arc::clone(&home), Arc::clone(&worker), neighbours, end)
            .map_err(describe)?;
        clock.reach(replica.now());
        let shared = replica.shared();
        check_continuity(&log, arc, &*shared.view())?;
        if let Some(applied) = replica.applied() {
            log.cut_replaced(arc, applied).map_err(describe)?;
        }
        let (earlier_term, _) = log.position(arc);
        let persist_due = replica.persist_due();
        let before_recent = replica.before_recent();
        let (transfers, told) = (Arc::default(), Arc::<AtomicU64>::default());
        let network = network::Network {
            id,
            arc,
            transport: Arc::clone(&transport),
            transfers,
            told: Arc::clone(&told),
            snapshot_part: settings.snapshot_part,
        };
        let config = Arc::new(settings.config()?);
        let group = log.group(arc);
        let raft = Runtime::scope(seed, Raft::new(id, config, network, group, replica))
            .await
            .map_err(|error| error.to_string())?;
        // Who answers a question has said before how it does: until then nobody would vote.
        raft.is_initialized().await.map_err(|error| error.to_string())?;
        let upkeep = maintenance::Maintenance {
            raft: raft.clone(),
            arc,
            due: persist_due,
            log: log.clone(),
            before_recent,
            transport: Arc::clone(&transport),
            id,
        };
        tokio::spawn(maintenance::run(upkeep, on_failure));
        let inner = Inner {
            id,
            arc,
            receiver: receiver::Receiver::new(home, worker, settings.snapshot_part),
            proposer: Proposer::start(raft.clone(), Arc::clone(&clock)),
            clock,
            reader: Reader::start(raft.clone()),
            replica: shared,
            raft,
            log,
            transport,
            settings,
            earlier_term,
            told,
            heard_of_leader: AtomicBool::new(false),
            damage,
            scrub: scrub::Scrub::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Who it is.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.inner.id
    }

    /// The arc that its group holds.
    #[must_use]
    pub fn arc(&self) -> ArcId {
        self.inner.arc
    }

    /// Whether it believes that it leads its group.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.leader() == Some(self.inner.id)
    }

    /// Returns when an entry was applied that was not when it was last called on this receiver.
    pub fn applied_entries(&self) -> tokio::sync::watch::Receiver<Option<u64>> {
        self.inner.replica.applied()
    }

    /// Changes when records of a table's stream may have come by an entry that this node proposed.
    pub fn arrivals(&self, table: TableId) -> tokio::sync::watch::Receiver<()> {
        self.inner.replica.arrivals(table)
    }

    /// A handle that does not keep the node alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakNode {
        WeakNode { inner: Arc::downgrade(&self.inner) }
    }

    /// Begins a group with these members, of which this node is one. Only for a group none of whose
    /// members ever held anything; done a second time it changes nothing.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn initialize(&self, members: BTreeSet<NodeId>) -> Result<(), String> {
        let begun = self.inner.raft.is_initialized().await.map_err(|e| e.to_string())?;
        if begun {
            return Ok(());
        }
        self.inner.raft.initialize(members).await.map_err(|error| error.to_string())
    }

    /// Carries out commands, in order, in one log entry, wherever the leader is. Returns when they
    /// are committed, applied there, and usually here too; with one reply for each.
    ///
    /// # Errors
    /// See [`SubmitError`]; no answer in time is [`SubmitError::Unknown`].
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, SubmitError> {
        let timeout = self.inner.settings.request;
        let slow = |_| SubmitError::Unknown(format!("no answer within {timeout:?}"));
        let submission = Submission { asked_at: self.inner.clock.now(), commands };
        tokio::time::timeout(timeout, self.submit_inner(submission)).await.map_err(slow)?
    }

    /// Asks whoever leads, this node or another, until one of them has carried out the commands.
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
            tokio::time::sleep(RETRY).await;
            if self.inner.damage.is_stopped() {
                return Err(SubmitError::NotDone("the node has ended".to_owned()));
            }
            leader = self.leader();
            // Whoever asked still waits.
            submission.asked_at = self.inner.clock.now();
        }
    }

    /// Asks another node, which leads or did. `None` if it has not done it, and never will.
    async fn submit_to(
        &self,
        leader: NodeId,
        submission: &Submission,
    ) -> Result<Option<Vec<Reply>>, SubmitError> {
        let encoded = encode_submission(submission).map_err(SubmitError::NotDone)?;
        if encoded.bytes().len() > PROPOSAL_BYTES_MAX {
            // The leader would say the same.
            return Ok(Some(refuse_as_too_large(&submission.commands)));
        }
        match self.call_leader(leader, Request::Submit(encoded)).await {
            Ok(Response::Submitted { index, replies }) => {
                let replies = decode_replies(&replies).map_err(SubmitError::Unknown)?;
                // Made, whatever comes of the wait.
                let _ = tokio::time::timeout(OWN_WRITE_WAIT, self.applied(index)).await;
                Ok(Some(replies))
            }
            Ok(Response::NotLeader) | Err(CallError::Unreachable(_)) => Ok(None),
            Ok(Response::TooOld { now }) => {
                self.inner.clock.reach(now);
                Ok(None)
            }
            Ok(Response::Refused(reason)) => Err(SubmitError::NotDone(reason)),
            Ok(Response::Unknown(reason)) => Err(SubmitError::Unknown(reason)),
            Ok(other) => Err(SubmitError::Unknown(format!("a strange answer: {other:?}"))),
            Err(CallError::Lost(reason)) if mutation::is_active(Mutation::FalseFailure) => {
                Err(SubmitError::NotDone(reason))
            }
            Err(CallError::Lost(_)) if mutation::is_active(Mutation::RepeatLostWrite) => Ok(None),
            Err(CallError::Lost(reason)) => Err(SubmitError::Unknown(reason)),
        }
    }

    /// Returns when this node's views show everything that was acknowledged, by any node, before
    /// the call.
    ///
    /// # Errors
    /// When no leader is found in time, or it finds no majority.
    pub async fn read_index(&self) -> Result<(), SubmitError> {
        if mutation::is_active(Mutation::ReadWithoutIndex) {
            return Ok(());
        }
        if self.shows_all() {
            return Ok(());
        }
        let timeout = self.inner.settings.request;
        let slow = |_| SubmitError::NotDone(format!("no leader within {timeout:?}"));
        tokio::time::timeout(timeout, self.read_index_inner()).await.map_err(slow)?
    }

    async fn read_index_inner(&self) -> Result<(), SubmitError> {
        if let Some(told) = self.index_to_show() {
            return self.applied(told).await;
        }
        while !self.inner.damage.is_stopped() {
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
            tokio::time::sleep(RETRY).await;
        }
        Err(SubmitError::NotDone("the node has ended".to_owned()))
    }

    /// Returns when the entry is applied here.
    ///
    /// # Errors
    /// When the node ends before.
    async fn applied(&self, index: u64) -> Result<(), SubmitError> {
        let mut applied = self.inner.replica.applied();
        let is_stopped = || self.inner.damage.is_stopped();
        let reached = applied.wait_for(|applied| *applied >= Some(index) || is_stopped()).await;
        match reached {
            Ok(applied) if *applied >= Some(index) => Ok(()),
            _ => Err(SubmitError::NotDone("the node has ended".to_owned())),
        }
    }

    /// The state as of the last entry that was applied here: eventually consistent.
    #[must_use]
    pub fn view(&self) -> Box<dyn View + Send + Sync> {
        self.inner.replica.view()
    }

    /// The tables as of the last entry that was applied here.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.inner.replica.catalogue()
    }

    /// The leader that this node knows of.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.inner.raft.server_metrics().borrow_watched().current_leader
    }

    /// How it does.
    #[must_use]
    pub fn status(&self) -> Status {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        let is_damaged = self.inner.damage.reason().is_some();
        let usage = self.inner.log.usage();
        let status = Status::new(self.inner.id, self.inner.arc, &metrics, usage);
        Status { is_damaged, scrub: self.inner.scrub.progress(), ..status }
    }

    /// How far the verifying of its files is.
    pub fn scrub(&self) -> &scrub::Scrub {
        &self.inner.scrub
    }

    /// What is known of damage of the node's disk.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.inner.damage
    }

    /// The storage of the state, to be verified.
    pub fn storage(&self) -> Arc<dyn Storage> {
        self.inner.replica.storage()
    }

    /// The node's log, to be verified.
    pub fn log(&self) -> &NodeLog {
        &self.inner.log
    }

    /// Ends the node in good order, and with it those of the other arcs that share its disk. What
    /// waits for it learns that the outcome is unknown.
    pub async fn shutdown(&self) {
        self.inner.damage.stop();
        self.inner.replica.wake_waiting();
        if let Err(error) = self.inner.raft.shutdown().await {
            tracing::debug!(%error, "a node ended badly");
        }
    }

    /// Asks the leader, for as long as it is the leader that this node knows of.
    async fn call_leader(&self, leader: NodeId, request: Request) -> Result<Response, CallError> {
        let message = Envelope { from: self.inner.id, to: leader, arc: self.inner.arc, request };
        tokio::select! {
            biased;
            answer = self.inner.transport.call(message, FORWARD_TIMEOUT) => answer,
            () = self.leader_changes(leader) => {
                Err(CallError::Lost(format!("node {leader} leads no more")))
            }
        }
    }

    /// Returns when this node learns that another leads, or none.
    async fn leader_changes(&self, leader: NodeId) {
        let mut metrics = self.inner.raft.server_metrics();
        while metrics.borrow_watched().current_leader == Some(leader) {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }
}
