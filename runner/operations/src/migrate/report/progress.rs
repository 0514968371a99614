//! Sums the tasks of a run, and computes how much of a backfill is done.
//!
//! Tables differ in size, so progress is measured in items if the number of items is known, and in
//! segments otherwise. The remaining time is estimated from the same measure.
//!
//! The progress never decreases, for three reasons. The counts of items were taken when the
//! backfill began. Each segment contributes at most an equal fraction of its table's count. A
//! segment that is read again still counts as complete.

use std::collections::BTreeMap;

use control::Task;
use serde_json::{Value, json};

/// The sum of the tasks of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) tasks: usize,
    pub(crate) done: usize,
    /// Number of segments that were read completely, including segments that are being read again.
    copied: usize,
    /// The progress of the second read of segments, which removes marks; `None` if there is no
    /// second read.
    second_read: Option<SecondRead>,
    /// Number of tasks that a worker has taken.
    pub(crate) taken_tasks: usize,
    /// Number of tasks that are set aside until the operator runs `resume`.
    pub(crate) aside: usize,
    /// The reason of a failure of an open task; `None` if no open task has failed.
    pub(crate) failing: Option<String>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) samples: Vec<String>,
    /// The segments of each table.
    tables: BTreeMap<String, Vec<Segment>>,
}

/// The progress of a second read of segments.
#[derive(Clone, Copy, Debug, Default)]
struct SecondRead {
    done: usize,
    /// Number of items that were read again.
    read: u64,
}

/// The progress of a segment's task.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    is_done: bool,
    /// Number of items that were read.
    read: u64,
}

impl Progress {
    /// Sums tasks.
    pub(crate) fn of<'t>(tasks: impl IntoIterator<Item = &'t Task>) -> Self {
        let mut progress = Self::default();
        for task in tasks {
            progress.tasks += 1;
            progress.done += usize::from(task.done);
            progress.note_worker(task);
            if task.clears.is_some() {
                let anew = progress.second_read.get_or_insert_default();
                anew.done += usize::from(task.done);
                anew.read += read_in(&task.counts);
            }
            let counts = task.copied_counts();
            let segment = Segment { is_done: task.is_copied(), read: read_in(counts) };
            progress.copied += usize::from(segment.is_done);
            for (name, count) in counts {
                *progress.counts.entry(name.clone()).or_default() += count;
            }
            progress.tables.entry(task.table.clone()).or_default().push(segment);
            progress.samples.extend(task.samples.iter().cloned());
        }
        progress.samples.truncate(10);
        progress
    }

    fn note_worker(&mut self, task: &Task) {
        self.taken_tasks += usize::from(task.was_taken());
        if task.done {
            return;
        }
        // The reason of a task that is set aside takes precedence over the reason of a task that is
        // retried.
        if self.failing.is_none() || (task.aside && self.aside == 0) {
            self.failing = task.failing.clone().or(self.failing.take());
        }
        self.aside += usize::from(task.aside);
    }

    /// Returns the counter with the name `name`; 0 if no task has this counter.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Returns true if all tasks are done.
    pub(crate) fn is_done(&self) -> bool {
        self.done == self.tasks
    }

    /// Returns true if there are backfill tasks, and all are done.
    pub(crate) fn is_copied_to_the_end(&self) -> bool {
        self.is_done() && self.tasks > 0
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "tasks": self.tasks, "done": self.copied, "taken": self.taken_tasks,
            "counts": self.counts, "samples": self.samples,
            "second_read": self.second_read.map(|anew| json!({
                "segments": self.tasks, "done": anew.done, "read": anew.read,
            })),
        })
    }

    /// Returns the finished part of a backfill. `counted` has each table's number of items when the
    /// backfill began, if known.
    pub(crate) fn measure(&self, counted: &BTreeMap<String, u64>) -> Measure {
        if self.tasks > 0 && self.copied == self.tasks {
            let read = self.count("read");
            return Measure { done: read, whole: read, is_all: true, is_guess: false };
        }
        let mut measure = Measure::default();
        for (table, segments) in &self.tables {
            // A count of 0 may mean that DynamoDB has not counted the items yet, so it is treated
            // as unknown.
            let Some(items) = counted.get(table).copied().filter(|items| *items > 0) else {
                return self.in_segments();
            };
            measure.add(segments, items);
        }
        measure
    }

    fn in_segments(&self) -> Measure {
        let [done, whole] = [self.copied, self.tasks].map(|n| u64::try_from(n).unwrap_or(0));
        // Segments of different tables differ in size, so for several tables, the number of
        // segments is only a rough measure.
        Measure { done, whole, is_guess: self.tables.len() > 1, ..Measure::default() }
    }
}

/// Returns the number of items that were read, from a task's counts.
fn read_in(counts: &BTreeMap<String, u64>) -> u64 {
    counts.get("read").copied().unwrap_or(0)
}

/// The finished part of a backfill, in items or in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    done: u64,
    whole: u64,
    /// True if every segment is read.
    is_all: bool,
    /// True if the total number of items or segments is only an estimate.
    is_guess: bool,
}

