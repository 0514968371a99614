//! A task: the work on one segment of one table.
//!
//! Item name / `TASK#<run>#<work>#<table>#<segment>`. Its stream record invokes a worker: the
//! function's event filter passes records in which `done` is false and both `owner` and `aside` are
//! absent. Tasks are created in a transaction that checks `STATE`.

use std::collections::BTreeMap;

use rules::migration::Direction;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, is_default, revised};

/// The number of the first run of tasks, which is the backfill.
pub const BACKFILL_RUN: u64 = 0;
/// The maximum number of samples that a task stores, enough to recognise the kind of problem.
const SAMPLES_MAX: usize = 5;
/// The maximum length of a reason in characters, because a reason may contain a server's response.
const REASON_CHARACTERS_MAX: usize = 500;
/// The maximum duration of an invocation in milliseconds. Source: AWS Lambda developer guide,
/// "Lambda quotas".
const INVOCATION_MS_MAX: u64 = 900_000;

/// The work of a task on its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Reads a source table and writes the target items.
    Backfill,
    /// Reads a source table and touches each item, so that the stream delivers it.
    Touch,
    /// Compares the items that a source table yields with the targets.
    CheckSource,
    /// Reads a target table to find items that no source yields.
    CheckTarget,
    /// Removes the marks from a target table, or from a source table that was touched.
    Unmark,
}

impl Work {
    /// Returns the name of the work in entries.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Backfill => "backfill",
            Self::Touch => "touch",
            Self::CheckSource => "check-source",
            Self::CheckTarget => "check-target",
            Self::Unmark => "unmark",
        }
    }

    /// Returns whether the work is a comparison.
    #[must_use]
    pub fn is_check(self) -> bool {
        matches!(self, Self::CheckSource | Self::CheckTarget)
    }

    /// Returns whether the rate of the migration limits the work. Comparisons and the work that
    /// ends a migration have no limit, because an operator waits for them.
    #[must_use]
    pub fn has_rate(self) -> bool {
        matches!(self, Self::Backfill | Self::Touch)
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The migration.
    pub migration: String,
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The number of the task's run; [`BACKFILL_RUN`] is the backfill. The stamp of a repair
    /// contains this number.
    #[serde(default)]
    pub run: u64,
    /// The kind of work.
    pub work: Work,
    /// The table that the task reads.
    pub table: String,
    /// The direction of the migration.
    pub direction: Direction,
    /// The segment of the table, from 0.
    pub segment: u32,
    /// The number of segments of the table.
    pub segments: u32,
    /// The fingerprint of the plan.
    pub fingerprint: String,
    /// Whether the task repairs differences.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repairs: bool,
    /// Whether the task is finished.
    pub done: bool,
    /// Whether the task was marked as done before its work was complete: a switch preceded its
    /// repair, a later run replaced the task, or the migration ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub superseded: bool,
    /// The key, as DynamoDB JSON, after which the scan continues; `None` at the beginning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cursor: Option<String>,
    /// The worker that leases the task.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owner: Option<String>,
    /// The end of the lease, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leased_until: u64,
    /// The number of items per second that the task's worker may read; `None` if the migration has
    /// no rate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub share: Option<u64>,
    /// The current counts, by name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counts: BTreeMap<String, u64>,
    /// Samples of the counted items, for operators.
    #[serde(default, skip_serializing_if = "is_default")]
    pub samples: Vec<String>,
    /// The maximum number of items in the next page; set after a page was too large for one
    /// invocation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub page: Option<u32>,
    /// The reason why the last attempt failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failing: Option<String>,
    /// The number of consecutive failed attempts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: u64,
    /// Whether workers skip the task until an operator resumes the migration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub aside: bool,
    /// The progress of a touch before an abort restarted the task to remove marks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clears: Option<Copied>,
}

/// The progress of a touch when it was restarted to remove marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Whether the touch had read the complete segment.
    pub done: bool,
    /// The counts at that time, by name.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
}

impl Task {
    /// The prefix of the names of tasks.
    pub const PREFIX: &'static str = "TASK#";

