//! One segment of one table to work on.
//!
//! Item name / `TASK#<run>#<work>#<table>#<segment>`. Its stream record wakes a worker; the function's
//! event filter passes the records in which `done` is false and there is neither `owner` nor `aside`.
//! Tasks are made in a transaction that checks `STATE`.

use std::collections::BTreeMap;

use rules::migration::Direction;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, is_default, revised};

/// The number of the first run of tasks, which is the backfill.
pub const BACKFILL_RUN: u64 = 0;
/// Samples that a task keeps: enough to see what is wrong.
const SAMPLES_MAX: usize = 5;
/// Characters of a reason that are kept: it may contain a server's answer.
const REASON_CHARACTERS_MAX: usize = 500;
/// No invocation takes longer, in milliseconds. Source: AWS Lambda developer guide, "Lambda quotas".
const INVOCATION_MS_MAX: u64 = 900_000;

/// What a task does with its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Reads a source table and states what its items become.
    Backfill,
    /// Reads a source table and has each of its items come through the stream.
    Touch,
    /// Compares what a source table becomes with the targets.
    CheckSource,
    /// Looks in a target table for items that no source has.
    CheckTarget,
    /// Removes the marks from a target table, or from a source table that was touched.
    Unmark,
}

impl Work {
    /// Returns its name, as entries have it.
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

    /// Whether it compares.
    #[must_use]
    pub fn is_check(self) -> bool {
        matches!(self, Self::CheckSource | Self::CheckTarget)
    }

    /// Whether the rate of the migration limits it. A person waits for a comparison and for what ends a
    /// migration.
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
    /// The number of its run; [`BACKFILL_RUN`] is the backfill. Part of the stamps of its repairs.
    #[serde(default)]
    pub run: u64,
    /// What it does.
    pub work: Work,
    /// The table that it reads.
    pub table: String,
    /// Which way the migration runs.
    pub direction: Direction,
    /// The segment of the table, from 0.
    pub segment: u32,
    /// Segments of the table in all.
    pub segments: u32,
    /// The fingerprint of the plan.
    pub fingerprint: String,
    /// Whether differences are repaired.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repairs: bool,
    /// Whether the segment is read to its end.
    pub done: bool,
    /// It is `done` and its work is not: a switch came before its repair, a later run replaced it, or the
    /// migration ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub superseded: bool,
    /// The key, as DynamoDB JSON, after which the scan goes on; none at the beginning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cursor: Option<String>,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub owner: Option<String>,
    /// Milliseconds since 1970 until when its owner has it alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leased_until: u64,
    /// Items per second that its worker may read, of a migration with a rate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub share: Option<u64>,
    /// What was counted so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub counts: BTreeMap<String, u64>,
    /// Samples of what was counted, for people.
    #[serde(default, skip_serializing_if = "is_default")]
    pub samples: Vec<String>,
    /// Items of a page at most, since one was too much for an invocation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub page: Option<u32>,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failing: Option<String>,
    /// Attempts in a row that failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: u64,
    /// No worker takes it until a person resumes the migration.
    #[serde(default, skip_serializing_if = "is_default")]
    pub aside: bool,
    /// How far it was copied before an abort restarted it, which reads the segment again to remove marks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub clears: Option<Copied>,
}

/// How far a touch was when it was restarted to remove marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// It was done.
    pub done: bool,
    /// What was counted.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
}

impl Task {
    /// What the names of tasks begin with.
    pub const PREFIX: &'static str = "TASK#";

    /// Returns an open task of a whole table that runs forward, as it is before it is written.
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

    /// Returns what the names of the tasks of a run begin with.
    #[must_use]
    pub fn prefix_of(run: u64) -> String {
        format!("{}{run}#", Self::PREFIX)
    }

    /// Whether it is part of the backfill.
    #[must_use]
    pub fn is_backfill(&self) -> bool {
        self.run == BACKFILL_RUN
    }

    /// Whether a worker has it at a time, in milliseconds since 1970.
    #[must_use]
    pub fn is_leased(&self, now_ms: u64) -> bool {
        self.owner.is_some() && self.leased_until > now_ms
    }

    /// Whether a worker other than this one has it at a time, in milliseconds since 1970.
    #[must_use]
    pub fn is_leased_by_another(&self, worker: &str, now_ms: u64) -> bool {
        self.is_leased(now_ms) && self.owner.as_deref() != Some(worker)
    }

    /// Whether nothing is left to do for the stream record of an earlier revision: the task is done, or a
    /// later revision is free and has a record of its own. If that one is leased, its worker may have died,
    /// and the earlier record is the only one that is delivered again.
    #[must_use]
    pub fn outdates(&self, offered: &Self) -> bool {
        self.done || (self.revision > offered.revision && self.owner.is_none())
    }

    /// Whether its stream record is work for somebody: it is open, not leased and not set aside.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        !self.done && !self.aside && self.owner.is_none()
    }

    /// Whether a worker may still be at it: one whose lease is over goes on until its slice or its
    /// invocation ends.
    #[must_use]
    pub fn may_be_at_work(&self, now_ms: u64) -> bool {
        self.owner.is_some() && now_ms < self.leased_until.saturating_add(INVOCATION_MS_MAX)
    }

    /// Whether a worker has ever had it.
    #[must_use]
    pub fn was_taken(&self) -> bool {
        self.done || self.owner.is_some() || !self.counts.is_empty() || self.failing.is_some()
    }

    /// Leases it to a worker until a time, in milliseconds since 1970, without the share that a worker
    /// before may have left.
    pub fn lease(&mut self, worker: &str, until_ms: u64) {
        (self.owner, self.leased_until, self.share) = (Some(worker.to_owned()), until_ms, None);
    }

    /// Gives up the lease.
    pub fn release(&mut self) {
        (self.owner, self.leased_until, self.share) = (None, 0, None);
    }

    /// Marks it as done without its work.
    pub fn supersede(&mut self) {
        self.release();
        (self.done, self.superseded) = (true, true);
    }

    /// Notes that an attempt failed. `page` limits the next page; `set_aside` if a person must act first.
    pub fn fail(&mut self, reason: &str, page: Option<u32>, set_aside: bool) {
        self.release();
        self.failing = Some(reason.chars().take(REASON_CHARACTERS_MAX).collect());
        self.failed = self.failed.saturating_add(1);
        self.page = page.or(self.page);
        self.aside = set_aside;
    }

    /// Notes that an attempt succeeded, with the limit for the next page.
    pub fn succeed(&mut self, page: Option<u32>) {
        self.release();
        (self.failing, self.failed, self.aside, self.page) = (None, 0, false, page);
    }

    /// Adds counts and samples.
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

    /// Restarts the segment to remove the marks of a touch that was aborted; returns whether it was not
    /// restarted before. What was copied stays known: nothing of it is undone.
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

    /// Whether its segment was copied to its end.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.clears.as_ref().map_or(self.done, |copied| copied.done)
    }

    /// Returns what was counted when it was copied.
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
    fn a_record_has_nothing_more_to_say_once_a_later_one_comes() {
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
    fn a_task_is_with_its_worker_for_longer_than_its_lease() {
        let task = task();
        assert!(task.is_leased(8) && !task.is_leased(9));
        assert!(task.may_be_at_work(9 + INVOCATION_MS_MAX - 1));
        assert!(!task.may_be_at_work(9 + INVOCATION_MS_MAX));
    }
}
