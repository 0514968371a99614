//! Problems that workers found and that an operator must solve.
//!
//! Item name / `PROBLEM#<kind>#<table>#<hash of the key>`: `table`, `key`, `reason`, and `at`, the
//! time of the last report, in seconds since 1970. A comparison without a difference removes all earlier
//! entries except those of [`ProblemKind::Unassembled`].

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::entry::Entry;

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// Two source items become one target item.
    Collision,
    /// An item that the migration did not write has the key of a target item, or is in the
    /// partition of a document's parts.
    Foreign,
    /// DynamoDB rejects the item.
    Refused,
    /// The parts of a document do not form a valid document. The problem's key is the partition key
    /// of the parts.
    Unassembled,
}

impl ProblemKind {
    /// Returns the word that the report of `weir migrate verify` uses for the kind.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Foreign => "occupied",
            Self::Collision | Self::Refused | Self::Unassembled => self.as_str(),
        }
    }

    /// Returns the name of the kind in entries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Collision => "collision",
            Self::Foreign => "foreign",
            Self::Refused => "refused",
            Self::Unassembled => "unassembled",
        }
    }
}

/// One reported problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The migration.
    pub migration: String,
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The table of the item.
    pub table: String,
    /// The key of the item as DynamoDB JSON.
    pub key: String,
    /// The reason, as a string for operators.
    pub reason: String,
    /// The time of the last report, in seconds since 1970; `None` if the worker did not know the
    /// time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

impl Problem {
    /// The prefix of the names of all problems.
    pub const PREFIX: &'static str = "PROBLEM#";

    /// Returns the prefix of the names of problems of one kind.
    #[must_use]
    pub fn prefix_of(kind: ProblemKind) -> String {
        format!("{}{}#", Self::PREFIX, kind.as_str())
    }
}

impl Entry for Problem {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        let hash = xxh3_128(self.key.as_bytes());
        format!("{}{}#{hash:032x}", Self::prefix_of(self.kind), self.table)
    }
}
