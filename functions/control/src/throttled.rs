//! The reason why DynamoDB throttles requests on a table.
//!
//! Item `*` / `THROTTLE#<table>`: `reason`, and `at`, the time of the last report, in seconds since
//! 1970.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED};

/// A report that DynamoDB throttles requests on a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttled {
    /// The table.
    pub table: String,
    /// The reason, as DynamoDB returns it.
    pub reason: String,
    /// The time of the last report, in seconds since 1970.
    pub at: u64,
}

impl Throttled {
    /// Returns the name of the entry of a table.
    #[must_use]
    pub fn name_of(table: &str) -> String {
        format!("THROTTLE#{table}")
    }
}

impl Entry for Throttled {
    fn partition(&self) -> String {
        SHARED.to_owned()
    }

    fn name(&self) -> String {
        Self::name_of(&self.table)
    }
}
