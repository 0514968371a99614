//! A node in a cluster: the server's own node code with simulated disks, messages and time.
//!
//! A simulated crash must be as sudden as a real one. Some tasks of a dead process end slightly
//! later, but they must no longer reach its disk, its state or its peers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use locks::Mutex;
use model::{EpochMillis, Item};
use node::clock::Clock;
use node::remote::{RemoteGroup, RemoteParts};
use node::ring::ArcId;
use node::status::{Role, Status};
use node::transport::{CallError, Envelope, Request, Response, Transport};
use node::worker::{Job, Worker};
use node::{
    Ballot, FailureHandler, MemoryLocation, Node, NodeLog, NodeParts, Replicas, Settings,
    StagedStorage, StateLocation, States, incarnation_of, slot_of,
};
use partition::{Batch, Command, ReadError, Reply, Ring, Value, View, Visit};
use server::store::{Assembly, Store};
use storage::disk::Damage;
use storage::log::Log;
use storage::{Error, Storage};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::Cluster;
use crate::error::{HarnessError, NodeError};
use crate::request::{Failure, TABLE};
use crate::world::machinery::{Machinery, OnFatal};
use crate::world::network::Network;
use crate::world::replica::{Replica, Snapshot};
use crate::world::state::{Alive, CountedLocation, State};
use crate::world::translation;

/// The number of entries after which a state is persisted and the log is truncated. The number is small, so
/// that every run sends snapshots and truncates logs.
const SNAPSHOT_ENTRIES: u64 = 150;
/// The number of older entries that are kept. The number is small, so that a node that was down needs a
/// snapshot.
const ENTRIES_KEPT: u64 = 40;

/// The time-out of a snapshot part. The time-out is short, because a state is small, and because
/// lost messages are not retransmitted, unlike in TCP.
const SNAPSHOT_PART: Duration = Duration::from_secs(2);

/// The time without a new entry after which a node purges its log. It is short, because clients rarely pause.
const QUIET: Duration = Duration::from_millis(400);

/// The running nodes, which messages can reach.
#[derive(Clone, Default)]
pub struct Directory(Arc<Mutex<BTreeMap<u64, Weak<Replicas>>>>);

impl Directory {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Replicas>>> {
        self.0.lock()
    }

    /// Returns the replicas of a running node.
    fn get(&self, node: u64) -> Option<Arc<Replicas>> {
        self.nodes().get(&node)?.upgrade()
    }
}

/// A worker that runs jobs after the delays of a disk. When its process dies, pending jobs are lost.
struct SimulatedWorker {
    jobs: mpsc::UnboundedSender<(Duration, Job)>,
    task: AbortHandle,
}

impl SimulatedWorker {
    fn start(machinery: &Arc<Machinery>, alive: &Alive) -> Arc<Self> {
        let (jobs, mut waiting) = mpsc::unbounded_channel::<(Duration, Job)>();
        let (machinery, alive) = (Arc::clone(machinery), Arc::clone(alive));
        let task = tokio::spawn(async move {
            while let Some((more, job)) = waiting.recv().await {
                tokio::time::sleep(more + machinery.sync_time()).await;
                if alive.load(Ordering::SeqCst) {
                    job();
                }
            }
        });
        Arc::new(Self { jobs, task: task.abort_handle() })
    }
}

impl Worker for SimulatedWorker {
    fn run(&self, job: Job) {
        // After a crash, no task receives jobs, so sending may fail.
        let _ = self.jobs.send((Duration::ZERO, job));
    }

    fn run_later(&self, delay: Duration, job: Job) {
        let _ = self.jobs.send((delay, job));
    }
}

/// A state in memory that rejects changes by a dead process.
struct GuardedStorage {
    storage: Arc<dyn Storage>,
    alive: Alive,
    damage: Damage,
}

/// A view that reports damage, as the view of the production engine does.
struct GuardedView {
    view: Box<dyn View + Send + Sync>,
    damage: Damage,
}

impl GuardedView {
    fn report<T>(&self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        read.inspect_err(|error| self.damage.report(&error.to_string()))
    }
}

impl View for GuardedView {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        self.report(self.view.get(key))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        self.report(self.view.scan(from, to, reverse, visit))
    }
}

impl GuardedStorage {
    fn check(&self) -> Result<(), Error> {
        if self.alive.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::Io {
            path: "state".to_owned(),
            operation: "write to",
            reason: "the process is dead".to_owned(),
        })
    }
}

impl Storage for GuardedStorage {
    fn apply(&self, batch: &Batch) -> Result<(), Error> {
        self.check()?;
        self.storage.apply(batch)
    }

