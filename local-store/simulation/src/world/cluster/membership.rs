//! Membership: keeps the members of the groups equal to the existing nodes. A node with an empty
//! disk is rebuilt, and then replaces its previous identity as a voter. `server::store` does the
//! same in production.

use std::time::Duration;

use node::ring::ArcId;

use super::Cluster;
use super::replicated::place;
use crate::error::HarnessError;

/// The pause between two checks.
const RETRY: Duration = Duration::from_millis(500);

/// Changes the members of the groups when necessary, until the runtime ends.
pub async fn run(cluster: Cluster) {
    loop {
        tokio::time::sleep(RETRY).await;
        let wanted = cluster.ids();
        if cluster.is_member_list(&wanted) {
            continue;
        }
        let mut is_whole = true;
        for arc in cluster.arcs() {
            let holders: Vec<usize> = cluster.holders(arc).collect();
            let mut members = wanted.clone();
            members.retain(|id| holders.contains(&place(*id)));
            is_whole &= change(&cluster, arc, &members).await;
        }
        if is_whole {
            cluster.environment.coverage.hit("node rebuilt");
            cluster.environment.note("every node is a member");
            cluster.note_members(wanted);
        }
    }
}

/// Requests the leader of an arc to make these nodes its members. Returns whether they are now the
/// members.
async fn change(cluster: &Cluster, arc: ArcId, wanted: &[u64]) -> bool {
    let mut replicas = cluster.nodes().filter_map(|node| cluster.replica(node));
    let Some(leader) = replicas.find(|replica| replica.leads(arc)) else { return false };
    match leader.change_members(arc, wanted.to_vec()).await {
        Ok(()) => true,
        Err(HarnessError(error)) => {
            cluster.environment.note(&format!("the membership change failed: {error}"));
            false
        }
    }
}
