//! A running store: its nodes, and the way of commands and reads to those that lead.
//!
//! Each arc of the ring is a group of replicas, one on each node. Commands are committed by a majority
//! of the replicas of their arc and applied before they are answered, so a later read on its leader
//! sees them. One process holds all nodes, each with a directory of its own, or one of them, whose
//! peers are other processes. Which arc a command is for is in `routes`, transactions over several in
//! `transactions`, reading from all in `ring_view`. HTTP and its formats are elsewhere, and so is
//! what a node does.

mod arrivals;
mod assembly;
mod cluster;
mod directory;
pub(crate) mod long_reads;
mod member;
mod node_set;
pub(crate) mod outbox_relay;
mod owner;
mod rebuild;
#[cfg(test)]
mod ring_tests;
mod ring_view;
pub(crate) mod routes;
mod scrub;
#[cfg(test)]
mod tests;
pub mod ticks;
pub(crate) mod transaction_recovery;
pub(crate) mod transactions;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use model::{EpochMillis, Item, PrimaryKey};
use partition::{
    ARCS_MAX, CancellationReason, Catalogue, Command, ReadError, Reply, Table, TableName, View,
    read_item,
};
use thiserror::Error;

pub use self::arrivals::Arrivals;
pub use self::assembly::Assembly;
use self::assembly::Ids;
use self::directory::Host;
use self::long_reads::{LongReads, SHORT_READ_KEYS};
pub use self::member::Member;
use self::member::Membership;
use self::node_set::{NodeSet, Pinned, node_set};
use self::owner::Owner;
pub use self::ticks::Swept;
use crate::peer::ClockState;
use crate::token_key::TokenKey;
use crate::traffic::Traffic;
use node::clock::Clock;
use node::ring::ArcId;
use node::status::Status;
use node::{Node, SubmitError, slot_of};
use storage::disk::FileDisk;

use self::ring_view::MergedCatalogue;
pub use self::ring_view::RingView;

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
    /// Arcs of the ring of a new data directory, each with a log of its own: 1 to
    /// [`partition::ARCS_MAX`]. A directory that is there keeps the number that it began with.
    pub arcs: u32,
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
    /// The replicas that this handle reads from, whoever leads.
    pinned: Option<Pinned>,
    /// Whose tables this handle means; `None` for the store's own.
    owner: Option<Arc<Owner>>,
}

/// A handle that does not keep the store running.
pub(crate) struct WeakStore {
    shared: Weak<Shared>,
}

impl WeakStore {
    /// The store, if somebody still keeps it running.
    pub(crate) fn upgrade(&self) -> Option<Store> {
        Some(Store { shared: self.shared.upgrade()?, pinned: None, owner: None })
    }
}

struct Shared {
    nodes: NodeSet,
    arcs: u32,
    catalogue: MergedCatalogue,
    clock: Arc<Clock>,
    traffic: Traffic,
    long_reads: LongReads,
    token_key: TokenKey,
    ids: Ids,
    /// Held by every transaction over several arcs that this process coordinates.
    coordinated: Arc<()>,
    /// Nodes in other processes, if there are any.
    membership: Option<Membership>,
    region: String,
    account: String,
    /// Held for its lock on the data directory, if it has one.
    lock: Option<FileDisk>,
}

/// The arcs of a ring, of which each node has all.
fn arcs_of(nodes: &[Vec<Node>]) -> u32 {
    let arcs = nodes.first().map_or(0, Vec::len);
    u32::try_from(arcs).unwrap_or(ARCS_MAX)
}

impl Drop for Shared {
    fn drop(&mut self) {
        let nodes = self.nodes.send_replace(Arc::default());
        let lock = self.lock.clone();
        // Without a runtime, its end has ended the nodes' tasks already.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for node in nodes.iter().flatten() {
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
        tokio::spawn(ticks::run(store.downgrade()));
        Ok(store)
    }

