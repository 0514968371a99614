//! Three nodes in one process, with simulated disks and time: elections, crashes, forwarding,
//! snapshots.

mod failed_start;
mod log_space;
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use locks::Mutex;
use model::{EpochMillis, Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, PrimaryKey};
use partition::{
    Batch, Billing, Command, CreateTable, Entry, Op, Reply, TableId, Write, WriteAction,
    encode_entry, read_item,
};
use tokio::sync::mpsc;

use super::*;
use crate::failure::OnFatal;
use crate::leadership::Ballot;
use crate::local_transport::LocalTransport;
use crate::payload::Payload;
use crate::replica::COMPARED_EVERY;
use crate::state_location::MemoryLocation;
use crate::status::Role;
use crate::transport::{
    BoxFuture, CallError, Envelope, Request, Response, SnapshotPart, Transport,
};
use crate::types;
use crate::worker::{Job, Worker};
use storage::Storage;
use storage::disk::{Disk, SimulatedDisk};
use storage::log::{Log, Options};

/// A worker that runs as a task and waits before each job, like a disk.
pub(crate) struct TaskWorker {
    jobs: mpsc::UnboundedSender<(Duration, Job)>,
}

impl TaskWorker {
    pub(crate) fn start(delay: Duration) -> Self {
        let (jobs, mut waiting) = mpsc::unbounded_channel::<(Duration, Job)>();
        tokio::spawn(async move {
            while let Some((more, job)) = waiting.recv().await {
                tokio::time::sleep(delay + more).await;
                job();
            }
        });
        Self { jobs }
    }
}

impl Worker for TaskWorker {
    fn run(&self, job: Job) {
        let _ = self.jobs.send((Duration::ZERO, job));
    }

    fn run_later(&self, delay: Duration, job: Job) {
        let _ = self.jobs.send((delay, job));
    }
}

/// A local transport that can disconnect nodes.
#[derive(Clone, Default)]
struct Wires {
    inner: LocalTransport,
    replicas: remote::Others,
    hides_votes: Arc<AtomicBool>,
    cut_off: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Transport for Wires {
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>> {
        let cut_off = self.cut_off.lock();
        if cut_off.contains(&message.from) || cut_off.contains(&message.to) {
            return Box::pin(async move {
                tokio::time::sleep(timeout).await;
                Err(CallError::Lost("the wire is cut".to_owned()))
            });
        }
        let other = self.replicas.lock().get(&message.to).and_then(Weak::upgrade);
        if let Some(replicas) = other {
            return Box::pin(async move { Ok(replicas.handle(message).await) });
        }
        let call = self.inner.call(message, timeout);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_micros(200)).await;
            call.await
        })
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.inner.nodes()
    }

    fn ballot_of(&self, node: NodeId, arc: ArcId) -> Option<Ballot> {
        if self.hides_votes.load(Ordering::SeqCst) {
            return None;
        }
        self.inner.ballot_of(node, arc)
    }
}

struct Cluster {
    disks: BTreeMap<NodeId, SimulatedDisk>,
    homes: BTreeMap<NodeId, MemoryLocation>,
    nodes: BTreeMap<NodeId, Node>,
    wires: Wires,
    settings: Settings,
    /// The time of each node's clock.
    clocks: BTreeMap<NodeId, Arc<AtomicU64>>,
    /// The reasons why nodes failed.
    deaths: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    async fn start(settings: Settings) -> Self {
        let mut cluster = Self {
            disks: BTreeMap::new(),
            homes: BTreeMap::new(),
            nodes: BTreeMap::new(),
            wires: Wires::default(),
            settings,
            clocks: BTreeMap::new(),
            deaths: Arc::default(),
        };
        for id in 1..=3 {
            cluster.clocks.insert(id, Arc::new(AtomicU64::new(1_000)));
            cluster.disks.insert(id, SimulatedDisk::new());
            cluster.homes.insert(id, MemoryLocation::default());
            cluster.start_node(id).await;
        }
        cluster.nodes[&1].initialize(BTreeSet::from([1, 2, 3])).await.unwrap();
        cluster.nodes[&1].read_index().await.unwrap();
        cluster
    }

