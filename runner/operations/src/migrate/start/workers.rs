//! Reports whether workers make progress with the segments of a migration, and notifies workers
//! again of open segments.
//!
//! The facts are read from the tasks of the segments, into which workers write their progress and
//! failures.

use std::time::{SystemTime, UNIX_EPOCH};

use control::{Entry as _, State, Task};
use rules::migration::Phase;
use serde_json::{Value, json};

use crate::migrate::attempts::{WriteResult, pause};
use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::report::pointer::at;
use crate::migrate::report::progress::Progress;
use client::contention::Attempts;
use client::output::counted;

/// Returns advice about segments that no worker has taken, that failed, or that were set aside.
pub(crate) fn advice(name: &str, progress: &Progress) -> String {
    let (taken, tasks) = (progress.taken_tasks, progress.tasks);
    match &progress.failing {
        Some(reason) => failing_line(name, progress.aside as u64, reason),
        None if taken == 0 => {
            format!(
                "no worker has taken a segment: if no worker is running, run `weir migrate work {name}`"
            )
        }
        None => format!(
            "workers have taken {taken} of {tasks} segments; give them more time with --timeout, or start more workers with `weir migrate work {name}`"
        ),
    }
}

/// Returns the advice about the backfill's segments, from the JSON of `weir migrate status`.
pub(crate) fn advice_of(status: &Value) -> String {
    let name = at(status, "/migration").as_str().unwrap_or_default();
    if let Some(line) = line_of(status) {
        return line;
    }
    match at(status, "/backfill/taken").as_u64() {
        Some(taken) if taken > 0 => format!(
            "workers have taken {taken} of {} segments: if they have stopped, run `weir migrate work {name}`",
            at(status, "/backfill/tasks")
        ),
        _ => format!(
            "no worker has taken a segment: if no worker is running, run `weir migrate work {name}`"
        ),
    }
}

/// Describes the failing segments of a status; `None` if there are none.
pub(crate) fn line_of(status: &Value) -> Option<String> {
    let reason = at(status, "/failing/reason").as_str()?;
    let name = at(status, "/migration").as_str().unwrap_or_default();
    Some(failing_line(name, at(status, "/failing/set_aside").as_u64().unwrap_or(0), reason))
}

fn failing_line(name: &str, aside: u64, reason: &str) -> String {
    match aside {
        0 => format!("workers are retrying: {reason}"),
        aside => format!(
            "{} set aside: {reason}; fix the cause, then run `weir migrate resume {name}`",
            counted(aside, "segment is", "segments are")
        ),
    }
}

/// Returns true if the rate limit applies in the migration's phase: during the backfill, and during
/// the revert of an in-place change. Comparisons and removals of marks have no rate limit.
pub(crate) fn keep_rate(state: &State) -> bool {
    matches!(state.phase, Phase::Preparing | Phase::Copying | Phase::Reverting)
}

/// Returns the failing segments for a status; null if there are none. Includes only segments of the
/// backfill and of the last run. After the end of the migration, includes them only while marks are
/// being removed.
pub(crate) fn failing(tasks: &[Task], state: &State) -> Value {
    let is_over = state.phase.has_ended() && !state.needs_cleaning;
    let counts = |task: &&Task| !is_over && (task.run >= state.run || task.is_backfill());
    let progress = Progress::of(tasks.iter().filter(counts));
    match progress.failing {
        None => Value::Null,
        Some(reason) => json!({ "set_aside": progress.aside, "reason": reason }),
    }
}

/// Writes each open task again, so that the new stream record invokes a worker. This is necessary
/// after a worker was killed while it held a lease, and for a task that was set aside. If two
/// workers process a task, the result is correct: the work is idempotent, and only one of them can
/// write the task's next revision.
///
/// # Errors
/// When the control table cannot be read or written.
pub(crate) async fn wake(context: &Context, name: &str) -> Result<()> {
    wake_those(context, name, |_| true).await
}

/// Writes a new revision of each task that was set aside, because new workers may succeed.
///
/// # Errors
/// When the control table cannot be read or written.
pub(crate) async fn wake_set_aside(context: &Context, name: &str) -> Result<()> {
    wake_those(context, name, |task| task.aside).await
}

async fn wake_those(context: &Context, name: &str, is_meant: impl Fn(&Task) -> bool) -> Result<()> {
    let (state, now) = (context.control.state(name).await?, lease_clock_ms());
    let is_to_be_told = |task: &Task| {
        // A switch waits for a repair of an earlier run only while the task has a lease. So the
        // lease is not removed while a worker may still process the task. After that time, the
        // worker was probably killed.
        let is_waited_for = task.run < state.run && task.repairs && task.may_be_in_progress(now);
        !task.done && !is_waited_for && is_meant(task)
    };
    for task in context.tasks(name).await? {
        wake_one(context, task, &is_to_be_told).await?;
    }
    Ok(())
}

