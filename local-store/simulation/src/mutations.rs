//! A test of the checkers: the simulation must find each deliberate fault of the store. The result
//! contains the checker and the seed that found the fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use locks::Mutex;
use partition::mutation::{Mutation, activate};
use serde_json::{Value, json};

use crate::power_loss;
use crate::run::run;
use crate::world::plan::Plan;

/// The number of seeds within which a fault must be found.
pub const SEEDS_MAX: u64 = 60;

/// The faults of the ring: of nodes that join and leave, of arcs that move, and of arcs on other nodes.
const OF_RING: [Mutation; 17] = [
    Mutation::ReadIncomplete,
    Mutation::RemoteReadWithoutIndex,
    Mutation::RemoteReadUnapplied,
    Mutation::LoseEndOfRange,
    Mutation::SendToOtherArc,
    Mutation::KeepOldLeader,
    Mutation::KeepOldDefinitions,
    Mutation::KeepUsingReplica,
    Mutation::SkipRelayOfMoved,
    Mutation::KeepReplica,
    Mutation::LeaveWhileMember,
    Mutation::ForgetJoined,
    Mutation::ForgetLeft,
    Mutation::LosePlace,
    Mutation::ForgetRing,
    Mutation::ForgetTooEarly,
    Mutation::VoteUnfilled,
];

/// The checkers whose violations are unspecific. The violations of other checkers are reported
/// first.
const VAGUE: [&str; 3] = ["liveness", "recovery", "panic"];

/// The discovery of a fault: the seed, the world, and the checkers that failed.
#[derive(Clone, Debug)]
pub struct Detection {
    /// The first of the tried seeds that found the fault.
    pub seed: u64,
    /// The kind of world: three nodes, one node, or power-loss images.
    pub world: &'static str,
    /// The checkers that failed, the most specific first.
    pub checkers: Vec<&'static str>,
    /// The description of the first violation.
    pub what: String,
}

/// A deliberate fault, and the result of the search for it.
#[derive(Clone, Debug)]
pub struct MutationResult {
    /// The fault.
    pub mutation: Mutation,
    /// The discovery of the fault; `None` if no checker found the fault.
    pub found: Option<Detection>,
}

impl MutationResult {
    /// Returns the finding as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let name = format!("{:?}", self.mutation);
        match &self.found {
            Some(Detection { seed, world, checkers, what }) => json!({
                "mutation": name, "seed": seed, "world": world, "checkers": checkers,
                "violation": what,
            }),
            None => json!({"mutation": name, "seed": null}),
        }
    }

    /// Returns the finding as a row of a Markdown table.
    #[must_use]
    pub fn to_row(&self) -> String {
        let name = format!("{:?}", self.mutation);
        match &self.found {
            Some(Detection { seed, world, checkers, .. }) => {
                format!("| `{name}` | {seed} | {world} | {} |", checkers.join(", "))
            }
            None => format!("| `{name}` | not found | | |"),
        }
    }
}

/// Searches for one fault.
fn find(mutation: Mutation, seconds: u64) -> MutationResult {
    let by_run = |nodes, world| {
        plans(mutation, nodes, seconds).into_iter().find_map(|plan| {
            let seed = plan.seed;
            let mut violations = run(&plan, false).violations;
            // A violation of the test harness itself does not count, so another seed must find the
            // fault.
            violations.retain(|violation| violation.checker != "harness");
            violations.sort_by_key(|violation| VAGUE.contains(&violation.checker));
            let mut checkers: Vec<&str> = Vec::new();
            for violation in &violations {
                if !checkers.contains(&violation.checker) {
                    checkers.push(violation.checker);
                }
            }
            let what = violations.into_iter().next()?.what;
            Some(Detection { seed, world, checkers, what })
        })
    };
    let by_image = || {
        activate(Some(mutation));
        let found = (1..=SEEDS_MAX).find_map(|seed| {
            let what = power_loss::check_seed(seed)?;
            Some(Detection { seed, world: "power-loss images", checkers: vec!["power loss"], what })
        });
        activate(None);
        found
    };
    let mut found = by_run(3, "three nodes");
    if !OF_RING.contains(&mutation) {
        found = found.or_else(|| by_run(1, "one node")).or_else(by_image);
    }
    MutationResult { mutation, found }
}

/// Returns the plans to try for a fault, in order. A fault of the ring has no effect in worlds with one arc, and
/// rarely in worlds whose nodes have every arc and never join.
fn plans(mutation: Mutation, nodes: usize, seconds: u64) -> Vec<Plan> {
    let plan = |seed| Plan { mutation: Some(mutation), ..Plan::of(seed, nodes, seconds) };
    let mut plans: Vec<Plan> = (1..=SEEDS_MAX).map(plan).collect();
    if OF_RING.contains(&mutation) {
        plans.retain(|plan| plan.arcs > 1);
        plans.sort_by_key(|plan| plan.spares == 0);
    }
    plans
}

/// Searches for seeds that find these faults, several faults concurrently, and passes each result
/// to `progress`.
#[must_use]
pub fn find_all(
    chosen: &[Mutation],
    seconds: u64,
    progress: &(dyn Fn(&MutationResult) + Sync),
) -> Vec<MutationResult> {
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mutation) = chosen.get(next.fetch_add(1, Ordering::SeqCst)).copied()
                {
                    let finding = find(mutation, seconds);
                    progress(&finding);
                    let mut all = findings.lock();
                    all.push(finding);
                }
            });
        }
    });
    let mut all = findings.into_inner();
    all.sort_by_key(|finding| chosen.iter().position(|m| *m == finding.mutation));
    all
}
