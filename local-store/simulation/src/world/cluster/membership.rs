//! Sees to it that the members of the group are the nodes that there are: one that begins again with
//! nothing is filled, then takes the vote of the one that it was. `server::store` does the same.

use std::time::Duration;

use node::ring::ArcId;

use super::Cluster;

/// Time between two looks.
const RETRY: Duration = Duration::from_millis(500);

/// Runs as long as its runtime.
pub async fn run(cluster: Cluster) {
    loop {
        tokio::time::sleep(RETRY).await;
        let wanted = cluster.ids();
        if cluster.is_member_list(&wanted) {
            continue;
        }
        let mut is_whole = true;
        for arc in cluster.arcs() {
            is_whole &= change(&cluster, arc, &wanted).await;
        }
        if is_whole {
            cluster.environment.coverage.hit("node rebuilt");
            cluster.environment.note("every node is a member");
            cluster.note_members(wanted);
        }
    }
}

/// Has an arc's leader make these nodes its members. Gives whether they are.
async fn change(cluster: &Cluster, arc: ArcId, wanted: &[u64]) -> bool {
    let mut replicas = cluster.nodes().filter_map(|node| cluster.replica(node));
    let Some(leader) = replicas.find(|replica| replica.leads(arc)) else { return false };
    match leader.change_members(arc, wanted.to_vec()).await {
        Ok(()) => true,
        Err(error) => {
            cluster.environment.note(&format!("no change of members: {error}"));
            false
        }
    }
}
