//! Sees to it that the members of the group are the nodes that there are: one that begins again with
//! nothing is filled, then takes the vote of the one that it was. `server::store` does the same.

use std::time::Duration;

use super::cluster::Cluster;

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
        let leader = cluster
            .nodes()
            .filter_map(|node| cluster.replica(node))
            .find(|replica| replica.leads());
        let Some(leader) = leader else { continue };
        match leader.change_members(wanted.clone()).await {
            Ok(()) => {
                cluster.environment.coverage.hit("node rebuilt");
                cluster.environment.note("every node is a member");
                cluster.note_members(wanted);
            }
            Err(error) => cluster.environment.note(&format!("no change of members: {error}")),
        }
    }
}
