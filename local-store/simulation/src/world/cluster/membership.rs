//! Membership: nodes that join, leave or lose their disks. The store's own code moves the replicas.

use std::time::Duration;

use partition::{Command, Reply, Ring, RingChange, Slot};

use super::Cluster;

/// The pause between two checks.
const CHECK_PAUSE: Duration = Duration::from_millis(200);
/// The maximum number of attempts to change the ring. All attempts together take longer than any fault lasts.
const ATTEMPTS_MAX: usize = 100;

/// Ends the processes of nodes that have left the ring, and counts nodes that are complete again, until the
/// runtime ends.
pub async fn run(cluster: Cluster) {
    loop {
        tokio::time::sleep(CHECK_PAUSE).await;
        let Some(ring) = cluster.ring() else { continue };
        for node in cluster.nodes() {
            let is_gone = slot(node).is_some_and(|slot| !ring.nodes.contains_key(&slot));
            if is_gone && end_member(&cluster, node, &ring) {
                cluster.crash(node);
                cluster.wipe(node, "it has left the ring");
                cluster.environment.coverage.hit("node left");
            }
        }
        if cluster.is_whole() {
            for node in cluster.nodes() {
                let is_new = |process: &mut super::Process| std::mem::take(&mut process.is_new);
                if cluster.process(node).is_some_and(|mut process| is_new(&mut process)) {
                    cluster.environment.coverage.hit("node rebuilt");
                    cluster.environment.note(&format!("node {node} has all its replicas"));
                }
            }
        }
    }
}

fn slot(node: usize) -> Option<Slot> {
    Slot::new(u8::try_from(node).ok()?)
}

/// Ends the membership of a node that the ring no longer has. Returns false if the node is no member, or has
/// joined since.
fn end_member(cluster: &Cluster, node: usize, ring: &Ring) -> bool {
    let Some(mut process) = cluster.process(node) else { return false };
    // A ring from before the node joined does not have the node either.
    let has_left = process.is_member && process.joined_in < ring.version;
    if has_left {
        process.is_member = false;
    }
    has_left
}

/// Gives a node that has lost its disk a new incarnation. Returns false if no other node answers.
pub async fn admit(cluster: &Cluster, node: usize) -> bool {
    let (needs_admission, lost) = match cluster.process(node) {
        Some(process) => (process.needs_admission, process.incarnation),
        None => return false,
    };
    if !needs_admission {
        return true;
    }
    let Some(slot) = slot(node) else { return false };
    let Some(ring) = change(cluster, RingChange::Readmit { slot, lost }, 1).await else {
        return false;
    };
    take_identity(cluster, node, &ring)
}

/// Takes over the identity that the ring has for a node.
fn take_identity(cluster: &Cluster, node: usize, ring: &Ring) -> bool {
    let Some(known) = slot(node).and_then(|slot| ring.nodes.get(&slot)) else { return false };
    let Some(mut process) = cluster.process(node) else { return false };
    process.incarnation = known.incarnation;
    process.joined_in = ring.version;
    (process.is_member, process.needs_admission, process.is_new) = (true, false, true);
    true
}

/// Lets a node join the ring, and starts it.
pub async fn join(cluster: &Cluster, node: usize) {
    let Some(slot) = slot(node) else { return };
    if cluster.is_member(node) {
        return;
    }
    let join = RingChange::Join { slot, address: None };
    if let Some(ring) = change(cluster, join, ATTEMPTS_MAX).await
        && take_identity(cluster, node, &ring)
    {
        cluster.environment.coverage.hit("node joined");
        cluster.environment.note(&format!("node {node} joins"));
        cluster.start(node).await;
    }
}

/// Lets a node leave the ring. Its process ends when no arc needs it.
pub async fn leave(cluster: &Cluster, node: usize) {
    if let Some(slot) = slot(node)
        && cluster.is_member(node)
        && change(cluster, RingChange::Leave { slot }, ATTEMPTS_MAX).await.is_some()
    {
        cluster.environment.note(&format!("node {node} leaves"));
    }
}

/// Changes the ring through any node. Returns the ring after the change, or `None` if the ring refuses it or no
/// node answers.
pub async fn change(cluster: &Cluster, change: RingChange, attempts: usize) -> Option<Ring> {
    // Whether an attempt without an answer may have changed the ring.
    let mut is_unsure = false;
    for _ in 0..attempts {
        for node in cluster.nodes() {
            let Some(replica) = cluster.replica(node) else { continue };
            let command = Command::ChangeRing(Box::new(change.clone()));
            match replica.submit(vec![command]).await.map(|replies| replies.into_iter().next()) {
                Ok(Some(Reply::Ring(ring))) => return Some(*ring),
                Ok(Some(Reply::Invalid(_))) if !is_unsure => return None,
                // The nodes that run may not know the ring yet in which an earlier attempt added the node.
                Ok(Some(Reply::Invalid(_))) => {
                    let RingChange::Join { slot, .. } = change else { return None };
                    if let Some(ring) = ring_with(cluster, slot) {
                        return Some(ring);
                    }
                }
                _ => is_unsure = true,
            }
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
    None
}

/// Returns the newest known ring if it has a node.
fn ring_with(cluster: &Cluster, slot: Slot) -> Option<Ring> {
    let ring = cluster.ring()?;
    ring.nodes.contains_key(&slot).then(|| Ring::clone(&ring))
}
