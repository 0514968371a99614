//! When a function was last invoked with records of a table of an active migration.
//!
//! Item `*` / `FOLLOWED#<table>`: `at`, the second. Each process writes it every ten seconds at most.
//! That of the control table itself proves that functions at work write such notes.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED};

/// A note that a function follows the stream of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedTable {
    /// The table.
    pub table: String,
    /// The second, since 1970.
    pub at: u64,
}

impl FollowedTable {
    /// Returns the name of the entry of a table.
    #[must_use]
    pub fn name_of(table: &str) -> String {
        format!("FOLLOWED#{table}")
    }
}

impl Entry for FollowedTable {
    fn partition(&self) -> String {
        SHARED.to_owned()
    }

    fn name(&self) -> String {
        Self::name_of(&self.table)
    }
}
