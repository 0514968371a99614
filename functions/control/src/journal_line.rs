//! One change of a migration's phase.
//!
//! Item name / `JOURNAL#<revision of STATE>`: `from`, `to`, `why`, `at`, `by`. The transaction that
//! changes the phase writes it. The entry never changes afterwards.

use rules::migration::Phase;
use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// A line of a migration's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// The migration.
    pub migration: String,
    /// The revision of the state that the same transaction wrote.
    pub line: u64,
    /// The phase before the change.
    pub from: Phase,
    /// The phase after the change.
    pub to: Phase,
    /// The reason for the change, as a string for operators.
    pub why: String,
    /// The time of the change in seconds since 1970, by the store's clock.
    pub at: i64,
    /// The user and the machine of the command, such as `ada@build-7`.
    pub by: String,
}

impl JournalLine {
    /// The prefix of the names of journal lines.
    pub const PREFIX: &'static str = "JOURNAL#";
}

impl Entry for JournalLine {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        format!("{}{:010}", Self::PREFIX, self.line)
    }
}
