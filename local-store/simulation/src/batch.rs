//! Runs of many seeds, each on one thread, and the summary of the results.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::export;
use crate::run::{Outcome, run_with_records};
use crate::world::coverage::{Counts, missing};
use crate::world::plan::Plan;

/// The minimum size of a batch that must cover every class of fault, in seeds. Smaller batches
/// are not checked.
pub const COVERING_SEEDS: u64 = 40;

/// The seeds to run, and the settings of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// The simulated seconds of load in each run.
    pub seconds: u64,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of threads.
    pub jobs: usize,
}

/// The result of a batch.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of runs that completed.
    pub runs: u64,
    /// The outcomes of the first `FAILURES_KEPT` runs with a violation, in seed order.
    pub failures: Vec<Outcome>,
    /// The number of runs with a violation.
    pub failed: u64,
    /// The number of occurrences of each fault.
    pub coverage: Counts,
    /// The numbers of acknowledged requests, of refused requests, and of requests with an unknown
    /// outcome.
    pub requests: [u64; 3],
    /// The number of checked histories of single items.
    pub histories: u64,
    /// The number of checked transactions, and of single operations on their items.
    pub transactions: u64,
    /// The number of checked stream records.
    pub stream_records: u64,
    /// The simulated time of all runs.
    pub simulated: Duration,
    /// The hash of the traces of all runs, in seed order.
    pub trace: u64,
    /// The real time that the batch took.
    pub took: Duration,
    /// The required classes of faults that did not occur.
    pub missing: Vec<&'static str>,
}

/// The maximum number of failed runs whose outcomes are in the summary.
const FAILURES_KEPT: usize = 20;

/// Runs a batch, and calls `progress` after each run with the numbers of completed and failed runs. Writes the
/// histories of each run into its own folder below `exports`, if that is given.
///
/// # Errors
/// A history cannot be written. The other runs are then abandoned.
pub fn run_all(
    batch: &Batch,
    exports: Option<&Path>,
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<Summary> {
    let begun = Instant::now();
    let next = AtomicU64::new(batch.first);
    let end = batch.first.saturating_add(batch.seeds);
    let (sender, outcomes) = mpsc::channel();
    let mut summary = Summary::default();
    std::thread::scope(|scope| -> io::Result<()> {
        for _ in 0..batch.jobs.max(1) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end {
                        return;
                    }
                    let plan = Plan::of(seed, batch.nodes, batch.seconds);
                    // Sending fails only if the receiver was dropped. The caller then needs no more
                    // results.
                    if sender.send(run_and_export(&plan, exports)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            summary.add(outcome?);
            progress(summary.runs, summary.failed);
        }
        Ok(())
    })?;
    summary.failures.sort_by_key(|outcome| outcome.seed);
    summary.failures.truncate(FAILURES_KEPT);
    summary.took = begun.elapsed();
    if batch.seeds >= COVERING_SEEDS {
        summary.missing = missing(&summary.coverage, batch.nodes);
    }
    Ok(summary)
}

fn run_and_export(plan: &Plan, exports: Option<&Path>) -> io::Result<Outcome> {
    let (outcome, records) = run_with_records(plan, false);
    if let Some(folder) = exports {
        export::write(&folder.join(format!("seed-{}", plan.seed)), &records)?;
    }
    Ok(outcome)
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.runs += 1;
        for (class, times) in &outcome.coverage {
            *self.coverage.entry(class).or_default() += times;
        }
        for (sum, part) in self.requests.iter_mut().zip(outcome.requests) {
            *sum += part;
        }
        let (hash, events) = outcome.trace;
        self.trace = self.trace.wrapping_add(hash ^ events ^ outcome.seed.rotate_left(32));
        self.histories += outcome.histories;
        self.transactions += outcome.transactions;
        self.stream_records += outcome.stream_records;
        self.simulated += outcome.simulated;
        if !outcome.violations.is_empty() {
            self.failed += 1;
            self.failures.push(outcome);
        }
    }

    /// Returns true if no run failed and every class of fault occurred.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.missing.is_empty() && self.runs > 0
    }

    /// Returns the summary as JSON.
    #[must_use]
    pub fn to_json(&self, batch: &Batch) -> Value {
        let failures: Vec<Value> = self
            .failures
            .iter()
            .map(|outcome| {
                let violations: Vec<String> =
                    outcome.violations.iter().map(ToString::to_string).collect();
                json!({"seed": outcome.seed, "violations": violations})
            })
            .collect();
        let coverage: BTreeMap<&str, u64> = self.coverage.iter().map(|(k, v)| (*k, *v)).collect();
        let [answered, refused, unknown] = self.requests;
        json!({
            "first_seed": batch.first, "seeds": self.runs, "seconds": batch.seconds,
            "nodes": batch.nodes, "failed": self.failed, "failures": failures,
            "faults": coverage, "faults_missing": self.missing,
            "requests": {"answered": answered, "refused": refused, "unknown": unknown},
            "trace": format!("{:016x}", self.trace), "histories": self.histories,
            "transactions": self.transactions, "stream_records": self.stream_records,
            "simulated_s": self.simulated.as_secs_f64(), "took_s": self.took.as_secs_f64(),
        })
    }
}
