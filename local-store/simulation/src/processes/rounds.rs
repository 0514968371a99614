//! Rounds: a fresh store under load is killed again and again; then its clients' history, its table
//! and its stream are judged as a whole.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::disk::SplitMix64;
use tokio::task::JoinSet;

use super::process::Process;
use super::wire::{Addresses, WireEndpoint};
use crate::checkers::stream::ShardRecords;
use crate::checkers::{End, Violation, judge};
use crate::history::History;
use crate::request::{Answer, EXPIRES_AT, Endpoint, INDEX, KEY, OWNER, Request, Start, TABLE};
use crate::workload::{Client, Signals, bank, counters, expiring, readers, registers};

/// Kills in one round: its histories stay short enough to be searched.
const KILLS_PER_ROUND: u64 = 20;
/// A process runs for so long, in milliseconds, before it is killed: from the first writes on.
const LOAD_MS: std::ops::Range<u64> = 30..500;
/// The longest time between two requests of a client, in milliseconds.
const PAUSE_MS: u64 = 12;

/// How the store is treated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The binary `local-store`.
    pub binary: PathBuf,
    /// Where data directories are made.
    pub folder: PathBuf,
    /// The seed of the clients' choices and of the times of the kills.
    pub seed: u64,
    /// Kills altogether.
    pub kills: u64,
}

/// What all rounds came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Kills of the whole store.
    pub kills: u64,
    /// Requests: answered, refused, unknown.
    pub requests: [u64; 3],
    /// Stream records that were judged.
    pub stream_records: u64,
    /// The longest time from a start until the first answer to a write.
    pub slowest_start: Duration,
    /// What was broken.
    pub violations: Vec<Violation>,
    /// Real time.
    pub took: Duration,
}

impl Summary {
    /// The summary for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let [answered, refused, unknown] = self.requests;
        let violations: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        json!({
            "kills": self.kills, "violations": violations, "stream_records": self.stream_records,
            "requests": {"answered": answered, "refused": refused, "unknown": unknown},
            "slowest_start_s": self.slowest_start.as_secs_f64(),
            "took_s": self.took.as_secs_f64(),
        })
    }
}

/// Runs all rounds, and tells `progress` after each kill: how many there were, how many violations.
///
/// # Errors
/// When a process cannot be started or does not answer any more.
pub async fn run(
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Summary, String> {
    let begun = Instant::now();
    let mut summary = Summary::default();
    let mut round = 0;
    while summary.kills < settings.kills {
        let folder = settings.folder.join(format!("round-{round}"));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let kills = KILLS_PER_ROUND.min(settings.kills - summary.kills);
        run_round(settings, round, kills, &folder, &mut summary, progress).await?;
        if summary.violations.is_empty() {
            // What is not needed to find out what happened does not fill the disk.
            let _ = std::fs::remove_dir_all(&folder);
        }
        round += 1;
    }
    summary.took = begun.elapsed();
    Ok(summary)
}

async fn run_round(
    settings: &Settings,
    round: u64,
    kills: u64,
    folder: &Path,
    summary: &mut Summary,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), String> {
    let mut random = SplitMix64::new(settings.seed.wrapping_add(round));
    let addresses: Addresses = Arc::new(Mutex::new(vec![None]));
    let (data, log) = (folder.join("data"), folder.join("local-store.log"));
    let mut process = Process::start(&settings.binary, &data, &log).await?;
    listen(&addresses, Some(process.address));
    let endpoint = WireEndpoint::new(&addresses, random.next_u64());
    create_table(&endpoint).await?;
    let mut crowd = Crowd::new(&addresses, random.next_u64());
    bank::open(&mut crowd.client("opening")).await;
    crowd.send();
    for _ in 0..kills {
        let load = LOAD_MS.start + random.next_u64() % (LOAD_MS.end - LOAD_MS.start);
        tokio::time::sleep(Duration::from_millis(load)).await;
        listen(&addresses, None);
        process.kill();
        let started = Instant::now();
        process = Process::start(&settings.binary, &data, &log).await?;
        listen(&addresses, Some(process.address));
        wait_for_write(&endpoint).await?;
        summary.slowest_start = summary.slowest_start.max(started.elapsed());
        summary.kills += 1;
        progress(summary.kills, summary.violations.len() as u64);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    crowd.signals.end.store(true, Ordering::SeqCst);
    while crowd.tasks.join_next().await.is_some() {}
    let records = crowd.history.take();
    let end = collect(&endpoint).await.map_err(|e| format!("the end cannot be read: {e}"))?;
    let counts = [records.acknowledged, records.refused, records.unknown];
    for (sum, part) in summary.requests.iter_mut().zip(counts) {
        *sum += part;
    }
    summary.stream_records += end.shards.iter().map(|s| s.records.len() as u64).sum::<u64>();
    summary.violations.extend(judge(&records, &end));
    Ok(())
}

fn listen(addresses: &Addresses, address: Option<SocketAddr>) {
    let mut known = addresses.lock().unwrap_or_else(PoisonError::into_inner);
    *known = vec![address];
}

/// The clients and what they share.
struct Crowd {
    addresses: Addresses,
    seed: u64,
    history: Arc<History>,
    signals: Arc<Signals>,
    tasks: JoinSet<()>,
}

impl Crowd {
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
            self.tasks.spawn(counters::run(self.client(&format!("counter {number}"))));
            self.tasks.spawn(readers::run(self.client(&format!("reader {number}"))));
            let client = self.client(&format!("expiring {number}"));
            self.tasks.spawn(async move { expiring::run(client, &number.to_string()).await });
        }
    }
}

