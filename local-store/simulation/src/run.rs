//! One run of the simulation. It creates a world from a plan, runs clients and faults in it, waits
//! until all activity has ended, and runs the checkers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use model::Item;
use model::encoding::decode_item;
use node::ring::{ArcId, REPLICAS};
use partition::{
    ArcPosition, Catalogue, ItemRange, Machine, ReadError, SecondaryIndex, TokenRange,
    find_index_work, read_encoded_entries, read_encoded_items, read_incomplete, read_prepared,
    read_shard_records, unacknowledged_changes,
};
use partition::{Command, Position, Reply, RingChange, Slot, TimeToLiveChange};
use server::store::RingView;
use tokio::task::JoinSet;

use crate::checkers::placement;
use crate::checkers::replicas::{Dump, check_equal, check_index};
use crate::checkers::retention;
use crate::checkers::stream::ShardRecords;
use crate::checkers::{End, Violation, judge};
use crate::error::HarnessError;
use crate::history::{History, Records};
use crate::power_loss::dump;
use crate::quiet_reads;
use crate::request::{Answer, EXPIRES_AT, Endpoint, INDEX, KEY, LATE_INDEX, Request, TABLE};
use crate::workload::{
    Client, Signals, bank, counters, expiring, readers, registers, transactions,
};
use crate::world::cluster::{Cluster, membership};
use crate::world::coverage::Counts;
use crate::world::endpoint::SimulatedEndpoint;
use crate::world::environment::{Environment, stream};
use crate::world::faults;
use crate::world::panics;
use crate::world::plan::{Plan, SKEW_MS_MAX};
use crate::world::replica::Snapshot;
use crate::world::translation::{create_table, shards};

/// The number of registers. Each client of registers uses all of them.
const REGISTERS: usize = 5;

/// The maximum time from the end of the last fault until a write must be accepted.
const HEALED_AFTER: Duration = Duration::from_secs(5);
/// The maximum time after the last write until replicas must be equal.
const EQUAL_AFTER: Duration = Duration::from_secs(10);
/// The store time in milliseconds that passes at the end. The time is longer than the retention of stream
/// records plus the clock skew.
const DAY_MS: u64 = 25 * 60 * 60 * 1_000;
/// The maximum number of checks whether the nodes have done all work that is due after a day.
/// [`DAY_CHECK_PAUSE`] is the pause between two checks.
const DAY_CHECKS_MAX: usize = 20;
const DAY_CHECK_PAUSE: Duration = Duration::from_millis(500);
/// The maximum clock skew of a node in whole seconds, rounded up.
const SKEW_SECONDS: u64 = SKEW_MS_MAX.unsigned_abs().div_ceil(1_000) + 1;

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The violations.
    pub violations: Vec<Violation>,
    /// The number of occurrences of each fault.
    pub coverage: Counts,
    /// The numbers of acknowledged requests, of refused requests, and of requests with an unknown
    /// outcome.
    pub requests: [u64; 3],
    /// The number of checked histories of single items.
    pub histories: u64,
    /// The number of checked transactions and of single operations on their items.
    pub transactions: u64,
    /// The number of records in the final stream.
    pub stream_records: u64,
    /// The hash over every event and the final state, and the number of events.
    pub trace: (u64, u64),
    /// The simulated time of the run.
    pub simulated: Duration,
    /// Every event as text, if requested.
    pub log: Vec<String>,
}

/// Runs a plan on this thread. Two runs of one plan have equal outcomes.
#[must_use]
pub fn run(plan: &Plan, explain: bool) -> Outcome {
    run_with_records(plan, explain).0
}

/// Runs a plan as [`run`] does, and also returns what its clients observed. There are no records if the run ended
/// before its clients.
#[must_use]
pub fn run_with_records(plan: &Plan, explain: bool) -> (Outcome, Records) {
    #[cfg(feature = "mutations")]
    partition::mutation::activate(plan.mutation);
    let seed = tokio::runtime::RngSeed::from_bytes(&plan.seed.to_le_bytes());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(seed)
        .build();
    let ((mut outcome, records), panics) = panics::watch(|| match runtime {
        Ok(runtime) => runtime.block_on(live(plan, explain)),
        Err(error) => without_records(plan, format!("cannot create a runtime: {error}")),
    });
    let panics = panics.into_iter().map(|what| Violation { checker: "panic", what });
    outcome.violations.extend(panics);
    #[cfg(feature = "mutations")]
    partition::mutation::activate(None);
    (outcome, records)
}

