//! Test that the rate of a migration limits all its workers together, for any number of segments
//! and workers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating, PLAN};
use crate::process::{LocalStore, Process};

const ITEMS: usize = 3_000;
const RATE: u64 = 200;
/// The time between two reads of the control table.
const PAUSE: Duration = Duration::from_millis(50);

fn fill(store: &LocalStore) {
    let numbers: Vec<usize> = (0..ITEMS).collect();
    for some in numbers.chunks(25) {
        let puts = some.iter().map(|number| {
            let item = json!({"p": {"S": format!("n{number:05}")}, "text": {"S": "x"}});
            json!({"PutRequest": {"Item": item}})
        });
        let request = json!({"RequestItems": {"cats": puts.collect::<Vec<_>>()}});
        let answer = store.endpoint.ok("BatchWriteItem", &request);
        assert_eq!(answer["UnprocessedItems"], json!({}));
    }
}

/// Returns the number of items that the backfill has read, and whether all segments are done.
fn progress(store: &LocalStore) -> (u64, bool) {
    let request = json!({
        "TableName": "weir-migrations", "ConsistentRead": true,
        "KeyConditionExpression": "migration = :m AND begins_with(entry, :e)",
        "ExpressionAttributeValues": {":m": {"S": "move"}, ":e": {"S": "TASK#0#"}},
    });
    let answer = store.endpoint.send("Query", &request);
    // The table may not exist yet.
    let tasks = answer.body["Items"].as_array().cloned().unwrap_or_default();
    let read = |task: &Value| task["counts"]["M"]["read"]["N"].as_str()?.parse::<u64>().ok();
    let is_done = |task: &Value| task["done"]["BOOL"] == true;
    (tasks.iter().filter_map(read).sum(), !tasks.is_empty() && tasks.iter().all(is_done))
}

/// Returns the times at which the backfill recorded its progress, by the number of items, until its
/// end.
fn watch(store: &LocalStore, worker: &mut Process) -> BTreeMap<u64, Instant> {
    let (begun, mut seen) = (Instant::now(), BTreeMap::new());
    loop {
        assert!(!worker.has_ended() && begun.elapsed() < LIMIT, "{}", worker.log());
        let (read, is_done) = progress(store);
        if read > 0 {
            seen.entry(read).or_insert_with(Instant::now);
        }
        if is_done {
            return seen;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the rate of a backfill in items per second, from the first to the last recorded progress
/// of its workers.
#[expect(clippy::cast_precision_loss, reason = "some thousand items")]
fn measured(workers: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, &PLAN.replace("segments: 2", "segments: 8"));
    fill(&store);
    let mut worker = migrating.start_at(&RATE.to_string(), workers);
    let seen = watch(&store, &mut worker);
    let (first, last) = (seen.first_key_value().unwrap(), seen.last_key_value().unwrap());
    assert_eq!(*last.0, ITEMS as u64, "{seen:?}");
    (last.0 - first.0) as f64 / (*last.1 - *first.1).as_secs_f64()
}

#[test]
fn one_worker_reads_at_the_whole_rate() {
    let rate = measured("1") / f64::from(u32::try_from(RATE).unwrap());
    assert!((0.8..=1.1).contains(&rate), "{rate}");
}

#[test]
fn several_workers_stay_below_the_rate_together() {
    let rate = measured("3") / f64::from(u32::try_from(RATE).unwrap());
    assert!((0.6..=1.1).contains(&rate), "{rate}");
}