    async fn start_node(&mut self, id: NodeId) {
        self.try_to_start(id).await.unwrap();
    }

    /// Returns the parts of a node that does not run.
    fn parts(&self, id: NodeId) -> Parts {
        let disk: Arc<dyn Disk> = Arc::new(self.disks[&id].clone());
        let (segment_bytes, first_segment_bytes) = (64 * 1024, 8 * 1024);
        let options = Options { segment_bytes, first_segment_bytes, ..Options::default() };
        let log = Log::open(disk, options).unwrap();
        let deaths = Arc::clone(&self.deaths);
        let on_fatal: OnFatal = Arc::new(move |reason| {
            tracing::debug!(reason, "a node failed");
            deaths.lock().push(reason.to_owned());
        });
        let worker = || Arc::new(TaskWorker::start(Duration::from_micros(300)));
        let clock = Arc::clone(&self.clocks[&id]);
        Parts {
            id,
            arc: ArcId::FIRST,
            log: NodeLog::open(log, worker(), Arc::clone(&on_fatal)).unwrap(),
            damage: Damage::default(),
            state_location: Arc::new(self.homes[&id].clone()),
            worker: worker(),
            transport: Arc::new(self.wires.clone()),
            clock: Arc::new(Clock::with_source(
                EpochMillis(0),
                Box::new(move || EpochMillis(clock.load(Ordering::SeqCst))),
            )),
            settings: self.settings.clone(),
            seed: id,
            on_fatal,
        }
    }

    async fn try_to_start(&mut self, id: NodeId) -> Result<(), StartError> {
        let node = Node::start(self.parts(id)).await?;
        self.wires.inner.add(&node);
        self.nodes.insert(id, node);
        Ok(())
    }

    /// Cuts the power of a node, which loses its unsynced writes.
    async fn crash(&mut self, id: NodeId, seed: u64) {
        self.wires.inner.remove(id);
        self.disks[&id].power_cut(seed);
        self.homes[&id].storage().lose_memory(seed);
        self.nodes.remove(&id).unwrap().shutdown().await;
    }

    fn leader(&self) -> NodeId {
        let leads = |node: &&Node| node.status().role == Role::Leader;
        let leader = self.nodes.values().filter(leads).max_by_key(|node| node.status().term);
        leader.unwrap().id()
    }

    fn follower(&self) -> NodeId {
        let leader = self.leader();
        *self.nodes.keys().find(|id| **id != leader).unwrap()
    }
}

fn create() -> Command {
    let partition = KeyAttribute { name: "p".to_owned(), attribute_type: KeyAttributeType::S };
    Command::CreateTable(Box::new(CreateTable {
        name: "t".into(),
        key_schema: KeySchema { partition, sort: None },
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: None,
        indexes: Vec::new(),
        options: Vec::new(),
    }))
}

fn key(name: &str) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::S(name.to_owned()), sort: None }
}

fn put(name: &str) -> Command {
    Command::Write(Box::new(Write {
        table: TableId(1),
        key: key(name),
        action: WriteAction::put(&Item::new().with("p", name)),
        condition: None,
        return_old: false,
        return_new: false,
        return_on_failure: false,
    }))
}

fn has(node: &Node, name: &str) -> bool {
    let catalogue = node.catalogue();
    let table = catalogue.find("t").unwrap();
    read_item(&*node.view(), table, &key(name)).unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn every_node_takes_writes_and_strong_reads() {
    let cluster = Cluster::start(Settings::default()).await;
    let replies = cluster.nodes[&2].submit(vec![create()]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Table(_)]), "{replies:?}");
    for (id, node) in &cluster.nodes {
        let replies = node.submit(vec![put(&format!("k{id}"))]).await.unwrap();
        assert!(matches!(replies[..], [Reply::Written(_)]), "{replies:?}");
        assert!(has(node, &format!("k{id}")), "a node shows the writes that it received");
    }
    for node in cluster.nodes.values() {
        node.read_index().await.unwrap();
        assert!(["k1", "k2", "k3"].iter().all(|name| has(node, name)));
    }
}