    fn persist(&self) -> Result<(), Error> {
        self.check()?;
        self.storage.persist()
    }

    fn view(&self) -> Box<dyn View + Send + Sync> {
        Box::new(GuardedView { view: self.storage.view(), damage: self.damage.clone() })
    }
}

/// The location of a state in memory. It rejects changes by a dead process.
struct GuardedLocation {
    location: MemoryLocation,
    alive: Alive,
    damage: Damage,
}

impl GuardedLocation {
    fn guard(&self, storage: Arc<dyn Storage>) -> Arc<dyn Storage> {
        let (alive, damage) = (Arc::clone(&self.alive), self.damage.clone());
        Arc::new(GuardedStorage { storage, alive, damage })
    }
}

impl StateLocation for GuardedLocation {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        Ok(self.guard(self.location.open()?))
    }

    fn begin(&self) -> Result<StagedStorage, Error> {
        let staged = self.location.begin()?;
        Ok(StagedStorage { storage: self.guard(staged.storage), ..staged })
    }

    fn adopt(&self, staged: &StagedStorage) -> Result<(), Error> {
        // Fails if the process is dead, so that a dead process adopts no snapshot.
        staged.storage.persist()?;
        self.location.adopt(staged)
    }
}

/// The locations of a node's states for one process. Each location is opened once.
struct SimulatedStates {
    machinery: Arc<Machinery>,
    alive: Alive,
    damage: Damage,
    opened: Mutex<BTreeMap<ArcId, Arc<dyn StateLocation>>>,
}

impl States for SimulatedStates {
    fn location(&self, arc: ArcId) -> Result<Arc<dyn StateLocation>, Error> {
        let mut opened = self.opened.lock();
        if let Some(location) = opened.get(&arc) {
            return Ok(Arc::clone(location));
        }
        let (alive, damage) = (Arc::clone(&self.alive), self.damage.clone());
        let location: Arc<dyn StateLocation> = match self.machinery.state(arc) {
            State::Engine(state) => Arc::new(state.location(&alive, damage)?),
            State::Memory(location) => Arc::new(GuardedLocation { location, alive, damage }),
        };
        let location: Arc<dyn StateLocation> =
            CountedLocation::new(location, &self.machinery.environment);
        opened.insert(arc, Arc::clone(&location));
        Ok(location)
    }
}

/// A transport over the simulated network.
#[derive(Clone)]
struct SimulatedTransport {
    /// The node that sends.
    own: usize,
    network: Arc<Network>,
    directory: Directory,
    cluster: Cluster,
    alive: Alive,
}

/// Returns the number of a node.
#[must_use]
pub fn place(node: u64) -> usize {
    usize::try_from(slot_of(node)).unwrap_or(usize::MAX)
}

/// Delivers a message to its node after a delay. If the node's process ends, its work on the
/// message is aborted.
async fn deliver(
    directory: Directory,
    cluster: Cluster,
    message: Envelope,
    delay: Duration,
) -> Option<Response> {
    tokio::time::sleep(delay).await;
    let node = directory.get(message.to)?;
    let to = place(message.to);
    let work = tokio::spawn(async move { node.handle(message).await });
    cluster.attach(to, work.abort_handle());
    work.await.ok()
}

