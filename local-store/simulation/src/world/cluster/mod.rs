//! The nodes of a world: the running processes, and their crashes and restarts.

pub mod damage;
pub mod leaders;
pub mod membership;
pub mod replicated;

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use locks::Mutex;
use node::node_id;
use node::ring::{ArcId, holders};
use node::status::{Role, Status};
use partition::{Ring, View};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use self::replicated::{Directory, ReplicatedNode, place};
use super::environment::Environment;
use super::machinery::{Machinery, OnFatal};
use super::network::Network;
use super::plan::Plan;
use super::replica::Replica;
use super::single::SingleNode;
use super::ticks;
use crate::checkers::Violation;
use crate::checkers::placement::Placement;
use crate::error::NodeError;

/// The time for which a process that ended without being killed stays down.
const RESTART_AFTER: Duration = Duration::from_millis(300);
/// The pause before another attempt to start a node.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// The maximum number of attempts to start one node. All attempts together take longer than any
/// fault lasts.
const STARTS_MAX: usize = 100;
/// The number of request handles that are kept before finished handles are dropped.
const TASKS_KEPT: usize = 256;

/// A running process.
struct Running {
    replica: Arc<dyn Replica>,
    tasks: Vec<AbortHandle>,
}

#[derive(Default)]
struct Process {
    running: Option<Running>,
    /// The number of the current process, which distinguishes its tasks from the tasks of earlier
    /// processes of the node.
    epoch: u64,
    /// The number of faults that keep the node down.
    down_faults: u32,
    /// Whether the node belongs to the ring. Only such a node runs.
    is_member: bool,
    /// The incarnation that the ring has given to the node.
    incarnation: u64,
    /// The version of the ring in which the node got its incarnation.
    joined_in: u64,
    /// Whether the node has lost its disk, and needs a new incarnation before it starts.
    needs_admission: bool,
    /// Whether the node has a new incarnation since the cluster was last complete.
    is_new: bool,
    /// Whether some of the node's data was damaged after its last start.
    is_damaged: bool,
}

struct Slot {
    machinery: Arc<Machinery>,
    process: Mutex<Process>,
    /// Held while a process starts, like the lock of a real directory, because otherwise two
    /// processes could use the same disk.
    starting: tokio::sync::Mutex<()>,
}

/// The nodes. Clones share the same nodes.
#[derive(Clone)]
pub struct Cluster {
    /// The environment of the world.
    pub environment: Arc<Environment>,
    /// The network between the nodes.
    pub network: Arc<Network>,
    /// The running nodes, which messages can reach.
    pub directory: Directory,
    slots: Arc<Vec<Slot>>,
    fatal: mpsc::UnboundedSender<(usize, u64)>,
    defects: Arc<Mutex<Vec<Violation>>>,
    /// The number of nodes that create the cluster.
    founders: usize,
}

impl Cluster {
    /// Creates empty machines without running processes. Starts a task on the current runtime that
    /// restarts processes which ended without being killed.
    #[must_use]
    pub fn new(environment: &Arc<Environment>, plan: &Plan) -> Self {
        let machine = |node| {
            let is_member = node <= plan.nodes;
            Slot {
                machinery: Machinery::new(environment, node, plan),
                process: Mutex::new(Process { is_member, ..Process::default() }),
                starting: tokio::sync::Mutex::default(),
            }
        };
        let (fatal, mut ended) = mpsc::unbounded_channel();
        let cluster = Self {
            environment: Arc::clone(environment),
            network: Network::new(environment),
            directory: Directory::default(),
            slots: Arc::new((1..=plan.nodes + plan.spares).map(machine).collect()),
            fatal,
            defects: Arc::default(),
            founders: plan.nodes,
        };
        let supervised = cluster.clone();
        tokio::spawn(async move {
            while let Some((node, epoch)) = ended.recv().await {
                supervised.restart(node, epoch);
            }
        });
        tokio::spawn(membership::run(cluster.clone()));
        tokio::spawn(damage::run(cluster.clone()));
        tokio::spawn(leaders::run(cluster.clone()));
        cluster
    }

