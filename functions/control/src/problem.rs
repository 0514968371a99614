//! What workers found that a person must look at.
//!
//! Item name / `PROBLEM#<kind>#<table>#<hash of the key>`: `table`, `key`, `reason`, and `at`, the second
//! of the last note. A comparison without a difference removes the notes from before it, but for those of
//! [`ProblemKind::Unassembled`].

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::entry::Entry;

/// What kind of problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// Two source items become one target item.
    Collision,
    /// An item that the migration did not write stood there, or among the parts of a document.
    Foreign,
    /// DynamoDB does not take the item.
    Refused,
    /// The parts of a document make no document; the key is that of their partition.
    Unassembled,
}

impl ProblemKind {
    /// Returns its name, as entries and reports have it.
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

/// A note of a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The migration.
    pub migration: String,
    /// What kind it is.
    pub kind: ProblemKind,
    /// The table of the item.
    pub table: String,
    /// The key of the item as DynamoDB JSON.
    pub key: String,
    /// The reason, for people.
    pub reason: String,
    /// The second, since 1970, of the last note; none where the worker did not know the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

impl Problem {
    /// What the names of notes of problems begin with.
    pub const PREFIX: &'static str = "PROBLEM#";

    /// Returns what the names of notes of one kind begin with.
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
