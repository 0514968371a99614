//! What a backfill by touching leaves that was given up: each of its segments is read once more, from its
//! beginning, to take marks off. A segment that was done may have some as well, such as where a writer
//! put an item back that it had read with its mark.
//!
//! Nothing is taken off here; workers do that, and know by the state that nothing is touched any more.

use aws_sdk_dynamodb::types::AttributeValue as Sdk;

use super::control::{Entry, flag, text};
use super::workers::{lease_clock_ms, may_be_at_work};
use super::{Context, true_value};

/// What the entries of these tasks have in their names.
const ENTRIES: &str = "#touch#";
/// In a task: it was begun anew, to take marks off.
pub(super) const CLEARS: &str = "clears";
/// In such a task: its segment was read to its end by then.
pub(super) const COPIED: &str = "copied";
/// In such a task: what was counted by then. What is read anew is counted from nothing.
pub(super) const COPIED_COUNTS: &str = "copied_counts";
/// What a task forgets that is begun anew. Whoever works on it notes nothing of that any more.
const FORGOTTEN: [&str; 7] =
    ["cursor", "owner", "leased_until", "aside", "failing", "failed", "superseded"];

/// Begins those of the backfill's tasks anew that were not yet, for marks alone; each change is a record,
/// which wakes a worker. Gives whether there were any: then `tasks` is not how they stand. Whoever says
/// it again, or says it at the same time, does nothing more.
///
/// A task that a worker may be at is left until it is not: that one still puts marks on items, and would
/// do so behind whoever reads the segment anew.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn begin_clearing(
    context: &Context,
    name: &str,
    tasks: &[Entry],
) -> Result<bool, String> {
    let mut is_begun = false;
    let entries = tasks.iter().filter(|task| !flag(task, CLEARS));
    for entry in entries.filter_map(|task| text(task, "entry")) {
        if !entry.contains(ENTRIES) {
            continue;
        }
        is_begun = true;
        let is_free = |task: &Entry| flag(task, "done") || !may_be_at_work(task, lease_clock_ms());
        let begin = |task: &mut Entry| is_free(task) && begun_anew(task);
        context.control.change(name, entry, begin).await?;
    }
    Ok(is_begun)
}

/// Changes a task to one that is begun anew; gives whether it was not.
fn begun_anew(task: &mut Entry) -> bool {
    if flag(task, CLEARS) {
        return false;
    }
    task.retain(|member, _| !FORGOTTEN.contains(&member.as_str()));
    // How much was copied is told as before: nothing of it is undone.
    if flag(task, "done") {
        task.insert(COPIED.to_owned(), true_value());
    }
    if let Some(counts) = task.remove("counts") {
        task.insert(COPIED_COUNTS.to_owned(), counts);
    }
    task.insert("done".to_owned(), Sdk::Bool(false));
    task.insert(CLEARS.to_owned(), true_value());
    true
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue as Sdk;
    use rules::migration::Phase;
    use rules::migration::plan::{Backfill, Plan};
    use serde_json::{Value, json};

    use super::super::beginning::begin;
    use super::super::control::{n, phase_of, s};
    use super::super::switching_tests::{NAME, plan, serve};
    use super::super::{Entry, abort, report};
    use super::*;
    use client::exit::Exit;

    #[tokio::test]
    async fn what_was_touched_and_is_given_up_is_read_once_more() {
        let served = serve().await;
        let (context, control) = (&served.context, &served.context.control);
        let plan = Plan { backfill: Backfill::Touch, segments: 2, ..plan() };
        begin(context, &plan, 0).await.unwrap();
        let tasks = async || control.entries(NAME, "TASK#0#touch#cats#").await.unwrap();
        let work = async |done: usize| {
            for task in tasks().await.into_iter().take(done) {
                let worked = |task: &mut Entry| {
                    task.insert("cursor".to_owned(), s("half-way"));
                    let read = Sdk::M([("read".to_owned(), n(7))].into());
                    task.insert("counts".to_owned(), read);
                    task.insert("done".to_owned(), Sdk::Bool(true)).is_some()
                };
                control.change(NAME, text(&task, "entry").unwrap(), worked).await.unwrap();
            }
        };
        let is_unswept = async || flag(&context.advance(NAME).await.unwrap().0, "unswept");
        // What is told of the backfill: percents, segments that are read, and those that are read anew.
        let told = async || {
            let status = report::describe(context, NAME, None).await.unwrap();
            let of = |place: &str| status.pointer(place).unwrap().as_u64();
            let backfill = ["/copied_percent", "/backfill/done", "/backfill/counts/read"].map(of);
            (backfill.map(Option::unwrap), status["backfill"]["anew"].clone())
        };
        // One segment is done, of which marks may be left as well.
        work(1).await;
        let before = told().await;
        assert_eq!(before, ([50, 1, 7], Value::Null));
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        let anew = |done: u64| json!({ "segments": 2, "done": done, "read": 7 * done });
        assert_eq!(told().await, (before.0, anew(0)));
        for task in tasks().await {
            assert!(!flag(&task, "done") && !task.contains_key("cursor"), "{task:?}");
        }
        assert!(is_unswept().await);
        work(1).await;
        assert!(is_unswept().await, "a segment is not read yet");
        assert_eq!(told().await, (before.0, anew(1)));
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        work(2).await;
        assert!(!is_unswept().await);
        assert_eq!(told().await, (before.0, anew(2)));
        assert_eq!(phase_of(&context.state(NAME).await.unwrap()), Phase::Aborted);
        assert_eq!(begin_clearing(context, NAME, &tasks().await).await, Ok(false));
    }

    #[tokio::test]
    async fn a_segment_that_a_worker_is_at_is_begun_anew_when_it_is_free() {
        let served = serve().await;
        let (context, control) = (&served.context, &served.context.control);
        let plan = Plan { backfill: Backfill::Touch, segments: 1, ..plan() };
        begin(context, &plan, 0).await.unwrap();
        let task = async || control.entries(NAME, "TASK#0#touch#cats#").await.unwrap().remove(0);
        let entry = text(&task().await, "entry").unwrap().to_owned();
        let lease = async |until: u64| {
            let leased = |task: &mut Entry| {
                task.insert("owner".to_owned(), s("worker"));
                task.insert("cursor".to_owned(), s("half-way"));
                task.insert("leased_until".to_owned(), n(until)) != Some(n(until))
            };
            control.change(NAME, &entry, leased).await.unwrap();
        };
        let now = lease_clock_ms();
        // Its lease is over, but its invocation may not be.
        lease(now.saturating_sub(1_000)).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        assert!(task().await.contains_key("owner"), "taken out of its hands");
        assert!(flag(&context.advance(NAME).await.unwrap().0, "unswept"));
        lease(now.saturating_sub(1_000_000)).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        let begun = task().await;
        assert!(flag(&begun, CLEARS) && !begun.contains_key("cursor"), "{begun:?}");
    }
}
