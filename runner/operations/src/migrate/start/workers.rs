//! Whether workers get on with the segments of a migration: what people are told when they do not, and
//! how workers are told of segments again.
//!
//! Nothing is worked on here. What workers note of a segment, its task says.

use std::time::{SystemTime, UNIX_EPOCH};

use control::{Entry as _, State, Task};
use rules::migration::Phase;
use serde_json::{Value, json};

use crate::migrate::attempts::{Written, pause};
use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::report::pointer::at;
use crate::migrate::report::progress::Progress;
use client::contention::Attempts;
use client::output::counted;

/// What is known of segments that are not done in time, and what to do.
pub(crate) fn advice(name: &str, progress: &Progress) -> String {
    let (taken, tasks) = (progress.taken, progress.tasks);
    match &progress.failing {
        Some(reason) => failing_line(name, progress.aside as u64, reason),
        None if taken == 0 => {
            format!("no segment was taken; are there workers? `weir migrate work {name}`")
        }
        None => format!(
            "workers have taken {taken} of {tasks} segments; give them more time with --timeout, or more of them with `weir migrate work {name}`"
        ),
    }
}

/// The same of the backfill, as a status tells it.
pub(crate) fn advice_of(status: &Value) -> String {
    let name = at(status, "/migration").as_str().unwrap_or_default();
    if let Some(line) = line_of(status) {
        return line;
    }
    match at(status, "/backfill/taken").as_u64() {
        Some(taken) if taken > 0 => format!(
            "workers have taken {taken} of {} segments; are they still there? `weir migrate work {name}`",
            at(status, "/backfill/tasks")
        ),
        _ => format!("no segment was taken; are there workers? `weir migrate work {name}`"),
    }
}

/// What a status says of segments that fail; none if none does.
pub(crate) fn line_of(status: &Value) -> Option<String> {
    let reason = at(status, "/failing/reason").as_str()?;
    let name = at(status, "/migration").as_str().unwrap_or_default();
    Some(failing_line(name, at(status, "/failing/set_aside").as_u64().unwrap_or(0), reason))
}

fn failing_line(name: &str, aside: u64, reason: &str) -> String {
    match aside {
        0 => format!("workers try again what failed: {reason}"),
        aside => format!(
            "{} set aside: {reason}; put that right, then `weir migrate resume {name}` has workers take that up again",
            counted(aside, "segment is", "segments are")
        ),
    }
}

/// Whether there is something to read that keeps the rate: a backfill, or that of a way back in place.
/// Comparisons, and what ends a migration, are as fast as they can be.
pub(crate) fn keep_rate(state: &State) -> bool {
    matches!(state.phase, Phase::Preparing | Phase::Copying | Phase::Reverting)
}

/// What a status says of the segments that nobody could work on lately; null if there are none. Those of
/// the backfill and of the last run: nobody waits for earlier ones, nor for any after the end, but for
/// marks that are left to take off.
pub(crate) fn failing(tasks: &[Task], state: &State) -> Value {
    let is_over = state.phase.has_ended() && !state.unswept;
    let counts = |task: &&Task| !is_over && (task.run >= state.run || task.is_backfill());
    let progress = Progress::of(tasks.iter().filter(counts));
    match progress.failing {
        None => Value::Null,
        Some(reason) => json!({ "set_aside": progress.aside, "reason": reason }),
    }
}

/// Makes a record of each open task, which wakes a worker. Who works on one does so in vain: only one
/// revision is written, and what is done twice changes nothing. A worker that is gone left its task held,
/// and no record may tell of it any more; of one that was set aside none does.
///
/// # Errors
/// When the control table cannot be read or written.
pub(crate) async fn wake(context: &Context, name: &str) -> Result<()> {
    wake_those(context, name, |_| true).await
}

/// The same of those that were set aside alone: whoever begins to work may be able to do them.
///
/// # Errors
/// When the control table cannot be read or written.
pub(crate) async fn wake_set_aside(context: &Context, name: &str) -> Result<()> {
    wake_those(context, name, |task| task.aside).await
}

async fn wake_those(context: &Context, name: &str, is_meant: impl Fn(&Task) -> bool) -> Result<()> {
    let (state, now) = (context.control.state(name).await?, lease_clock_ms());
    let is_to_be_told = |task: &Task| {
        // A switch waits for a repair of an earlier run that a worker may be at, as long as its task says
        // so. If that worker is gone, its record comes again.
        let is_waited_for = task.run < state.run && task.repairs && task.may_be_at_work(now);
        !task.done && !is_waited_for && is_meant(task)
    };
    for task in context.tasks(name).await? {
        wake_one(context, task, &is_to_be_told).await?;
    }
    Ok(())
}

/// Makes a record of a task, if it is to be told of. A worker may be at it: one that gave it back
/// meanwhile has made a record, but one that has set it aside or that renews its lease has not, and what
/// it sets aside after that nobody would take up.
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
        pause(&mut attempts, Written::Changed, &format!("`{entry}` of `{name}`")).await?;
    }
    Ok(())
}

/// The time by which workers lease tasks, in milliseconds since 1970.
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
    fn no_workers_and_slow_ones_are_told_apart() {
        let (open, held) = (check(1), Task { owner: Some("w".to_owned()), ..check(1) });
        let of = |tasks: &[Task]| advice("shop", &Progress::of(tasks));
        assert!(of(&[open.clone(), open.clone()]).contains("are there workers?"));
        let said = of(&[open.clone(), held, Task { done: true, ..check(1) }]);
        assert!(said.contains("taken 2 of 3 segments") && said.contains("--timeout"), "{said}");
        let tries = failing_with(1, "out of time", false);
        assert_eq!(of(&[tries]), "workers try again what failed: out of time");
        let said = of(&[open, failing_with(1, "no table", true)]);
        assert!(said.starts_with("1 segment is set aside: no table; "), "{said}");
        assert!(said.contains("`weir migrate resume shop`"), "{said}");
    }

    #[test]
    fn what_nobody_waits_for_any_more_fails_no_more() {
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
    async fn what_was_set_aside_is_taken_up_again() {
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
    async fn what_is_set_aside_or_renewed_in_the_same_moment_is_taken_up_again() {
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
            // Just before the first record of it is made, its worker writes.
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
