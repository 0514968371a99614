//! The tasks of a run: one for each segment of a table. Each is an entry of the control table, whose
//! record wakes a worker.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use rules::migration::plan::Plan;

use super::Context;
use super::attempts::{Written, pause};
use super::control::{Entry, Expect, flag, n, number, s, text};
use client::contention::Attempts;

/// Tasks that are made by one transaction, which may have a hundred parts.
const AT_ONCE: usize = 50;

/// The work of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'w> {
    /// Its number; 0 is the backfill.
    pub(crate) run: u64,
    /// What is done, in the words of the control table.
    pub(crate) work: &'w str,
    /// Whether differences are repaired.
    pub(crate) repairs: bool,
    /// Which way the migration runs.
    pub(crate) direction: &'w str,
}

/// Makes the tasks of a run for one table: one for each segment. Those that are there are left. They
/// are made as long as the state is what is expected, and by the same transaction: whoever moves the
/// migration on and then looks for open tasks sees all that there will be.
///
/// # Errors
/// When the state is not what is expected, or the control table cannot be read or written.
pub(crate) async fn make_tasks(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    work: Work<'_>,
    table: &str,
    expect: Expect<'_>,
) -> Result<(), String> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let prefix = format!("TASK#{}#{}#{table}#", work.run, work.work);
    let mut attempts = Attempts::first();
    // Each group that is made leaves fewer, and attempts in vain are counted.
    loop {
        let known = control.entries(name, &prefix).await?;
        let known: BTreeSet<&str> = known.iter().filter_map(|task| text(task, "entry")).collect();
        let tasks: Vec<Entry> = (0..plan.segments)
            .map(|segment| (segment, format!("{prefix}{segment:04}")))
            .filter(|(_, entry)| !known.contains(entry.as_str()))
            .map(|(segment, entry)| task(plan, fingerprint, work, table, (segment, &entry)))
            .take(AT_ONCE)
            .collect();
        if tasks.is_empty() {
            return Ok(());
        }
        match control.add(name, expect, &tasks).await? {
            Written::Done => {}
            in_vain => pause(&mut attempts, in_vain, &format!("the tasks of `{name}`")).await?,
        }
    }
}

/// The run of some work on a table that can be gone on with by whoever says a verb again: the last run
/// of the migration, or one before it that was made to its end. None if there is none, so that the work
/// has to begin. Those of its tasks that lack are made by whoever goes on with it.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn run_to_go_on_with(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    (work, direction, table): (&str, &str, &str),
) -> Result<Option<u64>, String> {
    let name = plan.migration.as_str();
    let last = number(&context.state(name).await?, "run");
    let mut tasks = context.control.entries(name, "TASK#").await?;
    tasks.retain(|task| {
        [("work", work), ("direction", direction), ("table", table), ("fingerprint", fingerprint)]
            .into_iter()
            .all(|(member, wanted)| text(task, member) == Some(wanted))
    });
    Ok(newest_to_go_on_with(&tasks, last, plan.segments))
}

/// The same among the tasks of the same work, where a run has so many of them.
fn newest_to_go_on_with(tasks: &[Entry], last: u64, segments: u32) -> Option<u64> {
    // The first run is the backfill.
    let runs: BTreeSet<u64> = tasks.iter().map(|task| number(task, "run")).collect();
    let can_go_on = |run: &u64| {
        let of_run = || tasks.iter().filter(|task| number(task, "run") == *run);
        let is_ended = of_run().all(|task| flag(task, "done"))
            && u32::try_from(of_run().count()) == Ok(segments);
        // What was ended without its work is to be done anew.
        *run > 0 && (*run == last || is_ended) && !of_run().any(|task| flag(task, "superseded"))
    };
    runs.into_iter().rev().find(can_go_on)
}

fn task(
    plan: &Plan,
    fingerprint: &str,
    Work { run, work, repairs, direction }: Work<'_>,
    table: &str,
    (segment, entry): (u32, &str),
) -> Entry {
    HashMap::from([
        ("migration".to_owned(), s(&plan.migration)),
        ("entry".to_owned(), s(entry)),
        ("work".to_owned(), s(work)),
        ("table".to_owned(), s(table)),
        ("segment".to_owned(), n(u64::from(segment))),
        ("segments".to_owned(), n(u64::from(plan.segments))),
        ("fingerprint".to_owned(), s(fingerprint)),
        ("run".to_owned(), n(run)),
        ("direction".to_owned(), s(direction)),
        ("repairs".to_owned(), Sdk::Bool(repairs)),
        ("done".to_owned(), Sdk::Bool(false)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_or_done_is_gone_on_with() {
        let task = |run, is_done, is_superseded| {
            HashMap::from([
                ("run".to_owned(), n(run)),
                ("done".to_owned(), Sdk::Bool(is_done)),
                ("superseded".to_owned(), Sdk::Bool(is_superseded)),
            ])
        };
        let (open, done, given_up) = ((false, false), (true, false), (true, true));
        for (last, tasks, expected) in [
            (4, vec![], None),
            // The last run is gone on with, also where some of its tasks were not made.
            (4, vec![(4, done), (4, open)], Some(4)),
            (4, vec![(4, done)], Some(4)),
            // Of one before it nobody does what is left.
            (4, vec![(3, done), (3, open)], None),
            (4, vec![(3, done)], None),
            (4, vec![(3, done), (3, done)], Some(3)),
            (4, vec![(3, given_up), (3, done)], None),
            (4, vec![(2, done), (2, done), (3, given_up), (3, done)], Some(2)),
            // The backfill is no sweep.
            (0, vec![(0, done), (0, done)], None),
        ] {
            let entries: Vec<_> = tasks.iter().map(|(run, (d, s))| task(*run, *d, *s)).collect();
            assert_eq!(newest_to_go_on_with(&entries, last, 2), expected, "{last} {tasks:?}");
        }
    }
}
