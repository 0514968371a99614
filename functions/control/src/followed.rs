//! The time of a function's last invocation with records of a table of an active migration.
//!
//! Item `*` / `FOLLOWED#<table>`: `at`, in seconds since 1970. Each process writes it at most every ten
//! seconds. The item of the control table itself proves that the deployed functions write these notes.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED};

/// A note that a function follows the stream of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedTable {
    /// The table.
    pub table: String,
    /// The time in seconds since 1970.
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
