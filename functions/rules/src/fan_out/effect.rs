//! The effects of the fan-out: their targets and statements, and how the effects of a batch are
//! folded.
//!
//! `copy` and `job` compute what the copies must be.

use model::limits::PARTITION_KEY_BYTES_MAX;

use super::copy::OriginState;
use crate::effect::{self, Fold, Join, add};
use crate::rule::Refusal;

/// An effect of the fan-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Every copy of an origin has this state or a later one.
    Origin {
        /// The origin.
        origin: Origin,
        /// The latest known state of the origin; see [`LatestOriginState`].
        state: LatestOriginState,
    },
    /// The job of an origin must continue, if it still has this revision.
    Continue {
        /// The origin.
        origin: Origin,
        /// The job's revision; see [`Revision`].
        revision: Revision,
    },
    /// A copy must be checked, because it may lack the current values of its origin.
    CheckCopy {
        /// The copy.
        copy: Copy,
        /// The number of deployments through which the copy's values have passed.
        arrival: DeploymentHops,
    },
}

/// The fan-out's effects of a batch, with one statement for each target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// The states of origins, by origin.
    pub origins: effect::Folded<Origin, LatestOriginState>,
    /// The jobs that continue, by origin.
    pub jobs: effect::Folded<Origin, Revision>,
    /// The copies to check.
    pub copy_checks: effect::Folded<Copy, DeploymentHops>,
}

impl Fold for Effect {
    type Folded = Folded;

    fn fold_into(self, folded: &mut Folded, position: usize) {
        match self {
            Self::Origin { origin, state } => add(&mut folded.origins, origin, state, [position]),
            Self::Continue { origin, revision } => {
                add(&mut folded.jobs, origin, revision, [position]);
            }
            Self::CheckCopy { copy, arrival } => {
                add(&mut folded.copy_checks, copy, arrival, [position]);
            }
        }
    }
}

/// An origin of one rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The rule's name.
    pub rule: String,
    /// The origin's key value in DynamoDB JSON, such as `{"N":"17"}`.
    pub key: String,
}

/// A copy of one rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copy {
    /// The rule's name.
    pub rule: String,
    /// The copy's primary key in DynamoDB JSON.
    pub key: String,
}

/// The latest known state of an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatestOriginState(pub Option<OriginState>);

impl Join for LatestOriginState {
    fn join(&mut self, other: Self) {
        let stamp = |latest: &Self| latest.0.as_ref().map(|state| state.stamp.clone());
        if stamp(self) < stamp(&other) {
            *self = other;
        }
    }
}

/// The revision of a job that must continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revision(pub u64);

/// The largest number of deployments, including this deployment, through which the values of a copy
/// have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeploymentHops(pub u32);

impl Join for DeploymentHops {
    fn join(&mut self, other: Self) {
        // The greater number is kept, because a write outside of a loop must not hide a write of
        // the loop.
        self.0 = self.0.max(other.0);
    }
}

impl Join for Revision {
    fn join(&mut self, other: Self) {
        self.0 = self.0.max(other.0);
    }
}

impl Origin {
    /// Returns the key of the origin's job.
    #[must_use]
    pub fn job_key(&self) -> String {
        format!("{}#{}", self.rule, self.key)
    }

    /// Returns whether the key of the origin's job fits the jobs table. The job's key contains the
    /// origin's key as DynamoDB JSON, which is longer than its value. DynamoDB rejects the entire
    /// request if a key in it is too long.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.job_key().len() <= PARTITION_KEY_BYTES_MAX
    }

    /// Returns the refusal of an origin whose key is too long for the key of a job.
    pub(super) fn unfit(&self) -> Refusal {
        Refusal(format!(
            "rule `{}`: the origin's key takes {} bytes as the key of its job, which has at most {PARTITION_KEY_BYTES_MAX}; give the origin a shorter key",
            self.rule,
            self.job_key().len()
        ))
    }

    /// Parses the key of [`Origin::job_key`].
    #[must_use]
    pub fn from_job_key(text: &str) -> Option<Self> {
        let (rule, key) = text.split_once('#')?;
        Some(Self { rule: rule.to_owned(), key: key.to_owned() })
    }
}
