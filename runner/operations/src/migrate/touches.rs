//! What a backfill by touching leaves that was given up: each of its segments is read once more, from its
//! beginning, to take marks off. A segment that was done may have some as well, such as where a writer
//! put an item back that it had read with its mark.
//!
//! Nothing is taken off here; workers do that, and know by the state that nothing is touched any more.

use control::{Task, Work};

use super::Context;
use super::failure::Result;
use super::workers::lease_clock_ms;

/// Begins those of the backfill's tasks anew that were not yet, for marks alone; each change is a record,
/// which wakes a worker. Returns whether there were any: then `tasks` is not how they stand. Whoever says
/// it again, or says it at the same time, does nothing more.
///
/// A task that a worker may be at is left until it is not: that one still puts marks on items, and would
/// do so behind whoever reads the segment anew.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn begin_clearing(context: &Context, tasks: &[Task]) -> Result<bool> {
    let mut is_begun = false;
    for task in tasks.iter().filter(|task| task.work == Work::Touch && task.clears.is_none()) {
        is_begun = true;
        let begin = |task: &mut Task| {
            (task.done || !task.may_be_at_work(lease_clock_ms())) && task.restart_to_clear()
        };
        context.control.change(task.clone(), begin).await?;
    }
    Ok(is_begun)
}

#[cfg(test)]
mod tests {
    use rules::migration::Phase;
    use rules::migration::plan::{Backfill, Plan};
    use serde_json::{Value, json};

    use super::super::beginning::begin;
    use super::super::switching_tests::{NAME, plan, serve};
    use super::super::{abort, report};
    use super::*;
    use client::exit::Exit;

    #[tokio::test]
    async fn what_was_touched_and_is_given_up_is_read_once_more() {
        let served = serve().await;
        let (context, control) = (&served.context, &served.context.control);
        let plan = Plan { backfill: Backfill::Touch, segments: 2, ..plan() };
        begin(context, &plan, 0).await.unwrap();
        let tasks = async || context.tasks_of(NAME, 0).await.unwrap();
        let work = async |done: usize| {
            for task in tasks().await.into_iter().take(done) {
                let worked = |task: &mut Task| {
                    task.cursor = Some("half-way".to_owned());
                    task.counts = [("read".to_owned(), 7)].into();
                    task.done = true;
                    true
                };
                control.change(task, worked).await.unwrap();
            }
        };
        let is_unswept = async || context.advance(NAME).await.unwrap().0.unswept;
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
            assert!(!task.done && task.cursor.is_none(), "{task:?}");
        }
        assert!(is_unswept().await);
        work(1).await;
        assert!(is_unswept().await, "a segment is not read yet");
        assert_eq!(told().await, (before.0, anew(1)));
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        work(2).await;
        assert!(!is_unswept().await);
        assert_eq!(told().await, (before.0, anew(2)));
        assert_eq!(context.state(NAME).await.unwrap().phase, Phase::Aborted);
        assert_eq!(begin_clearing(context, &tasks().await).await, Ok(false));
    }

    #[tokio::test]
    async fn a_segment_that_a_worker_is_at_is_begun_anew_when_it_is_free() {
        let served = serve().await;
        let (context, control) = (&served.context, &served.context.control);
        let plan = Plan { backfill: Backfill::Touch, segments: 1, ..plan() };
        begin(context, &plan, 0).await.unwrap();
        let task = async || context.tasks_of(NAME, 0).await.unwrap().remove(0);
        let lease = async |until: u64| {
            let leased = |task: &mut Task| {
                task.owner = Some("worker".to_owned());
                task.cursor = Some("half-way".to_owned());
                std::mem::replace(&mut task.leased_until, until) != until
            };
            control.change(task().await, leased).await.unwrap();
        };
        let now = lease_clock_ms();
        // Its lease is over, but its invocation may not be.
        lease(now.saturating_sub(1_000)).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        assert!(task().await.owner.is_some(), "taken out of its hands");
        assert!(context.advance(NAME).await.unwrap().0.unswept);
        lease(now.saturating_sub(1_000_000)).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        let begun = task().await;
        assert!(begun.clears.is_some() && begun.cursor.is_none(), "{begun:?}");
    }
}
