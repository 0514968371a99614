//! Minimisation of a failing plan. The smaller plan fails in the same way, with fewer faults, fewer
//! clients and less time. Every attempt is a run, so the number of attempts is bounded.

use crate::run::{Outcome, run};
use crate::world::plan::{Clients, Plan};

/// The maximum number of runs of one minimisation. Together they take some minutes.
pub const RUNS_MAX: usize = 120;

/// A smaller plan and its outcome.
#[derive(Clone, Debug)]
pub struct SmallerPlan {
    /// The plan.
    pub plan: Plan,
    /// The outcome of the plan.
    pub outcome: Outcome,
    /// The number of runs.
    pub runs: usize,
}

struct Search<'a> {
    checkers: Vec<&'static str>,
    best: SmallerPlan,
    run: &'a dyn Fn(&Plan) -> Outcome,
}

impl Search<'_> {
    /// Runs a smaller plan, and accepts it if one of the checkers that failed for the original plan
    /// fails again.
    fn attempt(&mut self, plan: Plan) -> bool {
        if self.best.runs >= RUNS_MAX || plan == self.best.plan {
            return false;
        }
        self.best.runs += 1;
        let outcome = (self.run)(&plan);
        let same = outcome.violations.iter().any(|v| self.checkers.contains(&v.checker));
        if same {
            self.best = SmallerPlan { plan, outcome, runs: self.best.runs };
        }
        same
    }

    /// Removes faults in chunks of decreasing size (Zeller's delta debugging).
    fn drop_faults(&mut self) {
        let mut parts = 2;
        while !self.best.plan.faults.is_empty() && self.best.runs < RUNS_MAX {
            let count = self.best.plan.faults.len();
            let size = count.div_ceil(parts).max(1);
            let dropped = (0..count).step_by(size).any(|start| {
                let mut plan = self.best.plan.clone();
                plan.faults.drain(start..(start + size).min(count));
                self.attempt(plan)
            });
            if dropped {
                parts = parts.saturating_sub(1).max(2);
            } else if size == 1 {
                return;
            } else {
                parts = (parts * 2).min(count);
            }
        }
    }

    fn drop_clients(&mut self) {
        let without: [fn(&mut Clients); 6] = [
            |clients| clients.registers = 0,
            |clients| clients.bank = 0,
            |clients| clients.counters = 0,
            |clients| clients.expiring = 0,
            |clients| clients.readers = 0,
            |clients| clients.transactions = 0,
        ];
        for change in without {
            let mut plan = self.best.plan.clone();
            change(&mut plan.clients);
            self.attempt(plan);
        }
    }

    fn shorten(&mut self) {
        loop {
            let mut plan = self.best.plan.clone();
            plan.seconds /= 2;
            plan.faults.retain(|planned| planned.at_ms < plan.seconds * 1_000);
            if plan.seconds == 0 || !self.attempt(plan) {
                return;
            }
        }
    }
}

/// Minimises a failing plan. `outcome` is the outcome of the plan.
#[must_use]
pub fn minimise(plan: &Plan, outcome: &Outcome) -> SmallerPlan {
    minimise_with(plan, outcome, &|plan| run(plan, false))
}

fn minimise_with(plan: &Plan, outcome: &Outcome, run: &dyn Fn(&Plan) -> Outcome) -> SmallerPlan {
    let mut checkers: Vec<&'static str> = outcome.violations.iter().map(|v| v.checker).collect();
    checkers.dedup();
    let best = SmallerPlan { plan: plan.clone(), outcome: outcome.clone(), runs: 0 };
    let mut search = Search { checkers, best, run };
    search.shorten();
    search.drop_clients();
    search.drop_faults();
    search.shorten();
    search.best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::Violation;
    use crate::world::plan::Fault;

    /// Returns a fake outcome, which is a failure if the plan contains registers and two specific
    /// faults.
    fn pretended(plan: &Plan) -> Outcome {
        let kills = plan.faults.iter().any(|p| matches!(p.fault, Fault::Kill { .. }));
        let skews = plan.faults.iter().any(|p| matches!(p.fault, Fault::Skew { .. }));
        let broken = kills && skews && plan.clients.registers > 0;
        let violation = Violation { checker: "pretended", what: String::new() };
        Outcome {
            violations: broken.then_some(violation).into_iter().collect(),
            ..Outcome::default()
        }
    }

    #[test]
    fn only_the_necessary_parts_are_left() {
        // Both faults are early, so the plan can be shortened.
        let is_early = |plan: &Plan| {
            let mut early = plan.clone();
            early.faults.retain(|planned| planned.at_ms < 60_000);
            !pretended(&early).violations.is_empty()
        };
        let plan = (0..).map(|seed| Plan::of(seed, 3, 120)).find(is_early);
        let plan = plan.unwrap();
        let smaller = minimise_with(&plan, &pretended(&plan), &pretended);
        assert_eq!(smaller.plan.faults.len(), 2, "{:?}", smaller.plan.faults);
        assert_eq!(smaller.plan.clients.bank + smaller.plan.clients.readers, 0);
        assert!(smaller.plan.seconds < 120 && smaller.runs <= RUNS_MAX);
        assert!(!smaller.outcome.violations.is_empty());
    }
}