/// Goal: a damaged state is detected even though the nodes of a process share results.
#[tokio::test(start_paused = true)]
async fn a_node_with_a_diverged_state_stops() {
    let cluster = Cluster::start(Settings::default()).await;
    let leader = &cluster.nodes[&cluster.leader()];
    leader.submit(vec![create()]).await.unwrap();
    leader.submit(vec![put("k")]).await.unwrap();
    let follower = cluster.follower();
    cluster.nodes[&follower].read_index().await.unwrap();
    // The key prefix of items.
    let (mut item, storage) = (None, cluster.homes[&follower].storage());
    let mut visit = |key: &[u8], _: &[u8]| {
        item = Some(key.to_vec());
        ControlFlow::Break(())
    };
    storage.view().scan(&[3], &[4], false, &mut visit).unwrap();
    storage.apply(&Batch { ops: vec![Op::Delete(item.unwrap())] }).unwrap();

    // The item was deleted on one node only, so the same write changes the item only there.
    for _ in 0..COMPARED_EVERY {
        leader.submit(vec![put("k")]).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let deaths = cluster.deaths.lock().clone();
    let differs = |reason: &String| reason.contains("has different effects on two nodes");
    assert!(!deaths.is_empty() && deaths.iter().all(differs), "{deaths:?}");
    leader.submit(vec![put("others continue")]).await.unwrap();
}

/// Goal: the nodes of a process share the proposer's decoded entry, but an entry with different
/// bytes is detected.
#[tokio::test(start_paused = true)]
async fn bytes_that_differ_from_the_proposal_are_detected() {
    let cluster = Cluster::start(Settings::default()).await;
    let leader = &cluster.nodes[&cluster.leader()];
    leader.submit(vec![create()]).await.unwrap();
    let entry = |name| Entry { now: EpochMillis(1_000), commands: vec![put(name)] };
    for _ in 0..COMPARED_EVERY {
        let bytes = Bytes::from(encode_entry(&entry("said")).unwrap());
        let payload = Payload::of(bytes, Arc::new(entry("meant")));
        leader.inner.raft.client_write_ff(payload, None).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let deaths = cluster.deaths.lock().clone();
    let differs = |reason: &String| reason.contains("has different effects on two nodes");
    assert!(!deaths.is_empty() && deaths.iter().all(differs), "{deaths:?}");
}

#[tokio::test(start_paused = true)]
async fn acknowledged_writes_survive_any_crash() {
    for seed in 0..12 {
        let mut cluster = Cluster::start(Settings::default()).await;
        cluster.nodes[&1].submit(vec![create()]).await.unwrap();
        for round in 0..4 {
            let name = format!("k{round}");
            let asked = cluster.follower();
            cluster.nodes[&asked].submit(vec![put(&name)]).await.unwrap();
            let all: Vec<NodeId> = cluster.nodes.keys().copied().collect();
            let leader = cluster.leader();
            let crashed = if round == 3 { all } else { vec![leader] };
            for id in &crashed {
                cluster.crash(*id, seed * 10 + round).await;
            }
            for id in crashed {
                cluster.start_node(id).await;
            }
            for node in cluster.nodes.values() {
                node.read_index().await.unwrap();
                let lost = (0..=round).find(|round| !has(node, &format!("k{round}")));
                assert_eq!(lost, None, "seed {seed} round {round} node {}", node.id());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_node_leads_within_two_seconds_and_the_old_leader_serves_nothing_stale() {
    let cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create(), put("old")]).await.unwrap();
    let old = cluster.leader();
    cluster.wires.cut_off.lock().insert(old);
    let other = *cluster.nodes.keys().find(|id| **id != old).unwrap();
    let started = tokio::time::Instant::now();
    // A request to a leader that does not respond has an unknown outcome. Later requests go to the
    // new leader.
    let mut outcome = cluster.nodes[&other].submit(vec![put("new")]).await;
    while let Err(SubmitError::Unknown(_)) = outcome {
        outcome = cluster.nodes[&other].submit(vec![put("new")]).await;
    }
    outcome.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // The old leader may believe that it leads, but it has no majority.
    assert!(matches!(cluster.nodes[&old].read_index().await, Err(SubmitError::NotDone(_))));
    assert!(matches!(
        cluster.nodes[&old].submit(vec![put("lost")]).await,
        Err(SubmitError::Unknown(_))
    ));
    cluster.wires.cut_off.lock().clear();
    cluster.nodes[&old].read_index().await.unwrap();
    assert!(has(&cluster.nodes[&old], "new"));
}

/// Goal: a strong read needs no messages exactly while the votes in the same process prove
/// leadership.
#[tokio::test(start_paused = true)]
async fn a_leader_that_sees_the_votes_of_others_sends_no_message() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create(), put("old")]).await.unwrap();
    let old = cluster.leader();
    let shows_all = |cluster: &Cluster| -> Vec<NodeId> {
        cluster.nodes.values().filter(|node| node.shows_all()).map(Node::id).collect()
    };
    assert_eq!(shows_all(&cluster), [old]);
    cluster.wires.hides_votes.store(true, Ordering::SeqCst);
    assert!(shows_all(&cluster).is_empty());
    cluster.wires.hides_votes.store(false, Ordering::SeqCst);

    // A disconnected leader can prove its leadership as long as no other node leads.
    cluster.wires.cut_off.lock().insert(old);
    assert_eq!(shows_all(&cluster), [old]);
    let others: Vec<NodeId> = cluster.nodes.keys().copied().filter(|id| *id != old).collect();
    while cluster.nodes[&others[0]].submit(vec![put("new")]).await.is_err() {}
    assert!(cluster.nodes[&old].leads(), "it does not know of another leader");
    assert!(!shows_all(&cluster).contains(&old));
    assert_eq!(shows_all(&cluster), [cluster.leader()]);

    // One other vote and the leader's own are a majority. The leader's own vote alone is not.
    let leader = cluster.leader();
    cluster.crash(old, 1).await;
    assert_eq!(shows_all(&cluster), [leader]);
    let follower = *others.iter().find(|id| **id != leader).unwrap();
    cluster.crash(follower, 2).await;
    assert!(shows_all(&cluster).is_empty());
}

/// Goal: a strong read on the leader shows every write that another node has shown. Method: the
/// followers learn of a committed entry that the leader has not applied.
#[tokio::test(start_paused = true)]
async fn a_leader_waits_for_entries_that_it_announced() {
    let cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    let leader = &cluster.nodes[&cluster.leader()];
    let applied = leader.status().applied.unwrap();
    assert_eq!(leader.index_to_show(), Some(applied));
    leader.inner.announced_commit.fetch_max(applied + 1, Ordering::SeqCst);
    assert!(!leader.shows_all());
    let (read, written) = tokio::join!(
        async {
            leader.read_index().await.unwrap();
            has(leader, "k")
        },
        leader.submit(vec![put("k")]),
    );
    written.unwrap();
    assert!(read);
}

/// Goal: a restarted leader must be elected again, even if its peers have not voted in the
/// meantime, because it may lack entries that it had applied.
#[tokio::test(start_paused = true)]
async fn a_restarted_leader_must_be_elected_again() {
    let mut cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create(), put("k")]).await.unwrap();
    let leader = cluster.leader();
    let before = cluster.nodes[&leader].ballot().unwrap();
    cluster.crash(leader, 3).await;
    cluster.start_node(leader).await;
    let of_all = cluster.nodes.values().map(|node| node.ballot().unwrap());
    assert!(of_all.into_iter().all(|ballot| ballot == before), "no node has voted since");
    assert!(!cluster.nodes[&leader].shows_all());
    cluster.nodes[&leader].read_index().await.unwrap();
    let [leader] = cluster.nodes.values().filter(|node| node.shows_all()).collect::<Vec<_>>()[..]
    else {
        panic!("one of them leads");
    };
    assert!(leader.ballot().unwrap().term > before.term);
    assert!(has(leader, "k"));
}

