//! The data of the page `record`, which is served as HTML and as JSON.

use std::path::Path;

use local::explain::{Explanation, IN_PROGRESS, REDRIVEN, Verdict};
use local::journal::Attempt as Tried;
use serde::Serialize;
use serde_json::Value;

use super::log;
use crate::pages::stream;

/// The data of the page of a record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    pub(crate) sequence: String,
    /// The table; `None` if the record has left the stream.
    pub(crate) table: Option<String>,
    /// The output of `weir streams explain --output json`, schema `weir.explain/v1`.
    pub(crate) explanation: Value,
    /// The output of `weir streams explain` for a terminal.
    pub(crate) text: String,
    /// The record as a function receives it; `None` if it has left the stream.
    pub(crate) record: Option<Value>,
    /// The reason why no stream contains the record; `None` if a stream does.
    pub(crate) absence: Option<String>,
    /// The reason why `weir up` cannot write its journal; `None` if it can.
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
    /// The state that the page shows: `blocked` for a record of a failing batch, as on the page
    /// Pipelines; otherwise the outcome.
    pub(crate) state: &'static str,
    /// The reason for the outcome.
    pub(crate) detail: String,
    /// For each pattern of the filter, the reason why it does not match.
    pub(crate) filter: Vec<String>,
    /// The patterns of the filter, in the order of the template.
    pub(crate) patterns: Vec<String>,
    /// The failure object, if the record can be redriven.
    pub(crate) redrive: Option<String>,
    /// The number of records that a redrive sends again; 0 if it is unknown.
    pub(crate) redrive_records: usize,
    /// The attempts with the record, or with another part of its batch.
    pub(crate) attempts: Vec<Attempt>,
    /// The number of the mapping's reports that the journal lacks.
    pub(crate) missed_reports: u64,
}

/// An attempt to process a batch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Attempt {
    /// The number of the run of `weir up`.
    pub(crate) run: u64,
    /// The number of the batch, unique within the run.
    pub(crate) batch: u64,
    /// The number of this attempt, counted from the first attempt with these records.
    pub(crate) attempt: u32,
    /// The start of the attempt, in milliseconds since 1970 by the store's clock.
    pub(crate) at_ms: i64,
    /// The number of records in the attempt.
    pub(crate) records: usize,
    /// Whether the attempt included the record. Other attempts had another part of its batch.
    pub(crate) has_record: bool,
    /// The result of the attempt.
    pub(crate) outcome: String,
    /// The request id in the log of the function.
    pub(crate) request: Option<String>,
    /// The last lines of the invocation's log.
    pub(crate) log: Vec<String>,
}

impl View {
    /// Returns whether an attempt is running or will follow.
    pub(crate) fn is_open(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.outcome == IN_PROGRESS)
    }

    /// Converts an explanation to the data of the page, without logs.
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
            state: stream::state(verdict),
            detail: verdict.detail.clone(),
            filter: verdict.filter.clone(),
            patterns: verdict.patterns.clone(),
            redrive: object.filter(|_| verdict.outcome != REDRIVEN),
            redrive_records: verdict.discarded_together,
            attempts: verdict.attempts.iter().map(attempt).collect(),
            missed_reports: verdict.missed,
        }
    }

    /// Reads the log lines of the attempts from the folder of logs, and adds them.
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
