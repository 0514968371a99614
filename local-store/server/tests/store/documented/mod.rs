//! A property test of the store against a model of DynamoDB's documentation.
//!
//! Goal: after any sequence of operations, items, conditions, updates, indexes, pages, batches, transactions
//! and stream records are as documented. Method: the store and a small model in memory (`state`, `condition`,
//! `update`) execute random operations (`generate`), and the test compares every response (`check`). The
//! model shares only the value types of the crate `model` with the store. The test shrinks a failure to few
//! operations. Each Query is also executed as a PartiQL statement, and the results are compared.
//!
//! `OPERATIONS=5000000 cargo test -p server --test store` executes more operations; `SEED=7` executes other
//! operations.

mod answer;
mod check;
mod condition;
mod expression;
mod generate;
mod request;
mod state;
mod statement;
mod stream;
mod table;
mod update;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use server::store::{Config as StoreConfig, Store};

/// The default number of operations that the test executes.
const OPERATIONS: u64 = 100_000;
/// The maximum number of operations in one history. Each history has its own tables.
const HISTORY_MAX: usize = 400;
/// The number of concurrent histories. They run together so that their writes share syncs.
const THREADS: u64 = 12;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

async fn open(directory: &Path, arcs: u32) -> Store {
    let config = StoreConfig {
        directory: directory.to_path_buf(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas: 1,
        arcs,
    };
    Store::open(config, Box::new(|reason| panic!("{reason}"))).await.unwrap()
}

#[test]
fn the_store_behaves_as_documented() {
    check_store(1, setting("OPERATIONS", OPERATIONS));
}

/// Goal: the store also behaves as documented if its tables, indexes and transactions are distributed over
/// several arcs.
#[test]
fn a_ring_of_three_arcs_behaves_as_documented() {
    check_store(3, setting("OPERATIONS", OPERATIONS) / 5);
}

fn check_store(arcs: u32, operations: u64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = runtime.block_on(open(directory.path(), arcs));
    let seed = setting("SEED", 0);
    let (done, histories) = (AtomicU64::new(0), AtomicU64::new(0));
    // The number of the first thread that failed, counted from 1. The other threads then stop.
    let failed = AtomicU64::new(0);
    let run = &|thread: u64| {
        let goes_on = || [0, thread].contains(&failed.load(Ordering::Relaxed));
        let mut seeds = [1; 16];
        seeds[..8].copy_from_slice(&(seed * THREADS + thread).to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::XorShift, &seeds);
        // The loop below limits the number of cases.
        let config = Config {
            cases: u32::MAX,
            failure_persistence: None,
            max_shrink_iters: 3000,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, rng);
        while done.load(Ordering::Relaxed) < operations && goes_on() {
            let history = generate::history(HISTORY_MAX).new_tree(&mut runner).unwrap();
            let outcome = runner.run_one(history, |history| {
                if !goes_on() {
                    return Ok(());
                }
                let number = histories.fetch_add(1, Ordering::Relaxed);
                done.fetch_add(history.len() as u64, Ordering::Relaxed);
                let outcome = runtime.block_on(check::play(&store, number, &history));
                if outcome.is_err() {
                    let _ =
                        failed.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
                }
                if goes_on() { outcome } else { Ok(()) }
            });
            match outcome {
                Ok(_) => {}
                Err(TestError::Fail(reason, history)) => {
                    let lines: Vec<String> =
                        history.iter().map(|operation| format!("{operation:?}")).collect();
                    panic!("{reason}\nafter these operations:\n{}", lines.join("\n"))
                }
                Err(TestError::Abort(reason)) => panic!("{reason}"),
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (1..=THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    assert!(done.load(Ordering::Relaxed) >= operations);
}
