//! A running store: its nodes, and the way of commands and reads to the one that leads.
//!
//! Commands are committed by a majority of the nodes and applied before they are answered, so a later
//! read on the leader sees them. One process holds all nodes, each with a directory of its own, or
//! one of them, whose peers are other processes. HTTP and its formats are elsewhere, and so is what
//! a node does.

mod cluster;
mod directory;
mod member;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use model::EpochMillis;
use partition::{Catalogue, Command, Reply, View};
use thiserror::Error;

pub use self::member::Member;
use self::member::Membership;
use crate::clock::Clock;
use crate::disk::FileDisk;
use crate::node::status::Status;
use crate::node::{Node, SubmitError, slot_of};
use crate::peer::ClockState;
use crate::ticks;
use crate::token_key::TokenKey;
use crate::traffic::Traffic;

/// Where and as what a store runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; it is made if it is not there, and locked.
    pub directory: PathBuf,
    /// The Region in ARNs and in the health check.
    pub region: String,
    /// The account in ARNs: twelve digits.
    pub account: String,
    /// Nodes, each with a replica of everything: three, or one where durability is not the point.
    pub replicas: u64,
}

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[error("cannot open the store in `{}`: {reason}", directory.display())]
pub struct OpenError {
    /// The data directory.
    pub directory: PathBuf,
    /// What is wrong and what to do about it.
    pub reason: String,
}

/// A request that got no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// It was not carried out: ask again.
    #[error("the store is unavailable: {0}")]
    NotDone(String),
    /// It may have been carried out.
    #[error("the store gave no answer in time, and the request may have been carried out: {0}")]
    Unknown(String),
}

impl From<SubmitError> for Unavailable {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::NotDone(reason) => Self::NotDone(reason),
            SubmitError::Unknown(reason) => Self::Unknown(reason),
        }
    }
}

/// How one node does.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// Its slot.
    pub slot: u64,
    /// Its replicas; none while it is not running.
    pub replicas: Vec<Status>,
    /// The directories that were set aside because they were damaged.
    pub set_aside: Vec<String>,
    /// Why it does not say how it does, if it does not.
    pub unreachable: Option<String>,
}

/// Takes the lock of the data directory, which this version has to be able to read.
fn lock(config: &Config) -> Result<FileDisk, String> {
    let lock = FileDisk::open(&config.directory).map_err(|error| error.to_string())?;
    if config.directory.join("log").is_dir() {
        return Err("it was written by a version with one replica, which this one does not read: \
            export what you need with that version, or choose another directory"
            .to_owned());
    }
    Ok(lock)
}

/// A handle on a running store. The store ends when the last handle is gone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    /// The node that this handle reads from, whoever leads.
    pinned: Option<usize>,
}

/// A handle that does not keep the store running.
pub(crate) struct WeakStore {
    shared: Weak<Shared>,
}

impl WeakStore {
    /// The store, if somebody still keeps it running.
    pub(crate) fn upgrade(&self) -> Option<Store> {
        Some(Store { shared: self.shared.upgrade()?, pinned: None })
    }
}

struct Shared {
    /// Never empty, in the order of their slots.
    nodes: Vec<Node>,
    clock: Arc<Clock>,
    traffic: Traffic,
    token_key: TokenKey,
    /// Nodes in other processes, if there are any.
    membership: Option<Membership>,
    region: String,
    account: String,
    /// Held for its lock on the data directory.
    lock: FileDisk,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        let lock = self.lock.clone();
        // Without a runtime, its end has ended the nodes' tasks already.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for node in &nodes {
                    node.shutdown().await;
                }
                drop((nodes, lock));
            });
        }
    }
}

/// Called once when a disk failed: the process has to end, because what was not acknowledged may or
/// may not be on disk.
pub type OnFatal = Box<dyn Fn(&str) + Send + Sync>;

impl Store {
    /// Opens the store in a directory: starts its nodes and its ticks on the current tokio runtime,
    /// and waits until one of them leads.
    ///
    /// # Errors
    /// When the directory is in use, cannot be read or written, or a majority of it is damaged.
    pub async fn open(config: Config, on_fatal: OnFatal) -> Result<Self, OpenError> {
        let store = Self::open_without_ticks(config, on_fatal).await?;
        tokio::spawn(ticks::run(WeakStore { shared: Arc::downgrade(&store.shared) }));
        Ok(store)
    }

    /// Opens one node of a store whose other nodes run in processes of their own, and waits until
    /// the node knows who it is. [`Config::replicas`] does not count.
    ///
    /// # Errors
    /// As [`Store::open`], and when a peer is of another cluster, or set up otherwise.
    pub async fn open_member(
        config: Config,
        member: Member,
        on_fatal: OnFatal,
    ) -> Result<Self, OpenError> {
        let directory = config.directory.clone();
        let store = Self::open_member_inner(config, member, on_fatal)
            .await
            .map_err(|reason| OpenError { directory, reason })?;
        tokio::spawn(ticks::run(WeakStore { shared: Arc::downgrade(&store.shared) }));
        Ok(store)
    }

    async fn open_member_inner(
        config: Config,
        member: Member,
        on_fatal: OnFatal,
    ) -> Result<Self, String> {
        let lock = lock(&config)?;
        let clock = Arc::new(Clock::starting_at(EpochMillis(0)));
        let (node, token_key, membership) = member::start(member::Start {
            data: &config.directory,
            member,
            settings: format!("Region {} and account {}", config.region, config.account),
            clock: &clock,
            on_fatal: &Arc::from(on_fatal),
        })
        .await?;
        let shared = Shared {
            nodes: vec![node],
            clock,
            traffic: Traffic::default(),
            token_key,
            membership: Some(membership),
            region: config.region,
            account: config.account,
            lock,
        };
        Ok(Self { shared: Arc::new(shared), pinned: None })
    }

