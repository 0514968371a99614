//! Whether workers get on with the segments of a migration: what people are told when they do not, and
//! how workers are told of segments again.
//!
//! Nothing is worked on here. What workers note of a segment, its task says.

use std::time::{SystemTime, UNIX_EPOCH};

use rules::migration::Phase;
use serde_json::{Value, json};

use super::Context;
use super::attempts::{Written, pause};
use super::control::{Entry, Progress, flag, number, phase_of, text};
use super::report::at;
use client::contention::Attempts;
use client::output::counted;

/// No invocation takes longer, in milliseconds. Source: AWS Lambda developer guide, "Lambda quotas".
const INVOCATION_MS_MAX: u64 = 900_000;

/// What is known of segments that are not done in time, and what to do.
pub(super) fn advice(name: &str, progress: &Progress) -> String {
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
pub(super) fn advice_of(status: &Value) -> String {
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
pub(super) fn line_of(status: &Value) -> Option<String> {
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
pub(super) fn keep_rate(state: &Entry) -> bool {
    matches!(phase_of(state), Phase::Preparing | Phase::Copying | Phase::Reverting)
}

/// What a status says of the segments that nobody could work on lately; null if there are none. Those of
/// the backfill and of the last run: nobody waits for earlier ones, nor for any after the end, but for
/// marks that are left to take off.
pub(super) fn failing(tasks: &[Entry], state: &Entry) -> Value {
    let is_over = phase_of(state).has_ended() && !flag(state, "unswept");
    let counts = |task: &&Entry| {
        let run = number(task, "run");
        !is_over && (run >= number(state, "run") || run == 0)
    };
    let tasks: Vec<Entry> = tasks.iter().filter(counts).cloned().collect();
    let progress = Progress::of(&tasks);
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
pub(super) async fn wake(context: &Context, name: &str) -> Result<(), String> {
    wake_those(context, name, |_| true).await
}

/// The same of those that were set aside alone: whoever begins to work may be able to do them.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn wake_set_aside(context: &Context, name: &str) -> Result<(), String> {
    wake_those(context, name, |task| flag(task, "aside")).await
}

async fn wake_those(
    context: &Context,
    name: &str,
    is_meant: impl Fn(&Entry) -> bool,
) -> Result<(), String> {
    let state = context.control.get(name, "STATE").await?.unwrap_or_default();
    let now = lease_clock_ms();
    let is_to_be_told = |task: &Entry| {
        let is_waited_for = number(task, "run") < number(&state, "run") && may_repair(task, now);
        !flag(task, "done") && !is_waited_for && is_meant(task)
    };
    for task in context.control.entries(name, "TASK#").await? {
        wake_one(context, task, &is_to_be_told).await?;
    }
    Ok(())
}

/// Makes a record of a task, if it is to be told of. A worker may be at it: one that gave it back
/// meanwhile has made a record, but one that has set it aside or that renews its lease has not, and what
/// it sets aside after that nobody would take up.
async fn wake_one(
    context: &Context,
    mut task: Entry,
    is_to_be_told: impl Fn(&Entry) -> bool,
) -> Result<(), String> {
    let mut attempts = Attempts::first();
    while is_to_be_told(&task) {
        let mut told = task.clone();
        for held in ["owner", "leased_until", "aside"] {
            told.remove(held);
        }
        if context.control.replace(told).await? {
            return Ok(());
        }
        let of = |member: &str| text(&task, member).unwrap_or_default().to_owned();
        let (name, entry) = (of("migration"), of("entry"));
        let Some(found) = context.control.get(&name, &entry).await? else { return Ok(()) };
        if !flag(&found, "aside") && !found.contains_key("owner") {
            return Ok(());
        }
        task = found;
        pause(&mut attempts, Written::Changed, &format!("`{entry}` of `{name}`")).await?;
    }
    Ok(())
}

/// Whether a worker may be at a repair, for which a switch waits as long as the task says so. If that
/// worker is gone, its record comes again.
fn may_repair(task: &Entry, now_ms: u64) -> bool {
    flag(task, "repairs") && may_be_at_work(task, now_ms)
}

/// Whether a worker may be at work on a task: one whose lease is over goes on until its slice or its
/// invocation ends.
pub(super) fn may_be_at_work(task: &Entry, now_ms: u64) -> bool {
    let until = number(task, "leased_until").saturating_add(INVOCATION_MS_MAX);
    task.contains_key("owner") && now_ms < until
}

/// The time by which workers lease tasks, in milliseconds since 1970.
pub(super) fn lease_clock_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use aws_sdk_dynamodb::types::AttributeValue as Sdk;
    use futures::FutureExt as _;

    use super::super::control::{n, s};
    use super::super::switching_tests::{NAME, serve};
    use super::*;
    use client::output::Output;
    use testing::proxy;

    fn task(run: u64, members: &[(&str, Sdk)]) -> Entry {
        let mut task = HashMap::from([("run".to_owned(), n(run))]);
        task.extend(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        task
    }

    #[test]
    fn no_workers_and_slow_ones_are_told_apart() {
        let (open, held) = (task(1, &[]), task(1, &[("owner", s("w"))]));
        let of = |tasks: &[Entry]| advice("shop", &Progress::of(tasks));
        assert!(of(&[open.clone(), open.clone()]).contains("are there workers?"));
        let said = of(&[open.clone(), held, task(1, &[("done", Sdk::Bool(true))])]);
        assert!(said.contains("taken 2 of 3 segments") && said.contains("--timeout"), "{said}");
        let tries = task(1, &[("failing", s("out of time"))]);
        assert_eq!(of(&[tries]), "workers try again what failed: out of time");
        let aside = task(1, &[("failing", s("no table")), ("aside", Sdk::Bool(true))]);
        let said = of(&[open, aside]);
        assert!(said.starts_with("1 segment is set aside: no table; "), "{said}");
        assert!(said.contains("`weir migrate resume shop`"), "{said}");
    }

    #[test]
    fn what_nobody_waits_for_any_more_fails_no_more() {
        let aside = [("failing", s("no table")), ("aside", Sdk::Bool(true))];
        let tasks = |run| [task(run, &aside)];
        let state = |phase: Phase| {
            HashMap::from([("phase".to_owned(), s(phase.as_str())), ("run".to_owned(), n(3))])
        };
        for (run, phase, expected) in [
            (0, Phase::Copying, true),
            (3, Phase::Tailing, true),
            (2, Phase::Tailing, false),
            (3, Phase::Aborted, false),
        ] {
            let found = failing(&tasks(run), &state(phase));
            assert_eq!(found["set_aside"] == json!(1), expected, "{run} {phase:?}: {found}");
        }
    }

    #[tokio::test]
    async fn what_was_set_aside_is_taken_up_again() {
        let served = serve().await;
        let control = &served.context.control;
        let (aside, held) = ("TASK#0#backfill#cats#0000", "TASK#0#backfill#cats#0001");
        let set = |entry: &mut Entry| entry.insert("aside".to_owned(), Sdk::Bool(true)).is_none();
        control.change(NAME, aside, set).await.unwrap();
        let take = |entry: &mut Entry| entry.insert("owner".to_owned(), s("w")).is_none();
        control.change(NAME, held, take).await.unwrap();
        wake_set_aside(&served.context, NAME).await.unwrap();
        let now = async |entry| control.get(NAME, entry).await.unwrap().unwrap();
        assert!(!flag(&now(aside).await, "aside"));
        assert_eq!(number(&now(aside).await, "revision"), 2, "which is a record");
        assert_eq!(number(&now(held).await, "revision"), 1);
        wake(&served.context, NAME).await.unwrap();
        assert_eq!(number(&now(held).await, "revision"), 2);
    }

    #[tokio::test]
    async fn what_is_set_aside_or_renewed_in_the_same_moment_is_taken_up_again() {
        let served = serve().await;
        let control = served.context.control.clone();
        let entry = "TASK#0#backfill#cats#0000";
        for (held, is_told) in [(Some("aside"), true), (Some("owner"), true), (None, false)] {
            let take = |task: &mut Entry| {
                task.retain(|name, _| ["migration", "entry", "revision"].contains(&name.as_str()));
                task.insert("owner".to_owned(), s("w")).is_none()
            };
            control.change(NAME, entry, take).await.unwrap();
            // Just before the first record of it is made, its worker writes.
            let (of_worker, is_first) = (control.clone(), AtomicBool::new(true));
            let script = move |operation: &str, body: &str| {
                let is_meant = operation == "PutItem" && body.contains(entry);
                let is_now = is_meant && is_first.swap(false, Ordering::SeqCst);
                let control = of_worker.clone();
                async move {
                    let write = |task: &mut Entry| {
                        task.remove("owner");
                        task.extend(held.map(|name| (name.to_owned(), Sdk::Bool(true))));
                        true
                    };
                    if is_now {
                        control.change(NAME, entry, write).await.unwrap();
                    }
                    None
                }
                .boxed()
            };
            let url = proxy::before(&served.context.endpoint, script).await;
            let context = Context::new(&url, "weir-migrations", Output::Table);
            let before = number(&control.get(NAME, entry).await.unwrap().unwrap(), "revision");
            wake(&context, NAME).await.unwrap();
            let now = control.get(NAME, entry).await.unwrap().unwrap();
            assert!(!flag(&now, "aside") && !now.contains_key("owner"), "{held:?} {now:?}");
            let told = number(&now, "revision") - before - 1;
            assert_eq!(told, u64::from(is_told), "{held:?}");
        }
    }

    #[test]
    fn a_repair_is_waited_for_as_long_as_an_invocation_lasts() {
        let of = |members: &[(&str, Sdk)]| {
            let task = task(1, members);
            [1, 1_000 + INVOCATION_MS_MAX].map(|now| may_repair(&task, now))
        };
        let (owner, until) = (("owner", s("w")), ("leased_until", n(1_000)));
        let repairs = ("repairs", Sdk::Bool(true));
        assert_eq!(of(&[owner.clone(), until.clone(), repairs.clone()]), [true, false]);
        assert_eq!(of(&[owner, until.clone()]), [false, false]);
        assert_eq!(of(&[until, repairs]), [false, false]);
    }
}
