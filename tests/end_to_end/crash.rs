//! Test of `kill -9` during writes: every acknowledged write exists afterwards.
//!
//! This test does not cover power loss: the log's own tests cut the power of a simulated disk.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::LocalStore;

/// The number of processes that are killed one after the other, on one data directory.
const CYCLES: u64 = 12;
const WRITERS: u64 = 4;
/// The time limit for the writes of a cycle, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn sum(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).sum()
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    // For each writer: every serial number below this number was acknowledged. Each serial number
    // has its own item.
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    for cycle in 0..CYCLES {
        let mut store = LocalStore::start(folder.path());
        let endpoint = store.endpoint.clone();
        if cycle == 0 {
            endpoint.create_table("serials");
        }
        let found: BTreeSet<_> = endpoint
            .scan("serials")
            .iter()
            .map(|item| item["p"]["S"].as_str().unwrap().to_owned())
            .collect();
        for (writer, count) in acknowledged.iter().enumerate() {
            for serial in 0..count.load(Ordering::SeqCst) {
                assert!(
                    found.contains(&format!("{writer}-{serial}")),
                    "cycle {cycle}: acknowledged {writer}-{serial} is lost"
                );
            }
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for (writer, count) in acknowledged.iter().enumerate() {
                let (endpoint, stop) = (&endpoint, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let serial = count.load(Ordering::SeqCst);
                        let body = json!({"TableName": "serials", "Item": {"p": {"S": format!("{writer}-{serial}")}}});
                        match endpoint.try_send("PutItem", body.to_string().as_bytes()) {
                            Some(answer) if answer.status == 200 => {
                                count.store(serial + 1, Ordering::SeqCst);
                            }
                            // A rejected or interrupted write is not acknowledged, so the writer
                            // retries it.
                            _ => thread::sleep(Duration::from_millis(1)),
                        }
                    }
                });
            }
            // The process is killed at a different moment in each cycle, from the first writes on.
            let enough = sum(&acknowledged) + 10 + 20 * cycle;
            let started = Instant::now();
            while sum(&acknowledged) < enough && started.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(1));
            }
            store.process.kill();
            stop.store(true, Ordering::SeqCst);
        });
    }
    let total = sum(&acknowledged);
    assert!(total > CYCLES * 10, "only {total} writes were acknowledged");
    println!("{total} acknowledged writes, {CYCLES} kills, none lost");
}
