//! A running store: its nodes, and the routing of commands and reads to the leaders.
//!
//! Each arc of the ring is a group of replicas, one on each node. A command is committed by a majority of its
//! arc's replicas and applied before the reply. A later read on the arc's leader therefore sees its effect. A
//! process runs either all nodes, each with its own directory, or one node, whose peers are other processes.
//! `routes` finds the arc of a command, `transactions` coordinates transactions over several arcs, and
//! `ring_view` reads from all arcs.

mod arrivals;
mod assembly;
mod cluster;
mod directory;
mod group;
pub(crate) mod handover;
pub(crate) mod long_reads;
mod member;
mod movement;
mod node_set;
pub(crate) mod outbox_relay;
mod own_replicas;
mod owner;
mod rebuild;
mod report;
#[cfg(test)]
mod ring_tests;
mod ring_view;
pub(crate) mod routes;
mod scrub;
mod states;
#[cfg(test)]
mod tests;
pub mod ticks;
pub(crate) mod transaction_recovery;
pub(crate) mod transactions;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures::future::LocalBoxFuture;
use model::{EpochMillis, Item, PrimaryKey};
use partition::{
    ARCS_MAX, CancellationReason, Catalogue, Command, ReadError, Reply, Ring, Table, TableName,
    View, read_item,
};
use thiserror::Error;

pub use self::arrivals::Arrivals;
pub use self::assembly::Assembly;
use self::assembly::Ids;
use self::directory::Host;
pub use self::directory::Problem;
use self::group::Group;
use self::handover::Handover;
use self::long_reads::{LongReads, SHORT_READ_KEYS};
pub use self::member::Member;
use self::member::Membership;
use self::node_set::{NodeSet, Pinned, node_set};
use self::owner::Owner;
pub use self::report::NodeReport;
pub use self::ticks::SweepResult;
use crate::fatal::{Fatal, fatal};
use crate::peer::ClockState;
use crate::token_key::TokenKey;
use crate::traffic::Traffic;
use node::clock::Clock;
use node::remote::RemoteGroup;
use node::ring::ArcId;
use node::{Replicas, SubmitError};
use storage::disk::FileDisk;

use self::ring_view::MergedCatalogue;
pub use self::ring_view::RingView;

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory, which is created if missing, and locked.
    pub directory: PathBuf,
    /// The Region in ARNs and in the health check.
    pub region: String,
    /// The account in ARNs, twelve digits.
    pub account: String,
    /// The number of nodes, each with a replica of all data: three, or one without replication.
    pub replicas: u64,
    /// The number of arcs in the ring of a new data directory, each with its own log: 1 to
    /// [`partition::ARCS_MAX`]. The number of an existing directory does not change.
    pub arcs: u32,
}

/// The reason why a store cannot be opened.
#[derive(Debug, Error)]
#[error("cannot open the store in `{}`: {reason}", directory.display())]
pub struct OpenError {
    /// The data directory.
    pub directory: PathBuf,
    /// The problem, and what to do about it.
    pub reason: Problem,
}

/// The reason why the store could not respond to a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// The request was not executed, so it can be retried.
    #[error("the store is unavailable: {0}")]
    NotDone(String),
    /// The request may have been executed.
    #[error("the store did not respond in time, and the request may have been executed: {0}")]
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

/// Takes the lock of the data directory, and checks that this version can read its format.
fn lock(config: &Config) -> Result<FileDisk, Problem> {
    let lock = FileDisk::open(&config.directory)?;
    if config.directory.join("log").is_dir() {
        return Err(Problem::Fatal(fatal!(
            "the data was written by a version with one replica, which this version cannot read: export the data with that version, or choose another directory"
        )));
    }
    Ok(lock)
}

/// A handle on a running store. The store ends when the last handle is dropped.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    /// The nodes that this handle always reads from, even after a leader change; `None` if it is not pinned.
    pinned: Option<Pinned>,
    /// The owner whose tables this handle uses; `None` for the store's own account and Region.
    owner: Option<Arc<Owner>>,
}

/// A handle that does not keep the store running.
pub(crate) struct WeakStore {
    shared: Weak<Shared>,
}

impl WeakStore {
    /// Returns a handle that keeps the store running; `None` if the store has ended.
    pub(crate) fn upgrade(&self) -> Option<Store> {
        Some(Store { shared: self.shared.upgrade()?, pinned: None, owner: None })
    }
}

