//! The nodes of one process. This module starts the nodes from their directories, creates a cluster, and
//! gives a new identity to a node that lost its data.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::directory::{self, Host, Identity, NodeFiles, Problem};
use super::rebuild::Rebuild;
use crate::fatal::{Fatal, fatal};
use node::LocalTransport;
use node::clock::Clock;
use node::ring::{ArcId, holders};
use node::transport::Transport;
use node::{
    Node, NodeId, Parts, Settings, States as _, incarnation_of, node_id, random_seed, slot_of,
};
use storage::disk::FileDisk;

/// The pause between two attempts to copy the data to a rebuilt node and make it a voter.
const HEAL_RETRY: Duration = Duration::from_millis(500);

/// The number of attempts to open a directory that a stopping node has not closed yet. The attempts and
/// the pauses between them take 5 s.
const CLOSING_TRIES: u32 = 100;
const CLOSING_PAUSE: Duration = Duration::from_millis(50);

/// A node of this process: its replica of each arc, in the order of the arcs; never empty.
pub(super) type Replicas = Vec<Node>;

/// Starts the nodes of a data directory, and creates the cluster if it does not exist. A new cluster has
/// a ring of `arcs` arcs; an existing cluster keeps its number of arcs. After an error, no node runs.
pub(super) async fn start(
    data: &Path,
    replicas: u64,
    arcs: u32,
    clock: &Arc<Clock>,
    host: Host,
) -> Result<(Vec<Replicas>, Rebuild), Problem> {
    let mut nodes = Vec::new();
    let started = start_nodes(data, replicas, arcs, clock, host, &mut nodes).await;
    let rebuild = stop_on_error(nodes.iter().flatten(), started).await?;
    Ok((nodes, rebuild))
}

/// Returns `result`. If it is an error, first stops the replicas that were already started. Otherwise they
/// would continue to vote and to lead.
pub(super) async fn stop_on_error<'n, T, E>(
    started: impl IntoIterator<Item = &'n Node>,
    result: Result<T, E>,
) -> Result<T, E> {
    if result.is_err() {
        for node in started {
            node.shutdown().await;
        }
    }
    result
}

/// Starts or creates the nodes for [`start`]. Adds each node to `nodes` when the node is started.
async fn start_nodes(
    data: &Path,
    replicas: u64,
    arcs: u32,
    clock: &Arc<Clock>,
    host: Host,
    nodes: &mut Vec<Replicas>,
) -> Result<Rebuild, Problem> {
    let host_of_all = host;
    let host = &host_of_all;
    let files = open_slots(data, replicas, host).await?;
    if files.values().all(|files| files.log.is_fresh()) {
        refuse_beside_set_aside(data, replicas)?;
        refuse_without_logs(data, files.values())?;
    }
    let (cluster, arcs) = one_cluster(files.values(), arcs)?;
    let is_complete = (1..=replicas).all(|slot| files.contains_key(&slot));
    let begun = files.values().any(|files| !files.log.is_fresh());
    let transport = LocalTransport::default();
    let (fresh, used): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|(_, files)| files.log.is_fresh());
    for (_, files) in used {
        nodes.push(start_node(files, &transport, replicas > 1, clock, host).await?);
    }
    let voters: BTreeSet<NodeId> =
        nodes.iter().flatten().flat_map(|node| node.status().voters).collect();
    let mut missing: BTreeSet<u64> = (1..=replicas).collect();
    for node in nodes.iter().flatten() {
        missing.remove(&slot_of(node.id()));
    }
    let has_died_early = is_complete && begun && was_never_begun(nodes, &fresh)?;
    if begun && !has_died_early {
        for place in 0..usize::try_from(arcs).unwrap_or(0) {
            let of_arc: Vec<&Node> = nodes.iter().filter_map(|node| node.get(place)).collect();
            check_majority(&of_arc, replicas, is_complete)?;
        }
    }
    for (slot, files) in fresh {
        if voters.contains(&files.identity.node) && !has_died_early {
            // Without its log, the node has lost its votes, so it must not vote with this identity again.
            drop(files);
            set_aside(data, slot, "the node's log is missing")?;
        } else {
            missing.remove(&slot);
            nodes.push(start_node(files, &transport, replicas > 1, clock, host).await?);
        }
    }
    let created = for_each_slot(missing, |slot| {
        let incarnation = if begun { next_incarnation(nodes, slot) } else { 0 };
        let identity = Identity::new(cluster.clone(), node_id(slot, incarnation), arcs);
        create_slot(data, slot, identity, host)
    });
    for (_, files) in created {
        nodes.push(start_node(files?, &transport, replicas > 1, clock, host).await?);
    }
    nodes.sort_by_key(|node| node.first().map(|replica| slot_of(replica.id())));
    let ids: Vec<NodeId> = nodes.iter().filter_map(|node| node.first()).map(Node::id).collect();
    for (place, arc) in (0..arcs).map(ArcId).enumerate() {
        let of_arc: Vec<&Node> = nodes.iter().filter_map(|node| node.get(place)).collect();
        lead_arc(&of_arc, &holders(arc, &ids), begun, is_complete).await?;
    }
    let (data, clock) = (data.to_owned(), Arc::clone(clock));
    Ok(Rebuild { data, cluster, transport, clock, host: host_of_all })
}

