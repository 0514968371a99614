//! The data of the page `pipelines`, which is served as HTML and as JSON.

use local::journal::Failing;
use serde::Serialize;

use super::state::{self, State};
use super::status::{MappingStatus, OtherMapping, Target};

/// The data of the page Pipelines.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// Whether a `weir up` on this machine reads the streams. If not, the page shows only the
    /// streams.
    pub(crate) runs: bool,
    /// The number of the page in the list of mappings, from 1. The JSON contains all mappings.
    pub(crate) page: usize,
    /// The time at which the counts were read, in milliseconds since 1970 by this machine's clock.
    pub(crate) taken_ms: Option<i64>,
    /// The reason why the counts may be out of date; `None` if they are current.
    pub(crate) hindered: Option<String>,
    /// The mappings: first the running mappings, then the others.
    pub(crate) mappings: Vec<Mapping>,
    /// The functions of the template that cannot run on this machine.
    pub(crate) functions_not_run: Vec<Absent>,
    /// The streams, if no local `weir up` runs their mappings.
    pub(crate) streams: Vec<Stream>,
}

/// A mapping, with its table, function and targets.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mapping {
    /// The name of the mapping.
    pub(crate) mapping: String,
    /// The logical id of the function.
    pub(crate) function: String,
    /// The table whose stream the mapping reads, if it is known.
    pub(crate) table: Option<String>,
    /// The targets of the function: the tables and buckets that its environment names.
    pub(crate) targets: Vec<Target>,
    /// The destination of discarded records.
    pub(crate) failures_to: Option<Target>,
    pub(crate) state: State,
    /// A sentence that explains the state.
    pub(crate) sentence: String,
    /// The record that blocks the mapping, if any.
    pub(crate) blocked_at: Option<String>,
    /// The time since which the mapping is blocked, in milliseconds since 1970 by the store's
    /// clock.
    pub(crate) blocked_since_ms: Option<i64>,
    /// The counts of the mapping; `None` if it does not run.
    pub(crate) figures: Option<Figures>,
}

/// The counts of a mapping since `weir up` started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// The records read per second over the last seconds; `None` until two samples exist.
    pub(crate) records_per_second: Option<f64>,
    /// The age of the oldest waiting record in milliseconds.
    pub(crate) lag_ms: i64,
    /// The number of records that were read, but neither delivered nor discarded yet.
    pub(crate) waiting: u64,
    /// The number of records that were read.
    pub(crate) read: u64,
    /// The number of records that the filter dropped.
    pub(crate) filtered: u64,
    /// The number of records that the function processed.
    pub(crate) delivered: u64,
    pub(crate) invocations: u64,
    /// The number of failed invocations.
    pub(crate) failed_invocations: u64,
    /// The number of discarded records.
    pub(crate) discarded: u64,
    /// The number of discarded records that were redriven and processed.
    pub(crate) redriven: u64,
    /// The number of times that the stream trimmed records before they were read.
    pub(crate) gaps: u64,
}

/// A function that cannot run on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Absent {
    /// The logical id of the function.
    pub(crate) function: String,
    pub(crate) reason: String,
}

/// A stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stream {
    pub(crate) table: String,
    pub(crate) arn: String,
}

impl Mapping {
    /// Returns a running mapping.
    pub(super) fn running(
        status: &MappingStatus,
        targets: Vec<Target>,
        failing: Option<&Failing>,
        records_per_second: Option<f64>,
    ) -> Self {
        let (state, sentence) = state::of(status, failing);
        let blocked = failing.filter(|_| state == State::Blocked);
        Self {
            mapping: status.mapping.clone(),
            function: status.function.clone(),
            table: status.table.clone(),
            targets,
            failures_to: status.failures_to.clone(),
            state,
            sentence,
            blocked_at: blocked.map(|it| it.first.clone()),
            blocked_since_ms: blocked.map(|it| it.since_ms),
            figures: Some(Figures::of(status, records_per_second)),
        }
    }

    fn idle(other: &OtherMapping, state: State, sentence: String) -> Self {
        Self {
            mapping: other.mapping.clone(),
            function: other.function.clone(),
            table: other.table.clone(),
            targets: Vec::new(),
            failures_to: None,
            state,
            sentence,
            blocked_at: None,
            blocked_since_ms: None,
            figures: None,
        }
    }

    /// Returns a mapping with `Enabled: false`.
    pub(super) fn disabled(other: &OtherMapping) -> Self {
        let sentence = "disabled in the template (Enabled: false), so it reads no record";
        Self::idle(other, State::Disabled, sentence.to_owned())
    }

    /// Returns a mapping whose function cannot run on this machine.
    pub(super) fn not_run(other: &OtherMapping) -> Self {
        let reason = other.reason.as_deref().unwrap_or("the template does not say why");
        Self::idle(other, State::NotRun, format!("does not run here: {reason}"))
    }
}

impl Figures {
    /// Returns the counts of a mapping.
    pub(super) fn of(status: &MappingStatus, records_per_second: Option<f64>) -> Self {
        let totals = &status.totals;
        Self {
            records_per_second,
            lag_ms: status.shards.iter().map(|shard| shard.lag_ms).max().unwrap_or(0),
            waiting: status.shards.iter().map(|shard| shard.waiting).sum(),
            read: totals.read,
            filtered: totals.filtered,
            delivered: totals.done,
            invocations: totals.invocations,
            failed_invocations: totals.failures,
            discarded: totals.discarded,
            redriven: totals.redriven,
            gaps: totals.gaps,
        }
    }
}
