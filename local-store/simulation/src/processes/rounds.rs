//! Rounds of fault injection. Each round injects faults into a new store under load, and then
//! checks the clients' history, the entire table and the entire stream.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::Item;
use serde_json::{Value, json};
use storage::disk::SplitMix64;
use tokio::task::JoinSet;

use super::aging;
use super::cluster::Cluster;
use super::damage::{self, Files};
use super::faults::{Fault, Recovery, inflict, start_under_kills};
use super::moves;
use super::wire::{Addresses, WireEndpoint};
use crate::checkers::replicas::check_index;
use crate::checkers::stream::ShardRecords;
use crate::checkers::{End, Violation, judge};
use crate::error::HarnessError;
use crate::history::History;
use crate::request::{Answer, EXPIRES_AT, Endpoint, INDEX, KEY, OWNER, Request, Start, TABLE};
use crate::workload::{
    Client, Signals, bank, counters, expiring, readers, registers, transactions,
};

/// The number of faults in one round. It is small, so that histories are short enough for the
/// checkers to search.
const FAULTS_PER_ROUND: usize = 50;
/// The time under load before a fault in milliseconds, counted from the first writes.
const LOAD_MS: std::ops::Range<u64> = 30..250;
/// The number of arcs of the ring in every second round.
const ARCS: usize = 3;
/// The number of nodes of a store whose nodes do not change.
const NODES: usize = 3;
/// The maximum time in milliseconds between two requests of a client.
const PAUSE_MS: u64 = 12;
/// The number of milliseconds by which the store's clock is advanced at the end. After that, all
/// items with an expiry time have expired.
const EXPIRY_MS: u64 = 12_000;
/// The time to wait until the last expired items are deleted.
const EXPIRY_WAIT: Duration = Duration::from_secs(3);
/// The maximum number of checks whether an index matches the table. [`INDEX_CHECK_PAUSE`] is the
/// pause between two checks.
const INDEX_CHECKS_MAX: usize = 100;
const INDEX_CHECK_PAUSE: Duration = Duration::from_millis(100);
/// The number of times that a table may change while it is read. A change means that recovery has
/// finished an abandoned transaction of a killed coordinator.
const READS_MAX: usize = 10;

/// The number of faults of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// `kill -9` of a process that runs all nodes.
    pub embedded: usize,
    /// `kill -9` of one of three processes with one node each.
    pub kill_one: usize,
    /// `kill -9` of all three processes.
    pub kill_all: usize,
    /// A pause of one process.
    pub pause: usize,
    /// A partition of one process.
    pub cut_off: usize,
    /// `kill -9` of one process, and the loss of its disk.
    pub wipe: usize,
    /// `kill -9` of one process, and a flipped bit in a file of its node.
    pub damage: usize,
    /// Events in rounds in which nodes come and go, which [`moves`] plans.
    pub moves: usize,
}

/// The settings of the rounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary `local-store`.
    pub binary: PathBuf,
    /// The parent folder of the data directories.
    pub folder: PathBuf,
    /// The seed of the clients' choices and of the faults.
    pub seed: u64,
    /// The number of faults of each kind.
    pub counts: Counts,
}

/// The result of all rounds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The numbers of acknowledged requests, of refused requests, and of requests with an unknown
    /// outcome.
    pub requests: [u64; 3],
    /// The number of checked stream records.
    pub stream_records: u64,
    /// The recovery times after each fault of each kind.
    pub recoveries: BTreeMap<String, Vec<Recovery>>,
    /// The violations.
    pub violations: Vec<Violation>,
    /// The real time of all rounds.
    pub took: Duration,
}

