//! A node's replica of one group: a log, a state and a consensus among peers.
//!
//! Deterministic: a [`Node`] starts no thread, asks no system clock and iterates over nothing unordered.
//! Its disk, its blocking work, its peers, its time and its seed come from outside ([`Parts`]), so that
//! the simulation runs the same code. What a real process gives it of these is here, too: a thread
//! ([`worker::ThreadWorker`]), directories ([`DirectoryHome`]) and [`random_seed`]. The consensus is
//! openraft's; see `docs/decisions/0006-replication.md` for what is asked of it and what is not.
//!
//! Every node takes every request: a write is handed to the leader, a strong read asks the leader up
//! to where it has to see and waits until that is applied here. An answer that does not come in time
//! is an unknown outcome, never a failure.

pub mod clock;
mod failure;
mod forward;
mod handler;
mod home;
mod leadership;
mod log_id;
mod maintenance;
mod members;
mod network;
mod node_log;
mod payload;
mod proposer;
mod reader;
mod receiver;
mod redundancy;
mod replica;
pub mod ring;
pub mod scrub;
pub mod status;
#[cfg(test)]
mod tests;
pub mod transport;
mod types;
pub mod worker;

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Config, SnapshotPolicy};
use partition::mutation::{self, Mutation};
use partition::{Catalogue, Command, Reply, Seat, TableId, View};
use thiserror::Error;

pub use self::failure::FailureHandler;
pub use self::forward::{
    Submission, decode_replies, decode_submission, encode_replies, encode_submission,
};
pub use self::home::{DirectoryHome, MemoryHome, StagedStorage, StorageHome};
pub use self::leadership::Ballot;
use self::node_log::bytes_of;
pub use self::node_log::{GroupLog, NodeLog};
pub use self::redundancy::check_redundancy;
pub use self::replica::check_continuity;
pub use self::replica::{Replica, SnapshotData};
pub use self::types::{
    NodeId, Payload, Replies, Runtime, TypeConfig, incarnation_of, node_id, random_seed, slot_of,
};

use self::proposer::{PROPOSAL_BYTES_MAX, Proposer, Unproposed, refuse_as_too_large};
use self::reader::Reader;
use self::status::Status;
use self::transport::{CallError, Envelope, Request, Response, Transport};
use self::worker::Worker;
use crate::clock::Clock;
use crate::ring::ArcId;
use storage::Storage;
use storage::disk::Damage;

type Raft = openraft::Raft<TypeConfig, Replica>;

/// The largest record of a log: what its segments must have room for.
pub const RECORD_BYTES_MAX: usize = proposer::ENTRY_BYTES_MAX + node_log::RECORD_HEAD_BYTES;

/// Called once when a node's disk or state failed: the process has to end, because what was not
/// acknowledged may or may not be on disk.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Time between two tries when there is no leader, or it cannot be reached.
const RETRY: Duration = Duration::from_millis(20);
/// Time for the leader to answer what was forwarded to it: some slow syncs of a majority.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to wait until a forwarded write is also applied here, so that this node shows it to whoever
/// asked for it. It is made, whatever comes of the wait.
const OWN_WRITE_WAIT: Duration = Duration::from_secs(1);

/// Times and sizes of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two heartbeats of a leader.
    pub heartbeat: Duration,
    /// A follower that hears nothing for the sum of the second and a value in between stands for
    /// election: with the default after 0.9 to 1.2 s, which a busy machine rarely reaches, and a
    /// killed leader is replaced within two although two may stand at the same time once.
    pub election: (Duration, Duration),
    /// Entries after which the state is made durable and the log shortened.
    pub snapshot_entries: u64,
    /// Entries that are kept in the log beyond that, for peers that are a little behind.
    pub entries_kept: u64,
    /// Time for a part of a snapshot to be taken, and for the installation that follows the last
    /// one. A peer that says nothing for so long is sent the snapshot again from its beginning, and
    /// nothing else meanwhile.
    pub snapshot_part: Duration,
    /// Time for a request, with elections and forwarding, after which its outcome is unknown.
    pub request: Duration,
    /// Arcs of the ring that the group's is one of.
    pub arcs: u32,
    /// Whether other replicas of the group are in this process: what the first of them has worked out
    /// is kept for them while it is new.
    pub has_neighbours: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election: (Duration::from_millis(300), Duration::from_millis(600)),
            snapshot_entries: 10_000,
            entries_kept: 1_000,
            snapshot_part: Duration::from_secs(30),
            request: Duration::from_secs(10),
            arcs: 1,
            has_neighbours: true,
        }
    }
}

impl Settings {
    fn config(&self) -> Result<Config, String> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let config = Config {
            cluster_name: "weir".to_owned(),
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election.0),
            election_timeout_max: millis(self.election.1),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_entries),
            max_in_snapshot_log_to_keep: self.entries_kept,
            // A peer that is behind is sent entries for as long as the log has them.
            replication_lag_threshold: u64::MAX / 2,
            // Leadership of an earlier life proves nothing: the state of a node that starts may lack
            // what it had applied, and no longer knows what is committed.
            enable_leader_restore: Some(mutation::is_active(Mutation::LeaderRestore)),
            ..Config::default()
        };
        config.validate().map_err(|error| error.to_string())
    }
}

/// What a node is made of.
pub struct Parts {
    /// Who it is.
    pub id: NodeId,
    /// The group.
    pub arc: ArcId,
    /// Its log.
    pub log: NodeLog,
    /// Where its state lives.
    pub home: Arc<dyn StorageHome>,
    /// Does the blocking work on the state; not the log's worker.
    pub worker: Arc<dyn Worker>,
    /// The way to its peers.
    pub transport: Arc<dyn Transport>,
    /// What the entries that it proposes carry.
    pub clock: Arc<Clock>,
    /// Times and sizes.
    pub settings: Settings,
    /// Of the randomness of its elections.
    pub seed: u64,
    /// Where damage of its disk is reported: that of its log and of its home.
    pub damage: Damage,
    /// Called when it is dead.
    pub on_fatal: OnFatal,
}

/// A request that was not carried out, or nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// It was not carried out and never will be: ask again.
    #[error("it was not carried out: {0}")]
    NotDone(String),
    /// It may have been carried out, or still be.
    #[error("whether it was carried out is not known: {0}")]
    Unknown(String),
}

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
