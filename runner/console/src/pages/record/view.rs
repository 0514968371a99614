//! The data of the page, and its JSON twin.

use std::path::Path;

use local::explain::{Explanation, REDRIVEN, Verdict};
use local::journal::Attempt as Tried;
use serde::Serialize;
use serde_json::Value;

use super::log;

/// What the page shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The version of this document.
    pub(crate) schema: &'static str,
    pub(crate) sequence: String,
    /// The table, if a stream still has the record.
    pub(crate) table: Option<String>,
    /// The document of `weir streams explain --output json`, schema `weir.explain/v1`.
    pub(crate) explanation: Value,
    /// Its text for a terminal.
    pub(crate) text: String,
    /// The record as a function gets it, if a stream still has it.
    pub(crate) record: Option<Value>,
    /// Why no stream has the record; `None` if one has.
    pub(crate) absence: Option<String>,
    /// Why `weir up` cannot write its journal, if it cannot.
    pub(crate) hindered: Option<String>,
    /// The verdict of each mapping.
    pub(crate) mappings: Vec<Mapping>,
}

/// The verdict of a mapping.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mapping {
    pub(crate) mapping: String,
    pub(crate) function: String,
    /// The outcome, such as `delivered`.
    pub(crate) outcome: String,
    /// The reason.
    pub(crate) detail: String,
    /// For each pattern of the filter, why it does not match.
    pub(crate) filter: Vec<String>,
    /// The failure object, if the record can be redriven.
    pub(crate) redrive: Option<String>,
    /// The attempts with the record or with another part of its batch.
    pub(crate) attempts: Vec<Attempt>,
    /// The number of the mapping's reports that the journal lacks.
    pub(crate) missed_reports: u64,
}

/// An attempt.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Attempt {
    /// The run of `weir up`.
    pub(crate) run: u64,
    /// The batch, unique within the run.
    pub(crate) batch: u64,
    /// The number of attempts for its records so far.
    pub(crate) attempt: u32,
    /// When it began, in milliseconds since 1970 by the store's clock.
    pub(crate) at_ms: i64,
    /// The number of its records.
    pub(crate) records: usize,
    /// Whether it had the record; other attempts had another part of its batch.
    pub(crate) has_record: bool,
    /// The result.
    pub(crate) outcome: String,
    /// The request id in the log of the function.
    pub(crate) request: Option<String>,
    /// The last lines of its log.
    pub(crate) log: Vec<String>,
}

impl View {
    /// Returns whether an attempt is still running or still to come.
    pub(crate) fn is_open(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.outcome == "in progress")
    }

    /// Returns the page of an explanation, without logs.
    pub(super) fn of(explanation: &Explanation) -> Self {
        let document = explanation.document();
        Self {
            schema: "weir.console.record/v1",
            sequence: explanation.sequence.clone(),
            table: document.get("table").and_then(Value::as_str).map(str::to_owned),
            text: explanation.text(),
            record: explanation.record().map(|record| record.event().clone()),
            absence: explanation.absence(),
            hindered: explanation.hindered.clone(),
            mappings: explanation.verdicts.iter().map(Mapping::of).collect(),
            explanation: document,
        }
    }
}

impl Mapping {
    fn of(verdict: &Verdict) -> Self {
        let attempt = |tried: &Tried| Attempt {
            run: tried.run,
            batch: tried.batch,
            attempt: tried.attempt,
            at_ms: tried.at_ms,
            records: tried.records.len(),
            has_record: tried.place.is_some(),
            outcome: verdict.end(tried),
            request: tried.request.clone(),
            log: Vec::new(),
        };
        let object = verdict.failure_object.clone();
        Self {
            mapping: verdict.mapping.clone(),
            function: verdict.function.clone(),
            outcome: verdict.outcome.to_owned(),
            detail: verdict.detail.clone(),
            filter: verdict.filter.clone(),
            redrive: object.filter(|_| verdict.outcome != REDRIVEN),
            attempts: verdict.attempts.iter().map(attempt).collect(),
            missed_reports: verdict.missed,
        }
    }

    /// Adds the log lines of the attempts, from the folder of the logs.
    pub(super) fn add_logs(&mut self, folder: &Path) {
        let requests: Vec<&str> =
            self.attempts.iter().filter_map(|attempt| attempt.request.as_deref()).collect();
        let mut found = log::lines_of(folder, &self.function, &requests);
        for attempt in &mut self.attempts {
            let lines = attempt.request.as_ref().and_then(|request| found.remove(request));
            attempt.log = lines.unwrap_or_default();
        }
    }
}
