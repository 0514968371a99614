//! The data of the page, and its JSON twin.

use local::journal::Failing;
use serde::Serialize;

use super::state::{self, State};
use super::status::{MappingStatus, OtherMapping, Target};

/// What the page shows.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The version of this document.
    pub(crate) schema: &'static str,
    /// Whether a `weir up` on this machine reads the streams. If not, only the streams are known.
    pub(crate) runs: bool,
    /// The page of the list of mappings, counted from 1. This document has all mappings.
    pub(crate) page: usize,
    /// When the counts were taken, in milliseconds since 1970 by this machine's clock.
    pub(crate) taken_ms: Option<i64>,
    /// Why the counts may be old, if they may.
    pub(crate) hindered: Option<String>,
    /// The mappings: those that run, then the others.
    pub(crate) mappings: Vec<Mapping>,
    /// The functions of the template that do not run here.
    pub(crate) functions_not_run: Vec<Absent>,
    /// The streams of a store whose mappings are not known here.
    pub(crate) streams: Vec<Stream>,
}

/// A mapping with its way from table to target.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mapping {
    /// Its name.
    pub(crate) mapping: String,
    /// The logical id of its function.
    pub(crate) function: String,
    /// The table whose stream it reads, if it is known.
    pub(crate) table: Option<String>,
    /// Where the function leads: the tables and buckets that its environment names.
    pub(crate) targets: Vec<Target>,
    /// Where discarded records are kept.
    pub(crate) failures_to: Option<Target>,
    pub(crate) state: State,
    /// Its state in one sentence.
    pub(crate) sentence: String,
    /// The record that blocks it, if one does.
    pub(crate) blocked_at: Option<String>,
    /// Since when it is blocked, in milliseconds since 1970 by the store's clock.
    pub(crate) blocked_since_ms: Option<i64>,
    /// Its counts; `None` if it does not run.
    pub(crate) figures: Option<Figures>,
}

/// The counts of a mapping since `weir up` began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Records read per second, over the last seconds; `None` until two samples exist.
    pub(crate) records_per_second: Option<f64>,
    /// The age of the oldest waiting record in milliseconds.
    pub(crate) lag_ms: i64,
    /// Records that were read and are neither delivered nor discarded.
    pub(crate) waiting: u64,
    /// Records that were read.
    pub(crate) read: u64,
    /// Records that the filter dropped.
    pub(crate) filtered: u64,
    /// Records that the function processed.
    pub(crate) delivered: u64,
    pub(crate) invocations: u64,
    /// Invocations that failed.
    pub(crate) failed_invocations: u64,
    /// Records that were discarded.
    pub(crate) discarded: u64,
    /// Discarded records that were redriven and processed.
    pub(crate) redriven: u64,
    /// How often records were trimmed before they were read.
    pub(crate) gaps: u64,
}

/// A function that does not run here.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Absent {
    /// Its logical id.
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
    /// Returns a mapping that runs.
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

    /// Returns a mapping whose function does not run here.
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