impl Transport for SimulatedTransport {
    fn call(
        &self,
        message: Envelope,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Response, CallError>> {
        let lost = || CallError::Lost("no response in time".to_owned());
        let (from, to) = (place(message.from), place(message.to));
        if !self.alive.load(Ordering::SeqCst) {
            return Box::pin(async move {
                Err(CallError::Unreachable("the sender is dead".to_owned()))
            });
        }
        let mut arrivals = self.network.route(from, to).into_iter();
        let (network, alive) = (Arc::clone(&self.network), Arc::clone(&self.alive));
        let send = |message: Envelope, delay| {
            tokio::spawn(deliver(self.directory.clone(), self.cluster.clone(), message, delay))
        };
        let first = arrivals.next().map(|delay| send(message.clone(), delay));
        // The response to a duplicate is ignored. Only Raft messages can be duplicated. Forwarded
        // requests are not duplicated, because a real connection never duplicates data.
        let raft = !matches!(
            message.request,
            Request::Submit(_) | Request::ReadIndex | Request::Read(_) | Request::Status
        );
        let arrivals = arrivals.filter(|_| raft);
        arrivals.for_each(|delay| drop(send(message.clone(), delay)));
        let environment = Arc::clone(&self.cluster.environment);
        let own = self.directory.get(message.from);
        if own.is_some_and(|replicas| replicas.get(message.arc).is_none()) {
            match message.request {
                Request::Submit(_) => environment.coverage.hit("write to another node's arc"),
                Request::Read(_) => environment.coverage.hit("read of another node's arc"),
                _ => {}
            }
        }
        let answered = async move {
            let response = first?.await.ok()??;
            if !network.hop(to, from).await || !alive.load(Ordering::SeqCst) {
                return None;
            }
            environment.note(if from < to { "message up" } else { "message down" });
            Some(response)
        };
        Box::pin(async move {
            let begun = tokio::time::Instant::now();
            match tokio::time::timeout(timeout, answered).await {
                Ok(Some(response)) => Ok(response),
                Ok(None) => {
                    // Without a response, the sender waits until the time-out.
                    tokio::time::sleep_until(begun + timeout).await;
                    Err(lost())
                }
                Err(_) => Err(lost()),
            }
        })
    }

    fn nodes(&self) -> Vec<u64> {
        self.cluster.ids().into_iter().filter(|id| place(*id) != self.own).collect()
    }

    /// Returns the vote of a node in every second world, where nodes see each other's votes without
    /// messages, like the nodes of one process. In the other worlds they need messages, like nodes
    /// in different processes.
    fn ballot_of(&self, node: u64, arc: ArcId) -> Option<Ballot> {
        let environment = &self.cluster.environment;
        if environment.seed.is_multiple_of(2) || !self.alive.load(Ordering::SeqCst) {
            return None;
        }
        let ballot = self.directory.get(node)?.get(arc)?.ballot();
        environment.coverage.hit("votes seen");
        ballot
    }
}

/// A running node: its replica of each arc, and the store's own code that uses them.
pub struct ReplicatedNode {
    store: Store,
    replicas: Arc<Replicas>,
    directory: Directory,
    clock: Arc<Clock>,
    alive: Alive,
    damage: Damage,
    workers: [Arc<SimulatedWorker>; 2],
}

impl ReplicatedNode {
    /// Starts the node with this id on the data of its machine.
    ///
    /// # Errors
    /// The log or the state cannot be read, or they are inconsistent.
    pub async fn start(
        machinery: &Arc<Machinery>,
        cluster: &Cluster,
        id: u64,
        epoch: u64,
        on_fatal: OnFatal,
    ) -> Result<Arc<Self>, NodeError> {
        let alive: Alive = Arc::new(AtomicBool::new(true));
        let log = Log::open(Arc::new(machinery.disk()), machinery.log_options.clone())?;
        let workers =
            [SimulatedWorker::start(machinery, &alive), SimulatedWorker::start(machinery, &alive)];
        let [log_worker, state_worker] = workers.clone();
        let damage = Damage::of_one_among_peers();
        let on_failure = FailureHandler::new(damage.clone(), Arc::clone(&on_fatal));
        let log = NodeLog::open(log, log_worker, on_failure)?;
        let source = Arc::clone(&machinery.clock);
        let clock = Arc::new(Clock::with_source(EpochMillis(0), Box::new(move || source.now())));
        let seed = machinery.environment.seed ^ (id << 32) ^ (epoch << 40);
        let transport = Arc::new(SimulatedTransport {
            own: machinery.node,
            network: Arc::clone(&cluster.network),
            directory: cluster.directory.clone(),
            cluster: cluster.clone(),
            alive: Arc::clone(&alive),
        });
        let parts = NodeParts {
            id,
            log,
            states: Arc::new(SimulatedStates {
                machinery: Arc::clone(machinery),
                alive: Arc::clone(&alive),
                damage: damage.clone(),
                opened: Mutex::default(),
            }),
            worker: state_worker,
            transport: Arc::clone(&transport) as Arc<dyn Transport>,
            clock: Arc::clone(&clock),
            settings: settings(machinery.arcs),
            seed,
            damage: damage.clone(),
            on_fatal,
        };
        // A node that lost its disk gets its replicas from the leaders.
        let is_first = incarnation_of(id) == 0;
        let first: Vec<ArcId> =
            if is_first { cluster.first_arcs(machinery.node).collect() } else { Vec::new() };
        let replicas = Replicas::start(parts, &first).await?;
        cluster.directory.nodes().insert(id, Arc::downgrade(&replicas));
        let group = |arc| {
            RemoteGroup::new(RemoteParts {
                arc,
                own: Arc::downgrade(&replicas),
                transport: Arc::clone(&transport) as Arc<dyn Transport>,
                clock: Arc::clone(&clock),
                timeout: Settings::default().request,
            })
        };
        let store = Store::assemble(Assembly {
            replicas: Arc::clone(&replicas),
            groups: cluster.arcs().map(group).collect(),
            clock: Arc::clone(&clock),
            seed: seed.rotate_left(17),
        });
        let directory = cluster.directory.clone();
        Ok(Arc::new(Self { store, replicas, directory, clock, alive, damage, workers }))
    }