#[tokio::test(start_paused = true)]
async fn abandoned_submissions_are_not_proposed_late() {
    let cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    let leader = &cluster.nodes[&cluster.leader()];
    let from = cluster.follower();
    // The clock of every node shows 1,000.
    for (asked_at, name) in [(0, "now"), (2_000, "ahead")] {
        let submission = Submission { asked_at: EpochMillis(asked_at), commands: vec![put(name)] };
        let request = Request::Submit(encode_submission(&submission).unwrap());
        let message = Envelope { from, to: leader.id(), arc: ArcId::FIRST, request };
        assert!(matches!(leader.handle(message).await, Response::Submitted { .. }), "{name}");
        assert!(has(leader, name));
    }
    // All clocks except one follower's clock are advanced.
    for (_, clock) in cluster.clocks.iter().filter(|(id, _)| **id != from) {
        clock.fetch_add(6 * 60_000, Ordering::SeqCst);
    }
    let submission = Submission { asked_at: EpochMillis(1_000), commands: vec![put("late")] };
    let request = Request::Submit(encode_submission(&submission).unwrap());
    let message = Envelope { from, to: leader.id(), arc: ArcId::FIRST, request };
    let answer = leader.handle(message).await;
    assert!(matches!(answer, Response::TooOld { now: EpochMillis(361_000) }), "{answer:?}");
    assert!(!has(leader, "late"));
    // Every node accepts new requests, including the node whose clock must catch up.
    for (id, node) in &cluster.nodes {
        node.submit(vec![put(&format!("k{id}"))]).await.unwrap();
    }
}

