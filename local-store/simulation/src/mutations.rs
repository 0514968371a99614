//! Whether the checkers can fail: each deliberate fault of the store has to be found, and by which
//! checker at which seed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use partition::mutation::{Mutation, activate};
use serde_json::{Value, json};

use crate::power_loss;
use crate::run::run;
use crate::world::plan::Plan;

/// Seeds within which a fault has to be found.
pub const SEEDS_MAX: u64 = 60;

/// A fault and who found it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The fault.
    pub mutation: Mutation,
    /// The seed, the checker, and its words; `None` when nobody found it.
    pub found: Option<(u64, String, String)>,
}

impl Finding {
    /// The finding for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let name = format!("{:?}", self.mutation);
        match &self.found {
            Some((seed, checker, what)) => {
                json!({"mutation": name, "seed": seed, "checker": checker, "violation": what})
            }
            None => json!({"mutation": name, "seed": null}),
        }
    }
}

/// Looks for one fault.
fn find(mutation: Mutation, seconds: u64) -> Finding {
    let by_run = |nodes| {
        (1..=SEEDS_MAX).find_map(|seed| {
            let plan = Plan { mutation: Some(mutation), ..Plan::of(seed, nodes, seconds) };
            let violation = run(&plan, false).violations.into_iter().next()?;
            let checker = format!("{} with {nodes} nodes", violation.checker);
            Some((seed, checker, violation.what))
        })
    };
    let by_image = || {
        activate(Some(mutation));
        let found = (1..=SEEDS_MAX).find_map(|seed| {
            let what = power_loss::check_seed(seed)?;
            Some((seed, "power loss".to_owned(), what))
        });
        activate(None);
        found
    };
    Finding { mutation, found: by_run(3).or_else(|| by_run(1)).or_else(by_image) }
}

/// Looks for every fault, some at the same time, and tells `progress` of each.
#[must_use]
pub fn find_all(seconds: u64, progress: &(dyn Fn(&Finding) + Sync)) -> Vec<Finding> {
    let next = AtomicUsize::new(0);
    let findings = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mutation) =
                    Mutation::ALL.get(next.fetch_add(1, Ordering::SeqCst)).copied()
                {
                    let finding = find(mutation, seconds);
                    progress(&finding);
                    let mut all =
                        findings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    all.push(finding);
                }
            });
        }
    });
    let mut all = findings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.sort_by_key(|finding| Mutation::ALL.iter().position(|m| *m == finding.mutation));
    all
}
