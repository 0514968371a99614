//! Comparisons that are at work, for which a switch has to wait: what they repair must not meet what
//! writers write after it.

use std::collections::BTreeSet;

use rules::migration::Phase;
use rules::migration::plan::Direction;

use super::Context;
use super::control::{Entry, Progress, flag, n, number, text};
use super::cutover::COMPARISON_SECONDS;
use super::verify::in_the_way_of_an_end;
use client::output::{counted, say};

/// How many segments comparisons have to go. A repair of the side that readers and writers have left
/// for good is never made, so nobody waits for it. Of runs before the last one nobody waits for more
/// than what a worker has in its hands: it may be repairing, and whoever takes another segment of them
/// ends it at once.
fn open(tasks: &[Entry], phase: Phase, last_run: u64) -> usize {
    tasks.iter().filter(|task| is_open(task, phase, last_run)).count()
}

fn is_open(task: &Entry, phase: Phase, last_run: u64) -> bool {
    let way = match text(task, "direction") {
        Some("reverse") => Direction::Reverse,
        _ => Direction::Forward,
    };
    text(task, "work").is_some_and(|work| work.starts_with("check-"))
        && !flag(task, "done")
        && !(flag(task, "repairs") && phase.is_past_repair(way))
        && (number(task, "run") >= last_run
            || (flag(task, "repairs") && task.contains_key("owner")))
}

/// Where a state has the comparison that was begun last, as long as nobody has noted what it found.
const NOT_NOTED: &str = "comparing";

/// Where a state says when that comparison began, if it is one that may be gone on with.
const BEGAN: &str = "comparing_since";

/// Notes in a state that a comparison begins.
pub(super) fn begin(state: &mut Entry, run: u64) {
    state.insert(NOT_NOTED.to_owned(), n(run));
    state.remove(BEGAN);
}

/// The same of one that is gone on with by whoever says the verb again.
pub(super) fn begin_to_go_on_with(state: &mut Entry, run: u64, began: i64) {
    begin(state, run);
    state.insert(BEGAN.to_owned(), n(u64::try_from(began).unwrap_or(0)));
}

/// The comparison that was begun last to be gone on with, and when it began, if it has found nothing so
/// far. What it found may be right by now, so then it is made anew; and so it is where streams may have
/// forgotten what was written since it began. `tasks` are those of the migration, `now` is the store's
/// time.
pub(super) fn to_go_on_with(
    state: &Entry,
    tasks: &[Entry],
    fingerprint: &str,
    now: i64,
) -> Option<(u64, i64)> {
    let run = number(state, NOT_NOTED);
    let began = i64::try_from(number(state, BEGAN)).unwrap_or(0);
    let age = now.saturating_sub(began);
    if began == 0 || run != number(state, "run") || age > COMPARISON_SECONDS {
        return None;
    }
    let of_run = tasks.iter().filter(|task| number(task, "run") == run);
    let tasks: Vec<Entry> = of_run.cloned().collect();
    let is_spoiled = |task: &Entry| {
        flag(task, "superseded")
            || text(task, "direction") != Some("forward")
            || text(task, "fingerprint") != Some(fingerprint)
    };
    let is_clean =
        !tasks.iter().any(is_spoiled) && in_the_way_of_an_end(&Progress::of(&tasks)) == 0;
    is_clean.then_some((run, began))
}

/// Notes in a state that what a comparison found stands there; a later one may be under way.
pub(super) fn end(state: &mut Entry, run: u64) {
    if number(state, NOT_NOTED) <= run {
        state.remove(NOT_NOTED);
        state.remove(BEGAN);
    }
}

/// Whether a comparison was begun, and nobody has noted what it found: it may be differences, whatever
/// an earlier one says.
pub(super) fn is_not_noted(state: &Entry) -> bool {
    number(state, NOT_NOTED) > 0
}

/// What the comparisons have done that have segments to go, in the phases in which there are some; none
/// if all are done.
pub(super) fn at_work(tasks: &[Entry], state: &Entry, phase: Phase) -> Option<Progress> {
    if !matches!(phase, Phase::Tailing | Phase::Ready | Phase::CutOver) {
        return None;
    }
    of_open_runs(tasks, phase, number(state, "run")).map(|tasks| Progress::of(&tasks))
}