    /// Returns a new task in the forward direction for an entire table, as its only segment.
    #[must_use]
    pub fn new(migration: &str, run: u64, work: Work, table: &str) -> Self {
        Self {
            migration: migration.to_owned(),
            revision: 0,
            run,
            work,
            table: table.to_owned(),
            direction: Direction::Forward,
            segment: 0,
            segments: 1,
            fingerprint: String::new(),
            repairs: false,
            done: false,
            superseded: false,
            cursor: None,
            owner: None,
            leased_until: 0,
            share: None,
            counts: BTreeMap::new(),
            samples: Vec::new(),
            page: None,
            failing: None,
            failed: 0,
            aside: false,
            clears: None,
        }
    }

    /// Returns the prefix of the names of all tasks of a run.
    #[must_use]
    pub fn prefix_of(run: u64) -> String {
        format!("{}{run}#", Self::PREFIX)
    }

    /// Returns whether the task is part of the backfill.
    #[must_use]
    pub fn is_backfill(&self) -> bool {
        self.run == BACKFILL_RUN
    }

    /// Returns whether a worker leases the task at `now_ms`, in milliseconds since 1970.
    #[must_use]
    pub fn is_leased(&self, now_ms: u64) -> bool {
        self.owner.is_some() && self.leased_until > now_ms
    }

    /// Returns whether another worker leases the task at `now_ms`, in milliseconds since 1970.
    #[must_use]
    pub fn is_leased_by_another(&self, worker: &str, now_ms: u64) -> bool {
        self.is_leased(now_ms) && self.owner.as_deref() != Some(worker)
    }

    /// Returns whether a worker can ignore the stream record of the earlier revision `offered`: the
    /// task is done, or this revision is later and not leased, so it has its own record. While a
    /// later revision is leased, the record is not ignored: the worker may have died, and then only
    /// the earlier record is redelivered.
    #[must_use]
    pub fn outdates(&self, offered: &Self) -> bool {
        self.done || (self.revision > offered.revision && self.owner.is_none())
    }

    /// Returns whether a worker may lease the task: it is open, not leased and not set aside.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        !self.done && !self.aside && self.owner.is_none()
    }

    /// Returns whether a worker might still be working on the task. A worker whose lease has expired
    /// continues until its slice or its invocation ends.
    #[must_use]
    pub fn may_be_in_progress(&self, now_ms: u64) -> bool {
        self.owner.is_some() && now_ms < self.leased_until.saturating_add(INVOCATION_MS_MAX)
    }

    /// Returns whether a worker has ever leased the task.
    #[must_use]
    pub fn was_taken(&self) -> bool {
        self.done || self.owner.is_some() || !self.counts.is_empty() || self.failing.is_some()
    }

    /// Leases the task to a worker until a time in milliseconds since 1970. Removes the previous
    /// worker's share of the rate.
    pub fn lease(&mut self, worker: &str, until_ms: u64) {
        (self.owner, self.leased_until, self.share) = (Some(worker.to_owned()), until_ms, None);
    }

    /// Releases the lease.
    pub fn release(&mut self) {
        (self.owner, self.leased_until, self.share) = (None, 0, None);
    }

    /// Marks the task as done although its work is not complete.
    pub fn supersede(&mut self) {
        self.release();
        (self.done, self.superseded) = (true, true);
    }

    /// Records a failed attempt. `page` limits the number of items in the next page. If `set_aside`
    /// is true, workers skip the task until an operator resumes the migration.
    pub fn fail(&mut self, reason: &str, page: Option<u32>, set_aside: bool) {
        self.release();
        self.failing = Some(reason.chars().take(REASON_CHARACTERS_MAX).collect());
        self.failed = self.failed.saturating_add(1);
        self.page = page.or(self.page);
        self.aside = set_aside;
    }

    /// Records a successful attempt. `page` limits the number of items in the next page.
    pub fn succeed(&mut self, page: Option<u32>) {
        self.release();
        (self.failing, self.failed, self.aside, self.page) = (None, 0, false, page);
    }

    /// Adds counts and samples of items to the task.
    pub fn add<'c>(
        &mut self,
        counts: impl IntoIterator<Item = (&'c str, u64)>,
        samples: &[String],
    ) {
        for (name, more) in counts {
            *self.counts.entry(name.to_owned()).or_default() += more;
        }
        self.samples.extend_from_slice(samples);
        self.samples.truncate(SAMPLES_MAX);
    }

    /// Restarts the segment to remove the marks of an aborted touch. Returns whether this was the
    /// first restart. Keeps the counts of the touch, because the restart does not undo it.
    pub fn restart_to_clear(&mut self) -> bool {
        if self.clears.is_some() {
            return false;
        }
        let counts = std::mem::take(&mut self.counts);
        self.clears = Some(Copied { done: self.done, counts });
        self.succeed(self.page);
        (self.done, self.superseded, self.cursor) = (false, false, None);
        true
    }

    /// Returns whether the task has read the complete segment, not counting a restart to remove
    /// marks.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.clears.as_ref().map_or(self.done, |copied| copied.done)
    }

    /// Returns the counts of the task, not counting a restart to remove marks.
    #[must_use]
    pub fn copied_counts(&self) -> &BTreeMap<String, u64> {
        self.clears.as_ref().map_or(&self.counts, |copied| &copied.counts)
    }
}