    /// As [`Store::open`], for tests that do themselves what the store would do of its own accord.
    pub(crate) async fn open_without_ticks(
        config: Config,
        on_fatal: OnFatal,
    ) -> Result<Self, OpenError> {
        let directory = config.directory.clone();
        Self::open_inner(config, on_fatal).await.map_err(|reason| OpenError { directory, reason })
    }

    async fn open_inner(config: Config, on_fatal: OnFatal) -> Result<Self, String> {
        let lock = lock(&config)?;
        let clock = Arc::new(Clock::starting_at(EpochMillis(0)));
        let on_fatal: crate::node::OnFatal = Arc::from(on_fatal);
        let replicas = config.replicas;
        let nodes = cluster::start(&config.directory, replicas, &clock, &on_fatal).await?;
        let shared = Shared {
            nodes,
            clock,
            traffic: Traffic::default(),
            token_key: TokenKey::open(&config.directory)?,
            membership: None,
            region: config.region,
            account: config.account,
            lock,
        };
        let store = Self { shared: Arc::new(shared), pinned: None };
        store.node().read_index().await.map_err(|error| error.to_string())?;
        Ok(store)
    }

    /// The place of the node that leads, as far as the nodes of this process know; of any of them
    /// otherwise.
    fn place(&self) -> usize {
        let leads = |node: &Node| node.leader() == Some(node.id());
        self.pinned.or_else(|| self.shared.nodes.iter().position(leads)).unwrap_or(0)
    }

    fn node(&self) -> &Node {
        #[expect(
            clippy::expect_used,
            reason = "nodes are never taken away while a handle is there"
        )]
        self.shared.nodes.get(self.place()).expect("a store has at least one node")
    }

    /// Whether a node of this process leads: it does what the store does of its own accord.
    pub(crate) fn leads(&self) -> bool {
        let node = self.node();
        node.leader() == Some(node.id())
    }

    /// How the replicas of this process do, in the order of their nodes.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        self.shared.nodes.iter().map(Node::status).collect()
    }

    /// How every node of the store does, in this process or another, in the order of their slots.
    pub async fn nodes(&self) -> Vec<NodeReport> {
        let directory = self.shared.lock.path();
        let own = self.shared.nodes.iter().map(|node| {
            let slot = slot_of(node.id());
            NodeReport {
                slot,
                replicas: vec![node.status()],
                set_aside: directory::list_set_aside(directory, slot),
                unreachable: None,
            }
        });
        let mut reports: Vec<NodeReport> = own.collect();
        if let Some(membership) = &self.shared.membership {
            for (slot, answer) in membership.statuses().await {
                reports.push(match answer {
                    Ok((replicas, set_aside)) => {
                        NodeReport { slot, replicas, set_aside, unreachable: None }
                    }
                    Err(reason) => NodeReport {
                        slot,
                        replicas: Vec::new(),
                        set_aside: Vec::new(),
                        unreachable: Some(reason),
                    },
                });
            }
            reports.sort_by_key(|report| report.slot);
        }
        reports
    }

    /// Tells the other processes of the store what this one's clock shows, after it was changed.
    /// Gives the slots of those that did not hear it.
    pub async fn spread_clock(&self) -> Vec<u64> {
        let clock = self.clock();
        let state = ClockState { is_frozen: clock.is_frozen(), now: clock.now() };
        match &self.shared.membership {
            Some(membership) => membership.set_clocks(state).await,
            None => Vec::new(),
        }
    }

    /// Sees to it that this process is not behind what its nodes have applied: another process may
    /// lead, and its clock may have been advanced.
    pub(crate) fn follow_time(&self) {
        for node in &self.shared.nodes {
            self.shared.clock.reach(node.reached());
        }
    }

    /// Store time.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.shared.clock.now()
    }

    /// The store's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The key of the texts that this store gives out and takes back.
    #[must_use]
    pub fn token_key(&self) -> &TokenKey {
        &self.shared.token_key
    }

    /// The Region in ARNs.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.shared.region
    }

    /// The account in ARNs.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.shared.account
    }

    /// What requests ask of each partition.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// The tables as of the last entry that was applied.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.node().catalogue()
    }

    /// A consistent view, which may lack what was acknowledged last if the leader has just changed:
    /// eventually consistent.
    #[must_use]
    pub fn view(&self) -> Box<dyn View + Send + Sync> {
        self.node().view()
    }

    /// A handle whose views show everything that was acknowledged before the call: what is read
    /// through it is linearizable.
    ///
    /// # Errors
    /// When no majority of the nodes answers in time.
    pub async fn up_to_date(&self) -> Result<Self, Unavailable> {
        let place = self.place();
        if let Some(node) = self.shared.nodes.get(place) {
            node.read_index().await?;
        }
        Ok(Self { shared: Arc::clone(&self.shared), pinned: Some(place) })
    }

    /// Carries out commands, in order, in one log entry. Returns when they are committed and
    /// applied, with one reply for each.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Unavailable> {
        Ok(self.node().submit(commands).await?)
    }

    /// Deletes every item that has expired by now and gives how many delete commands that took.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub async fn sweep_time_to_live(&self) -> Result<u64, Unavailable> {
        ticks::sweep(self, usize::MAX).await
    }
}