    /// Opens one node of a store whose other nodes run in processes of their own, and waits until
    /// the node knows who it is. [`Config::replicas`] does not count. `on_damage` is called once, when
    /// the node's disk is damaged and the others can do without it: opened again, the store sets the
    /// node's directory aside and has it filled.
    ///
    /// # Errors
    /// As [`Store::open`], and when a peer is of another cluster, or set up otherwise.
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
        tokio::spawn(ticks::run(store.downgrade()));
        Ok(store)
    }

    async fn open_member_inner(
        config: Config,
        member: Member,
        on_fatal: OnFatal,
        on_damage: OnFatal,
    ) -> Result<Self, String> {
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
        let nodes = vec![replicas];
        let shared = Shared {
            arcs: arcs_of(&nodes),
            nodes: node_set(nodes),
            catalogue: MergedCatalogue::default(),
            clock,
            traffic: Traffic::default(),
            long_reads: LongReads::default(),
            token_key,
            ids: Ids::Random,
            coordinated: Arc::default(),
            membership: Some(membership),
            region: config.region,
            account: config.account,
            lock: Some(lock),
        };
        let store = Self { shared: Arc::new(shared), pinned: None, owner: None };
        for replicas in store.current_nodes().iter() {
            store.start_work_of(replicas, &config.directory);
        }
        Ok(store)
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
        let Config { replicas, arcs, .. } = config;
        if !(1..=ARCS_MAX).contains(&arcs) {
            return Err(format!("a ring has 1 to {ARCS_MAX} arcs, not {arcs}"));
        }
        let host = Host::new(Arc::from(on_fatal), replicas, replicas > 1);
        let (nodes, rebuild) =
            cluster::start(&config.directory, replicas, arcs, &clock, host).await?;
        let shared = Shared {
            arcs: arcs_of(&nodes),
            nodes: node_set(nodes),
            catalogue: MergedCatalogue::default(),
            clock,
            traffic: Traffic::default(),
            long_reads: LongReads::default(),
            token_key: TokenKey::open(&config.directory)?,
            ids: Ids::Random,
            coordinated: Arc::default(),
            membership: None,
            region: config.region,
            account: config.account,
            lock: Some(lock),
        };
        let store = Self { shared: Arc::new(shared), pinned: None, owner: None };
        for arc in store.arcs() {
            store.replica(arc).read_index().await.map_err(|error| error.to_string())?;
        }
        // The nodes began with the states on their disks, which are behind the log.
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

    /// The arcs of the ring, in their order.
    pub fn arcs(&self) -> impl Iterator<Item = ArcId> + use<> {
        (0..self.shared.arcs).map(ArcId)
    }

    /// How many arcs there are.
    #[must_use]
    pub fn arc_count(&self) -> u32 {
        self.shared.arcs
    }

    /// Whether a node of this process leads each arc.
    pub(crate) fn leads(&self) -> bool {
        self.arcs().all(|arc| self.replica(arc).leads())
    }

    /// A handle that means the tables of an account and a Region, and no others.
    #[must_use]
    pub fn of_owner(&self, account: &str, region: &str) -> Self {
        let is_own = account == self.shared.account && region == self.shared.region;
        let owner = (!is_own).then(|| Arc::new(Owner::new(account, region)));
        Self { owner, ..self.clone() }
    }

    /// The table that the owner of this handle calls so.
    #[must_use]
    pub fn find_table(&self, name: &str) -> Option<Arc<Table>> {
        match self.owner {
            // The usual case makes no name.
            None if !name.contains('/') => self.catalogue().find(name).cloned(),
            _ => self.catalogue().find(self.table_name(name)?.whole()).cloned(),
        }
    }

    /// The whole name of the owner's table; `None` when no table can be called so.
    pub(crate) fn table_name(&self, name: &str) -> Option<TableName> {
        owner::table_name(self.owner.as_deref(), name)
    }

    /// Whether a table belongs to the owner of this handle.
    pub(crate) fn owns(&self, table: &Table) -> bool {
        owner::owns(self.owner.as_deref(), table)
    }

    /// A transaction's token, told apart from other owners'.
    pub(crate) fn request_token(&self, token: &str) -> String {
        owner::request_token(self.owner.as_deref(), token)
    }

    /// How the replicas of this process do, in the order of their nodes.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        self.current_nodes().iter().flatten().map(Node::status).collect()
    }

    /// How every node of the store does, in this process or another, in the order of their slots.
    pub async fn nodes(&self) -> Vec<NodeReport> {
        let current_nodes = self.current_nodes();
        let own = current_nodes.iter().filter_map(|replicas| {
            let slot = slot_of(replicas.first()?.id());
            Some(NodeReport {
                slot,
                replicas: replicas.iter().map(Node::status).collect(),
                set_aside: self.set_aside(slot),
                unreachable: None,
            })
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

    fn set_aside(&self, slot: u64) -> Vec<String> {
        let lock = self.shared.lock.as_ref();
        lock.map(|lock| directory::list_set_aside(lock.path(), slot)).unwrap_or_default()
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

    /// Whether other processes have nodes of the store, and clocks of their own.
    pub(crate) fn has_other_processes(&self) -> bool {
        self.shared.membership.is_some()
    }

    /// Has the log say what the clock shows, so that a restart begins no earlier. Which arc's log
    /// says it does not matter, as a process has one clock.
    ///
    /// # Errors
    /// When it is not known to be on disk.
    pub async fn keep_time(&self) -> Result<(), Unavailable> {
        // An entry carries its time, whatever it does: this does what the next tick does anyway.
        self.replica(ArcId::FIRST).submit(vec![Command::ForgetTokens]).await?;
        Ok(())
    }

    /// Sees to it that this process is not behind what its nodes have applied: another process may
    /// lead, and its clock may have been advanced.
    pub(crate) fn follow_time(&self) {
        for node in self.current_nodes().iter().flatten() {
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
        self.owner.as_ref().map_or(&self.shared.region, |owner| &owner.region)
    }

    /// The account in ARNs.
    #[must_use]
    pub fn account(&self) -> &str {
        self.owner.as_ref().map_or(&self.shared.account, |owner| &owner.account)
    }

    /// What requests ask of each partition.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// The places for long reads.
    pub(crate) fn long_reads(&self) -> &LongReads {
        &self.shared.long_reads
    }

    /// The tables as of the last entries that were applied.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        let mut parts: Vec<Arc<Catalogue>> =
            self.arcs().map(|arc| self.replica(arc).catalogue()).collect();
        match parts.pop() {
            Some(only) if parts.is_empty() => only,
            last => {
                parts.extend(last);
                self.shared.catalogue.of(parts)
            }
        }
    }

    /// A view that is consistent within each arc, and may lack what was acknowledged last if a leader
    /// has just changed: eventually consistent.
    #[must_use]
    pub fn view(&self) -> Box<dyn View + Send + Sync> {
        if self.arc_count() == 1 {
            return self.replica(ArcId::FIRST).view();
        }
        let replicas = self.arcs().map(|arc| self.replica(arc));
        Box::new(RingView::new(self.catalogue(), replicas))
    }

    /// A handle whose views show everything that was acknowledged before the call: what is read
    /// through it is linearizable.
    ///
    /// # Errors
    /// When no majority of the nodes answers in time.
    pub async fn up_to_date(&self) -> Result<Self, Unavailable> {
        self.up_to_date_in(self.arcs()).await
    }

    /// As [`Store::up_to_date`], for what is in some of the arcs.
    pub(crate) async fn up_to_date_in(
        &self,
        arcs: impl Iterator<Item = ArcId>,
    ) -> Result<Self, Unavailable> {
        let pinned = self.pin();
        let asked = arcs.map(|arc| pinned.replica(arc)).filter(|replica| !replica.shows_all());
        let reads = asked.map(|replica| async move { replica.read_index().await });
        futures::future::try_join_all(reads).await?;
        Ok(pinned)
    }

    /// Reads items as they were at one moment in the order of all transactions. A reason for each
    /// item when transactions that are under way do not let it.
    ///
    /// # Errors
    /// When no majority of the nodes answers in time, or the storage cannot be read.
    pub async fn read_together(
        &self,
        wanted: &[(&Arc<Table>, &PrimaryKey)],
    ) -> Result<Result<Vec<Option<Item>>, Vec<CancellationReason>>, Unavailable> {
        if self.arc_count() > 1 {
            return Box::pin(transactions::read(self, wanted)).await;
        }
        let view = self.up_to_date().await?.view();
        let read = |(table, key): &(&Arc<Table>, &PrimaryKey)| read_item(&*view, table, key);
        let read_all = || wanted.iter().map(read).collect();
        let items: Result<_, ReadError> = match wanted.len() {
            ..=SHORT_READ_KEYS => read_all(),
            _ => self.long_reads().run(read_all).await,
        };
        items.map(Ok).map_err(|error| Unavailable::NotDone(error.to_string()))
    }

    /// Carries out commands. Those for one arc are in one log entry, in order. Returns when they are
    /// committed and applied, with one reply for each.
    ///
    /// # Errors
    /// See [`Unavailable`]; when one of several arcs fails, what others did stays done.
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Unavailable> {
        if self.arc_count() == 1 {
            return Ok(self.replica(ArcId::FIRST).submit(commands).await?);
        }
        // On the heap, so that a ring of one arc does not pay for what it never does.
        Box::pin(routes::submit(self, commands)).await
    }

    /// Returns when the global indexes show every write that was answered before the call. Reads of
    /// them do not wait for that: as in DynamoDB, they are eventually consistent.
    ///
    /// # Errors
    /// When an arc cannot be read.
    pub async fn indexes_settled(&self) -> Result<(), Unavailable> {
        for arc in self.arcs() {
            outbox_relay::settled(&self.replica(arc), self.arc_count()).await?;
        }
        Ok(())
    }

    /// Deletes every item that has expired by now, or as many as one sweep takes on.
    ///
    /// # Errors
    /// See [`Unavailable`].
    pub async fn sweep_time_to_live(&self) -> Result<Swept, Unavailable> {
        ticks::sweep(self, ticks::ENTRIES_PER_SWEEP).await
    }
}
