//! Tests of a node without a replica, and of a replica that comes and goes.

use std::sync::Weak;

use partition::{Batch, Op};

use super::*;
use crate::remote::{RemoteGroup, RemoteParts, RemoteView};
use crate::replicas::{NodeParts, Replicas, States};
use crate::state_location::StateLocation;

/// The node that has no replica at first.
const OTHER: NodeId = 4;

struct Homes(MemoryLocation);

impl States for Homes {
    fn location(&self, _: ArcId) -> Result<Arc<dyn StateLocation>, storage::Error> {
        Ok(Arc::new(self.0.clone()))
    }
}

impl Cluster {
    /// Starts a node that has only the replicas that its log knows.
    async fn start_other(&mut self) -> (Arc<Replicas>, RemoteGroup) {
        self.clocks.entry(OTHER).or_insert_with(|| Arc::new(AtomicU64::new(1_000)));
        self.disks.entry(OTHER).or_default();
        self.homes.entry(OTHER).or_default();
        let Parts { id, log, worker, transport, clock, settings, seed, damage, on_fatal, .. } =
            self.parts(OTHER);
        let states = Arc::new(Homes(self.homes[&OTHER].clone()));
        let parts = NodeParts {
            id,
            log,
            states,
            worker,
            transport: Arc::clone(&transport),
            clock: Arc::clone(&clock),
            settings,
            seed,
            damage,
            on_fatal,
        };
        let replicas = Replicas::start(parts, &[]).await.unwrap();
        self.wires.replicas.lock().insert(OTHER, Arc::downgrade(&replicas));
        let own = Arc::downgrade(&replicas);
        let timeout = self.settings.request;
        let parts = RemoteParts { arc: ArcId::FIRST, own, transport, clock, timeout };
        (replicas, RemoteGroup::new(parts))
    }
}

/// Reads an item as a node without a replica does.
async fn has_remotely(group: &RemoteGroup, name: &str) -> bool {
    group.refresh(true).await.unwrap();
    let catalogue = group.catalogue();
    let (table, view) = (catalogue.find("t").unwrap(), RemoteView::default());
    loop {
        let found = read_item(&view, table, &key(name));
        if !group.complete(&view).await.unwrap() {
            return found.unwrap().is_some();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_replica_writes_and_reads() {
    let mut cluster = Cluster::start(Settings::default()).await;
    let (replicas, group) = cluster.start_other().await;
    assert!(replicas.running().is_empty());
    group.submit(vec![create()]).await.unwrap();
    let replies = group.submit(vec![put("a")]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Written(_)]), "{replies:?}");
    assert!(has_remotely(&group, "a").await);
    assert!(!has_remotely(&group, "b").await);

    // A write that was acknowledged by another node is in every later strong read.
    cluster.nodes[&cluster.follower()].submit(vec![put("b")]).await.unwrap();
    assert!(has_remotely(&group, "b").await);

    // The remembered leader is gone.
    let leader = cluster.leader();
    cluster.crash(leader, 1).await;
    assert!(has_remotely(&group, "b").await);
    group.submit(vec![put("c")]).await.unwrap();
    assert!(has_remotely(&group, "c").await);

    // Without a majority, a strong read fails, and a write is not done or has an unknown outcome.
    let follower = cluster.follower();
    cluster.crash(follower, 1).await;
    assert!(group.refresh(true).await.is_err());
    assert!(group.submit(vec![put("d")]).await.is_err());
}

/// Goal: a replica that was removed leaves nothing behind, and can come back. Method: the arc moves to a node,
/// away from it and to it again, and the node restarts in between.
#[tokio::test(start_paused = true)]
async fn a_replica_comes_and_goes() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create(), put("a")]).await.unwrap();
    let (mut replicas, mut group) = cluster.start_other().await;
    for round in 0..3 {
        let leader = cluster.nodes[&cluster.leader()].clone();
        let gone = cluster.follower();
        let mut members = BTreeSet::from([1, 2, 3, OTHER]);
        members.remove(&gone);
        leader.change_members(&members).await.unwrap();
        let node = replicas.get(ArcId::FIRST).expect("the leader has sent the state");
        node.read_index().await.unwrap();
        assert!(has(&node, "a"));
        let committed = group.membership().await.unwrap();
        let asked = replicas.remove_if_left(ArcId::FIRST, &committed).await.unwrap();
        assert!(!asked, "a member keeps its replica");

        // The other node counts for the majority.
        cluster.crash(gone, round).await;
        leader.submit(vec![put(&format!("k{round}"))]).await.unwrap();
        cluster.start_node(gone).await;
        leader.change_members(&BTreeSet::from([1, 2, 3])).await.unwrap();
        drop(node);
        let committed = group.membership().await.unwrap();
        assert!(replicas.remove_if_left(ArcId::FIRST, &committed).await.unwrap());
        assert!(replicas.running().is_empty());
        assert!(cluster.homes[&OTHER].storage().is_empty(), "the state was removed");
        assert!(has_remotely(&group, &format!("k{round}")).await);

        replicas.shutdown().await;
        drop((replicas, group));
        // The process died before it removed the state.
        let left = Batch { ops: vec![Op::Put(vec![1], [1].into())] };
        cluster.homes[&OTHER].storage().apply(&left).unwrap();
        (replicas, group) = cluster.start_other().await;
        assert!(replicas.running().is_empty(), "the log remembers that the node has left");
        assert!(cluster.homes[&OTHER].storage().is_empty(), "the state was removed");
    }
    assert!(cluster.deaths.lock().is_empty());
}

/// Goal: a node that leaves, while its leader has already made it a member again, gets the state again.
#[tokio::test(start_paused = true)]
async fn a_replica_that_has_left_too_early_is_filled_again() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create(), put("a")]).await.unwrap();
    let (replicas, _group) = cluster.start_other().await;
    let leader = cluster.nodes[&cluster.leader()].clone();
    leader.change_members(&BTreeSet::from([1, 2, 3, OTHER])).await.unwrap();
    let without = (u64::MAX, BTreeSet::from([1, 2, 3]));
    assert!(replicas.remove_if_left(ArcId::FIRST, &without).await.unwrap());
    leader.submit(vec![put("b")]).await.unwrap();
    let filled = async {
        while !replicas.get(ArcId::FIRST).is_some_and(|node| has(&node, "a") && has(&node, "b")) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), filled).await.unwrap();
    assert!(cluster.deaths.lock().is_empty());
}

/// Goal: a message for a removed replica creates none, unless it is from a leader.
#[tokio::test(start_paused = true)]
async fn a_candidate_creates_no_replica() {
    let mut cluster = Cluster::start(Settings::default()).await;
    let (replicas, _group) = cluster.start_other().await;
    let vote = openraft::Vote::new(100, 1);
    let request = openraft::raft::VoteRequest::new(vote, None);
    for request in [Request::Vote(request.clone()), Request::PreVote(request)] {
        let message = Envelope { from: 1, to: OTHER, arc: ArcId::FIRST, request };
        let response = replicas.handle(message).await;
        assert!(matches!(response, Response::Refused(_)), "{response:?}");
    }
    assert!(replicas.running().is_empty());
}

/// The replicas of nodes that can have none.
pub(super) type Others = Arc<Mutex<BTreeMap<NodeId, Weak<Replicas>>>>;
