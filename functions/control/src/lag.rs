//! How far a function is behind in the stream of a table.
//!
//! Item `*` / `LAG#<table>`: `seconds` that it was behind in the second `at`. Written while that is more
//! than [`LAG_SECONDS_MAX`]; backfills wait for it.

use rules::migration::plan::{LAG_FRESH_SECONDS, LAG_SECONDS_MAX};
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED};

/// A note of how far the stream of a table is behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// The table.
    pub table: String,
    /// By how many seconds it was behind.
    pub seconds: u64,
    /// The second, since 1970, in which that was so.
    pub at: u64,
}

impl Lag {
    /// Returns the name of the entry of a table.
    #[must_use]
    pub fn name_of(table: &str) -> String {
        format!("LAG#{table}")
    }

    /// Whether a backfill has to wait for it, in a second since 1970.
    #[must_use]
    pub fn is_too_long(&self, now: u64) -> bool {
        self.seconds > LAG_SECONDS_MAX && self.at + LAG_FRESH_SECONDS >= now
    }
}

impl Entry for Lag {
    fn partition(&self) -> String {
        SHARED.to_owned()
    }

    fn name(&self) -> String {
        Self::name_of(&self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backfill_waits_for_a_stream_that_is_behind_now() {
        for (seconds, at, waits) in
            [(60, 1_000, false), (61, 1_000, true), (61, 970, true), (3_600, 969, false)]
        {
            let lag = Lag { table: "cats".to_owned(), seconds, at };
            assert_eq!(lag.is_too_long(1_000), waits, "{seconds} {at}");
        }
    }
}