/// The tasks of the runs that have an open one.
fn of_open_runs(tasks: &[Entry], phase: Phase, last_run: u64) -> Option<Vec<Entry>> {
    let open = tasks.iter().filter(|task| is_open(task, phase, last_run));
    let runs: BTreeSet<u64> = open.map(|task| number(task, "run")).collect();
    let of_runs = tasks.iter().filter(|task| runs.contains(&number(task, "run"))).cloned();
    (!runs.is_empty()).then(|| of_runs.collect())
}

/// Whether a comparison is at work, which may repair, or was not brought to its end, so that what it
/// found is not known, which does not matter where differences are accepted. Says so if it is.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn compares(
    context: &Context,
    name: &str,
    phase: Phase,
    may_differ: bool,
) -> Result<bool, String> {
    let state = context.state(name).await?;
    let tasks = context.control.entries(name, "TASK#").await?;
    let open = open(&tasks, phase, number(&state, "run"));
    if open > 0 {
        say(&format!(
            "a comparison of `{name}` has {} to go, and what it repairs must not meet what writers write after the switch: wait for it, `weir migrate resume {name}` tells workers of that again",
            counted(open, "segment", "segments")
        ));
        return Ok(true);
    }
    let is_unknown = !may_differ && is_not_noted(&state);
    if is_unknown {
        say(&format!(
            "the last comparison of `{name}` was not brought to its end, and nobody knows what it found: `weir migrate verify {name}` again"
        ));
    }
    Ok(is_unknown)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use aws_sdk_dynamodb::types::AttributeValue as Sdk;

    use super::super::control::{n, s};
    use super::*;

    #[test]
    fn nobody_waits_for_a_repair_that_is_never_made() {
        let task = |work, direction, repairs, done| {
            HashMap::from([
                ("work".to_owned(), s(work)),
                ("direction".to_owned(), s(direction)),
                ("repairs".to_owned(), Sdk::Bool(repairs)),
                ("done".to_owned(), Sdk::Bool(done)),
            ])
        };
        let tasks = [
            task("check-source", "forward", true, false),
            task("check-target", "forward", false, false),
            task("check-source", "reverse", true, false),
            task("check-source", "forward", true, true),
            task("unmark", "forward", false, false),
        ];
        for (phase, expected) in [
            (Phase::Ready, 3),
            (Phase::CuttingOver, 3),
            (Phase::CutOver, 2),
            (Phase::Reverting, 2),
            (Phase::Reverted, 1),
        ] {
            assert_eq!(open(&tasks, phase, 0), expected, "{phase:?}");
        }
    }

    #[test]
    fn of_earlier_runs_only_what_may_be_repaired_now_is_waited_for() {
        let task = |run, repairs, owner: Option<&str>| {
            let mut task = HashMap::from([
                ("work".to_owned(), s("check-source")),
                ("run".to_owned(), n(run)),
                ("repairs".to_owned(), Sdk::Bool(repairs)),
            ]);
            task.extend(owner.map(|owner| ("owner".to_owned(), s(owner))));
            task
        };
        for (task, expected) in [
            (task(2, false, None), 1),
            (task(2, true, None), 1),
            (task(1, true, None), 0),
            (task(1, false, Some("w")), 0),
            (task(1, true, Some("w")), 1),
        ] {
            assert_eq!(open(std::slice::from_ref(&task), Phase::Ready, 2), expected, "{task:?}");
        }
    }

    #[test]
    fn a_comparison_is_at_work_until_its_last_segment_is_done() {
        let task = |run, work: &str, done| {
            HashMap::from([
                ("work".to_owned(), s(work)),
                ("run".to_owned(), n(run)),
                ("done".to_owned(), Sdk::Bool(done)),
                ("counts".to_owned(), Sdk::M([("read".to_owned(), n(7))].into())),
            ])
        };
        let mut tasks = vec![
            task(0, "backfill", true),
            task(1, "check-source", true),
            task(2, "check-source", true),
            task(2, "check-target", false),
        ];
        let found = Progress::of(&of_open_runs(&tasks, Phase::Tailing, 2).unwrap());
        assert_eq!((found.tasks, found.done, found.count("read")), (2, 1, 14));
        tasks.pop();
        assert_eq!(of_open_runs(&tasks, Phase::Tailing, 2), None);
    }
}
