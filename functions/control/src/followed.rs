//! The proof that a function follows the stream of a table: the time of the function's last
//! invocation with records of that table.
//!
//! Item `*` / `FOLLOWED#<table>`: `at`, in seconds since 1970. Each process writes it at most every
//! ten seconds. The item for the control table itself proves that the deployed version of the
//! functions writes these items.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED};

/// The time when a function last followed the stream of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedTable {
    /// The table.
    pub table: String,
    /// The time of the invocation, in seconds since 1970.
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