/// Sends a part of a snapshot, but not the last one, to a follower, and returns whether it was
/// accepted.
async fn is_part_taken(cluster: &Cluster, term: u64, sequence: u64) -> bool {
    let (from, to) = (cluster.leader(), cluster.follower());
    let part = SnapshotPart {
        vote: types::Vote::new_committed(term, from),
        meta: types::SnapshotMeta { last_log_id: None, last_membership: Default::default() },
        transfer: 0,
        sequence,
        pairs: Vec::new(),
        last: false,
    };
    let request = Request::Snapshot(Box::new(part));
    let message = Envelope { from, to, arc: ArcId::FIRST, request };
    matches!(cluster.nodes[&to].handle(message).await, Response::PartTaken)
}

/// Goal: no snapshot contains a part of an earlier transfer. The part was delayed until its sender
/// restarted and reused the transfer number.
#[tokio::test(start_paused = true)]
async fn a_part_from_before_a_restart_belongs_to_another_transfer() {
    let cluster = Cluster::start(Settings::default()).await;
    let is_taken = async |term, sequence| is_part_taken(&cluster, term, sequence).await;
    assert!(is_taken(5, 0).await && is_taken(5, 1).await);
    assert!(!is_taken(4, 2).await, "it was sent in an earlier term");
    assert!(is_taken(5, 2).await && is_taken(5, 2).await);
}

