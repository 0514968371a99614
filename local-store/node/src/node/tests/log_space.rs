//! Tests of the entries that logs keep: entries that a peer may need, and no other entries in a
//! quiet time.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_that_is_far_behind_gets_a_snapshot() {
    let settings = Settings { snapshot_entries: 20, entries_kept: 0, ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    let behind = cluster.follower();
    cluster.crash(behind, 1).await;
    for number in 0..100 {
        let leader = cluster.leader();
        cluster.nodes[&leader].submit(vec![put(&format!("k{number}"))]).await.unwrap();
    }
    // The leader truncates the log only after it has retried an absent peer for a few seconds.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for number in 100..130 {
        let leader = cluster.leader();
        cluster.nodes[&leader].submit(vec![put(&format!("k{number}"))]).await.unwrap();
    }
    let leader = cluster.nodes[&cluster.leader()].status();
    assert!(leader.purged > Some(50), "{leader:?}");
    cluster.start_node(behind).await;
    let node = &cluster.nodes[&behind];
    node.read_index().await.unwrap();
    assert!((0..130).all(|number| has(node, &format!("k{number}"))));
    // The node continues from the snapshot, even after it has lost its unsynced writes.
    cluster.crash(behind, 2).await;
    cluster.start_node(behind).await;
    let node = &cluster.nodes[&behind];
    node.submit(vec![put("last")]).await.unwrap();
    node.read_index().await.unwrap();
    assert!((0..130).all(|number| has(node, &format!("k{number}"))) && has(node, "last"));
}

/// Goal: after a quiet time without writes, each node's log is only a small file, and no entry is
/// lost.
#[tokio::test(start_paused = true)]
async fn quiet_nodes_give_the_space_of_their_logs_back() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    for number in 0..300 {
        let leader = cluster.leader();
        cluster.nodes[&leader].submit(vec![put(&format!("k{number}"))]).await.unwrap();
    }
    let bytes = |cluster: &Cluster| {
        cluster.nodes.values().map(|node| node.status().log_bytes).collect::<Vec<_>>()
    };
    assert!(bytes(&cluster).iter().all(|bytes| *bytes > 50_000), "{:?}", bytes(&cluster));
    tokio::time::sleep(Settings::default().quiet / 2).await;
    assert!(bytes(&cluster).iter().all(|bytes| *bytes > 50_000), "it is not quiet yet");
    tokio::time::sleep(Settings::default().quiet).await;
    assert_eq!(bytes(&cluster), [8_192; 3]);
    for id in 1..=3 {
        cluster.crash(id, id).await;
    }
    for id in 1..=3 {
        cluster.start_node(id).await;
    }
    cluster.nodes[&2].submit(vec![put("last")]).await.unwrap();
    for node in cluster.nodes.values() {
        node.read_index().await.unwrap();
        assert!((0..300).all(|number| has(node, &format!("k{number}"))) && has(node, "last"));
    }
}

/// Goal: a node that is down while no writes arrive gets its missing entries after it restarts.
#[tokio::test(start_paused = true)]
async fn a_quiet_leader_keeps_what_a_peer_lacks() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    let behind = cluster.follower();
    cluster.crash(behind, 1).await;
    for number in 0..300 {
        let leader = cluster.leader();
        cluster.nodes[&leader].submit(vec![put(&format!("k{number}"))]).await.unwrap();
    }
    tokio::time::sleep(3 * Settings::default().quiet).await;
    let leader = cluster.nodes[&cluster.leader()].status();
    assert!(leader.purged.is_none_or(|purged| purged < 10), "{leader:?}");
    cluster.start_node(behind).await;
    let node = &cluster.nodes[&behind];
    node.read_index().await.unwrap();
    assert!((0..300).all(|number| has(node, &format!("k{number}"))));
}
