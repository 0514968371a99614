//! The injection of the planned faults.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use node::ring::ArcId;
use node::status::Role;
use partition::{
    Command, Reply, SplitPoint, read_incomplete, read_prepared, unacknowledged_changes,
};
use storage::disk::Fault as DiskFault;
use tokio::task::JoinSet;

use super::cluster::replicated::place;
use super::cluster::{Cluster, membership};
use super::network::CLIENTS;
use super::plan::{Fault, PlannedFault};
use super::translation;
use crate::request::TABLE;
use crate::workload::Signals;

/// The maximum time in milliseconds that an advance of the clocks waits for requests in progress.
/// It is slightly longer than the longest request takes. If the requests do not end in time, the
/// clocks are not advanced.
const DRAIN_MS_MAX: u64 = 12_000;

/// The maximum number of pauses for which a power cut waits for an unsynced write. The next
/// constant is the length of a pause.
const WRITE_WAIT_MAX: usize = 500;
const WRITE_WAIT: Duration = Duration::from_micros(100);
/// The maximum number of pauses for which a fault waits for a coordinator, or a split for undelivered index
/// entries. The next constant is the length of a pause.
const COORDINATION_WAIT_MAX: usize = 1_000;
const COORDINATION_WAIT: Duration = Duration::from_micros(500);
/// The maximum number of pauses for which a fault waits until its node has the role that the fault needs. The next
/// constant is the length of a pause.
const ROLE_WAIT_MAX: usize = 500;
const ROLE_WAIT: Duration = Duration::from_millis(2);

/// The maximum number of attempts to create an index. The next constant is the pause between two attempts.
const INDEX_ATTEMPTS_MAX: usize = 100;
const INDEX_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Runs all faults of a plan, each at its time. Returns after the last fault has ended.
pub async fn run(
    cluster: &Cluster,
    faults: &[PlannedFault],
    signals: &Arc<Signals>,
    in_flight: &Arc<AtomicUsize>,
) {
    let mut running = JoinSet::new();
    for planned in faults.iter().copied() {
        let cluster = cluster.clone();
        let (signals, in_flight) = (Arc::clone(signals), Arc::clone(in_flight));
        running.spawn(async move {
            tokio::time::sleep(Duration::from_millis(planned.at_ms)).await;
            cluster.environment.note(&format!("fault: {planned}"));
            let lasting = Duration::from_millis(planned.for_ms);
            match planned.fault {
                Fault::Advance { minutes } => {
                    advance(&cluster, minutes, &signals, &in_flight).await;
                }
                fault => inject(&cluster, fault, lasting).await,
            }
        });
    }
    while running.join_next().await.is_some() {}
}

async fn inject(cluster: &Cluster, fault: Fault, lasting: Duration) {
    let coverage = &cluster.environment.coverage;
    match fault {
        Fault::Kill { node } => down(cluster, &[node], fault, false, lasting).await,
        Fault::KillCoordinator { node, after_us } => {
            wait_for_coordination(cluster, node, Duration::from_micros(after_us)).await;
            down(cluster, &[node], fault, false, lasting).await;
        }
        Fault::PowerCut { node } => down(cluster, &[node], fault, true, lasting).await,
        Fault::KillAll | Fault::PowerCutAll => {
            let nodes: Vec<usize> = cluster.nodes().collect();
            down(cluster, &nodes, fault, fault == Fault::PowerCutAll, lasting).await;
        }
        Fault::PowerCutInRecovery { node, operations } => {
            wait_for_writes(cluster, node).await;
            cluster.keep_down(node);
            cluster.crash(node);
            if let Some(machinery) = cluster.machinery(node) {
                machinery.cut_power();
                let disk = machinery.disk();
                disk.fail_at(disk.operations() + operations, DiskFault::PowerOff);
            }
            tokio::time::sleep(lasting).await;
            cluster.release(node).await;
        }
        Fault::SyncError { node } => {
            if let Some(machinery) = cluster.machinery(node) {
                machinery.disk().fail_next_sync();
                coverage.hit("sync error");
            }
        }
        Fault::FullDisk { node } => {
            let Some(machinery) = cluster.machinery(node) else { return };
            let disk = machinery.disk();
            let before = disk.refusals();
            disk.set_full(true);
            tokio::time::sleep(lasting).await;
            disk.set_full(false);
            coverage.add("full disk", disk.refusals() - before);
        }
        Fault::SlowDisk { node, millis } => {
            let Some(machinery) = cluster.machinery(node) else { return };
            machinery.set_slow(millis);
            tokio::time::sleep(lasting).await;
            machinery.set_slow(0);
        }
        Fault::Skew { node, millis } => {
            let Some(machinery) = cluster.machinery(node) else { return };
            machinery.clock.set_skew(millis);
            coverage.hit("clock skew");
            tokio::time::sleep(lasting).await;
            machinery.clock.set_skew(0);
        }
        Fault::Wipe { node } | Fault::DiskDamage { node } => {
            lose_data(cluster, node, matches!(fault, Fault::Wipe { .. }), lasting).await;
        }
        Fault::StateDamage { node, place } => damage_state(cluster, node, place).await,
        Fault::CutSender { .. } | Fault::CutFromPeers { .. } | Fault::CutFromGroup { .. } => {
            cut_off(cluster, fault, lasting).await;
        }
        Fault::Join { node } => membership::join(cluster, node).await,
        Fault::Leave { node } => membership::leave(cluster, node).await,
        Fault::Split { place } => split(cluster, place).await,
        Fault::MakeIndex => make_index(cluster).await,
        Fault::Advance { .. } => {}
        network => inject_link_fault(cluster, network, lasting).await,
    }
}

