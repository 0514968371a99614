//! The data of the page `filter`, which is served as HTML and as JSON.

use local::explain::Found;
use mapping::{FilterCriteria, ItemValues};
use serde::Serialize;
use serde_json::Value;

/// The data of the page Filter.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The tables with a stream.
    pub(crate) tables: Vec<String>,
    /// The chosen table.
    pub(crate) table: Option<String>,
    /// The JSON of the filter: a pattern, or a `FilterCriteria` object.
    pub(crate) pattern: Option<String>,
    /// Whether the filter was run.
    pub(crate) is_run: bool,
    /// Probable mistakes in the filter, which do not depend on the records.
    pub(crate) remarks: Vec<String>,
    /// The records, newest first.
    pub(crate) records: Vec<Row>,
}

/// The result for a record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) sequence: String,
    /// `INSERT`, `MODIFY` or `REMOVE`.
    pub(crate) event_name: String,
    /// The key of the item, in DynamoDB JSON.
    pub(crate) keys: Value,
    /// Whether the record matches, so that the function receives it.
    pub(crate) matches: bool,
    /// For each evaluated pattern, the clause that failed, or a statement that the pattern matches.
    pub(crate) why: Vec<String>,
}

impl Row {
    /// Runs the filter over a record.
    pub(super) fn of(found: &Found, filter: &FilterCriteria) -> Self {
        let event = found.record.event();
        let name = event.get("eventName").and_then(Value::as_str);
        Self {
            sequence: found.record.sequence.as_str().to_owned(),
            event_name: name.unwrap_or_default().to_owned(),
            keys: event.pointer("/dynamodb/Keys").cloned().unwrap_or_default(),
            matches: filter.verdict(event).matched,
            why: filter.explain(event, ItemValues::Quoted),
        }
    }
}
