//! Rebuilds a damaged node of this process while the store runs. The module stops the node, sets its directory
//! aside, and starts a node with a new identity, which receives the data from its peers.
//!
//! Nodes are rebuilt one at a time, and only if the other nodes can continue without the node
//! (`node::redundancy`). The process may end at any moment. The next start finds a directory with recorded
//! damage, no directory, or a new directory, and resumes the rebuild.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::select_all;

use super::cluster::{self, Replicas};
use super::directory::{self, Host, Identity, NotYet, Problem};
use super::{Store, WeakStore};
use node::LocalTransport;
use node::clock::Clock;
use node::status::Status;
use node::{InsufficientRedundancy, Node, NodeId, check_redundancy, slot_of};
use storage::disk::Damage;

/// The interval between two checks of a damaged node that cannot be set aside yet. Reads use another node
/// immediately, but a write may wait for this interval.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The interval between two log lines about a damaged node that cannot be set aside yet.
const LOG_INTERVAL: Duration = Duration::from_secs(30);
/// The time in which requests on a stopped node must end: twice the maximum duration of a request.
const RELEASE: Duration = Duration::from_secs(20);
/// The pause between two attempts to create the new directory.
const RETRY: Duration = Duration::from_secs(1);

/// The parameters of a rebuilt node's start.
pub(super) struct Rebuild {
    pub(super) data: PathBuf,
    pub(super) cluster: String,
    pub(super) transport: LocalTransport,
    pub(super) clock: Arc<Clock>,
    pub(super) host: Host,
}