    fn replica(&self, arc: ArcId) -> Option<Node> {
        self.replicas.get(arc)
    }
}

fn settings(arcs: u32) -> Settings {
    Settings {
        snapshot_entries: SNAPSHOT_ENTRIES,
        entries_kept: ENTRIES_KEPT,
        snapshot_part: SNAPSHOT_PART,
        quiet: QUIET,
        arcs,
        ..Settings::default()
    }
}

impl Replica for ReplicatedNode {
    fn submit(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Vec<Reply>, Failure>> {
        let store = self.store.clone();
        Box::pin(async move { store.submit(commands).await.map_err(Failure::from) })
    }

    fn read(&self, strong: bool) -> BoxFuture<'static, Result<Snapshot, Failure>> {
        let store = self.store.clone();
        Box::pin(async move {
            let store =
                if strong { store.up_to_date().await.map_err(Failure::from)? } else { store.pin() };
            Ok(Snapshot { catalogue: store.catalogue(), view: store.view(), store: Some(store) })
        })
    }

    fn view(&self, arc: ArcId) -> Option<Box<dyn View + Send + Sync>> {
        Some(self.replica(arc)?.view())
    }

    fn get_together(
        &self,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Item>>, Failure>> {
        let store = self.store.clone();
        Box::pin(async move {
            let catalogue = store.catalogue();
            let no_table = || Failure::Refused("the table does not exist yet".to_owned());
            let table = catalogue.find(TABLE).ok_or_else(no_table)?;
            let keys: Vec<_> = keys.iter().map(|name| translation::key(name)).collect();
            let wanted: Vec<_> = keys.iter().map(|key| (table, key)).collect();
            let read = store.read_together(&wanted).await.map_err(Failure::from)?;
            read.map_err(|_| {
                Failure::Refused("the read conflicts with other transactions".to_owned())
            })
        })
    }

    fn begin(&self, arc: ArcId, members: Vec<u64>) -> BoxFuture<'static, Result<(), HarnessError>> {
        let node = self.replica(arc);
        Box::pin(async move {
            let node = node.ok_or("the node does not have this arc")?;
            Ok(node.initialize(members.into_iter().collect()).await?)
        })
    }

    fn ring(&self) -> Option<Arc<Ring>> {
        self.store.ring()
    }

    fn ticks(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self.store.ticks()))
    }

    fn now(&self) -> EpochMillis {
        self.clock.now()
    }

    fn leads(&self, arc: ArcId) -> bool {
        self.replica(arc).is_some_and(|node| node.status().role == Role::Leader)
    }

    fn applied(&self, arc: ArcId) -> Option<u64> {
        Some(self.replica(arc)?.status().applied.unwrap_or(0))
    }

    fn describe(&self) -> String {
        let statuses: Vec<String> =
            self.statuses().iter().map(|status| format!("{status:?}")).collect();
        statuses.join("; ")
    }

    fn statuses(&self) -> Vec<Status> {
        self.replicas.running().iter().map(Node::status).collect()
    }

    fn damage(&self) -> Option<String> {
        self.damage.reason().map(ToString::to_string)
    }

    fn verify(&self) {
        for replica in self.replicas.running().iter() {
            // The results are not needed, because the state itself reports damage.
            let _ =
                replica.view().scan(&[0], &[u8::MAX], false, &mut |_, _| ControlFlow::Continue(()));
            let (storage, mut after) = (replica.storage(), None);
            let mut pace = |_| ControlFlow::Continue(());
            while let Ok(Some(verified)) = storage.verify_next(after, &mut pace) {
                after = Some(verified);
            }
        }
    }

    fn coordinates(&self) -> bool {
        self.store.transactions_under_way() > 0
    }

    fn crash(&self) {
        self.alive.store(false, Ordering::SeqCst);
        self.directory.nodes().remove(&self.replicas.id());
        self.workers.iter().for_each(|worker| worker.task.abort());
        let replicas = Arc::clone(&self.replicas);
        // The remaining tasks end later, without any further effect.
        tokio::spawn(async move { replicas.shutdown().await });
    }
}