/// Creates the group of an arc if it does not exist. If it exists, starts an election and repairs the
/// membership.
async fn lead_arc(
    of_arc: &[&Node],
    replicas: &[NodeId],
    begun: bool,
    is_complete: bool,
) -> Result<(), Fatal> {
    let members: BTreeSet<NodeId> = replicas.iter().copied().collect();
    let has_voters = of_arc.iter().any(|node| !node.status().voters.is_empty());
    if begun && (has_voters || !is_complete) {
        // All nodes have just started, so no node is the leader. The node with the longest log starts
        // the election, because it can win.
        let far = |node: &&&Node| (node.status().last_log, node.status().term);
        if let Some(best) = of_arc.iter().max_by_key(far) {
            best.stand().await;
        }
        let nodes = of_arc.iter().map(|node| node.downgrade()).collect();
        tokio::spawn(repair_membership(nodes, members));
    } else if let Some(first) = of_arc.iter().find(|node| replicas.first() == Some(&node.id())) {
        // The node that initializes a group starts the first election and usually wins. Each arc has a
        // different node, to distribute the leaders.
        first.initialize(members).await.map_err(Fatal::new)?;
    }
    Ok(())
}

/// Returns the cluster that all nodes belong to, and its number of arcs. Creates a new cluster if no
/// node belongs to a cluster.
fn one_cluster<'a>(
    mut files: impl Iterator<Item = &'a NodeFiles>,
    arcs: u32,
) -> Result<(String, u32), Fatal> {
    let Some(first) = files.next() else { return Ok((format!("{:016x}", random_seed()), arcs)) };
    let of = |files: &NodeFiles| (files.identity.cluster.clone(), files.identity.arcs);
    let cluster = of(first);
    match files.find(|files| of(files) != cluster) {
        None => Ok(cluster),
        Some(stranger) => Err(fatal!(
            "node {} belongs to a different cluster: use node directories of the same cluster",
            slot_of(stranger.identity.node)
        )),
    }
}