impl Entry for Task {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        let Self { run, work, table, segment, .. } = self;
        format!("{}{run}#{}#{table}#{segment:04}", Self::PREFIX, work.as_str())
    }
}

revised!(Task);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Revised as _;

    fn task() -> Task {
        Task {
            revision: 4,
            repairs: true,
            owner: Some("w".to_owned()),
            leased_until: 9,
            ..Task::new("shop", 3, Work::CheckSource, "cats")
        }
    }

    #[test]
    fn a_superseded_task_is_done_and_free() {
        let mut task = task();
        assert_eq!(task.name(), "TASK#3#check-source#cats#0000");
        task.supersede();
        assert!(task.done && task.superseded && task.owner.is_none() && task.leased_until == 0);
        assert_eq!(task.next().revision, 5);
    }

    #[test]
    fn a_task_is_left_to_its_worker_until_its_lease_ends() {
        let task = task();
        assert!(task.is_leased_by_another("v", 8));
        assert!(!task.is_leased_by_another("w", 8));
        assert!(!task.is_leased_by_another("v", 9));
    }

    #[test]
    fn a_record_is_outdated_once_a_later_one_comes() {
        let (offered, leased) = (Task { owner: None, ..task() }, Task { revision: 5, ..task() });
        let mut free = leased.clone();
        free.release();
        assert!(free.outdates(&offered) && free.is_offered() && !offered.outdates(&offered));
        assert!(!leased.outdates(&offered) && Task { done: true, ..leased }.outdates(&offered));
    }

    #[test]
    fn a_failed_attempt_is_counted_until_one_succeeds() {
        let mut task = task();
        task.fail(&"x".repeat(900), Some(20), false);
        task.fail("again", None, true);
        assert_eq!((task.failed, task.page, task.aside), (2, Some(20), true));
        assert_eq!(task.failing.as_deref(), Some("again"));
        task.succeed(None);
        assert_eq!((task.failed, task.page, task.aside), (0, None, false));
    }

    #[test]
    fn a_restarted_touch_keeps_what_was_copied() {
        let mut task = Task { work: Work::Touch, done: true, cursor: Some("{}".into()), ..task() };
        task.add([("read", 7)], &["refused: a".to_owned()]);
        assert!(task.restart_to_clear());
        assert!(!task.restart_to_clear());
        assert!(!task.done && task.is_copied() && task.cursor.is_none() && task.owner.is_none());
        task.add([("read", 2)], &[]);
        assert_eq!((task.counts["read"], task.copied_counts()["read"]), (2, 7));
    }

    #[test]
    fn a_worker_may_work_for_longer_than_its_lease() {
        let task = task();
        assert!(task.is_leased(8) && !task.is_leased(9));
        assert!(task.may_be_in_progress(9 + INVOCATION_MS_MAX - 1));
        assert!(!task.may_be_in_progress(9 + INVOCATION_MS_MAX));
    }
}
