//! Removes the marks that an aborted backfill has set in source items: workers read each segment
//! again and remove the marks.
//!
//! Segments that the backfill has completely read have to be read again too. For example, a client
//! may have read an item with its mark, and put the item later, so that the mark exists again.

use control::{Task, Work};

use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::start::workers::lease_clock_ms;

/// Restarts the backfill's tasks to remove marks, unless they were restarted before. Each restarted
/// task makes a stream record, which invokes a worker. Returns true if a task had to be restarted;
/// then the caller's `tasks` are out of date. The call is idempotent, also with concurrent callers.
///
/// A task whose worker may still run is not restarted yet, because this worker may set marks after
/// the second read of the segment.
///
/// # Errors
/// When the control table cannot be read or written.
pub(crate) async fn begin_clearing(context: &Context, tasks: &[Task]) -> Result<bool> {
    let mut is_begun = false;
    for task in tasks.iter().filter(|task| task.work == Work::Touch && task.clears.is_none()) {
        is_begun = true;
        let begin = |task: &mut Task| {
            (task.done || !task.may_be_in_progress(lease_clock_ms())) && task.restart_to_clear()
        };
        context.control.change(task.clone(), begin).await?;
    }
    Ok(is_begun)
}

#[cfg(test)]
mod tests {
    use crate::migrate::report::backfill::advance;
    use rules::migration::Phase;
    use rules::migration::plan::{Backfill, Plan};
    use serde_json::{Value, json};

    use super::*;
    use crate::migrate::adjust::abort;
    use crate::migrate::report::status;
    use crate::migrate::start::begin::begin;
    use crate::migrate::switch::switching_tests::{NAME, plan, serve};
    use client::exit::Exit;

    #[tokio::test]
    async fn touched_items_of_an_aborted_migration_are_read_again() {
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
        let is_unswept = async || advance(context, NAME).await.unwrap().0.needs_cleaning;
        // Returns three values from the status: the percentage, the number of segments that are
        // read, and the segments that are being read again.
        let told = async || {
            let status = status::describe(context, NAME, None).await.unwrap();
            let of = |place: &str| status.pointer(place).unwrap().as_u64();
            let backfill = ["/copied_percent", "/backfill/done", "/backfill/counts/read"].map(of);
            (backfill.map(Option::unwrap), status["backfill"]["second_read"].clone())
        };
        // One segment is complete, and is read again too.
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
    async fn a_leased_segment_is_restarted_when_it_is_free() {
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
        // The lease has expired, but the worker's invocation may still run.
        lease(now.saturating_sub(1_000)).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        assert!(task().await.owner.is_some(), "the task keeps its owner");
        assert!(advance(context, NAME).await.unwrap().0.needs_cleaning);
        lease(now.saturating_sub(1_000_000)).await;
        assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
        let begun = task().await;
        assert!(begun.clears.is_some() && begun.cursor.is_none(), "{begun:?}");
    }
}
