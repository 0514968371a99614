//! Observes the leaders of all arcs while a world runs; see [`crate::checkers::leaders`].

use std::time::Duration;

use node::status::Role;

use super::Cluster;
use crate::checkers::leaders::Leaders;

/// The pause between two checks. It is shorter than a heartbeat, so that few leaders are missed.
const CHECK_PAUSE: Duration = Duration::from_millis(50);

/// Checks the leaders until the runtime ends, or until the first violation.
pub async fn run(cluster: Cluster) {
    let mut leaders = Leaders::default();
    loop {
        tokio::time::sleep(CHECK_PAUSE).await;
        let replicas = cluster.nodes().filter_map(|node| cluster.replica(node));
        let statuses = replicas.flat_map(|replica| replica.statuses());
        for status in statuses.filter(|status| status.role == Role::Leader) {
            if let Some(what) = leaders.observe(status.arc.0, status.term, status.node) {
                return cluster.blame("leaders", what);
            }
        }
    }
}
