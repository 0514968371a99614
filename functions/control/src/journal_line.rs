//! One change of a migration's phase.
//!
//! Item name / `JOURNAL#<revision of STATE>`: `from`, `to`, `why`, `at`, `by`. It is written in the
//! transaction that changes the phase, and never changed.

use rules::migration::Phase;
use serde::{Deserialize, Serialize};

use crate::entry::Entry;

/// A line of a migration's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLine {
    /// The migration.
    pub migration: String,
    /// The revision of the state that was written with it.
    pub line: u64,
    /// The phase before.
    pub from: Phase,
    /// The phase after.
    pub to: Phase,
    /// The reason, for people.
    pub why: String,
    /// The store's time, in seconds since 1970.
    pub at: i64,
    /// The user and the machine of the command, such as `ada@build-7`.
    pub by: String,
}

impl JournalLine {
    /// What the names of journal lines begin with.
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
