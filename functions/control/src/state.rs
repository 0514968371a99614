//! The progress of a migration.
//!
//! Item name / `STATE`. Every change is conditional on `revision`. A change of `phase` is written
//! in one transaction with its journal line. Times are in seconds since 1970, by the store's clock.
//! Exceptions are documented at their fields.

use std::collections::BTreeMap;

use rules::migration::{Direction, Phase};
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, is_default, revised};

/// The maximum age of a comparison in seconds. A stream trims a record after 24 hours. If no worker
/// has read the record by then, only a comparison detects the loss, not a drain. Source: DynamoDB
/// developer guide, "Change data capture for DynamoDB Streams".
pub const COMPARISON_SECONDS: i64 = 23 * 3600;

/// The state of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The migration.
    pub migration: String,
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The phase.
    #[serde(default)]
    pub phase: Phase,
    /// The command that starts or switches the migration, in `preparing`, `cutting-over` and
    /// `reverting`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holder: Option<String>,
    /// The fingerprint of the migration's plan.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fingerprint: Option<String>,
    /// The time in seconds since 1970 after which functions apply records of the sources.
    #[serde(default, skip_serializing_if = "is_default")]
    pub since: i64,
    /// The time in seconds since 1970 after which functions apply records of the targets, set by a
    /// cut-over. For a migration in place: the time after which functions apply records for the run
    /// that restores the items to the old shape.
    #[serde(default, skip_serializing_if = "is_default")]
    pub back_since: i64,
    /// The item count of each source when the backfill began, to report the progress.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counted: Option<BTreeMap<String, u64>>,
    /// Whether the backfill is paused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub paused: bool,
    /// Whether the migration was aborted, so that workers stop.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stopped: bool,
    /// The number of items per second that the backfill may read; 0 for no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rate: u64,
    /// The number of the latest run of tasks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run: u64,
    /// The time at which the backfill had read every segment.
    #[serde(default, skip_serializing_if = "is_default")]
    pub copied_at: Option<i64>,
    /// The time since which writers are blocked; `None` while they are not blocked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held_at: Option<i64>,
    /// The time of the last switch, in seconds since 1970, by the clock of the store's responses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub switched_at: Option<u64>,
    /// Whether tombstones or marks must still be removed.
    #[serde(rename = "unswept", default, skip_serializing_if = "is_default")]
    pub needs_cleaning: bool,
    /// The latest comparison, until its result is recorded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub comparing: Option<Comparing>,
    /// The result of the last comparison for a cut-over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub verified: Option<Verified>,
    /// The number of differences that the last comparison in the reverse direction found.
    #[serde(default, skip_serializing_if = "is_default")]
    pub back_differences: Option<u64>,
    /// The time up to which all writes to the targets are known to be applied to the sources.
    #[serde(default, skip_serializing_if = "is_default")]
    pub back_at: i64,
}

/// A comparison whose result is not recorded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparing {
    /// The number of the comparison's run of tasks.
    pub run: u64,
    /// The time when the comparison began; `None` if no other command may resume the comparison.
    #[serde(default, skip_serializing_if = "is_default")]
    pub since: Option<i64>,
}

/// The result of a comparison for a cut-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The number of the comparison's run of tasks.
    pub run: u64,
    /// The number of differences.
    pub differences: u64,
    /// The number of differences that cannot be repaired.
    pub refused: u64,
    /// The number of compared items.
    pub compared: u64,
    /// The time when the comparison began.
    pub at: i64,
}

impl State {
    /// The name of the entry.
    pub const NAME: &'static str = "STATE";

    /// Returns the state of a migration that was not started.
    #[must_use]
    pub fn new(migration: &str) -> Self {
        Self { migration: migration.to_owned(), ..Self::default() }
    }

    /// Returns whether the backfill is paused. A pause has no effect once the backfill is over.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused && matches!(self.phase, Phase::Preparing | Phase::Copying)
    }

    /// Returns the time when the last comparison for a cut-over began; 0 if there was none.
    #[must_use]
    pub fn verified_at(&self) -> i64 {
        self.verified.map_or(0, |verified| verified.at)
    }

    /// Returns the number of seconds from the beginning of the last comparison for a cut-over to
    /// `now`.
    #[must_use]
    pub fn comparison_age(&self, now: i64) -> i64 {
        now.saturating_sub(self.verified_at())
    }

    /// Returns the time up to which all writes to the targets are known to be applied to the
    /// sources.
    #[must_use]
    pub fn reverse_known_until(&self) -> i64 {
        self.back_since.max(self.back_at)
    }

    /// Returns the time in seconds since 1970 after which functions apply stream records in a
    /// direction.
    #[must_use]
    pub fn since_of(&self, direction: Direction) -> i64 {
        match direction {
            Direction::Forward => self.since,
            Direction::Reverse => self.back_since,
        }
    }

    /// Records that a comparison begins. If `since` is given, another command may resume the
    /// comparison.
    pub fn begin_comparison(&mut self, run: u64, since: Option<i64>) {
        self.comparing = Some(Comparing { run, since });
    }

    /// Removes the comparison of this run, because its result is known. A comparison of a later run
    /// stays.
    pub fn end_comparison(&mut self, run: u64) {
        self.comparing = self.comparing.filter(|comparing| comparing.run > run);
    }

    /// Returns whether a later run replaces this run. The result of a replaced run is ignored, and
    /// a replaced run must not repair. The backfill is never replaced.
    #[must_use]
    pub fn replaces(&self, run: u64) -> bool {
        run > crate::task::BACKFILL_RUN && self.run > run
    }

    /// Returns whether the migration has ended, so that commands no longer wait for this run. A
    /// reverted migration counts as ended only when its marks are removed.
    #[must_use]
    pub fn is_past(&self, run: u64) -> bool {
        run > crate::task::BACKFILL_RUN
            && match self.phase {
                Phase::Reverted => !self.needs_cleaning,
                phase => phase.has_ended(),
            }
    }
}

impl Entry for State {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

revised!(State);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_replaces_all_but_the_backfill() {
        let state = |run: u64| State { run, ..State::new("shop") };
        for (last, expected) in [(2, false), (3, false), (4, true)] {
            assert_eq!(state(last).replaces(3), expected, "{last}");
        }
        assert!(!State::new("shop").replaces(3));
        assert!(!state(9).replaces(0));
    }

    #[test]
    fn a_run_is_past_once_its_migration_has_ended() {
        for phase in Phase::ALL {
            let state = State { phase, ..State::new("shop") };
            assert_eq!(state.is_past(3), phase.has_ended(), "{phase:?}");
            // Workers still remove the marks of an aborted touch.
            assert!(!state.is_past(0), "{phase:?}");
            let unswept = State { needs_cleaning: true, ..state };
            let expected = phase.has_ended() && phase != Phase::Reverted;
            assert_eq!(unswept.is_past(3), expected, "{phase:?}");
        }
    }

    #[test]
    fn the_end_of_a_comparison_keeps_a_later_one() {
        let mut state = State::new("shop");
        state.begin_comparison(4, Some(7));
        state.end_comparison(3);
        assert_eq!(state.comparing, Some(Comparing { run: 4, since: Some(7) }));
        state.end_comparison(4);
        assert_eq!(state.comparing, None);
    }
}