impl Measure {
    /// Adds a table with `items` items, which are assumed to be equally distributed over
    /// `segments`.
    fn add(&mut self, segments: &[Segment], items: u64) {
        let number = u64::try_from(segments.len()).unwrap_or(u64::MAX);
        let mut done = 0_u64;
        for segment in segments {
            let read = segment.read.saturating_mul(number);
            self.is_guess |= !segment.is_done && read >= items;
            done = done.saturating_add(if segment.is_done { items } else { read.min(items) });
        }
        self.done += done.checked_div(number).unwrap_or(0);
        self.whole += items;
    }

    /// Returns the percentage, rounded down. It is 100 only if every segment is read.
    pub(crate) fn percent(self) -> u64 {
        if self.is_all {
            return 100;
        }
        self.done.saturating_mul(100).checked_div(self.whole).unwrap_or(0).min(99)
    }

    /// Estimates the remaining seconds from the average speed during the `passed` seconds. Returns
    /// `None` if nothing is done yet, or the total is unknown.
    pub(crate) fn seconds_left(self, passed: u64) -> Option<u64> {
        if self.is_all || self.is_guess {
            return None;
        }
        let left = self.whole.saturating_sub(self.done);
        passed.saturating_mul(left).checked_div(self.done)
    }
}

#[cfg(test)]
mod tests {
    use control::Work;

    use super::*;
    use crate::migrate::start::tasks::tests::task;

    /// Returns the tasks of a table. Each pair is the number of items read and whether the task is
    /// done.
    fn tasks(table: &str, tasks: &[(u64, bool)]) -> Vec<Task> {
        let task = |(read, done): &(u64, bool)| Task {
            table: table.to_owned(),
            done: *done,
            counts: [("read".to_owned(), *read)].into(),
            ..task(0, Work::Backfill)
        };
        tasks.iter().map(task).collect()
    }

    #[test]
    fn percents_and_what_is_left_are_of_the_items_of_all_tables() {
        let one = |of: &[(u64, bool)]| tasks("big", of);
        let both = |small: &[(u64, bool)], big: &[(u64, bool)]| {
            [tasks("small", small), tasks("big", big)].concat()
        };
        let done8 = [(2, true); 4];
        for (tasks, [small, big], percent, left) in [
            (Vec::new(), [0, 0], 0, None),
            (one(&[(0, false); 4]), [0, 20_000], 0, None),
            (one(&[(3_375, false); 4]), [0, 20_000], 67, Some(48)),
            // Half of the segments belong to a table with only eight items, so the number of
            // segments would be a misleading measure.
            (both(&done8, &[(25, false); 4]), [8, 3_000], 3, Some(2_685)),
            // Workers have read more items than the table's count, so progress is measured by
            // segments.
            (
                one(&[(4_500, true), (4_500, true), (4_500, true), (0, false)]),
                [0, 5_000],
                75,
                Some(33),
            ),
            // Workers have read more items of the open segments than were counted, so the total is
            // unknown.
            (one(&[(1_300, false); 4]), [0, 5_000], 99, None),
            (both(&done8, &[(1_300, false); 4]), [8, 5_000], 99, None),
            // The count is unknown.
            (one(&[(5_000, true), (0, false), (0, false), (0, false)]), [0, 0], 25, Some(300)),
            (one(&[(5_000, false), (0, false)]), [0, 0], 0, None),
            (both(&done8, &[(25, false); 4]), [8, 0], 50, None),
            (one(&[(4_750, true); 4]), [0, 20_000], 100, None),
            // The table has fewer items than counted.
            (one(&[(4_500, true), (0, false)]), [0, 90_000], 50, Some(100)),
        ] {
            let counted = [("small".to_owned(), small), ("big".to_owned(), big)].into();
            let found = Progress::of(&tasks).measure(&counted);
            let told = (found.percent(), found.seconds_left(100));
            assert_eq!(told, (percent, left), "{tasks:?}");
        }
    }

    #[test]
    fn reported_progress_of_a_backfill_never_decreases() {
        for (counted, sizes) in [
            // The tables are as counted, grown, shrunk, and not counted.
            ([8, 3_000], [2, 750]),
            ([8, 3_000], [40, 2_000]),
            ([900, 3_000], [2, 11]),
            ([0, 3_000], [2, 750]),
            ([0, 0], [2, 750]),
        ] {
            let counted = ["small", "big"].map(str::to_owned).into_iter().zip(counted).collect();
            let mut segments = sizes.map(|_| [(0, false); 4]);
            let (mut last, mut dice) = (0, 7_u64);
            while segments.iter().flatten().any(|(_, is_done)| !is_done) {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (table, segment) = ((dice >> 60) % 2, (dice >> 50) % 4);
                let (table, segment) =
                    (usize::try_from(table).unwrap(), usize::try_from(segment).unwrap());
                let (read, is_done) = &mut segments[table][segment];
                *read = (*read + 1 + (dice >> 40) % 200).min(sizes[table]);
                *is_done |= *read == sizes[table];
                let all = [tasks("small", &segments[0]), tasks("big", &segments[1])].concat();
                let now = Progress::of(&all).measure(&counted).percent();
                assert!(now >= last, "{counted:?} {segments:?}: {now} after {last}");
                last = now;
            }
            assert_eq!(last, 100);
        }
    }
}