struct Shared {
    nodes: NodeSet,
    /// The replicas of the only node of this process; `None` if the process has all nodes.
    own_replicas: Option<Arc<Replicas>>,
    arcs: u32,
    /// A client of each arc, in the order of the arcs; empty in a process that has all nodes.
    remote: Vec<Arc<RemoteGroup>>,
    catalogue: MergedCatalogue,
    clock: Arc<Clock>,
    traffic: Traffic,
    long_reads: LongReads,
    token_key: TokenKey,
    ids: Ids,
    /// A counter of the transactions over several arcs that this process coordinates: each transaction has
    /// a clone of this `Arc`.
    coordinated_transactions: Arc<()>,
    /// The nodes in other processes, if there are any.
    membership: Option<Membership>,
    region: String,
    account: String,
    handover: Handover,
    /// The lock on the data directory; `None` for a store without a directory.
    lock: Option<FileDisk>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let nodes = self.nodes.send_replace(Arc::default());
        let (own, lock) = (self.own_replicas.take(), self.lock.clone());
        // If the runtime has ended, the tasks of the nodes have also ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for node in nodes.iter().flatten() {
                    node.shutdown().await;
                }
                if let Some(own) = &own {
                    own.shutdown().await;
                }
                drop((nodes, own, lock));
            });
        }
    }
}

/// A function that ends the process. Called once after a disk failure, after which it is unknown whether
/// unacknowledged writes are on disk.
pub type OnFatal = Box<dyn Fn(&str) + Send + Sync>;

