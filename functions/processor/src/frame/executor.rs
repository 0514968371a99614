//! What the frame needs of an executor: load what a rule needs, and make folded effects true.
//!
//! The executors themselves stand with their targets: `totals` and `archive_sink`.

use std::collections::BTreeMap;

use rules::{Folded, Found, Joined, Needs};

use crate::back_off::Deadline;
use crate::failure::Failure;

/// What makes effects true. It decides nothing.
pub trait Executor: Send + Sync {
    /// Loads what a rule needs.
    fn load(&self, needs: Needs) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// Makes every effect true, each target on its own, until the deadline.
    fn apply(
        &self,
        folded: Folded,
        found: &Found,
        deadline: Deadline,
    ) -> impl Future<Output = Vec<TargetOutcome>> + Send;
}

/// Targets in the order of their first records: what an invocation has no time for is then what
/// comes last, so that the next delivery is shorter.
pub(crate) fn in_order<K, V>(targets: BTreeMap<K, Joined<V>>) -> Vec<(K, Joined<V>)> {
    let mut targets: Vec<_> = targets.into_iter().collect();
    targets.sort_by_key(|(_, joined)| joined.records.iter().min().copied());
    targets
}

/// What became of one target's effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetOutcome {
    /// The target, for people.
    pub target: String,
    /// Positions in the batch of the records behind it.
    pub records: Vec<usize>,
    /// How many of these records changed the target; the others found it so already, or are set
    /// aside.
    pub result: Result<usize, Failure>,
    /// Records that no retry can help, as only the target could tell.
    pub set_aside: Vec<SetAside>,
}

/// Records of a target that are to be put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The id of the record's event; `None` for all records of the target.
    pub event_id: Option<String>,
    /// Why.
    pub reason: String,
}

impl TargetOutcome {
    /// What became of a target of which nothing is set aside.
    #[must_use]
    pub fn new(target: String, records: Vec<usize>, result: Result<usize, Failure>) -> Self {
        Self { target, records, result, set_aside: Vec::new() }
    }

    /// The outcomes of effects on targets that an executor does not have.
    #[must_use]
    pub fn unknown(folded: Folded) -> Vec<Self> {
        let unknown = || Failure::Fatal("this function has no such target".to_owned());
        let targets = folded.into_targets();
        targets.map(|(target, records)| Self::new(target, records, Err(unknown()))).collect()
    }
}
