//! The data of the page `stream`, which is served as HTML and as JSON.

use local::explain::{REDRIVEN, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::pages::pipelines::State;

/// The data of the page Stream.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The address of this page.
    pub(crate) address: String,
    /// The tables with a stream.
    pub(crate) tables: Vec<String>,
    /// The chosen table; `None` for all.
    pub(crate) table: Option<String>,
    /// The key of the item whose records are searched.
    pub(crate) key: Option<String>,
    /// The maximum number of records that the page shows.
    pub(crate) limit: usize,
    /// Whether a `weir up` on this machine delivers the records. If not, the page shows no
    /// verdicts.
    pub(crate) knows_verdicts: bool,
    /// The records, newest first.
    pub(crate) records: Vec<Row>,
    /// The number of records that were read to find the shown records.
    pub(crate) records_read: usize,
    /// The time since which every record was read, in seconds since 1970 by the store's clock;
    /// `None` if the complete stream was read.
    pub(crate) since_s: Option<i64>,
    /// Whether reading stopped because the stream has too many records, so that newer records may
    /// exist.
    pub(crate) is_cut: bool,
}

/// A stream record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) sequence: String,
    pub(crate) table: String,
    pub(crate) shard: String,
    /// The time of the change, in seconds since 1970 by the store's clock.
    pub(crate) at_s: Option<i64>,
    /// `INSERT`, `MODIFY` or `REMOVE`.
    pub(crate) event_name: String,
    /// Whether TTL deleted the item.
    pub(crate) by_ttl: bool,
    /// The key of the item, in DynamoDB JSON.
    pub(crate) keys: Value,
    /// The verdict of each mapping of the table.
    pub(crate) mappings: Vec<Mapping>,
}

/// The verdict of a mapping about a record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mapping {
    pub(crate) mapping: String,
    pub(crate) function: String,
    /// The outcome, such as `delivered` or `filtered out`.
    pub(crate) outcome: String,
    /// The state that the page shows: `blocked` for a record of a failing batch, as on the page
    /// Pipelines; otherwise the outcome.
    pub(crate) state: &'static str,
    /// The reason: the clause of the filter, the error, or the destination of the discarded record.
    pub(crate) detail: String,
    /// The number of attempts with the record.
    pub(crate) attempts: usize,
    /// The result of the last attempt with the record.
    pub(crate) last_attempt: Option<String>,
    /// The failure object, if the record can be redriven.
    pub(crate) redrive: Option<String>,
    /// The number of records that a redrive sends again; 0 if it is unknown.
    pub(crate) redrive_records: usize,
}

impl Mapping {
    /// Returns the summary of a verdict.
    pub(super) fn of(verdict: &Verdict) -> Self {
        let own = || verdict.attempts.iter().filter(|attempt| attempt.place.is_some());
        let object = verdict.failure_object.clone();
        Self {
            mapping: verdict.mapping.clone(),
            function: verdict.function.clone(),
            outcome: verdict.outcome.to_owned(),
            state: state(verdict),
            detail: verdict.detail.clone(),
            attempts: own().count(),
            last_attempt: own().next_back().map(|attempt| verdict.end(attempt)),
            redrive: object.filter(|_| verdict.outcome != REDRIVEN),
            redrive_records: verdict.discarded_together,
        }
    }
}

/// Returns the state of a record in a mapping, in the word that the page Pipelines uses.
pub(crate) fn state(verdict: &Verdict) -> &'static str {
    if verdict.is_blocked { State::Blocked.word() } else { verdict.outcome }
}
