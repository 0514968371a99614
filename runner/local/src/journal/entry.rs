//! The lines of the journal. Each line is a JSON object.
//!
//! This module reads and writes no files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The version of the format, in each `run` line.
pub const FORMAT: u32 = 1;

/// One line: an event, and the run of `weir up` in which it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The number of the run, counted from 1. Batch numbers are unique only within a run.
    pub run: u64,
    /// The event.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The identification of a record: sequence number, event id, event name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordName(pub String, pub String, pub String);

impl RecordName {
    /// Returns the sequence number.
    #[must_use]
    pub fn sequence(&self) -> &str {
        &self.0
    }

    /// Returns the `eventID`.
    #[must_use]
    pub fn event_id(&self) -> &str {
        &self.1
    }

    /// Returns the `eventName`.
    #[must_use]
    pub fn event_name(&self) -> &str {
        &self.2
    }
}

/// A queue or topic for discarded batches. Its messages are files below `destinations/` of the data folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Messages {
    /// The name of an SQS queue.
    Queue(String),
    /// The name of an SNS topic.
    Topic(String),
}

impl Messages {
    /// Returns the file of the message with this key, below a data folder.
    #[must_use]
    pub fn file(&self, directory: &Path, key: &str) -> PathBuf {
        let (Self::Queue(name) | Self::Topic(name)) = self;
        let file = key.rsplit('/').next().unwrap_or(key);
        directory.join("destinations").join(name).join(format!("{file}.json"))
    }
}

/// Returns the value of `report_batch_item_failures` for journals from before this field existed.
/// In such a journal, every mapping reads the failed items in the function's response.
fn as_before() -> bool {
    true
}

/// An event. `at_ms` is the store's time in milliseconds since 1970. `tick_ms` serves only to compute
/// durations within a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// A run started. The line is repeated at the beginning of each segment.
    Run {
        /// The version of the journal's format: [`FORMAT`].
        format: u32,
        /// The store's time of the event.
        at_ms: i64,
    },
    /// A mapping and its settings. The line is repeated at the beginning of each segment.
    Mapping {
        /// The mapping's name.
        mapping: String,
        /// The function's name.
        function: String,
        /// The table's name.
        table: String,
        /// The stream's ARN.
        stream: String,
        /// The patterns of the mapping's filter.
        filters: Vec<String>,
        /// The bucket for discarded batches.
        bucket: Option<String>,
        /// The queue or topic for discarded batches; missing in older journals.
        #[serde(default)]
        messages: Option<Messages>,
        /// Whether the function's response names the records to retry; missing in older journals.
        #[serde(default = "as_before")]
        report_batch_item_failures: bool,
        /// `StartingPosition`, as in templates; missing in older journals.
        #[serde(default)]
        starting_position: Option<String>,
    },
    /// One record did not match the filter.
    PassedOver {
        /// The mapping's name.
        mapping: String,
        /// The shard's id.
        shard: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The record.
        record: RecordName,
        /// For each pattern, one sentence that says why the pattern does not match.
        why: Vec<String>,
    },
    /// Further records of a page did not match the filter. The journal names only the first such records
    /// of a page individually.
    PassedOverMore {
        /// The mapping's name.
        mapping: String,
        /// The shard's id.
        shard: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The sequence number of the first of these records.
        first: String,
        /// The last of these records. Records between them may have matched.
        last: String,
        /// The number of these records.
        count: usize,
    },
    /// The function is invoked.
    Invoked {
        /// The mapping's name.
        mapping: String,
        /// The shard's id.
        shard: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The monotonic time in milliseconds, for durations.
        tick_ms: u64,
        /// The number of the delivery attempt, unique within the run.
        batch: u64,
        /// The number of attempts for these records so far, including this one.
        attempt: u32,
        /// The records of the attempt.
        records: Vec<RecordName>,
        /// The request id in the function's log; missing in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
    },
    /// An attempt was successful.
    Succeeded {
        /// The mapping's name.
        mapping: String,
        /// The monotonic time in milliseconds, for durations.
        tick_ms: u64,
        /// The number of the delivery attempt, as in [`Entry::Invoked`].
        batch: u64,
    },
    /// An attempt failed completely or partly.
    Failed {
        /// The mapping's name.
        mapping: String,
        /// The monotonic time in milliseconds, for durations.
        tick_ms: u64,
        /// The number of the delivery attempt, as in [`Entry::Invoked`].
        batch: u64,
        /// The number of records at the start of the batch that the function processed.
        done: usize,
        /// The reason why the attempt failed.
        reason: String,
    },
    /// Records were discarded.
    GaveUp {
        /// The mapping's name.
        mapping: String,
        /// The shard's id.
        shard: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The sequence number of the first record.
        first: String,
        /// The sequence number of the last record.
        last: String,
        /// The number of discarded records.
        count: usize,
        /// `RetryAttemptsExhausted` or `RecordAgeExceeded`.
        condition: String,
        /// The key of the failure object, if there is one.
        key: Option<String>,
    },
    /// Discarded records cannot be stored at their destination yet, so their shard waits.
    DestinationUnavailable {
        /// The mapping's name.
        mapping: String,
        /// The shard's id.
        shard: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The reason why the records cannot be stored.
        reason: String,
    },
    /// Records were trimmed before they were read, so the shard is blocked.
    Gap {
        /// The mapping's name.
        mapping: String,
        /// The shard's id.
        shard: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The error of the stream.
        reason: String,
    },
    /// Reports are missing from the journal, because it was too slow or could not be written.
    Missed {
        /// The mapping's name.
        mapping: String,
        /// The store's time of the event.
        at_ms: i64,
        /// The number of missing reports.
        count: u64,
    },
}

impl Entry {
    /// Returns the store's time of the event, if the line has it.
    #[must_use]
    pub fn at_ms(&self) -> Option<i64> {
        match self {
            Self::Run { at_ms, .. }
            | Self::PassedOver { at_ms, .. }
            | Self::PassedOverMore { at_ms, .. }
            | Self::Invoked { at_ms, .. }
            | Self::GaveUp { at_ms, .. }
            | Self::DestinationUnavailable { at_ms, .. }
            | Self::Gap { at_ms, .. }
            | Self::Missed { at_ms, .. } => Some(*at_ms),
            Self::Mapping { .. } | Self::Succeeded { .. } | Self::Failed { .. } => None,
        }
    }

    /// Returns the mapping of the event; `None` for a run.
    #[must_use]
    pub fn mapping(&self) -> Option<&str> {
        match self {
            Self::Run { .. } => None,
            Self::Mapping { mapping, .. }
            | Self::PassedOver { mapping, .. }
            | Self::PassedOverMore { mapping, .. }
            | Self::Invoked { mapping, .. }
            | Self::Succeeded { mapping, .. }
            | Self::Failed { mapping, .. }
            | Self::GaveUp { mapping, .. }
            | Self::DestinationUnavailable { mapping, .. }
            | Self::Gap { mapping, .. }
            | Self::Missed { mapping, .. } => Some(mapping),
        }
    }
}
