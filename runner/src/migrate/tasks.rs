//! The tasks of a run: one for each segment of a table. Each is an entry of the control table, whose
//! record wakes a worker.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use rules::migration::plan::Plan;

use super::Context;
use super::attempts::{Written, pause};
use super::control::{Entry, Expect, n, s, text};
use crate::contention::Attempts;

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