/// Goal: a snapshot transfer whose sender died times out.
#[tokio::test(start_paused = true)]
async fn an_abandoned_snapshot_transfer_times_out() {
    let settings = Settings::default();
    let part = settings.snapshot_part;
    let cluster = Cluster::start(settings).await;
    for sequence in 0..4 {
        assert!(is_part_taken(&cluster, 5, sequence).await, "{sequence}");
        tokio::time::sleep(part).await;
    }
    // The time-out of an earlier, replaced transfer does not end this transfer.
    assert!(is_part_taken(&cluster, 6, 0).await);
    tokio::time::sleep(part * 2 - Duration::from_secs(1)).await;
    assert!(is_part_taken(&cluster, 6, 1).await);
    tokio::time::sleep(part * 2 + Duration::from_secs(1)).await;
    assert!(!is_part_taken(&cluster, 6, 2).await);
    assert!(is_part_taken(&cluster, 6, 0).await, "it can begin again");
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_does_not_prevent_truncation_of_the_log() {
    let settings = Settings { snapshot_entries: 20, entries_kept: 0, ..Settings::default() };
    let cluster = Cluster::start(settings).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    let silent = cluster.follower();
    cluster.wires.cut_off.lock().insert(silent);
    let leader = &cluster.nodes[&cluster.leader()];
    for number in 0..200 {
        leader.submit(vec![put(&format!("k{number}"))]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = leader.status();
    assert!(status.purged > Some(100), "{status:?}");
    cluster.wires.cut_off.lock().clear();
    let node = &cluster.nodes[&silent];
    node.read_index().await.unwrap();
    assert!((0..200).all(|number| has(node, &format!("k{number}"))));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_state_lacks_truncated_entries_does_not_start() {
    let settings = Settings { snapshot_entries: 20, entries_kept: 0, ..Settings::default() };
    let mut cluster = Cluster::start(settings).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    for number in 0..60 {
        cluster.nodes[&1].submit(vec![put(&format!("k{number}"))]).await.unwrap();
    }
    let follower = cluster.follower();
    // The maintenance purges the log every two seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(cluster.nodes[&follower].status().purged > Some(20));
    cluster.crash(follower, 1).await;
    let state = cluster.homes.insert(follower, MemoryLocation::default()).unwrap();
    let refused = cluster.try_to_start(follower).await.unwrap_err().to_string();
    assert!(refused.contains("lacks the entries 0 to"), "{refused}");
    // The node starts with its own state.
    cluster.homes.insert(follower, state);
    cluster.start_node(follower).await;
    cluster.nodes[&follower].read_index().await.unwrap();
    assert!(has(&cluster.nodes[&follower], "k59"));
}

/// Goal: any node rejects commands that do not fit into an entry, and no node fails because of
/// them.
#[tokio::test(start_paused = true)]
async fn a_submission_that_is_too_large_is_refused() {
    let cluster = Cluster::start(Settings::default()).await;
    cluster.nodes[&1].submit(vec![create()]).await.unwrap();
    let write = |bytes: usize| {
        let Command::Write(write) = put("k") else { panic!("it writes") };
        let item = Item::new().with("p", "k").with("v", "x".repeat(bytes));
        vec![Command::Write(Box::new(Write { action: WriteAction::put(&item), ..*write }))]
    };
    for node in cluster.nodes.values() {
        let replies = node.submit(write(PROPOSAL_BYTES_MAX)).await.unwrap();
        assert!(matches!(&replies[..], [Reply::Invalid(text)] if text.contains("too large")));
    }
    let (from, to) = (cluster.follower(), cluster.leader());
    let asked_at = EpochMillis(1_000);
    let submission = Submission { asked_at, commands: write(PROPOSAL_BYTES_MAX) };
    let request = Request::Submit(encode_submission(&submission).unwrap());
    let answer = cluster.nodes[&to].handle(Envelope { from, to, arc: ArcId::FIRST, request }).await;
    let Response::Submitted { replies, .. } = answer else { panic!("{answer:?}") };
    assert!(matches!(crate::decode_replies(&replies).unwrap()[..], [Reply::Invalid(_)]));
    for node in cluster.nodes.values() {
        assert!(matches!(node.submit(write(1_000)).await.unwrap()[..], [Reply::Written(_)]));
    }
    assert!(cluster.deaths.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_for_another_node_is_refused() {
    let cluster = Cluster::start(Settings::default()).await;
    let vote = openraft::raft::VoteRequest::new(openraft::Vote::new(9, 1), None);
    let message = |request| Envelope { from: 1, to: 258, arc: ArcId::FIRST, request };
    let response = cluster.nodes[&2].handle(message(Request::Vote(vote))).await;
    assert!(matches!(response, Response::Refused(_)), "{response:?}");
    // The leadership of a node does not depend on its incarnation.
    let response = cluster.nodes[&cluster.leader()].handle(message(Request::ReadIndex)).await;
    assert!(matches!(response, Response::ReadIndex { .. }), "{response:?}");
}