fn failed(plan: &Plan, what: String) -> Outcome {
    let violations = vec![Violation { checker: "harness", what }];
    Outcome { seed: plan.seed, violations, ..Outcome::default() }
}

fn without_records(plan: &Plan, what: String) -> (Outcome, Records) {
    (failed(plan, what), Records::default())
}

/// Returns the outcome of a run that could not end, with everything that was found before.
fn aborted(plan: &Plan, environment: &Environment, found: Vec<Violation>, what: String) -> Outcome {
    let mut outcome = failed(plan, what);
    outcome.violations.splice(0..0, found);
    Outcome { log: environment.take_log(), simulated: environment.elapsed(), ..outcome }
}

/// The clients of a run and their shared state.
#[derive(Default)]
struct ClientTasks {
    history: Arc<History>,
    signals: Arc<Signals>,
    in_flight: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

async fn live(plan: &Plan, explain: bool) -> (Outcome, Records) {
    let environment = Environment::new(plan.seed, explain);
    let cluster = Cluster::new(&environment, plan);
    for node in cluster.nodes() {
        cluster.start(node).await;
    }
    let has_some = plan.nodes > REPLICAS;
    environment.coverage.add("several arcs", u64::from(plan.arcs > 1));
    environment.coverage.add("nodes without some arc", u64::from(has_some));
    environment.coverage.add("engine on disk", u64::from(plan.memtable_bytes.is_some()));
    if let Err(HarnessError(what)) = begin_groups(&cluster).await {
        return without_records(plan, format!("cannot form the Raft groups: {what}"));
    }
    let mut crowd = ClientTasks::default();
    if let Err(HarnessError(what)) = set_up(&cluster).await {
        return without_records(plan, format!("cannot create the table: {what}"));
    }
    bank::open(&mut client(&cluster, &crowd, plan, "opening")).await;
    send_clients(&cluster, &mut crowd, plan);
    let begun = environment.elapsed();
    faults::run(&cluster, &plan.faults, &crowd.signals, &crowd.in_flight).await;
    let lasted = environment.elapsed().saturating_sub(begun);
    let rest = Duration::from_secs(plan.seconds).saturating_sub(lasted);
    tokio::time::sleep(rest).await;
    let mut violations = end_faults(&cluster).await;
    // After the faults have ended, the clients continue on the healed cluster for a second, and are
    // then stopped.
    tokio::time::sleep(Duration::from_secs(1)).await;
    crowd.signals.end.store(true, Ordering::SeqCst);
    while crowd.tasks.join_next().await.is_some() {}
    environment.advance(30_000);
    tokio::time::sleep(Duration::from_secs(2)).await;
    violations.extend(wait_until_equal(&cluster).await);
    let records = crowd.history.take();
    let end = match collect(&cluster) {
        Ok(end) => end,
        Err(HarnessError(what)) => {
            let what = format!("cannot read the final state: {what}");
            return (aborted(plan, &environment, violations, what), records);
        }
    };
    violations.extend(cluster.defects());
    violations.extend(judge(&records, &end));
    if violations.is_empty() {
        violations.extend(check_at_rest(&cluster, &end).await);
    }
    // Running nodes and the cluster hold references to each other, so dropping them does not free
    // them.
    for node in cluster.nodes() {
        cluster.crash(node);
    }
    for (name, dump) in end.replicas.iter().flatten() {
        environment.note(&format!("{name}: {:016x}", hash(dump)));
    }
    let outcome = Outcome {
        seed: plan.seed,
        violations,
        coverage: environment.coverage.counts(),
        requests: [records.acknowledged, records.refused, records.unknown],
        histories: records.registers.len() as u64,
        transactions: records.transactions.len() as u64,
        stream_records: end.shards.iter().map(|shard| shard.records.len() as u64).sum(),
        trace: environment.trace(),
        simulated: environment.elapsed(),
        log: environment.take_log(),
    };
    (outcome, records)
}

fn hash(dump: &Dump) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for (key, value) in dump {
        hasher.update(key);
        hasher.update(value);
    }
    hasher.digest()
}

