//! The handling of a node whose power is cut, or whose state is damaged, while it runs. After a
//! power cut, the node starts again with its own disk. After damage, it restarts with an empty disk
//! when the other nodes can continue without it, as `server::store` does in production.

use std::time::Duration;

use node::check_redundancy;

use super::Cluster;

/// The pause between two checks.
const CHECK_PAUSE: Duration = Duration::from_millis(200);
/// The number of checks after which the entire state of a damaged node is read, if no read has
/// found the damage yet.
const CHECKS_TO_VERIFY: u32 = 15;

/// Restarts damaged nodes with empty disks, until the runtime ends.
pub async fn run(cluster: Cluster) {
    let mut checks = 0;
    loop {
        tokio::time::sleep(CHECK_PAUSE).await;
        checks = if cluster.nodes().any(|node| is_rotten(&cluster, node)) { checks + 1 } else { 0 };
        for node in cluster.nodes() {
            let Some(replica) = cluster.replica(node) else { continue };
            if cluster.machinery(node).is_some_and(|machinery| !machinery.disk().is_reachable()) {
                drop(replica);
                end_without_power(&cluster, node);
                continue;
            }
            if checks % CHECKS_TO_VERIFY == CHECKS_TO_VERIFY - 1 && is_rotten(&cluster, node) {
                replica.verify();
            }
            if let Some(reason) = replica.damage()
                && is_spare(&cluster, node)
            {
                if !cluster.machinery(node).is_some_and(|machinery| machinery.was_state_damaged()) {
                    let what = format!("node {node} is damaged without a cause: {reason}");
                    cluster.blame("recovery", what);
                }
                drop(replica);
                set_aside(&cluster, node);
            }
        }
    }
}

fn is_rotten(cluster: &Cluster, node: usize) -> bool {
    cluster.machinery(node).is_some_and(|machinery| machinery.is_state_damaged())
}

/// Returns whether the other nodes can continue without this node, by the same rules as in the
/// server.
fn is_spare(cluster: &Cluster, node: usize) -> bool {
    let others = cluster.nodes().filter(|other| *other != node);
    let replicas = others.filter_map(|other| cluster.replica(other));
    let statuses: Vec<_> = replicas.flat_map(|replica| replica.statuses()).collect();
    let own = cluster.replica(node).map(|replica| replica.statuses()).unwrap_or_default();
    check_redundancy(&own, &statuses).is_ok()
}

/// Ends a process whose machine has lost its power while it ran, and starts it again.
fn end_without_power(cluster: &Cluster, node: usize) {
    cluster.crash(node);
    // The start fails, cuts the power of the disk, and tries again.
    let cluster = cluster.clone();
    tokio::spawn(async move { cluster.start(node).await });
}

fn set_aside(cluster: &Cluster, node: usize) {
    cluster.keep_down(node);
    if cluster.crash(node) {
        let in_file = cluster.machinery(node).is_some_and(|machinery| machinery.has_engine());
        let class = if in_file { "damaged file" } else { "damaged block" };
        cluster.environment.coverage.hit(class);
        cluster.wipe(node, "a block of its state is damaged");
    }
    // The start waits until the other nodes have given the node a new identity, which may need this task.
    let cluster = cluster.clone();
    tokio::spawn(async move { cluster.release(node).await });
}