impl Summary {
    /// Returns the summary as JSON. For each time it contains the median, the 95th percentile and the maximum
    /// in seconds.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let [answered, refused, unknown] = self.requests;
        let violations: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        let faults: BTreeMap<&str, Value> = self
            .recoveries
            .iter()
            .map(|(kind, all)| {
                let leader = percentiles(all.iter().map(|recovery| recovery.leader));
                let write = percentiles(all.iter().map(|recovery| recovery.write));
                (&**kind, json!({"count": all.len(), "leader_s": leader, "write_s": write}))
            })
            .collect();
        json!({
            "faults": faults, "violations": violations, "stream_records": self.stream_records,
            "requests": {"answered": answered, "refused": refused, "unknown": unknown},
            "took_s": self.took.as_secs_f64(),
        })
    }

    fn add(&mut self, other: Self) {
        for (sum, part) in self.requests.iter_mut().zip(other.requests) {
            *sum += part;
        }
        self.stream_records += other.stream_records;
        self.violations.extend(other.violations);
        for (kind, recoveries) in other.recoveries {
            self.recoveries.entry(kind).or_default().extend(recoveries);
        }
    }
}

fn percentiles(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut times: Vec<f64> = times.map(|time| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let last = times.len().saturating_sub(1);
    let at = |percent: usize| times.get(last * percent / 100).copied().unwrap_or_default();
    [50, 95, 100].into_iter().map(|percent| (at(percent) * 1000.0).round() / 1000.0).collect()
}

/// The name of the rounds with one process that runs all nodes.
const EMBEDDED: &str = "embedded";

/// The faults of one round on one store.
struct Round {
    name: String,
    /// The number of processes at the start; `None` if one process runs all nodes.
    founders: Option<usize>,
    arcs: usize,
    seed: u64,
    faults: Vec<Fault>,
}

/// Distributes the faults of each kind evenly over the rounds.
fn plan(settings: &Settings) -> (Vec<Round>, Vec<Round>) {
    let counts = settings.counts;
    let mut random = SplitMix64::new(settings.seed);
    let of_three = [
        (Fault::KillOne, counts.kill_one),
        (Fault::KillAll, counts.kill_all),
        (Fault::Pause, counts.pause),
        (Fault::CutOff, counts.cut_off),
        (Fault::Wipe, counts.wipe),
    ];
    let mut faults: Vec<Fault> =
        of_three.into_iter().flat_map(|(fault, count)| vec![fault; count]).collect();
    for place in (1..faults.len()).rev() {
        faults.swap(place, random.up_to(place));
    }
    let kinds = [Files::Tables, Files::Queues].into_iter().cycle();
    let damages: Vec<Fault> = kinds.map(Fault::Damage).take(counts.damage).collect();
    let mut divide = |faults: &[Fault], what: &str| -> Vec<Round> {
        let rounds = faults.len().div_ceil(FAULTS_PER_ROUND).max(1);
        let size = faults.len().div_ceil(rounds).max(1);
        let round = |(number, faults): (usize, &[Fault])| Round {
            name: format!("{what}-{number}"),
            founders: (what != EMBEDDED).then_some(NODES),
            arcs: if number % 2 == 1 { ARCS } else { 1 },
            seed: random.next_u64(),
            faults: faults.to_vec(),
        };
        faults.chunks(size).enumerate().map(round).collect()
    };
    let embedded = divide(&vec![Fault::KillAll; counts.embedded], EMBEDDED);
    // Only the rounds with damage write large items, because only these rounds need files on disk.
    let mut processes = divide(&faults, "processes");
    processes.extend(divide(&damages, "damage"));
    let of_moves = moves::plan(counts.moves, &mut random).into_iter().enumerate();
    processes.extend(of_moves.map(|(number, (founders, faults))| Round {
        name: format!("moves-{number}"),
        founders: Some(founders),
        arcs: moves::ARCS,
        seed: random.next_u64(),
        faults,
    }));
    (embedded, processes)
}

/// Runs all rounds, and calls `progress` after each fault. The rounds with one process run concurrently with
/// the rounds with three processes.
///
/// # Errors
/// A process cannot be started, or the store does not recover.
pub async fn run(settings: &Settings, progress: &dyn Fn()) -> Result<Summary, HarnessError> {
    let begun = Instant::now();
    let (embedded, processes) = plan(settings);
    let run_all = async |rounds: Vec<Round>| -> Result<Summary, HarnessError> {
        let mut summary = Summary::default();
        for round in rounds {
            let folder = settings.folder.join(&round.name);
            // Removes the data of an earlier failed round.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            let outcome = run_round(settings, &round, &folder, progress).await?;
            if outcome.violations.is_empty() {
                // The data of a round is not removed if there were violations.
                let _ = std::fs::remove_dir_all(&folder);
            }
            summary.add(outcome);
        }
        Ok(summary)
    };
    let (mut summary, other) = tokio::try_join!(run_all(embedded), run_all(processes))?;
    summary.add(other);
    summary.took = begun.elapsed();
    Ok(summary)
}

async fn run_round(
    settings: &Settings,
    round: &Round,
    folder: &Path,
    progress: &dyn Fn(),
) -> Result<Summary, HarnessError> {
    let mut random = SplitMix64::new(round.seed);
    let binary = &settings.binary;
    let mut cluster = match round.founders {
        None => Cluster::embedded(binary, folder, round.arcs),
        Some(founders) => Cluster::of_processes(binary, folder, founders, round.arcs).await?,
    };
    let what =
        |HarnessError(error)| format!("{}: first start, interrupted by kills: {error}", round.name);
    let started = start_under_kills(&mut cluster, &mut random).await.map_err(what)?;
    let endpoint = WireEndpoint::new(&cluster.addresses, random.next_u64());
    create_table(&endpoint).await?;
    if round.faults.iter().any(|fault| matches!(fault, Fault::Damage(_))) {
        damage::fill(&endpoint, round.arcs).await?;
    }
    let mut crowd = ClientTasks::new(&cluster.addresses, random.next_u64());
    bank::open(&mut crowd.client("opening")).await;
    crowd.send();
    let mut summary = Summary::default();
    summary.recoveries.entry("first start".to_owned()).or_default().push(started);
    for fault in &round.faults {
        let load = LOAD_MS.start + random.next_u64() % (LOAD_MS.end - LOAD_MS.start);
        tokio::time::sleep(Duration::from_millis(load)).await;
        let what =
            |HarnessError(error)| format!("{}: after \u{201c}{fault}\u{201d}: {error}", round.name);
        let has_moves = round.founders.is_some() && cluster.has_moves().await;
        let recovery = inflict(*fault, &mut cluster, &mut random).await.map_err(what)?;
        let mut kind = match round.founders {
            None => EMBEDDED.to_owned(),
            Some(_) => fault.to_string(),
        };
        if round.arcs > 1 {
            kind = format!("{kind}, {} arcs", round.arcs);
        }
        if has_moves {
            kind.push_str(", during a move");
        }
        summary.recoveries.entry(kind).or_default().push(recovery);
        progress();
    }
    let what = |HarnessError(error)| format!("{}: after all faults: {error}", round.name);
    cluster.wait_until_whole().await.map_err(what)?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    crowd.signals.end.store(true, Ordering::SeqCst);
    while crowd.tasks.join_next().await.is_some() {}
    let records = crowd.history.take();
    cluster.advance_clock(EXPIRY_MS).await?;
    let end = collect(&endpoint, round.arcs)
        .await
        .map_err(|error| format!("cannot read the final state: {}", error.0))?;
    summary.requests = [records.acknowledged, records.refused, records.unknown];
    summary.stream_records = end.shards.iter().map(|s| s.records.len() as u64).sum();
    summary.violations = judge(&records, &end);
    summary.violations.extend(aging::pass(&cluster, &endpoint, &end.shards).await?);
    Ok(summary)
}

/// The clients and their shared state.
struct ClientTasks {
    addresses: Addresses,
    seed: u64,
    history: Arc<History>,
    signals: Arc<Signals>,
    tasks: JoinSet<()>,
}

impl ClientTasks {
    fn new(addresses: &Addresses, seed: u64) -> Self {
        Self {
            addresses: Arc::clone(addresses),
            seed,
            history: Arc::default(),
            signals: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    fn client(&self, name: &str) -> Client<WireEndpoint> {
        let random = crate::world::environment::stream(self.seed, name);
        Client {
            endpoint: WireEndpoint::new(&self.addresses, random.clone().next_u64()),
            history: Arc::clone(&self.history),
            random,
            signals: Arc::clone(&self.signals),
            pause_ms: PAUSE_MS,
        }
    }

    fn send(&mut self) {
        let keys: Vec<String> = (0..8).map(|number| format!("register-{number}")).collect();
        for number in 0..6 {
            let client = self.client(&format!("register {number}"));
            self.tasks.spawn(registers::run(client, keys.clone()));
        }
        for number in 0..2 {
            self.tasks.spawn(bank::run(self.client(&format!("bank {number}"))));
            let client = self.client(&format!("transactions {number}"));
            self.tasks.spawn(transactions::run(client));
            self.tasks.spawn(counters::run(self.client(&format!("counter {number}"))));
            self.tasks.spawn(readers::run(self.client(&format!("reader {number}"))));
            let client = self.client(&format!("expiring {number}"));
            self.tasks.spawn(async move { expiring::run(client, &number.to_string()).await });
        }
    }
}

async fn create_table(endpoint: &WireEndpoint) -> Result<(), HarnessError> {
    let create = json!({
        "TableName": TABLE, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": KEY, "AttributeType": "S"},
            {"AttributeName": OWNER, "AttributeType": "S"},
        ],
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "GlobalSecondaryIndexes": [{
            "IndexName": INDEX, "Projection": {"ProjectionType": "ALL"},
            "KeySchema": [{"AttributeName": OWNER, "KeyType": "HASH"}],
        }],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    });
    let expire = json!({
        "TableName": TABLE,
        "TimeToLiveSpecification": {"Enabled": true, "AttributeName": EXPIRES_AT},
    });
    for (operation, request) in [("CreateTable", create), ("UpdateTimeToLive", expire)] {
        match endpoint.send(&format!("DynamoDB_20120810.{operation}"), &request).await {
            Ok((200, _)) => {}
            other => return Err(format!("{operation} returned {other:?}").into()),
        }
    }
    Ok(())
}

/// Reads all data that a client can read from an idle store. The recovery of a killed coordinator's
/// transaction takes some seconds, so the read is repeated if the table changed in the meantime.
async fn collect(endpoint: &WireEndpoint, arcs: usize) -> Result<End, HarnessError> {
    // Expired items must be deleted before the table is read.
    tokio::time::sleep(EXPIRY_WAIT).await;
    for _ in 0..READS_MAX {
        let end = read_once(endpoint, arcs).await?;
        if read_table(endpoint).await? == end.table {
            return Ok(end);
        }
    }
    Err(format!("the table still changed after {READS_MAX} reads").into())
}

/// Returns all items by their keys.
async fn read_table(endpoint: &WireEndpoint) -> Result<BTreeMap<String, Item>, HarnessError> {
    let mut table = BTreeMap::new();
    for item in endpoint.scan(None).await? {
        let key = item.get(KEY).and_then(|key| key.as_str()).unwrap_or_default().to_owned();
        table.insert(key, item);
    }
    Ok(table)
}

async fn read_once(endpoint: &WireEndpoint, arcs: usize) -> Result<End, HarnessError> {
    let table = read_table(endpoint).await?;
    let mut index = endpoint.scan(Some(INDEX)).await?;
    for _ in 0..INDEX_CHECKS_MAX {
        // With several arcs, the index is updated asynchronously, so it may lag behind the table.
        if check_index(&table, &index).is_empty() {
            break;
        }
        tokio::time::sleep(INDEX_CHECK_PAUSE).await;
        index = endpoint.scan(Some(INDEX)).await?;
    }
    let Answer::Shards(shards) = endpoint.call(Request::Shards).await? else {
        return Err("no shards".into());
    };
    let mut found = Vec::new();
    for shard in shards {
        let mut records = Vec::new();
        let mut start = Start::TrimHorizon;
        loop {
            let request = Request::Records { shard: shard.id.clone(), start, limit: 1_000 };
            match endpoint.call(request).await? {
                Answer::Records(page, Some(next)) if !page.is_empty() => {
                    records.extend(page);
                    start = next;
                }
                Answer::Records(page, _) => {
                    records.extend(page);
                    break;
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
        found.push(ShardRecords { shard, records });
    }
    let now = endpoint.now_seconds();
    Ok(End {
        table,
        shards: found,
        index,
        late_index: None,
        replicas: Vec::new(),
        logs: arcs,
        expired_before: now.saturating_sub(4),
        latest_seconds: now + EXPIRY_MS / 1000 + 1,
        skew_seconds: 1,
    })
}