impl Store {
    /// Opens the store in a directory: starts its nodes and its periodic work on the current tokio runtime,
    /// and waits until a node leads.
    ///
    /// # Errors
    /// The directory is in use or cannot be read or written, or the data of a majority of nodes is damaged.
    pub fn open(config: Config, exit: OnFatal) -> LocalBoxFuture<'static, Result<Self, OpenError>> {
        // The future is boxed, so that this crate's optimisation applies to it.
        Box::pin(async {
            let store = Self::open_without_ticks(config, exit).await?;
            tokio::spawn(ticks::run(store.downgrade()));
            Ok(store)
        })
    }

    /// Opens one node of a store whose other nodes are separate processes, and waits until the node has an
    /// identity. [`Config::replicas`] is ignored.
    ///
    /// `on_damage` is called once, when the node's disk is damaged and the other nodes can continue without
    /// the node. When the store is opened again, it sets the node's directory aside, and the node is rebuilt.
    ///
    /// # Errors
    /// The errors of [`Store::open`], and an error if a peer is in another cluster or has other
    /// settings.
    pub async fn open_member(
        config: Config,
        member: Member,
        on_fatal: OnFatal,
        on_damage: OnFatal,
    ) -> Result<Self, OpenError> {
        let directory = config.directory.clone();
        let store = Self::open_member_inner(config, member, on_fatal, on_damage)
            .await
            .map_err(|reason| OpenError { directory, reason })?;
        tokio::spawn(store.ticks());
        Ok(store)
    }

    async fn open_member_inner(
        config: Config,
        member: Member,
        on_fatal: OnFatal,
        on_damage: OnFatal,
    ) -> Result<Self, Problem> {
        let lock = lock(&config)?;
        let clock = Arc::new(Clock::starting_at(EpochMillis(0)));
        let (replicas, token_key, membership) = member::start(member::Start {
            data: &config.directory,
            member,
            settings: format!("Region {} and account {}", config.region, config.account),
            arcs: config.arcs,
            clock: &clock,
            host: &Host::new(Arc::from(on_fatal), 1, true),
            restart: Arc::from(on_damage),
        })
        .await?;
        let shared = Shared {
            arcs: membership.arcs(),
            remote: membership.remote_groups(&clock),
            nodes: node_set(vec![own_replicas::usable(&replicas)]),
            own_replicas: Some(replicas),
            catalogue: MergedCatalogue::default(),
            clock,
            traffic: Traffic::default(),
            long_reads: LongReads::default(),
            token_key,
            ids: Ids::Random,
            coordinated_transactions: Arc::default(),
            membership: Some(membership),
            region: config.region,
            account: config.account,
            handover: Handover::default(),
            lock: Some(lock),
        };
        Ok(Self { shared: Arc::new(shared), pinned: None, owner: None })
    }

    /// Opens the store without its periodic work, for tests. For example, expired items are not deleted.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub async fn open_without_ticks(config: Config, on_fatal: OnFatal) -> Result<Self, OpenError> {
        let directory = config.directory.clone();
        Self::open_inner(config, on_fatal).await.map_err(|reason| OpenError { directory, reason })
    }

    async fn open_inner(config: Config, on_fatal: OnFatal) -> Result<Self, Problem> {
        let (lock, token_key) = (lock(&config)?, TokenKey::open(&config.directory)?);
        let handover = Handover::open(&config.directory)?;
        let clock = Arc::new(Clock::starting_at(EpochMillis(0)));
        let Config { replicas, arcs, .. } = config;
        if !(1..=ARCS_MAX).contains(&arcs) {
            return Err(fatal!("a ring has 1 to {ARCS_MAX} arcs, not {arcs}").into());
        }
        let host = Host::new(Arc::from(on_fatal), replicas, replicas > 1);
        let (nodes, rebuild) =
            cluster::start(&config.directory, replicas, arcs, &clock, host).await?;
        let shared = Shared {
            arcs: nodes
                .first()
                .map_or(0, |replicas| u32::try_from(replicas.len()).unwrap_or(ARCS_MAX)),
            remote: Vec::new(),
            nodes: node_set(nodes),
            own_replicas: None,
            catalogue: MergedCatalogue::default(),
            clock,
            traffic: Traffic::default(),
            long_reads: LongReads::default(),
            token_key,
            ids: Ids::Random,
            coordinated_transactions: Arc::default(),
            membership: None,
            region: config.region,
            account: config.account,
            handover,
            lock: Some(lock),
        };
        let store = Self { shared: Arc::new(shared), pinned: None, owner: None };
        for arc in store.arcs() {
            store.wait_for_leader(arc).await.map_err(Fatal::new)?;
        }
        // The nodes have applied their logs, which may contain a later time than the clock has.
        store.follow_time();
        for replicas in store.current_nodes().iter() {
            store.start_work_of(replicas, &config.directory);
        }
        if replicas > 1 {
            tokio::spawn(rebuild::run(store.downgrade(), rebuild));
        }
        Ok(store)
    }

    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore { shared: Arc::downgrade(&self.shared) }
    }

    /// Returns the arcs of the ring, in their order.
    pub fn arcs(&self) -> impl Iterator<Item = ArcId> + use<> {
        (0..self.shared.arcs).map(ArcId)
    }

    /// Returns the number of arcs.
    #[must_use]
    pub fn arc_count(&self) -> u32 {
        self.shared.arcs
    }

    /// Returns whether every arc is led by a node of this process.
    pub(crate) fn leads(&self) -> bool {
        self.arcs().all(|arc| self.replica(arc).is_some_and(|replica| replica.leads()))
    }

    /// Returns a handle that uses only the tables of the given account and Region.
    #[must_use]
    pub fn of_owner(&self, account: &str, region: &str) -> Self {
        let is_own = account == self.shared.account && region == self.shared.region;
        let owner = (!is_own).then(|| Arc::new(Owner::new(account, region)));
        Self { owner, ..self.clone() }
    }

    /// Finds the owner's table with the given name.
    #[must_use]
    pub fn find_table(&self, name: &str) -> Option<Arc<Table>> {
        match self.owner {
            // In the usual case, a store without owners, the name needs no allocation.
            None if !name.contains('/') => self.catalogue().find(name).cloned(),
            _ => self.catalogue().find(self.table_name(name)?.whole()).cloned(),
        }
    }

    /// Returns the catalogue's name of the owner's table; `None` for an invalid name.
    pub(crate) fn table_name(&self, name: &str) -> Option<TableName> {
        owner::table_name(self.owner.as_deref(), name)
    }

    /// Returns whether a table belongs to the owner of this handle.
    pub(crate) fn owns(&self, table: &Table) -> bool {
        owner::owns(self.owner.as_deref(), table)
    }

    /// Returns a transaction's token with the owner as prefix, so that owners may use equal tokens.
    pub(crate) fn request_token(&self, token: &str) -> String {
        owner::request_token(self.owner.as_deref(), token)
    }

    /// Sends the state of this process's clock to the store's other processes. Called after a change of the
    /// clock. Returns the slots that did not answer.
    pub async fn spread_clock(&self) -> Vec<u64> {
        let clock = self.clock();
        let state = ClockState { is_frozen: clock.is_frozen(), now: clock.now() };
        match &self.shared.membership {
            Some(membership) => membership.set_clocks(state).await,
            None => Vec::new(),
        }
    }

    /// Connects to the nodes of the ring, if they are other processes.
    fn follow_ring(&self, ring: &Ring) {
        if let Some(membership) = &self.shared.membership {
            membership.follow(ring);
        }
    }

    /// Returns whether other processes, with clocks of their own, run nodes of the store.
    pub(crate) fn has_other_processes(&self) -> bool {
        self.shared.membership.is_some()
    }

    /// Writes the time of the clock to the log, so that the clock does not start at an earlier time after a
    /// restart. The log of one arc is sufficient, because a process has one clock.
    ///
    /// # Errors
    /// The write failed, and it is unknown whether the time is on disk.
    pub async fn keep_time(&self) -> Result<(), Unavailable> {
        // Every log entry contains the time. This command is one of the periodic work, so it is harmless.
        self.group(ArcId::FIRST).submit(vec![Command::ForgetTokens]).await?;
        Ok(())
    }

    /// Advances the clock of this process to the time that its nodes have applied. The leader may be in
    /// another process, and its clock may have been advanced.
    pub(crate) fn follow_time(&self) {
        for node in self.current_nodes().iter().flatten() {
            self.shared.clock.reach(node.reached());
        }
    }

    /// Returns the store time.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.shared.clock.now()
    }

    /// Returns the clock of the store.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Returns the key that authenticates the store's tokens.
    #[must_use]
    pub fn token_key(&self) -> &TokenKey {
        &self.shared.token_key
    }

    /// Returns the Region in ARNs.
    #[must_use]
    pub fn region(&self) -> &str {
        self.owner.as_ref().map_or(&self.shared.region, |owner| &owner.region)
    }

    /// Returns the account in ARNs.
    #[must_use]
    pub fn account(&self) -> &str {
        self.owner.as_ref().map_or(&self.shared.account, |owner| &owner.account)
    }

    /// Returns the traffic of each partition.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// Returns the limit of concurrent long reads.
    pub(crate) fn long_reads(&self) -> &LongReads {
        &self.shared.long_reads
    }

    /// Returns all tables of the state that this process has applied.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        let mut parts: Vec<Arc<Catalogue>> =
            self.arcs().map(|arc| self.group(arc).catalogue()).collect();
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => {
                parts.extend(last);
                self.shared.catalogue.of(parts)
            }
        }
    }

    /// Returns a view for eventually consistent reads. Each arc in the view is a snapshot. After a leader
    /// change, the view may lack the latest acknowledged writes.
    #[must_use]
    pub fn view(&self) -> Box<dyn View + Send + Sync> {
        if self.arc_count() == 1 {
            return self.arc_view(ArcId::FIRST);
        }
        Box::new(RingView::new(self))
    }

    /// Returns a handle whose views contain every write that was acknowledged before the call. Reads with
    /// this handle are linearizable.
    ///
    /// # Errors
    /// No majority of the nodes answers in time.
    pub async fn up_to_date(&self) -> Result<Self, Unavailable> {
        self.up_to_date_in(self.arcs()).await
    }

    /// Like [`Store::up_to_date`], but only for reads of `arcs`.
    pub(crate) async fn up_to_date_in(
        &self,
        arcs: impl Iterator<Item = ArcId>,
    ) -> Result<Self, Unavailable> {
        let pinned = self.pin();
        let groups = arcs.map(|arc| pinned.group(arc));
        let is_behind = |group: &Group| !matches!(group, Group::Here(node) if node.shows_all());
        let reads = groups.filter(is_behind).map(|group| async move { group.read_index().await });
        futures::future::try_join_all(reads).await?;
        Ok(pinned)
    }

    /// Reads items atomically with respect to transactions. If running transactions prevent the read, returns
    /// the reason for each item.
    ///
    /// # Errors
    /// No majority of the nodes answers in time, or the storage cannot be read.
    pub async fn read_together(
        &self,
        wanted: &[(&Arc<Table>, &PrimaryKey)],
    ) -> Result<Result<Vec<Option<Item>>, Vec<CancellationReason>>, Unavailable> {
        if self.arc_count() > 1 {
            return Box::pin(transactions::read(self, wanted)).await;
        }
        let store = self.up_to_date().await?;
        loop {
            let view = store.view();
            let read = |(table, key): &(&Arc<Table>, &PrimaryKey)| read_item(&*view, table, key);
            let read_all = || wanted.iter().map(read).collect();
            let items: Result<_, ReadError> = match wanted.len() {
                ..=SHORT_READ_KEYS => read_all(),
                _ => self.long_reads().run(read_all).await,
            };
            if !store.fetch_missing().await? {
                return items.map(Ok).map_err(|error| Unavailable::NotDone(error.to_string()));
            }
        }
    }

    /// Executes commands, and returns one reply for each command after all are committed and applied. The
    /// commands for one arc are in one log entry, in order.
    ///
    /// # Errors
    /// See [`Unavailable`]. If one of several arcs fails, the other arcs may have executed their commands.
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Unavailable> {
        if self.arc_count() == 1 {
            return Ok(self.group(ArcId::FIRST).submit(commands).await?);
        }
        // The future is boxed, so that this function's future is small for a store with one arc.
        Box::pin(routes::submit(self, commands)).await
    }

    /// Waits until the global indexes contain every write that was acknowledged before the call. Without this
    /// call, reads of global indexes are eventually consistent, as in DynamoDB.
    ///
    /// # Errors
    /// An arc cannot be read.
    pub async fn indexes_settled(&self) -> Result<(), Unavailable> {
        for arc in self.arcs() {
            outbox_relay::wait_until_delivered(self, arc).await?;
        }
        Ok(())
    }

    /// Deletes expired items, at most as many as one sweep allows.
    pub async fn sweep_time_to_live(&self) -> Result<SweepResult, Unavailable> {
        ticks::sweep(self, ticks::ENTRIES_PER_SWEEP).await
    }
}
