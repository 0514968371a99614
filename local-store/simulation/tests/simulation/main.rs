//! Tests of the entire simulation: many seeds run without a violation, every fault occurs, and two
//! runs of one seed are equal, even in different processes.

use std::process::Command;

use simulation::batch::{Batch, COVERING_SEEDS, run_all};
use simulation::power_loss;
use simulation::run::run;
use simulation::world::plan::Plan;

/// The seconds of load in a run of these tests.
const SECONDS: u64 = 30;
const NODES: usize = 3;

#[test]
fn many_seeds_have_no_violation_and_every_fault_occurs() {
    for nodes in [1, NODES] {
        let batch = Batch { first: 1, seeds: COVERING_SEEDS, seconds: SECONDS, nodes, jobs: 2 };
        let summary = run_all(&batch, None, &mut |_, _| {}).unwrap();
        assert!(summary.is_good(), "{:#}", summary.to_json(&batch));
        assert!(summary.histories >= 5 * COVERING_SEEDS && summary.stream_records > 10_000);
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in [3, 1_000_003] {
        let plan = Plan::of(seed, NODES, 10);
        let first = run(&plan, false);
        assert!(first.trace.1 > 500, "{:?}", first.trace);
        assert_eq!(first, run(&plan, false));
        assert_ne!(first.trace, run(&Plan::of(seed + 1, NODES, 10), false).trace);
    }
}

#[test]
fn a_seed_is_the_same_run_in_another_process() {
    let batch = Batch { first: 77, seeds: 2, seconds: 10, nodes: NODES, jobs: 1 };
    let here = run_all(&batch, None, &mut |_, _| {}).unwrap().to_json(&batch);
    let output = Command::new(env!("CARGO_BIN_EXE_simulation"))
        .args(["--first", "77", "--seeds", "2", "--seconds", "10"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let there: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(there["trace"], here["trace"]);
    assert_eq!(there["faults"], here["faults"]);
    assert_eq!(there["requests"], here["requests"]);
}

/// Goal: the table in the documentation equals the output of `simulation mutations --markdown`.
#[test]
fn the_documentation_lists_every_deliberate_fault_with_its_checkers() {
    let page = std::fs::read_to_string("../../docs/development/simulation.md").unwrap();
    for mutation in partition::mutation::Mutation::ALL {
        let begin = format!("| `{mutation:?}` | ");
        let row = page.lines().find(|line| line.starts_with(&begin));
        assert!(row.is_some_and(|row| !row.contains("not found")), "{mutation:?}: {row:?}");
    }
}

#[test]
fn log_and_state_recover_after_power_cuts() {
    let summary = power_loss::run_all(1, 2_000, &mut |_, _| {});
    assert!(summary.is_good(), "{:#}", summary.to_json());
}
