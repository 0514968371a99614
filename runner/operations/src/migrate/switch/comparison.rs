//! Finds running comparisons. A switch is refused while a comparison runs, because repairs must not
//! overwrite writes that clients make after the switch.

use std::collections::BTreeSet;

use control::{COMPARISON_SECONDS, State, Task};
use rules::migration::Phase;
use rules::migration::plan::Direction;

use crate::migrate::context::Context;
use crate::migrate::failure::{Result, refused};
use crate::migrate::report::progress::Progress;
use crate::migrate::switch::differences::in_the_way_of_an_end;
use client::output::counted;

/// Returns the number of open segments of comparisons that block a switch. Repairs that the phase
/// no longer allows are not counted, because they never run. In earlier runs, only a repair with a
/// lease is counted, because its worker may be writing. A worker that takes any other segment of an
/// earlier run ends that segment without work.
fn open(tasks: &[Task], phase: Phase, last_run: u64) -> usize {
    tasks.iter().filter(|task| is_open(task, phase, last_run)).count()
}

fn is_open(task: &Task, phase: Phase, last_run: u64) -> bool {
    task.work.is_check()
        && !task.done
        && !(task.repairs && phase.is_past_repair(task.direction))
        && (task.run >= last_run || (task.repairs && task.owner.is_some()))
}

/// Returns the run of the last comparison and the time at which it began, if the comparison can be
/// resumed. There are two conditions. First, the comparison has found no difference; an item with a
/// difference may have been corrected since, so it would have to be compared again. Second, streams
/// still have all writes since the comparison began. `tasks` are the migration's tasks, and `now`
/// is the store's time.
pub(crate) fn resumable(
    state: &State,
    tasks: &[Task],
    fingerprint: &str,
    now: i64,
) -> Option<(u64, i64)> {
    let comparing = state.comparing?;
    let (run, began) = (comparing.run, comparing.since?);
    if run != state.run || now.saturating_sub(began) > COMPARISON_SECONDS {
        return None;
    }
    let of_run = || tasks.iter().filter(|task| task.run == run);
    let is_spoiled = |task: &Task| {
        task.superseded || task.direction != Direction::Forward || task.fingerprint != fingerprint
    };
    let is_clean = !of_run().any(is_spoiled) && in_the_way_of_an_end(&Progress::of(of_run())) == 0;
    is_clean.then_some((run, began))
}

/// Returns the progress of comparisons with open segments; `None` if there are none, or the phase
/// has no comparison.
pub(crate) fn at_work(tasks: &[Task], state: &State) -> Option<Progress> {
    if !matches!(state.phase, Phase::Tailing | Phase::Ready | Phase::CutOver) {
        return None;
    }
    let open = tasks.iter().filter(|task| is_open(task, state.phase, state.run));
    let runs: BTreeSet<u64> = open.map(|task| task.run).collect();
    let of_runs = tasks.iter().filter(|task| runs.contains(&task.run));
    (!runs.is_empty()).then(|| Progress::of(of_runs))
}

/// Checks that no comparison is running, because a comparison may repair items, and that the result
/// of the last comparison is recorded. If `may_differ` is true, the result need not be recorded.
///
/// # Errors
/// When one of these conditions is not met, or the control table cannot be read.
pub(crate) async fn check(
    context: &Context,
    name: &str,
    phase: Phase,
    may_differ: bool,
) -> Result<()> {
    let state = context.state(name).await?;
    let open = open(&context.tasks(name).await?, phase, state.run);
    if open > 0 {
        return Err(refused!(
            "a comparison of `{name}` still has {} to read, and its repairs must not overwrite writes after the switch: wait until the comparison ends; if it makes no progress, notify workers again with `weir migrate resume {name}`",
            counted(open, "segment", "segments")
        ));
    }
    if !may_differ && state.comparing.is_some() {
        return Err(refused!(
            "the last comparison of `{name}` did not finish: run `weir migrate verify {name}` again"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use control::Work;

    use super::*;
    use crate::migrate::start::tasks::tests::task;

    #[test]
    fn a_repair_that_is_never_made_is_not_awaited() {
        let (forward, reverse) = (Direction::Forward, Direction::Reverse);
        let task =
            |work, direction, repairs, done| Task { direction, repairs, done, ..task(0, work) };
        let tasks = [
            task(Work::CheckSource, forward, true, false),
            task(Work::CheckTarget, forward, false, false),
            task(Work::CheckSource, reverse, true, false),
            task(Work::CheckSource, forward, true, true),
            task(Work::Unmark, forward, false, false),
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
            let owner = owner.map(str::to_owned);
            Task { repairs, owner, ..task(run, Work::CheckSource) }
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
        let task = |run, work, done| {
            let counts = [("read".to_owned(), 7)].into();
            Task { done, counts, ..task(run, work) }
        };
        let mut tasks = vec![
            task(0, Work::Backfill, true),
            task(1, Work::CheckSource, true),
            task(2, Work::CheckSource, true),
            task(2, Work::CheckTarget, false),
        ];
        let state = State { phase: Phase::Tailing, run: 2, ..State::new("move") };
        let found = at_work(&tasks, &state).unwrap();
        assert_eq!((found.tasks, found.done, found.count("read")), (2, 1, 14));
        tasks.pop();
        assert!(at_work(&tasks, &state).is_none());
    }
}