async fn create_table(endpoint: &WireEndpoint) -> Result<(), String> {
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
            other => return Err(format!("{operation} was answered with {other:?}")),
        }
    }
    Ok(())
}

/// Waits until a write is accepted.
async fn wait_for_write(endpoint: &WireEndpoint) -> Result<(), String> {
    let write = crate::workload::write("probe", crate::request::Change::Delete);
    let mut last = None;
    for _ in 0..1_000 {
        match endpoint.call(Request::Write(write.clone())).await {
            Ok(Answer::Written { .. }) => return Ok(()),
            other => last = Some(other),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("no write is accepted after a restart: {last:?}"))
}

/// Reads everything that a client can read of a quiet store.
async fn collect(endpoint: &WireEndpoint) -> Result<End, String> {
    // TTL deletes go on; what expires has gone before the table is read.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let text = |error: crate::request::Failure| error.to_string();
    let mut table = BTreeMap::new();
    for item in endpoint.scan(None).await.map_err(text)? {
        let key = item.get(KEY).and_then(|key| key.as_str()).unwrap_or_default().to_owned();
        table.insert(key, item);
    }
    let index = endpoint.scan(Some(INDEX)).await.map_err(text)?;
    let Answer::Shards(shards) = endpoint.call(Request::Shards).await.map_err(text)? else {
        return Err("no shards".to_owned());
    };
    let mut found = Vec::new();
    for shard in shards {
        let mut records = Vec::new();
        let mut start = Start::TrimHorizon;
        loop {
            let request = Request::Records { shard: shard.id.clone(), start, limit: 1_000 };
            match endpoint.call(request).await.map_err(text)? {
                Answer::Records(page, Some(next)) if !page.is_empty() => {
                    records.extend(page);
                    start = next;
                }
                Answer::Records(page, _) => {
                    records.extend(page);
                    break;
                }
                other => return Err(format!("{other:?}")),
            }
        }
        found.push(ShardRecords { shard, records });
    }
    let now = endpoint.now_seconds();
    Ok(End {
        table,
        shards: found,
        index,
        replicas: Vec::new(),
        expired_before: now.saturating_sub(4),
        latest_seconds: now + 1,
        skew_seconds: 1,
    })
}
