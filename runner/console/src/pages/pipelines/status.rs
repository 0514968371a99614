//! Parsing of the status file of `weir up`, which `local::status` writes.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The status of a running system, schema `weir.status/v1`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct Status {
    pub(crate) taken_ms: i64,
    pub(crate) mappings: Vec<MappingStatus>,
    pub(crate) disabled: Vec<OtherMapping>,
    pub(crate) not_run: Vec<OtherMapping>,
    pub(crate) functions: Vec<FunctionTargets>,
}

/// The status of a running mapping.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MappingStatus {
    pub(crate) mapping: String,
    pub(crate) function: String,
    pub(crate) table: Option<String>,
    pub(crate) failures_to: Option<Target>,
    pub(crate) described: bool,
    pub(crate) unavailable: Option<String>,
    pub(crate) unsaved: bool,
    pub(crate) ended: bool,
    pub(crate) end: Option<String>,
    pub(crate) totals: Totals,
    pub(crate) shards: Vec<Shard>,
}

/// The counts of a mapping since `weir up` started.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Totals {
    pub(crate) read: u64,
    pub(crate) filtered: u64,
    pub(crate) done: u64,
    pub(crate) invocations: u64,
    pub(crate) failures: u64,
    pub(crate) discarded: u64,
    pub(crate) redriven: u64,
    pub(crate) gaps: u64,
}

/// The status of a shard.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Shard {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
    pub(crate) lag_ms: i64,
    pub(crate) failed_attempts: u32,
}

/// A mapping that does not run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OtherMapping {
    pub(crate) mapping: String,
    pub(crate) function: String,
    pub(crate) table: Option<String>,
    pub(crate) reason: Option<String>,
}

/// The targets of a function.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FunctionTargets {
    pub(crate) function: String,
    pub(crate) targets: Vec<Target>,
}

impl Status {
    /// Reads the status in a data folder, including the number of redriven records. Returns `None`
    /// if the file does not exist yet or is invalid.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        serde_json::from_value(local::status::last(directory).ok()?).ok()
    }

    /// Returns the names of the mappings with a shard whose batch has failed attempts.
    pub(crate) fn failing(&self) -> Vec<String> {
        let is_failing =
            |mapping: &&MappingStatus| mapping.shards.iter().any(|shard| shard.failed_attempts > 0);
        let names = self.mappings.iter().filter(is_failing);
        names.map(|mapping| mapping.mapping.clone()).collect()
    }

    /// Returns the targets of a function.
    pub(crate) fn targets_of(&self, function: &str) -> Vec<Target> {
        let found = self.functions.iter().find(|it| it.function == function);
        found.map(|it| it.targets.clone()).unwrap_or_default()
    }
}

/// A destination of records or results.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub(crate) struct Target {
    /// `table`, `bucket`, `queue` or `topic`.
    pub(crate) kind: String,
    pub(crate) name: String,
}
