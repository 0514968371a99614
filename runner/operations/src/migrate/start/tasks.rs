//! Creates the tasks of a run, one for each segment of a table. A task is an entry of the control
//! table; its stream record invokes a worker.

use std::collections::BTreeSet;

use control::{BACKFILL_RUN, Expect, State, Task, Work};
use rules::migration::plan::{Direction, Plan};

use crate::migrate::attempts::{WriteResult, pause};
use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use client::contention::Attempts;

/// Number of tasks per transaction. A transaction may have at most a hundred items.
const AT_ONCE: usize = 50;

/// A run of tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The run's number. Run 0 is the backfill.
    pub(crate) number: u64,
    /// The work of the run's tasks, such as a comparison.
    pub(crate) work: Work,
    /// True if the workers repair differences.
    pub(crate) repairs: bool,
    /// The direction of the migration.
    pub(crate) direction: Direction,
}

/// Begins a run of tasks and returns the run's number. The same write applies `notes` to the
/// migration's state.
///
/// # Errors
/// When the state is not the expected one, or the control table cannot be written.
pub(crate) async fn begin_run(
    context: &Context,
    name: &str,
    expect: Expect<'_>,
    notes: impl Fn(&mut State, u64),
) -> Result<u64> {
    let begin = |state: &mut State| {
        state.run += 1;
        notes(state, state.run);
        true
    };
    Ok(context.control.change_state(name, expect, begin).await?.run)
}

/// Creates the tasks of a run for one table, one for each segment. Does not change existing tasks.
/// Each transaction also checks the state, so no task is created after a state change. A command
/// that changes the state and then reads the open tasks therefore misses no task.
///
/// # Errors
/// When the state is not the expected one, or the control table cannot be read or written.
pub(crate) async fn make_tasks(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    run: Run,
    table: &str,
    expect: Expect<'_>,
) -> Result<()> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let prefix = format!("{}{}#{table}#", Task::prefix_of(run.number), run.work.as_str());
    let mut attempts = Attempts::first();
    // The loop ends, because each transaction leaves fewer missing tasks, and attempts without
    // effect are limited.
    loop {
        let known: Vec<Task> = control.list(name, &prefix).await?;
        let known: BTreeSet<u32> = known.iter().map(|task| task.segment).collect();
        let tasks: Vec<Task> = (0..plan.segments)
            .filter(|segment| !known.contains(segment))
            .map(|segment| open(plan, fingerprint, run, table, segment))
            .take(AT_ONCE)
            .collect();
        if tasks.is_empty() {
            return Ok(());
        }
        match control.add(name, expect, tasks).await? {
            WriteResult::Done => {}
            in_vain => pause(&mut attempts, in_vain, &format!("the tasks of `{name}`")).await?,
        }
    }
}

/// Returns a run that can be resumed for the given work on a table: the migration's last run, or an
/// earlier run that is complete. Returns `None` if a new run has to begin. The caller has to create
/// missing tasks of the returned run.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn resumable_run(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    (work, direction, table): (Work, Direction, &str),
) -> Result<Option<u64>> {
    let name = plan.migration.as_str();
    let last = context.state(name).await?.run;
    let mut tasks = context.tasks(name).await?;
    tasks.retain(|task| {
        (task.work, task.direction) == (work, direction)
            && task.table == table
            && task.fingerprint == fingerprint
    });
    Ok(newest_resumable(&tasks, last, plan.segments))
}

/// Returns the newest run that can be resumed, among tasks of the same work. A complete run has
/// `segments` tasks.
fn newest_resumable(tasks: &[Task], last: u64, segments: u32) -> Option<u64> {
    let runs: BTreeSet<u64> = tasks.iter().map(|task| task.run).collect();
    let is_resumable = |run: &u64| {
        let of_run = || tasks.iter().filter(|task| task.run == *run);
        let is_ended =
            of_run().all(|task| task.done) && u32::try_from(of_run().count()) == Ok(segments);
        // If a task was superseded before its work was done, a new run repeats the work.
        *run > BACKFILL_RUN && (*run == last || is_ended) && !of_run().any(|task| task.superseded)
    };
    runs.into_iter().rev().find(is_resumable)
}

fn open(plan: &Plan, fingerprint: &str, run: Run, table: &str, segment: u32) -> Task {
    Task {
        direction: run.direction,
        segment,
        segments: plan.segments,
        fingerprint: fingerprint.to_owned(),
        repairs: run.repairs,
        ..Task::new(&plan.migration, run.number, run.work, table)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use control::Entry as _;

    use super::*;
    use crate::migrate::switch::switching_tests::{NAME, plan};

    /// Returns an open task of the run `number`.
    pub(crate) fn task(number: u64, work: Work) -> Task {
        let run = Run { number, work, repairs: false, direction: Direction::Forward };
        Task { revision: 1, ..open(&plan(), "f", run, "cats", 0) }
    }

    #[test]
    fn open_and_done_tasks_are_resumed() {
        let task = |run, done, superseded| Task { done, superseded, ..task(run, Work::Unmark) };
        assert_eq!(task(3, false, false).partition(), NAME);
        let (open, done, given_up) = ((false, false), (true, false), (true, true));
        for (last, tasks, expected) in [
            (4, vec![], None),
            // The last run is resumed, even if some of its tasks were not created.
            (4, vec![(4, done), (4, open)], Some(4)),
            (4, vec![(4, done)], Some(4)),
            // An earlier incomplete run is not resumed.
            (4, vec![(3, done), (3, open)], None),
            (4, vec![(3, done)], None),
            (4, vec![(3, done), (3, done)], Some(3)),
            (4, vec![(3, given_up), (3, done)], None),
            (4, vec![(2, done), (2, done), (3, given_up), (3, done)], Some(2)),
            // The tasks belong to the backfill, not to a removal of marks.
            (0, vec![(0, done), (0, done)], None),
        ] {
            let entries: Vec<_> = tasks.iter().map(|(run, (d, s))| task(*run, *d, *s)).collect();
            assert_eq!(newest_resumable(&entries, last, 2), expected, "{last} {tasks:?}");
        }
    }
}