/// Partitions a node that is a leader or has undelivered index entries, so that other nodes take
/// over. The fault is counted only if the node had this role.
async fn cut_off(cluster: &Cluster, fault: Fault, lasting: Duration) {
    let (is_hit, fault_of_links) = match fault {
        Fault::CutSender { node } => {
            let is_hit = wait_until(|| sends(cluster, node)).await;
            (is_hit, Fault::Partition { node })
        }
        Fault::CutFromPeers { node } => (wait_until(|| leads(cluster, node)).await, fault),
        Fault::CutFromGroup { node } => {
            (wait_until(|| leads_without_some(cluster, node)).await, fault)
        }
        other => (false, other),
    };
    if is_hit {
        cluster.environment.coverage.hit(fault.class());
    }
    inject_link_fault(cluster, fault_of_links, lasting).await;
}

/// Damages a block of a state. Does nothing while another node has lost data, because damage of two
/// nodes can destroy acknowledged data.
async fn damage_state(cluster: &Cluster, node: usize, place: usize) {
    if wait_until(|| cluster.is_whole() && cluster.replica(node).is_some()).await
        && let Some(machinery) = cluster.machinery(node)
    {
        // No replica reads the state of an arc that the node has left, so its damage would stay unknown.
        let statuses = cluster.replica(node).map(|replica| replica.statuses()).unwrap_or_default();
        if let Some(status) = statuses.get(place % statuses.len().max(1)) {
            machinery.damage_state(status.arc);
        }
    }
}

/// Removes or damages the data of a node. Does nothing if another node lacks data, because no store
/// survives the loss of a majority.
async fn lose_data(cluster: &Cluster, node: usize, all: bool, lasting: Duration) {
    if !cluster.is_whole() {
        return;
    }
    cluster.keep_down(node);
    cluster.crash(node);
    if all {
        cluster.wipe(node, "its disk was replaced");
        cluster.environment.coverage.hit("wiped disk");
    } else {
        cluster.damage_data(node);
    }
    tokio::time::sleep(lasting).await;
    cluster.release(node).await;
}

/// Begins to split a partition of the table, through any node that accepts it.
async fn split(cluster: &Cluster, place: usize) {
    if wait_for_outbox(cluster).await {
        cluster.environment.coverage.hit("split beside an outbox");
    }
    for node in cluster.nodes() {
        let Some(replica) = cluster.replica(node) else { continue };
        let Ok(snapshot) = replica.read(false).await else { continue };
        let Some(table) = snapshot.catalogue.find(TABLE) else { continue };
        let Some(partition) = table.partitions.get(place % table.partitions.len()) else {
            continue;
        };
        let command = Command::SplitPartition {
            table: table.id,
            partition: partition.number,
            at: SplitPoint::Half,
        };
        let replies = replica.submit(vec![command]).await;
        if replies.is_ok_and(|replies| matches!(replies.first(), Some(Reply::Done { .. }))) {
            cluster.environment.coverage.hit("partition split");
            return;
        }
    }
}