    /// Returns the current id of each member of the ring. An id consists of the node's number and its
    /// incarnation.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        self.nodes().filter(|node| self.is_member(*node)).map(|node| self.id(node)).collect()
    }

    /// Returns whether a node belongs to the ring.
    #[must_use]
    pub fn is_member(&self, node: usize) -> bool {
        self.process(node).is_some_and(|process| process.is_member)
    }

    fn id(&self, node: usize) -> u64 {
        let incarnation = self.process(node).map_or(0, |process| process.incarnation);
        node_id(node as u64, incarnation)
    }

    /// Returns whether every arc has all its replicas, and no data of any node is lost or damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let Some(ring) = self.ring() else { return self.slots.len() == 1 };
        let lacks_data = |node| {
            let needs_admission =
                |process: MutexGuard<'_, Process>| process.is_member && process.needs_admission;
            self.is_damaged(node) || self.process(node).is_some_and(needs_admission)
        };
        let has_left = ring.nodes.values().all(|node| !node.is_leaving);
        has_left
            && !self.nodes().any(lacks_data)
            && self.arcs().all(|arc| self.is_complete(arc, &ring))
    }

    /// Returns whether the members of an arc's group are those that the ring names, and each of them knows it. If
    /// only the leader knew it, the change could be lost with the leader's disk.
    fn is_complete(&self, arc: ArcId, ring: &Ring) -> bool {
        let replicas = self.nodes().filter_map(|node| self.replica(node));
        let mut statuses: Vec<Status> = replicas.flat_map(|replica| replica.statuses()).collect();
        statuses.retain(|status| status.arc == arc);
        let leaders = statuses.iter().filter(|status| status.role == Role::Leader);
        let Some(leader) = leaders.max_by_key(|status| status.term) else { return false };
        let index = usize::try_from(arc.0).unwrap_or(usize::MAX);
        let slots = ring.replicas.get(index).into_iter().flatten();
        let target: BTreeSet<u64> = slots.filter_map(|slot| ring.node_id(*slot)).collect();
        let knows = |status: &Status| BTreeSet::from_iter(status.voters.iter().copied()) == target;
        leader.learners.is_empty()
            && knows(leader)
            && statuses.iter().filter(|status| target.contains(&status.node)).all(knows)
    }

    /// Returns the target of the newest ring, and the replicas that run; `None` if no node knows a ring.
    #[must_use]
    pub fn placement(&self) -> Option<Placement> {
        let ring = self.ring()?;
        let number = |slot: &partition::Slot| usize::from(slot.number());
        let runs = |node: &usize, arc| {
            let statuses = self.replica(*node).map(|replica| replica.statuses());
            statuses.into_iter().flatten().any(|status| status.arc == arc)
        };
        Some(Placement {
            members: ring.members().iter().map(number).collect(),
            targets: ring.replicas.iter().map(|arc| arc.iter().map(number).collect()).collect(),
            replicas: self
                .arcs()
                .map(|arc| self.nodes().filter(|it| runs(it, arc)).collect())
                .collect(),
        })
    }

    /// Returns the newest ring that a running node knows.
    #[must_use]
    pub fn ring(&self) -> Option<Arc<Ring>> {
        let replicas = self.nodes().filter_map(|node| self.replica(node));
        replicas.filter_map(|replica| replica.ring()).max_by_key(|ring| ring.version)
    }

    /// Returns whether some of a node's data is damaged.
    fn is_damaged(&self, node: usize) -> bool {
        let in_state = self.machinery(node).is_some_and(|machinery| machinery.is_state_damaged());
        in_state || self.process(node).is_some_and(|process| process.is_damaged)
    }

    /// Replaces the disk of a node with an empty disk. The node then needs a new identity. The node must not
    /// be running.
    pub fn wipe(&self, node: usize, why: &str) {
        let Some(slot) = self.slot(node) else { return };
        slot.machinery.replace_medium();
        if let Some(mut process) = self.process(node) {
            process.needs_admission = true;
            process.is_damaged = false;
        }
        self.environment.note(&format!("node {node} restarts with an empty disk: {why}"));
    }

    /// Damages some of a node's data. The node must not be running.
    pub fn damage_data(&self, node: usize) {
        let damaged = self.slot(node).is_some_and(|slot| slot.machinery.damage_log());
        if let Some(mut process) = self.process(node) {
            process.is_damaged |= damaged;
        }
    }

    /// Returns the numbers of all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = usize> + use<> {
        1..=self.slots.len()
    }

    fn slot(&self, node: usize) -> Option<&Slot> {
        self.slots.get(node.checked_sub(1)?)
    }

    fn process(&self, node: usize) -> Option<MutexGuard<'_, Process>> {
        Some(self.slot(node)?.process.lock())
    }

    /// Returns the nodes that shall have a replica of an arc.
    pub fn holders(&self, arc: ArcId) -> impl Iterator<Item = usize> + use<> {
        let index = usize::try_from(arc.0).unwrap_or(usize::MAX);
        let holders = match self.ring().as_ref().and_then(|ring| ring.replicas.get(index)) {
            Some(slots) => slots.iter().map(|slot| usize::from(slot.number())).collect(),
            None => self.first_holders(arc),
        };
        holders.into_iter()
    }

    /// Returns the nodes that have a replica of an arc when the cluster is created.
    fn first_holders(&self, arc: ArcId) -> Vec<usize> {
        let slots: Vec<u64> = (1..=self.founders as u64).collect();
        holders(arc, &slots).into_iter().map(place).collect()
    }

    /// Returns the arcs of which a node has a replica when the cluster is created.
    pub fn first_arcs(&self, node: usize) -> impl Iterator<Item = ArcId> {
        self.arcs().filter(move |arc| self.first_holders(*arc).contains(&node))
    }

    /// Returns the arcs of the ring.
    pub fn arcs(&self) -> impl Iterator<Item = ArcId> + use<> {
        let arcs = self.slots.first().map_or(0, |slot| slot.machinery.arcs);
        (0..arcs).map(ArcId)
    }

    /// Returns the machine of a node.
    #[must_use]
    pub fn machinery(&self, node: usize) -> Option<&Arc<Machinery>> {
        self.slot(node).map(|slot| &slot.machinery)
    }

    /// Returns the state of an arc of a node, or `None` if the node is not running.
    #[must_use]
    pub fn view(&self, node: usize, arc: ArcId) -> Option<Box<dyn View + Send + Sync>> {
        self.replica(node)?.view(arc)
    }

    /// Returns the running process of a node.
    #[must_use]
    pub fn replica(&self, node: usize) -> Option<Arc<dyn Replica>> {
        Some(Arc::clone(&self.process(node)?.running.as_ref()?.replica))
    }

    /// Returns the defects that are not the effect of a fault.
    #[must_use]
    pub fn defects(&self) -> Vec<Violation> {
        self.defects.lock().clone()
    }

    /// Ties a task to the node's process, so that the task is aborted when the process ends.
    pub fn attach(&self, node: usize, task: AbortHandle) {
        if let Some(mut process) = self.process(node)
            && let Some(running) = &mut process.running
        {
            if running.tasks.len() >= TASKS_KEPT {
                running.tasks.retain(|task| !task.is_finished());
            }
            running.tasks.push(task);
        } else {
            task.abort();
        }
    }

    /// Ends a node's process immediately, like `kill -9`. Returns whether it was running.
    pub fn crash(&self, node: usize) -> bool {
        let Some(mut process) = self.process(node) else { return false };
        process.epoch += 1;
        let Some(running) = process.running.take() else { return false };
        drop(process);
        running.replica.crash();
        running.tasks.iter().for_each(AbortHandle::abort);
        self.environment.note(&format!("node {node} dies"));
        if let Some(machinery) = self.machinery(node) {
            machinery.lose_memory();
        }
        true
    }

    /// Keeps a node down. Each call must be balanced by a call of [`Cluster::release`].
    pub fn keep_down(&self, node: usize) {
        if let Some(mut process) = self.process(node) {
            process.down_faults += 1;
        }
    }

    /// Undoes one call of [`Cluster::keep_down`]. Starts the node if no other call keeps it down.
    pub async fn release(&self, node: usize) {
        if let Some(mut process) = self.process(node) {
            process.down_faults = process.down_faults.saturating_sub(1);
        }
        self.start(node).await;
    }

    /// Restarts a node whose process ended without being killed. `epoch` is the number of this
    /// process.
    fn restart(&self, node: usize, epoch: u64) {
        let current = self.process(node).is_some_and(|process| process.epoch == epoch);
        if current && self.crash(node) {
            let cluster = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(RESTART_AFTER).await;
                cluster.start(node).await;
            });
        }
    }

    /// Starts a node's process, unless it is running or held down. Retries while a fault prevents the start.
    pub async fn start(&self, node: usize) {
        for _ in 0..STARTS_MAX {
            let Some(slot) = self.slot(node) else { return };
            let lock = slot.starting.lock().await;
            let epoch = {
                let Some(mut process) = self.process(node) else { return };
                if process.running.is_some() || process.down_faults > 0 || !process.is_member {
                    return;
                }
                process.epoch += 1;
                process.epoch
            };
            let error = match self.start_once(slot, node, epoch).await {
                Ok(true) => return,
                Ok(false) => {
                    // The process ended before it had started completely.
                    drop(lock);
                    tokio::time::sleep(RETRY_AFTER).await;
                    continue;
                }
                Err(_) if self.process(node).is_none_or(|process| process.epoch != epoch) => {
                    // The process was ended during its recovery.
                    drop(lock);
                    tokio::time::sleep(RETRY_AFTER).await;
                    continue;
                }
                Err(error) => error,
            };
            let what = format!("node {node} does not start: {}", error.reason());
            self.environment.note(&what);
            match error {
                NodeError::PowerLost(_) => {
                    self.environment.coverage.hit("power cut in recovery");
                    slot.machinery.lose_memory();
                    slot.machinery.cut_power();
                }
                NodeError::DiskUnavailable(_) => {}
                NodeError::Damaged(_) if self.is_damaged(node) => {
                    self.environment.coverage.hit("damaged disk");
                    self.wipe(node, "it is damaged");
                }
                NodeError::Damaged(_) | NodeError::Broken(_) => {
                    return self.blame("recovery", what);
                }
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
        self.blame("recovery", format!("node {node} did not start in {STARTS_MAX} attempts"));
    }

    /// Records a defect that is not the effect of a fault, as a violation of this checker.
    pub fn blame(&self, checker: &'static str, what: String) {
        self.defects.lock().push(Violation { checker, what });
    }

    /// Starts a process. Returns false if the process ended during its start.
    async fn start_once(&self, slot: &Slot, node: usize, epoch: u64) -> Result<bool, NodeError> {
        if !membership::admit(self, node).await {
            return Ok(false);
        }
        let (fatal, environment) = (self.fatal.clone(), Arc::clone(&self.environment));
        let on_fatal: OnFatal = Arc::new(move |reason: &str| {
            environment
                .note(&format!("node {node} stops its process after a fatal error: {reason}"));
            // Sending fails only at the end of the run, when processes are no longer restarted.
            let _ = fatal.send((node, epoch));
        });
        let replica: Arc<dyn Replica> = if self.slots.len() == 1 {
            SingleNode::start(&slot.machinery, on_fatal)?
        } else {
            ReplicatedNode::start(&slot.machinery, self, self.id(node), epoch, on_fatal).await?
        };
        let mut tasks = vec![
            tokio::spawn(ticks::watch_clock(Arc::clone(&replica), Arc::clone(&self.environment)))
                .abort_handle(),
        ];
        let tick = replica.ticks();
        let own = tick.unwrap_or_else(|| Box::pin(ticks::run(Arc::clone(&replica))));
        tasks.push(tokio::spawn(own).abort_handle());
        let Some(mut process) = self.process(node) else { return Ok(false) };
        if process.epoch != epoch || process.down_faults > 0 {
            drop(process);
            tasks.iter().for_each(AbortHandle::abort);
            replica.crash();
            return Ok(false);
        }
        // The start has read all data without an error, so no data is damaged.
        process.is_damaged = false;
        process.running = Some(Running { replica, tasks });
        drop(process);
        self.environment.note(&format!("node {node} runs"));
        Ok(true)
    }
}