/// Creates the Raft group of each arc with new nodes. Each arc starts with a different leader.
async fn begin_groups(cluster: &Cluster) -> Result<(), HarnessError> {
    for arc in cluster.arcs() {
        let members: Vec<u64> = cluster.holders(arc).map(|node| node as u64).collect();
        let node = cluster.holders(arc).next().unwrap_or(1);
        let first = cluster.replica(node).ok_or_else(|| format!("node {node} is not running"))?;
        first.begin(arc, members).await?;
    }
    let slot = |node| Some((Slot::new(u8::try_from(node).ok()?)?, None));
    let members = cluster.nodes().filter(|node| cluster.is_member(*node));
    let nodes = members.filter_map(slot).collect();
    let arcs = u32::try_from(cluster.arcs().count()).unwrap_or(u32::MAX);
    let founded = membership::change(cluster, RingChange::Found { nodes, arcs }, 100).await;
    founded.map(|_| ()).ok_or_else(|| "the ring was not founded".into())
}

/// Creates the table and enables TTL, through any node that accepts it.
async fn set_up(cluster: &Cluster) -> Result<(), HarnessError> {
    let mut last = String::new();
    for attempt in 0..200 {
        let node = 1 + attempt % cluster.nodes().count();
        let Some(replica) = cluster.replica(node) else { continue };
        match replica.submit(vec![create_table()]).await {
            Ok(replies) => {
                let Some(Reply::Table(table)) = replies.into_iter().next() else {
                    return Err("unexpected reply".into());
                };
                let change = TimeToLiveChange::Enable(EXPIRES_AT.to_owned());
                let command = Command::UpdateTimeToLive { table: table.id, change };
                replica.submit(vec![command]).await?;
                return Ok(());
            }
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(HarnessError(last))
}

fn client(
    cluster: &Cluster,
    crowd: &ClientTasks,
    plan: &Plan,
    name: &str,
) -> Client<SimulatedEndpoint> {
    Client {
        endpoint: SimulatedEndpoint::new(cluster, name, &crowd.in_flight),
        history: Arc::clone(&crowd.history),
        random: stream(plan.seed, &format!("client {name}")),
        signals: Arc::clone(&crowd.signals),
        pause_ms: plan.pause_ms,
    }
}

fn send_clients(cluster: &Cluster, crowd: &mut ClientTasks, plan: &Plan) {
    let keys: Vec<String> = (0..REGISTERS).map(|number| format!("register-{number}")).collect();
    for number in 0..plan.clients.registers {
        let client = client(cluster, crowd, plan, &format!("register {number}"));
        crowd.tasks.spawn(registers::run(client, keys.clone()));
    }
    for number in 0..plan.clients.bank {
        let client = client(cluster, crowd, plan, &format!("bank {number}"));
        crowd.tasks.spawn(bank::run(client));
    }
    for number in 0..plan.clients.counters {
        let client = client(cluster, crowd, plan, &format!("counter {number}"));
        crowd.tasks.spawn(counters::run(client));
    }
    for number in 0..plan.clients.expiring {
        let client = client(cluster, crowd, plan, &format!("expiring {number}"));
        crowd.tasks.spawn(async move { expiring::run(client, &number.to_string()).await });
    }
    for number in 0..plan.clients.readers {
        let client = client(cluster, crowd, plan, &format!("reader {number}"));
        crowd.tasks.spawn(readers::run(client));
    }
    for number in 0..plan.clients.transactions {
        let client = client(cluster, crowd, plan, &format!("transactions {number}"));
        crowd.tasks.spawn(transactions::run(client));
    }
}

/// Ends every fault, and waits until all nodes are running and a write is accepted.
async fn end_faults(cluster: &Cluster) -> Vec<Violation> {
    cluster.network.end_faults();
    for node in cluster.nodes() {
        if let Some(machinery) = cluster.machinery(node) {
            machinery.set_slow(0);
            machinery.disk().set_full(false);
            machinery.clock.set_skew(0);
        }
    }
    // A node that has lost its disk starts only when the others run.
    join_all(cluster.nodes().map(|node| cluster.start(node))).await;
    cluster.environment.note("all faults are over");
    let in_flight = Arc::default();
    let probe = SimulatedEndpoint::new(cluster, "probe", &in_flight);
    let write = crate::workload::write("probe", crate::request::Change::Delete);
    let accepted = async {
        loop {
            if matches!(probe.call(Request::Write(write.clone())).await, Ok(Answer::Written { .. }))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    match tokio::time::timeout(HEALED_AFTER, accepted).await {
        Ok(()) => Vec::new(),
        Err(_) => {
            let what =
                format!("no write was accepted within {HEALED_AFTER:?} after the last fault");
            vec![Violation { checker: "liveness", what }]
        }
    }
}

/// Waits until every node is a member and every replica has applied the same log.
async fn wait_until_equal(cluster: &Cluster) -> Vec<Violation> {
    let equal = async {
        loop {
            let is_equal = |arc| {
                let mut applied = cluster
                    .holders(arc)
                    .map(|node| cluster.replica(node).and_then(|replica| replica.applied(arc)));
                let first = applied.next().flatten();
                first.is_some() && applied.all(|other| other == first)
            };
            let is_settled = || misplaced(cluster).is_empty() && leftovers(cluster).is_empty();
            if cluster.arcs().all(is_equal) && cluster.is_whole() && is_settled() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    match tokio::time::timeout(EQUAL_AFTER, equal).await {
        Ok(()) => Vec::new(),
        Err(_) => {
            let left = leftovers(cluster);
            let replicas: Vec<String> = cluster
                .nodes()
                .filter_map(|node| Some(cluster.replica(node)?.describe()))
                .collect();
            let what = format!(
                "the cluster did not converge within {EQUAL_AFTER:?}: the replicas have not applied the same log, a replica is not a member (members: {:?}), or work is unfinished ({left:?}); replicas: {}",
                cluster.ids(),
                replicas.join("; ")
            );
            let liveness = Violation { checker: "liveness", what };
            let leftover = |what| Violation { checker: "leftovers", what };
            let placed = |what| Violation { checker: "placement", what };
            let found = left.into_iter().map(leftover);
            found.chain(misplaced(cluster).into_iter().map(placed)).chain([liveness]).collect()
        }
    }
}

/// Returns the differences between the replicas that run and those that the ring names.
fn misplaced(cluster: &Cluster) -> Vec<String> {
    cluster.placement().map(|found| placement::check(&found, REPLICAS)).unwrap_or_default()
}

/// Returns everything that must not exist at the end: locked items, decisions that were not applied,
/// undelivered index entries, unfinished indexes, and data of arcs that a node has left.
fn leftovers(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for machinery in cluster.nodes().filter_map(|node| cluster.machinery(node)) {
        let held = |arc: &ArcId| cluster.holders(*arc).any(|node| node == machinery.node);
        let left = cluster.arcs().filter(|arc| !held(arc) && machinery.has_data(*arc));
        found.extend(left.map(|arc| {
            format!("node {}, {arc}: data of an arc without a replica", machinery.node)
        }));
        for arc in cluster.arcs().filter(held) {
            let place = format!("node {}, {arc}", machinery.node);
            let Some(view) = cluster.view(machinery.node, arc) else {
                found.push(format!("{place}: the node is not running"));
                continue;
            };
            let counts = [
                ("prepared transactions", read_prepared(&*view).map(|found| found.len())),
                ("unexecuted decisions", read_incomplete(&*view).map(|found| found.len())),
                (
                    "outboxes with undelivered changes",
                    unacknowledged_changes(&*view, machinery.arcs).map(|found| found.len()),
                ),
                (
                    "tables with an unfinished index",
                    Machine::open_in(ArcPosition { arc, arcs: machinery.arcs }, &*view).map(
                        |machine| {
                            find_index_work(machine.catalogue().tables().map(AsRef::as_ref)).len()
                        },
                    ),
                ),
            ];
            for (what, count) in counts {
                match count {
                    Ok(0) => {}
                    Ok(count) => found.push(format!("{place}: {count} {what}")),
                    Err(error) => found.push(format!("{place}: {error}")),
                }
            }
        }
    }
    found
}

/// Reads the final state through each node, and then lets a day pass.
async fn check_at_rest(cluster: &Cluster, end: &End) -> Vec<Violation> {
    let read = quiet_reads::check(cluster, end).await.into_iter();
    let mut found: Vec<_> = read.map(|what| Violation { checker: "quiet reads", what }).collect();
    if found.is_empty() {
        found.extend(pass_a_day(cluster, end).await);
    }
    found
}

/// Lets a day pass without requests, and checks that the nodes then do the work that is due.
async fn pass_a_day(cluster: &Cluster, before: &End) -> Option<Violation> {
    cluster.environment.advance(DAY_MS);
    let mut wrong = None;
    for _ in 0..DAY_CHECKS_MAX {
        tokio::time::sleep(DAY_CHECK_PAUSE).await;
        let found = match collect(cluster) {
            Ok(after) => {
                let then = (&before.table, before.shards.as_slice());
                let now = (&after.table, after.shards.as_slice());
                let mut found = retention::check(then, now);
                for index in [Some(&after.index), after.late_index.as_ref()].into_iter().flatten() {
                    found.extend(check_index(&after.table, index));
                }
                found.extend(after.replicas.iter().flat_map(|all| check_equal(all)));
                found
            }
            Err(HarnessError(what)) => vec![what],
        };
        wrong = found.into_iter().next();
        if wrong.is_none() {
            if before.shards.iter().any(|shard| !shard.records.is_empty()) {
                cluster.environment.coverage.hit("records trimmed");
            }
            break;
        }
    }
    wrong.map(|what| Violation { checker: "retention", what })
}

/// Reads the final state directly from the nodes' state machines.
fn collect(cluster: &Cluster) -> Result<End, HarnessError> {
    let mut replicas = Vec::new();
    let arcs = cluster.arcs().count();
    let (mut catalogues, mut states) = (Vec::new(), Vec::new());
    for arc in cluster.arcs() {
        let mut of_arc = Vec::new();
        for node in cluster.holders(arc) {
            let not_running = || format!("node {node} is not running");
            let view = cluster.view(node, arc).ok_or_else(not_running)?;
            let name =
                if arcs == 1 { format!("node {node}") } else { format!("node {node}, {arc}") };
            of_arc.push((name, dump(&*view)?));
        }
        replicas.push(of_arc);
        // `check_equal` reports differences between replicas. The final state is read from the
        // replica that has applied the most entries.
        let applied = |node: &usize| cluster.replica(*node)?.applied(arc);
        let furthest = cluster.holders(arc).max_by_key(|node| (applied(node), usize::MAX - node));
        let view = furthest.and_then(|node| cluster.view(node, arc)).ok_or("no node is running")?;
        let position = ArcPosition { arc, arcs: u32::try_from(arcs).unwrap_or(u32::MAX) };
        let machine = Machine::open_in(position, &*view)?;
        catalogues.push(Arc::clone(machine.catalogue()));
        states.push(view);
    }
    let catalogue = Arc::new(Catalogue::merge(&catalogues));
    let view = Box::new(RingView::of_states(Arc::clone(&catalogue), states));
    let snapshot = Snapshot { catalogue, view, store: None };
    let now = cluster.environment.now().seconds();
    // A starting node adopts the time of another node, so its clock can be ahead by more than its
    // own skew.
    let skew_seconds = SKEW_SECONDS.max(cluster.environment.ahead_seconds() + 1);
    Ok(End {
        replicas,
        logs: arcs,
        expired_before: now.saturating_sub(20),
        latest_seconds: now + skew_seconds,
        skew_seconds,
        ..read_table(&snapshot)?
    })
}

/// Collects and decodes the items of a read.
fn decode_all(
    read: impl FnOnce(&mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), ReadError>,
) -> Result<Vec<Item>, HarnessError> {
    let mut items = Vec::new();
    read(&mut |stored| {
        items.push(decode_item(stored));
        ControlFlow::Continue(())
    })?;
    Ok(items.into_iter().collect::<Result<_, _>>()?)
}

fn read_table(snapshot: &Snapshot) -> Result<End, HarnessError> {
    let view = &*snapshot.view;
    let table = snapshot.catalogue.find(TABLE).ok_or("the table is missing")?;
    let all = ItemRange::Tokens(TokenRange::ALL);
    let mut items: BTreeMap<String, Item> = BTreeMap::new();
    for item in decode_all(|visit| read_encoded_items(view, table, &all, None, true, visit))? {
        let key = item.get(KEY).and_then(|key| key.as_str()).unwrap_or_default();
        items.insert(key.to_owned(), item);
    }
    let read_index = |index: &SecondaryIndex| {
        decode_all(|visit| read_encoded_entries(view, table, index.number, &all, None, true, visit))
    };
    let index = read_index(table.index(INDEX).ok_or("the index is missing")?)?;
    let late_index = table.index(LATE_INDEX).map(read_index).transpose()?;
    let stream = table.streams.first().ok_or("the stream is missing")?;
    let mut found = Vec::new();
    for (shard, shown) in stream.shards.iter().zip(shards(table)) {
        let mut records = Vec::new();
        let from = Position::At(shard.first);
        read_shard_records(view, table, stream, shard, from, &mut |_, record| {
            records.push(record.decode());
            ControlFlow::Continue(())
        })?;
        let records = records.into_iter().collect::<Result<_, _>>()?;
        found.push(ShardRecords { shard: shown, records });
    }
    Ok(End { table: items, shards: found, index, late_index, ..End::default() })
}