/// Creates the second index, through any node that accepts it.
async fn make_index(cluster: &Cluster) {
    for attempt in 0..INDEX_ATTEMPTS_MAX {
        let node = 1 + attempt % cluster.nodes().count();
        if let Some(replica) = cluster.replica(node)
            && let Ok(snapshot) = replica.read(false).await
            && let Some(table) = snapshot.catalogue.find(TABLE)
        {
            match replica.submit(vec![translation::make_index(table.id)]).await.as_deref() {
                Ok([Reply::Table(_)]) => cluster.environment.coverage.hit("index made in use"),
                // An earlier attempt has created the index, but its answer was lost.
                Ok(_) => {}
                Err(_) => {
                    tokio::time::sleep(INDEX_RETRY_PAUSE).await;
                    continue;
                }
            }
            return;
        }
        tokio::time::sleep(INDEX_RETRY_PAUSE).await;
    }
}

/// Ends the processes of some nodes, and restarts them after a time.
async fn down(cluster: &Cluster, nodes: &[usize], fault: Fault, power: bool, lasting: Duration) {
    for node in nodes.iter().copied() {
        if power {
            wait_for_writes(cluster, node).await;
        }
        cluster.keep_down(node);
        if matches!(fault, Fault::KillCoordinator { .. }) {
            note_leftovers(cluster);
        }
        if cluster.crash(node) {
            cluster.environment.coverage.hit(fault.class());
        }
        if power && let Some(machinery) = cluster.machinery(node) {
            machinery.cut_power();
        }
    }
    tokio::time::sleep(lasting).await;
    // A node that has lost its disk starts only when the others run.
    join_all(nodes.iter().map(|node| cluster.release(*node))).await;
}

/// Waits until a node coordinates a transaction over several arcs, and then for the time `steps`.
/// Waits again if the node then no longer coordinates a transaction. Gives up after a while.
async fn wait_for_coordination(cluster: &Cluster, node: usize, steps: Duration) {
    let coordinates = || cluster.replica(node).is_some_and(|replica| replica.coordinates());
    for _ in 0..COORDINATION_WAIT_MAX {
        if coordinates() {
            tokio::time::sleep(steps).await;
            if coordinates() {
                return;
            }
        }
        tokio::time::sleep(COORDINATION_WAIT).await;
    }
}

/// Counts what a coordinator leaves behind, just before it crashes: locks without a decision, and
/// decisions that were not applied.
fn note_leftovers(cluster: &Cluster) {
    let coverage = &cluster.environment.coverage;
    let (mut prepared, mut decided) = (BTreeSet::new(), BTreeSet::new());
    for machinery in cluster.nodes().filter_map(|node| cluster.machinery(node)) {
        for arc in cluster.arcs() {
            let Some(view) = cluster.view(machinery.node, arc) else { continue };
            prepared.extend(read_prepared(&*view).into_iter().flatten().map(|(id, _)| id));
            decided.extend(read_incomplete(&*view).into_iter().flatten().map(|(id, _)| id));
        }
    }
    coverage.add("left over undecided", prepared.difference(&decided).count() as u64);
    coverage.add("left over decided", prepared.intersection(&decided).count() as u64);
}

/// Returns whether a running node has undelivered index entries of an arc.
fn has_undelivered(cluster: &Cluster, node: usize, arc: ArcId) -> bool {
    let arcs = u32::try_from(cluster.arcs().count()).unwrap_or(u32::MAX);
    let found = cluster.view(node, arc).map(|view| unacknowledged_changes(&*view, arcs));
    matches!(found, Some(Ok(found)) if !found.is_empty())
}

/// Waits for a limited time until any arc has undelivered index entries. Returns false on a
/// time-out.
async fn wait_for_outbox(cluster: &Cluster) -> bool {
    let has_any = |node| cluster.arcs().any(|arc| has_undelivered(cluster, node, arc));
    if cluster.arcs().count() == 1 {
        return false;
    }
    for _ in 0..WRITE_WAIT_MAX {
        if cluster.nodes().any(has_any) {
            return true;
        }
        tokio::time::sleep(COORDINATION_WAIT).await;
    }
    false
}