/// Writes a task again, unless another write has already made a new record that invokes a worker. A
/// worker may change the task at the same time. A write that releases the lease makes such a
/// record. After a write that renews the lease or sets the task aside, this function must write the
/// task again.
async fn wake_one(
    context: &Context,
    mut task: Task,
    is_to_be_told: impl Fn(&Task) -> bool,
) -> Result<()> {
    let mut attempts = Attempts::first();
    while is_to_be_told(&task) {
        let mut told = task.clone();
        told.release();
        told.aside = false;
        if context.control.replace(told).await? {
            return Ok(());
        }
        let (name, entry) = (task.partition(), task.name());
        let Some(found) = context.control.get::<Task>(&name, &entry).await? else { return Ok(()) };
        if !found.aside && found.owner.is_none() {
            return Ok(());
        }
        task = found;
        pause(&mut attempts, WriteResult::Changed, &format!("`{entry}` of `{name}`")).await?;
    }
    Ok(())
}

/// Returns the time of the clock that leases use, in milliseconds since 1970.
pub(crate) fn lease_clock_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use control::Work;
    use futures::FutureExt as _;

    use super::*;
    use crate::migrate::start::tasks::tests::task;
    use crate::migrate::switch::switching_tests::{NAME, serve};
    use client::output::Output;
    use testing::proxy;

    fn check(run: u64) -> Task {
        task(run, Work::CheckSource)
    }

    fn failing_with(run: u64, why: &str, aside: bool) -> Task {
        Task { failing: Some(why.to_owned()), aside, ..check(run) }
    }

    #[test]
    fn no_workers_and_slow_workers_are_distinguished() {
        let (open, held) = (check(1), Task { owner: Some("w".to_owned()), ..check(1) });
        let of = |tasks: &[Task]| advice("shop", &Progress::of(tasks));
        assert!(of(&[open.clone(), open.clone()]).contains("no worker has taken"));
        let said = of(&[open.clone(), held, Task { done: true, ..check(1) }]);
        assert!(said.contains("taken 2 of 3 segments") && said.contains("--timeout"), "{said}");
        let tries = failing_with(1, "out of time", false);
        assert_eq!(of(&[tries]), "workers are retrying: out of time");
        let said = of(&[open, failing_with(1, "no table", true)]);
        assert!(said.starts_with("1 segment is set aside: no table; "), "{said}");
        assert!(said.contains("`weir migrate resume shop`"), "{said}");
    }

    #[test]
    fn obsolete_tasks_no_longer_fail() {
        for (run, phase, expected) in [
            (0, Phase::Copying, true),
            (3, Phase::Tailing, true),
            (2, Phase::Tailing, false),
            (3, Phase::Aborted, false),
        ] {
            let state = State { phase, run: 3, ..State::new(NAME) };
            let found = failing(&[failing_with(run, "no table", true)], &state);
            assert_eq!(found["set_aside"] == json!(1), expected, "{run} {phase:?}: {found}");
        }
    }

    #[tokio::test]
    async fn tasks_set_aside_are_resumed() {
        let served = serve().await;
        let control = &served.context.control;
        let task = |segment| Task { revision: 0, segment, ..task(0, Work::Backfill) };
        let set = |task: &mut Task| !std::mem::replace(&mut task.aside, true);
        control.change(task(0), set).await.unwrap();
        let take = |task: &mut Task| task.owner.replace("w".to_owned()).is_none();
        control.change(task(1), take).await.unwrap();
        wake_set_aside(&served.context, NAME).await.unwrap();
        let now = async |segment: usize| served.context.tasks(NAME).await.unwrap().remove(segment);
        assert!(!now(0).await.aside);
        assert_eq!(now(0).await.revision, 2, "which is a record");
        assert_eq!(now(1).await.revision, 1);
        wake(&served.context, NAME).await.unwrap();
        assert_eq!(now(1).await.revision, 2);
    }

    #[tokio::test]
    async fn tasks_changed_concurrently_are_resumed() {
        let served = serve().await;
        let control = served.context.control.clone();
        let open = Task { revision: 0, ..task(0, Work::Backfill) };
        let now = async || served.context.tasks(NAME).await.unwrap().remove(0);
        for (aside, owner, is_told) in
            [(true, None, true), (false, Some("w"), true), (false, None, false)]
        {
            let take = |task: &mut Task| {
                let revision = task.revision;
                *task = Task { revision, owner: Some("w".to_owned()), ..open.clone() };
                true
            };
            control.change(open.clone(), take).await.unwrap();
            // A worker writes the task just before the code under test writes it again.
            let (of_worker, is_first) = (control.clone(), AtomicBool::new(true));
            let (name, absent) = (open.name(), open.clone());
            let script = move |operation: &str, body: &str| {
                let is_meant = operation == "PutItem" && body.contains(&name);
                let is_now = is_meant && is_first.swap(false, Ordering::SeqCst);
                let (control, absent) = (of_worker.clone(), absent.clone());
                async move {
                    let write = |task: &mut Task| {
                        (task.owner, task.aside) = (owner.map(str::to_owned), aside);
                        true
                    };
                    if is_now {
                        control.change(absent, write).await.unwrap();
                    }
                    None
                }
                .boxed()
            };
            let url = proxy::before(&served.context.endpoint, script).await;
            let context = Context::new(&url, "weir-migrations", Output::Table);
            let before = now().await.revision;
            wake(&context, NAME).await.unwrap();
            let now = now().await;
            assert!(!now.aside && now.owner.is_none(), "{aside} {owner:?} {now:?}");
            assert_eq!(now.revision - before - 1, u64::from(is_told), "{aside} {owner:?}");
        }
    }
}