/// Rebuilds damaged nodes while the store exists.
pub(super) async fn run(store: WeakStore, rebuild: Rebuild) {
    let mut logged_at: Option<Instant> = None;
    loop {
        damage_or_end(&store).await;
        let Some(upgraded) = store.upgrade() else { return };
        let Some(slot) = find_damaged(&upgraded) else {
            drop(upgraded);
            tokio::time::sleep(CHECK_INTERVAL).await;
            continue;
        };
        let set_aside = rebuild.set_aside(&upgraded, slot).await;
        drop(upgraded);
        match set_aside {
            Ok(identity) => rebuild.begin_again(&store, identity).await,
            Err(why) => {
                if logged_at.is_none_or(|at| at.elapsed() > LOG_INTERVAL) {
                    tracing::warn!(
                        reason = why.to_string(),
                        "node {slot} is damaged, but its directory cannot be set aside yet"
                    );
                    logged_at = Some(Instant::now());
                }
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        }
    }
}

/// Waits until a node is damaged or stopped, or the store has ended.
async fn damage_or_end(store: &WeakStore) {
    let records: Vec<Damage> = match store.upgrade() {
        Some(store) => {
            let nodes = store.current_nodes();
            let first = nodes.iter().filter_map(|node| node.first());
            first.map(|replica| replica.damage().clone()).collect()
        }
        None => return,
    };
    if !records.is_empty() {
        select_all(records.iter().map(|damage| Box::pin(damage.found()))).await;
    }
}

/// Returns the lowest slot of a damaged node.
fn find_damaged(store: &Store) -> Option<u64> {
    let nodes = store.current_nodes();
    let mut first = nodes.iter().filter_map(|node| node.first());
    first.find(|replica| replica.damage().reason().is_some()).map(|node| slot_of(node.id()))
}

impl Rebuild {
    /// Stops a damaged node and sets its directory aside. Returns the new identity of the node.
    ///
    /// # Errors
    /// The reason why the node cannot be set aside yet. The node is unchanged, but a new identity may
    /// have been assigned.
    async fn set_aside(&self, store: &Store, slot: u64) -> Result<Identity, NotYet> {
        let nodes = store.current_nodes();
        let (damaged, others) = split(&nodes, slot);
        let first = damaged.first().ok_or(InsufficientRedundancy::NoReplicas)?;
        let reason = first.damage().reason().unwrap_or_default().to_owned();
        directory::check_room_beside(&self.data, slot)?;
        let arcs = store.arc_count();
        let statuses: Vec<Status> = others.iter().copied().flatten().map(Node::status).collect();
        let own: Vec<Status> = damaged.iter().map(Node::status).collect();
        check_redundancy(&own, &statuses)?;
        let mut of_first_arc = others.iter().filter_map(|node| node.first());
        let leader = of_first_arc.find(|replica| replica.leads()).ok_or(NotYet::NoLeader)?;
        let admitted = leader.admit(slot).await?;
        // Removes the damaged node from the node set, so that requests do not use it.
        let members: Vec<Replicas> = others.into_iter().cloned().collect();
        store.shared.nodes.send_replace(Arc::new(members));
        for replica in damaged {
            self.transport.remove(replica.id());
            replica.shutdown().await;
        }
        drop(nodes);
        self.wait_for_release(slot).await;
        if let Err(error) = cluster::set_aside(&self.data, slot, &reason) {
            (self.host.on_fatal)(&error.to_string());
        }
        Ok(Identity::new(self.cluster.clone(), admitted, arcs))
    }

    /// Waits until a stopped node has closed all files of its directory. Otherwise a reader that opens
    /// files by path could read the files of the new node.
    async fn wait_for_release(&self, slot: u64) {
        let path = directory::path(&self.data, slot);
        let begun = Instant::now();
        while !directory::is_free(&path) {
            if begun.elapsed() > RELEASE {
                (self.host.on_fatal)(&format!(
                    "node {slot} is damaged, and its directory was still in use {RELEASE:?} after the node stopped: restart the store, which then sets the directory aside"
                ));
                return;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Starts an empty node, which then receives its data. Retries until it succeeds or the store
    /// is dropped.
    async fn begin_again(&self, store: &WeakStore, identity: Identity) {
        let slot = slot_of(identity.node);
        loop {
            let Some(store) = store.upgrade() else { return };
            match self.start(slot, identity.clone()).await {
                Ok(replicas) => return self.repair_groups(&store, &replicas),
                Err(problem) => tracing::error!(
                    reason = problem.to_string(),
                    "cannot start a new node {slot} yet"
                ),
            }
            drop(store);
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Creates the directory of a node, and starts the node. After any error, the caller retries, because
    /// the store runs without the node.
    async fn start(&self, slot: u64, identity: Identity) -> Result<Replicas, Problem> {
        let files = cluster::create_slot(&self.data, slot, identity, &self.host)?;
        Ok(cluster::start_node(files, &self.transport, true, &self.clock, &self.host).await?)
    }

    /// Adds a new node to the store. Makes it a voter of each group after it has received the data.
    fn repair_groups(&self, store: &Store, replicas: &Replicas) {
        let mut nodes = Vec::clone(&store.current_nodes());
        nodes.push(replicas.clone());
        nodes.sort_by_key(|node| node.first().map(|replica| slot_of(replica.id())));
        let members: BTreeSet<NodeId> =
            nodes.iter().filter_map(|node| node.first()).map(Node::id).collect();
        for (place, _) in store.arcs().enumerate() {
            let of_arc = nodes.iter().filter_map(|node| node.get(place)).map(Node::downgrade);
            tokio::spawn(cluster::repair_membership(of_arc.collect(), members.clone()));
        }
        store.start_work_of(replicas, &self.data);
        store.shared.nodes.send_replace(Arc::new(nodes));
    }
}

/// Returns the replicas of the node in a slot, and the replicas of the other nodes.
fn split(nodes: &[Replicas], slot: u64) -> (&[Node], Vec<&Replicas>) {
    let is_meant = |node: &&Replicas| node.first().is_some_and(|it| slot_of(it.id()) == slot);
    let (meant, others): (Vec<_>, Vec<_>) = nodes.iter().partition(is_meant);
    (meant.first().map_or(&[][..], |node| node.as_slice()), others)
}