/// Returns whether a node leads any arc.
fn leads(cluster: &Cluster, node: usize) -> bool {
    cluster.replica(node).is_some_and(|replica| cluster.arcs().any(|arc| replica.leads(arc)))
}

/// Returns the other voters of the first arc that a node leads; none if it leads no arc.
fn peers_of_led_arc(cluster: &Cluster, node: usize) -> Vec<usize> {
    let statuses = cluster.replica(node).map(|replica| replica.statuses()).unwrap_or_default();
    let led = statuses.into_iter().find(|status| status.role == Role::Leader);
    let voters = led.into_iter().flat_map(|status| status.voters);
    voters.map(place).filter(|other| *other != node).collect()
}

/// Returns whether a node leads an arc with undelivered index entries.
fn sends(cluster: &Cluster, node: usize) -> bool {
    let leads = |arc| cluster.replica(node).is_some_and(|replica| replica.leads(arc));
    cluster.arcs().any(|arc| leads(arc) && has_undelivered(cluster, node, arc))
}

/// Returns whether a node leads an arc that some other node of the ring does not have.
fn leads_without_some(cluster: &Cluster, node: usize) -> bool {
    let others = peers_of_led_arc(cluster, node).len();
    others > 0 && cluster.ids().len() > others + 1
}

/// Waits for a limited time until a node has a role, or the nodes a state. Returns whether they have it.
async fn wait_until(has_role: impl Fn() -> bool) -> bool {
    for _ in 0..ROLE_WAIT_MAX {
        if has_role() {
            return true;
        }
        tokio::time::sleep(ROLE_WAIT).await;
    }
    false
}

/// Waits for a limited time until the node has unsynced data, because without such data a power cut
/// has no effect.
async fn wait_for_writes(cluster: &Cluster, node: usize) {
    let Some(machinery) = cluster.machinery(node) else { return };
    for _ in 0..WRITE_WAIT_MAX {
        if machinery.disk().unsynced_sectors() > 0 {
            return;
        }
        tokio::time::sleep(WRITE_WAIT).await;
    }
}

async fn inject_link_fault(cluster: &Cluster, fault: Fault, lasting: Duration) {
    let network = &cluster.network;
    let places = CLIENTS..=cluster.nodes().count();
    // The end of the fault must restore the same links.
    let unreachable: Vec<usize> = match fault {
        Fault::Partition { .. } => places.collect(),
        Fault::CutFromPeers { .. } => places.skip(1).collect(),
        Fault::CutFromGroup { node } => peers_of_led_arc(cluster, node),
        _ => Vec::new(),
    };
    let change = |on: bool| match fault {
        Fault::Partition { node } | Fault::CutFromPeers { node } | Fault::CutFromGroup { node } => {
            for other in unreachable.iter().filter(|other| **other != node) {
                network.block(node, *other, on);
                network.block(*other, node, on);
            }
        }
        Fault::OneWay { from, to } => {
            network.block(from, to, on);
            network.mark_one_way(from, to, on);
        }
        Fault::Loss { percent } => network.set_loss(if on { percent } else { 0 }),
        Fault::Delay { millis } => network.set_delay(if on { millis } else { 0 }),
        Fault::Duplication { percent } => network.set_duplicates(if on { percent } else { 0 }),
        _ => {}
    };
    change(true);
    tokio::time::sleep(lasting).await;
    change(false);
}

/// Advances the store time while no request is in progress. Otherwise a token could expire between
/// two attempts at a transaction. The store would then apply the retry as a new transaction, which
/// the checkers would report.
async fn advance(cluster: &Cluster, minutes: u64, signals: &Signals, in_flight: &AtomicUsize) {
    signals.pause.store(true, Ordering::SeqCst);
    for _ in 0..DRAIN_MS_MAX / 20 {
        if in_flight.load(Ordering::SeqCst) == 0 {
            cluster.environment.advance(minutes * 60_000);
            if minutes > 0 {
                cluster.environment.coverage.hit("clock advance");
            }
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signals.pause.store(false, Ordering::SeqCst);
}