/// Returns whether the process died while it created the cluster. This is the case if the nodes of the
/// cluster have no log entry except the entry with the members, and the other nodes have no data. Then
/// no node was ever the leader, and nothing was written.
fn was_never_begun(used: &[Replicas], fresh: &[(u64, NodeFiles)]) -> Result<bool, Fatal> {
    // The entry with index 0 contains the members. A later entry shows that a node was the leader.
    let knows_more = |node: &Node| node.status().last_log > Some(0);
    if used.iter().flatten().any(knows_more) {
        return Ok(false);
    }
    for (_, files) in fresh {
        if incarnation_of(files.identity.node) > 0 || !files.has_empty_states()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that a majority of a group's voters has its data, because a minority may lack acknowledged
/// writes. One node of several is never sufficient, because a node that lags behind may have an outdated
/// list of voters.
fn check_majority(nodes: &[&Node], replicas: u64, is_complete: bool) -> Result<(), Fatal> {
    let voters: BTreeSet<NodeId> = nodes.iter().flat_map(|node| node.status().voters).collect();
    let here = nodes.iter().filter(|node| voters.contains(&node.id())).count();
    // If the process died while it created the cluster, some groups do not exist and have no voters. Nothing
    // was written to these groups, and the caller creates them.
    if 2 * here > voters.len() || (voters.is_empty() && is_complete) {
        return Ok(());
    }
    let (left, all) = if voters.is_empty() {
        (nodes.len(), usize::try_from(replicas).unwrap_or(usize::MAX))
    } else {
        (here, voters.len())
    };
    Err(fatal!(
        "only {left} of {all} replicas exist, which is not a majority, so acknowledged writes may be missing: restore the missing `node-N` directories from a copy"
    ))
}

/// Refuses to create a cluster if there are damaged directories of an existing cluster, because its data
/// would seem to be lost.
fn refuse_beside_set_aside(data: &Path, replicas: u64) -> Result<(), Fatal> {
    let aside = (1..=replicas).flat_map(|slot| directory::list_damaged(data, slot));
    let aside: Vec<String> = aside.collect();
    if aside.is_empty() {
        return Ok(());
    }
    Err(fatal!(
        "every node of `{}` was damaged and set aside ({}), so none can be rebuilt: \
         restore a majority of the `node-N` directories from a copy, or move the set-aside directories elsewhere to start with an empty store",
        data.display(),
        aside.join(", ")
    ))
}

/// Refuses to start if no node has a log although states have data, because the latest acknowledged
/// writes may be missing.
fn refuse_without_logs<'a>(
    data: &Path,
    files: impl Iterator<Item = &'a NodeFiles>,
) -> Result<(), Fatal> {
    for files in files {
        if !files.has_empty_states()? {
            return Err(fatal!(
                "the log of every node of `{}` is missing, and the latest acknowledged writes may be only in the logs: restore the folders `node-N/log` from a copy, or move `{}` away to start with an empty store",
                data.display(),
                data.display()
            ));
        }
    }
    Ok(())
}

/// Calls `work` for each slot on a separate thread, because the work mostly waits for the disk. Returns
/// the results.
fn for_each_slot<T: Send>(
    slots: impl IntoIterator<Item = u64>,
    work: impl Fn(u64) -> T + Sync,
) -> Vec<(u64, T)> {
    let work = &work;
    thread::scope(|scope| {
        let begin = |slot| (slot, scope.spawn(move || work(slot)));
        let threads: Vec<_> = slots.into_iter().map(begin).collect();
        let end = |(slot, thread): (u64, ScopedJoinHandle<'_, T>)| match thread.join() {
            Ok(done) => (slot, done),
            Err(panic) => resume_unwind(panic),
        };
        threads.into_iter().map(end).collect()
    })
}

/// Opens the directories of all slots. Slots without a directory, and slots whose directory was
/// damaged and set aside, are omitted.
async fn open_slots(
    data: &Path,
    replicas: u64,
    host: &Host,
) -> Result<BTreeMap<u64, NodeFiles>, Problem> {
    let tried = for_each_slot(1..=replicas, |slot| try_to_open(data, slot, host));
    let mut files = BTreeMap::new();
    for (slot, tried) in tried {
        let opened = match tried {
            Err(Problem::InUse(_)) => open_existing(data, slot, host).await,
            other => other,
        };
        // The only node of a store cannot be rebuilt, so its damaged directory is not set aside.
        let opened = match replicas {
            1 => opened.map_err(|problem| describe_only(&directory::path(data, slot), problem))?,
            _ => set_aside_if_damaged(data, slot, opened)?,
        };
        files.extend(opened.map(|opened| (slot, opened)));
    }
    Ok(files)
}

fn describe_only(path: &Path, problem: Problem) -> Problem {
    match problem {
        Problem::Damaged(reason) => Problem::Fatal(fatal!(
            "the only node is damaged, and there is no peer to rebuild it from: {reason}; restore `{}` from a copy, \
             or move it away to start with an empty store",
            path.display()
        )),
        other => other,
    }
}

/// Opens the directory of a slot. Returns `None` if there is no directory, or if it was damaged and set
/// aside.
pub(super) async fn open_slot(
    data: &Path,
    slot: u64,
    host: &Host,
) -> Result<Option<NodeFiles>, Problem> {
    set_aside_if_damaged(data, slot, open_existing(data, slot, host).await)
}

fn set_aside_if_damaged(
    data: &Path,
    slot: u64,
    opened: Result<Option<NodeFiles>, Problem>,
) -> Result<Option<NodeFiles>, Problem> {
    match opened {
        Err(Problem::Damaged(reason)) => {
            set_aside(data, slot, &reason)?;
            Ok(None)
        }
        other => other,
    }
}

pub(super) fn set_aside(data: &Path, slot: u64, reason: &str) -> Result<(), Fatal> {
    let aside = directory::set_aside(&directory::path(data, slot), reason)?;
    tracing::error!(
        reason,
        "node {slot} is damaged: its data was moved to `{}`, and its peers will rebuild the node",
        aside.display()
    );
    Ok(())
}

/// Opens the directory of a slot. If a stopping node of this process still has it open, waits until the
/// node has closed it.
async fn open_existing(data: &Path, slot: u64, host: &Host) -> Result<Option<NodeFiles>, Problem> {
    let mut tries = CLOSING_TRIES;
    loop {
        match try_to_open(data, slot, host) {
            Err(Problem::InUse(_)) if tries > 0 => tries -= 1,
            other => return other,
        }
        tokio::time::sleep(CLOSING_PAUSE).await;
    }
}

fn try_to_open(data: &Path, slot: u64, host: &Host) -> Result<Option<NodeFiles>, Problem> {
    let path = directory::path(data, slot);
    let Some(identity) = directory::read_identity(&path)? else { return Ok(None) };
    // Two nodes with the same identity would both vote with this identity.
    if slot_of(identity.node) != slot {
        return Err(Problem::Fatal(fatal!(
            "`{0}` belongs to node {1}, not to node {slot}: the directories were swapped or copied; move each directory to its own node, or move `{0}` away so that node {slot} is rebuilt from its peers",
            path.display(),
            slot_of(identity.node)
        )));
    }
    directory::open(&FileDisk::open(&path)?, identity, host).map(Some)
}

pub(super) fn create_slot(
    data: &Path,
    slot: u64,
    identity: Identity,
    host: &Host,
) -> Result<NodeFiles, Problem> {
    let path = directory::path(data, slot);
    let disk = FileDisk::open(&path)?;
    directory::write_identity(&path, &identity)
        .map_err(|error| fatal!("cannot write to `{}`: {error}", path.display()))?;
    directory::open(&disk, identity, host)
}

/// Returns the next incarnation of a slot: one more than the highest incarnation on the other nodes.
fn next_incarnation(nodes: &[Replicas], slot: u64) -> u64 {
    let statuses = nodes.iter().flatten().map(Node::status);
    let known = statuses.flat_map(|status| [status.voters, status.learners].concat());
    let of_slot = known.filter(|node| slot_of(*node) == slot);
    of_slot.map(incarnation_of).max().map_or(1, |highest| highest + 1)
}

pub(super) async fn start_node(
    files: NodeFiles,
    transport: &LocalTransport,
    has_neighbours: bool,
    clock: &Arc<Clock>,
    host: &Host,
) -> Result<Replicas, Fatal> {
    let own = Arc::new(transport.clone());
    let settings = Settings { has_neighbours, ..Settings::of_one_process() };
    let replicas = start_replicas(files, own, settings, clock, host).await?;
    replicas.iter().for_each(|replica| transport.add(replica));
    Ok(replicas)
}

/// Starts a node's replica of each arc, in the order of the arcs. The number of arcs in `settings` is ignored.
pub(super) async fn start_replicas(
    files: NodeFiles,
    transport: Arc<dyn Transport>,
    settings: Settings,
    clock: &Arc<Clock>,
    host: &Host,
) -> Result<Replicas, Fatal> {
    let (id, arcs) = (files.identity.node, files.identity.arcs);
    let mut locations = Vec::new();
    for arc in (0..arcs).map(ArcId) {
        locations.push((arc, files.states.location(arc).map_err(Fatal::new)?));
    }
    let parts = locations.into_iter().map(|(arc, state_location)| Parts {
        id,
        arc,
        log: files.log.clone(),
        state_location,
        worker: Arc::clone(&files.worker),
        transport: Arc::clone(&transport),
        clock: Arc::clone(clock),
        settings: Settings { arcs, ..settings.clone() },
        seed: random_seed() ^ id ^ u64::from(arc.0),
        damage: files.damage.clone(),
        on_fatal: Arc::clone(&host.on_fatal),
    });
    Node::start_all(parts.collect()).await.map_err(Fatal::new)
}

/// Returns the slots of the nodes with a new identity that is not a voter yet.
pub(super) fn rebuilt_slots(members: &BTreeSet<NodeId>, voters: &BTreeSet<NodeId>) -> Vec<u64> {
    members.difference(voters).copied().map(slot_of).collect()
}

/// Makes `members` the members of the group. A rebuilt node first receives the data, and then becomes a
/// voter in place of its previous identity. Idempotent: it can be repeated after a crash.
pub(super) async fn repair_membership(nodes: Vec<node::WeakNode>, members: BTreeSet<NodeId>) {
    loop {
        let upgraded: Option<Vec<Node>> = nodes.iter().map(|node| node.upgrade()).collect();
        let Some(nodes) = upgraded else { return };
        if let Some(leader) = nodes.iter().find(|node| node.leader() == Some(node.id())) {
            let status = leader.status();
            let voters: BTreeSet<NodeId> = status.voters.iter().copied().collect();
            if voters == members && status.learners.is_empty() {
                return;
            }
            let nodes = rebuilt_slots(&members, &voters);
            tracing::info!(?nodes, "copying data to rebuilt nodes");
            match leader.change_members(&members).await {
                Ok(()) => tracing::info!("all replicas are complete again"),
                Err(error) => tracing::warn!(%error, "cannot copy data to a rebuilt node yet"),
            }
        }
        drop(nodes);
        tokio::time::sleep(HEAL_RETRY).await;
    }
}
