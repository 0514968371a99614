//! What the tasks of a run have done together, and how much of a backfill that is.
//!
//! Nothing is read here. Tables are of unequal size, so how much is copied is told in items where it is
//! known how many there are, and in segments only where it is not; how long the rest takes follows from
//! the same measure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::control::{Entry, flag, text};

/// What the tasks of a run have done together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) tasks: usize,
    pub(crate) done: usize,
    /// Tasks that a worker has had.
    pub(crate) taken: usize,
    /// Tasks that nobody takes up until a person has them taken up again.
    pub(crate) aside: usize,
    /// Why an open task could not be worked on lately.
    pub(crate) failing: Option<String>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) samples: Vec<String>,
    /// By table, what `tasks`, `done` and `counts` are together.
    tables: BTreeMap<String, OfTable>,
}

/// What the tasks of one table have done.
#[derive(Clone, Copy, Debug, Default)]
struct OfTable {
    tasks: u64,
    done: u64,
    /// Items that were read.
    read: u64,
    /// Those of the tasks that are done.
    read_done: u64,
}

impl Progress {
    /// Adds up tasks.
    pub(crate) fn of(tasks: &[Entry]) -> Self {
        let mut progress = Self { tasks: tasks.len(), ..Self::default() };
        for task in tasks {
            let is_done = flag(task, "done");
            progress.done += usize::from(is_done);
            progress.note_worker(task);
            let table = text(task, "table").unwrap_or_default().to_owned();
            let of_table = progress.tables.entry(table).or_default();
            of_table.tasks += 1;
            of_table.done += u64::from(is_done);
            let counts = task.get("counts").and_then(|counts| counts.as_m().ok());
            for (name, count) in counts.into_iter().flatten() {
                let count = count.as_n().ok().and_then(|count| count.parse().ok()).unwrap_or(0);
                if name == "read" {
                    of_table.read += count;
                    of_table.read_done += if is_done { count } else { 0 };
                }
                *progress.counts.entry(name.clone()).or_default() += count;
            }
            let samples = task.get("samples").and_then(|samples| samples.as_l().ok());
            progress
                .samples
                .extend(samples.into_iter().flatten().filter_map(|s| s.as_s().ok().cloned()));
        }
        progress.samples.truncate(10);
        progress
    }

    fn note_worker(&mut self, task: &Entry) {
        let is_taken = ["owner", "counts", "failing"].iter().any(|name| task.contains_key(*name));
        self.taken += usize::from(is_taken || flag(task, "done"));
        if flag(task, "done") {
            return;
        }
        let is_aside = flag(task, "aside");
        // What stands still until a person helps is told before what is tried again.
        if self.failing.is_none() || (is_aside && self.aside == 0) {
            self.failing = text(task, "failing").map(str::to_owned).or(self.failing.take());
        }
        self.aside += usize::from(is_aside);
    }

    /// A count; 0 if nothing was counted.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Whether all tasks are done.
    pub(crate) fn is_done(&self) -> bool {
        self.done == self.tasks
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "tasks": self.tasks, "done": self.done, "taken": self.taken,
            "counts": self.counts, "samples": self.samples,
        })
    }

    /// How much of a backfill is done, where `counted` says how many items a table has, as far as
    /// that is known.
    pub(crate) fn measure(&self, counted: &BTreeMap<String, u64>) -> Measure {
        if self.tasks > 0 && self.is_done() {
            let read = self.count("read");
            return Measure { done: read, whole: read, is_all: true, is_guess: false };
        }
        let mut measure = Measure::default();
        for (table, of_table) in &self.tables {
            match of_table.items(counted.get(table).copied().unwrap_or(0)) {
                Items::About(items) => measure.whole += items,
                Items::AtLeast(items) => {
                    measure.whole += items;
                    measure.is_guess = true;
                }
                Items::Unknown => return self.in_segments(),
            }
            measure.done += of_table.read;
        }
        measure
    }

    fn in_segments(&self) -> Measure {
        let [done, whole] = [self.done, self.tasks].map(|n| u64::try_from(n).unwrap_or(0));
        Measure { done, whole, ..Measure::default() }
    }
}

/// How many items a table has.
enum Items {
    About(u64),
    AtLeast(u64),
    Unknown,
}

impl OfTable {
    /// By a count that may be hours old, and 0 if nothing is known.
    fn items(self, counted: u64) -> Items {
        if self.done == self.tasks {
            return Items::About(self.read);
        }
        if counted > 0 && counted > self.read {
            return Items::About(counted);
        }
        // It has grown since it was counted. Keys are spread over the segments evenly, so those that
        // are done say how many items the others have.
        match self.read_done.saturating_mul(self.tasks).checked_div(self.done) {
            Some(items) if items > self.read => Items::About(items),
            _ if counted == 0 => Items::Unknown,
            _ => Items::AtLeast(self.read),
        }
    }
}

/// How much of a backfill is done, in items or in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    done: u64,
    whole: u64,
    /// Every segment is read.
    is_all: bool,
    /// There is more than the whole, and nobody knows how much.
    is_guess: bool,
}

impl Measure {
    /// Whole percents; 100 only when every segment is read.
    pub(crate) fn percent(self) -> u64 {
        if self.is_all {
            return 100;
        }
        self.done.saturating_mul(100).checked_div(self.whole).unwrap_or(0).min(99)
    }

    /// How many seconds the rest takes at the pace of those that have passed; none if nothing is done
    /// yet, or nobody knows how much is left.
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
    use std::collections::HashMap;

    use aws_sdk_dynamodb::types::AttributeValue as Sdk;

    use super::super::control::{n, s};
    use super::*;

    /// Tasks of a table: of each, what it has read and whether it is done.
    fn tasks(table: &str, tasks: &[(u64, bool)]) -> Vec<Entry> {
        let task = |(read, done): &(u64, bool)| {
            HashMap::from([
                ("table".to_owned(), s(table)),
                ("done".to_owned(), Sdk::Bool(*done)),
                ("counts".to_owned(), Sdk::M([("read".to_owned(), n(*read))].into())),
            ])
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
            // Half of the segments are those of a table of eight items.
            (both(&done8, &[(25, false); 4]), [8, 3_000], 3, Some(2_685)),
            // The table has grown since it was counted: the segments that are done say how much.
            (
                one(&[(4_500, true), (4_500, true), (4_500, true), (0, false)]),
                [0, 5_000],
                75,
                Some(33),
            ),
            // Nothing is done that could say it.
            (one(&[(1_300, false); 4]), [0, 5_000], 99, None),
            (both(&done8, &[(1_300, false); 4]), [8, 5_000], 99, None),
            // Nothing is known of the count.
            (one(&[(5_000, true), (0, false), (0, false), (0, false)]), [0, 0], 25, Some(300)),
            (one(&[(5_000, false), (0, false)]), [0, 0], 0, None),
            (both(&done8, &[(25, false); 4]), [8, 0], 50, Some(100)),
            (one(&[(4_750, true); 4]), [0, 20_000], 100, None),
            // It has shrunk: the count stands until every segment is read.
            (one(&[(4_500, true), (0, false)]), [0, 90_000], 5, Some(1_900)),
        ] {
            let counted = [("small".to_owned(), small), ("big".to_owned(), big)].into();
            let found = Progress::of(&tasks).measure(&counted);
            let told = (found.percent(), found.seconds_left(100));
            assert_eq!(told, (percent, left), "{tasks:?}");
        }
    }
}
