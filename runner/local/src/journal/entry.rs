//! The lines of the journal: one JSON object each.
//!
//! Nothing here reads or writes a file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The version of the format, in each `run` line.
pub const FORMAT: u32 = 1;

/// One line: what happened, and in which run of `weir up`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The run, counted from 1: batch numbers are unique within one.
    pub run: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// A record by its names: sequence number, event id, event name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordName(pub String, pub String, pub String);

impl RecordName {
    /// The sequence number.
    #[must_use]
    pub fn sequence(&self) -> &str {
        &self.0
    }

    /// `eventID`.
    #[must_use]
    pub fn event_id(&self) -> &str {
        &self.1
    }

    /// `eventName`.
    #[must_use]
    pub fn event_name(&self) -> &str {
        &self.2
    }
}

/// A queue or topic for what is given up: its messages are files below `destinations/` of the data
/// folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Messages {
    /// A queue of SQS, by name.
    Queue(String),
    /// A topic of SNS, by name.
    Topic(String),
}

impl Messages {
    /// The file of the message that has this key, below a data folder.
    #[must_use]
    pub fn file(&self, directory: &Path, key: &str) -> PathBuf {
        let (Self::Queue(name) | Self::Topic(name)) = self;
        let file = key.rsplit('/').next().unwrap_or(key);
        directory.join("destinations").join(name).join(format!("{file}.json"))
    }
}

/// What a mapping did before journals said whether it reads the function's answer: any answer that
/// can be read was.
fn as_before() -> bool {
    true
}

/// What happened. `at_ms` is the store's time in milliseconds since 1970; `tick_ms` only serves to
/// subtract one from another within a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// A run has begun; repeated at the head of each segment.
    Run {
        /// [`FORMAT`].
        format: u32,
        /// When.
        at_ms: i64,
    },
    /// A mapping and what it is set to; repeated at the head of each segment.
    Mapping {
        /// The mapping.
        mapping: String,
        /// The function's name.
        function: String,
        /// The table's name.
        table: String,
        /// The stream's ARN.
        stream: String,
        /// The patterns of its filter.
        filters: Vec<String>,
        /// The bucket for what is given up.
        bucket: Option<String>,
        /// The queue or topic for it; older journals do not say it.
        #[serde(default)]
        messages: Option<Messages>,
        /// Whether the function's answer names the records to retry; older journals do not say it.
        #[serde(default = "as_before")]
        report_batch_item_failures: bool,
        /// `StartingPosition`, as templates write it; older journals do not say it.
        #[serde(default)]
        starting_position: Option<String>,
    },
    /// One record did not pass the filter.
    PassedOver {
        /// The mapping.
        mapping: String,
        /// The shard.
        shard: String,
        /// When.
        at_ms: i64,
        /// The record.
        record: RecordName,
        /// One sentence for each pattern that was tried.
        why: Vec<String>,
    },
    /// More records of a page did not pass the filter than the journal names one by one.
    PassedOverMore {
        /// The mapping.
        mapping: String,
        /// The shard.
        shard: String,
        /// When.
        at_ms: i64,
        /// The first of them.
        first: String,
        /// The last of them; others in between may have passed.
        last: String,
        /// How many.
        count: usize,
    },
    /// The function is invoked.
    Invoked {
        /// The mapping.
        mapping: String,
        /// The shard.
        shard: String,
        /// When.
        at_ms: i64,
        /// When.
        tick_ms: u64,
        /// The attempt's number, unique within the run.
        batch: u64,
        /// Which attempt it is for these records, from 1.
        attempt: u32,
        /// The records.
        records: Vec<RecordName>,
    },
    /// An attempt was successful.
    Succeeded {
        /// The mapping.
        mapping: String,
        /// When.
        tick_ms: u64,
        /// The attempt.
        batch: u64,
    },
    /// An attempt was not, or only partly, successful.
    Failed {
        /// The mapping.
        mapping: String,
        /// When.
        tick_ms: u64,
        /// The attempt.
        batch: u64,
        /// How many records at its start were done all the same.
        done: usize,
        /// Why.
        reason: String,
    },
    /// Records were given up.
    GaveUp {
        /// The mapping.
        mapping: String,
        /// The shard.
        shard: String,
        /// When.
        at_ms: i64,
        /// The first record.
        first: String,
        /// The last record.
        last: String,
        /// How many.
        count: usize,
        /// `RetryAttemptsExhausted` or `RecordAgeExceeded`.
        condition: String,
        /// The key of the failure object, if there is one.
        key: Option<String>,
    },
    /// What was given up cannot be stored yet, and the shard waits.
    DestinationUnavailable {
        /// The mapping.
        mapping: String,
        /// The shard.
        shard: String,
        /// When.
        at_ms: i64,
        /// Why.
        reason: String,
    },
    /// Records were trimmed before they were read; the shard stands still.
    Gap {
        /// The mapping.
        mapping: String,
        /// The shard.
        shard: String,
        /// When.
        at_ms: i64,
        /// What the stream said.
        reason: String,
    },
    /// The journal could not keep up or not be written, and these reports are missing here.
    Missed {
        /// The mapping.
        mapping: String,
        /// When.
        at_ms: i64,
        /// How many.
        count: u64,
    },
}

impl Entry {
    /// When it happened, in the store's time, if it says so.
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

    /// The mapping that it is about; `None` for a run.
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
