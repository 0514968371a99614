//! The lag of a function behind the stream of a table.
//!
//! Item `*` / `LAG#<table>`: `seconds`, the lag, and `at`, the time of its measurement, in seconds since
//! 1970. While the lag is more than [`LAG_SECONDS_MAX`], functions write this item and backfills wait.

use rules::migration::plan::{LAG_FRESH_SECONDS, LAG_SECONDS_MAX};
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED};

/// The measured lag of one table's stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// The table.
    pub table: String,
    /// The lag in seconds.
    pub seconds: u64,
    /// The time of the measurement, in seconds since 1970.
    pub at: u64,
}

impl Lag {
    /// Returns the name of the entry of a table.
    #[must_use]
    pub fn name_of(table: &str) -> String {
        format!("LAG#{table}")
    }

    /// Returns whether a backfill must wait at `now`, in seconds since 1970. Ignores a measurement
    /// that is too old.
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
    fn a_backfill_waits_for_a_stream_that_lags_now() {
        for (seconds, at, waits) in
            [(60, 1_000, false), (61, 1_000, true), (61, 970, true), (3_600, 969, false)]
        {
            let lag = Lag { table: "cats".to_owned(), seconds, at };
            assert_eq!(lag.is_too_long(1_000), waits, "{seconds} {at}");
        }
    }
}
