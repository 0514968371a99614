//! The interface of an executor: loads the data that a rule needs, and applies folded effects.
//!
//! The executors are in the modules of their targets, such as `totals` and `archive_sink`.

use std::collections::BTreeMap;

use rules::{Fold, Found, Joined, Needs, Rule};

use crate::back_off::Deadline;
use crate::failure::Failure;

/// The data of a target that an executor's rule reads before it decides.
type Input<E> = <<E as Executor>::Rule as Rule>::Input;
/// The effects of a batch that an executor applies.
type Effects<E> = <<<E as Executor>::Rule as Rule>::Effect as Fold>::Folded;

/// Applies the effects of one rule. It makes no decisions.
pub trait Executor: Send + Sync {
    /// The rule. The executor applies every kind of effect that the rule decides.
    type Rule: Rule;

    /// Loads the data that the rule needs.
    fn load(
        &self,
        needs: Needs,
    ) -> impl Future<Output = Result<Found<Input<Self>>, Failure>> + Send;

    /// Applies every effect until the deadline, independently for each target.
    fn apply(
        &self,
        folded: Effects<Self>,
        found: &Found<Input<Self>>,
        deadline: Deadline,
    ) -> impl Future<Output = Vec<TargetOutcome>> + Send;
}

/// Returns targets in the order of their first records. In this order, an invocation that runs out
/// of time leaves only targets of the last records unfinished, so Lambda redelivers only the end of
/// the batch.
pub(crate) fn in_order<K, V>(targets: BTreeMap<K, Joined<V>>) -> Vec<(K, Joined<V>)> {
    let mut targets: Vec<_> = targets.into_iter().collect();
    targets.sort_by_key(|(_, joined)| joined.records.iter().min().copied());
    targets
}

/// The outcome of one target's effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetOutcome {
    /// The target, for messages.
    pub target: String,
    /// Positions in the batch of the records that have effects on the target.
    pub records: Vec<usize>,
    /// Number of these records that changed the target. The other records had been applied before,
    /// or are quarantined.
    pub result: Result<usize, Failure>,
    /// Records to quarantine, because applying their effects to the target showed that they can
    /// never be applied.
    pub set_aside: Vec<SetAside>,
}

/// Records of a target to quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The id of the record's event; `None` for all records of the target.
    pub event_id: Option<String>,
    /// The reason.
    pub reason: String,
}

impl TargetOutcome {
    /// Returns the outcome of a target without quarantined records.
    #[must_use]
    pub fn new(target: String, records: Vec<usize>, result: Result<usize, Failure>) -> Self {
        Self { target, records, result, set_aside: Vec::new() }
    }
}
