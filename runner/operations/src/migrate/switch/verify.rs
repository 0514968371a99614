//! `weir migrate verify`: workers compare every source item with its targets, and every target with
//! its source, while clients use both. This module starts the comparison and sums the results.

use std::time::{Duration, Instant};

use clap::Args;
use control::verbs::{Verb, VerbDecision, decide_verb};
use control::{Expect, Move, State, Verified, Work};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Kind, Plan};
use serde_json::json;

use crate::migrate::context::{ANSWER_LIMIT, Context, LOOK_EVERY};
use crate::migrate::control_table::Guard;
use crate::migrate::drain::lost::LOST_SECONDS;
use crate::migrate::drain::open::{InverseUse, drain};
use crate::migrate::drain::proof::RecordSelection;
use crate::migrate::failure::{Failure, Result, fatal, refused};
use crate::migrate::plan::compile::compile;
use crate::migrate::report::backfill::advance;
use crate::migrate::report::failure_tolerance::FailureTolerance;
use crate::migrate::report::next_steps::MigrationFacts;
use crate::migrate::report::problems;
use crate::migrate::report::progress::Progress;
use crate::migrate::start::tasks::{Run, begin_run, make_tasks};
use crate::migrate::start::workers;
use crate::migrate::start::workers::advice;
use crate::migrate::switch::comparison;
use crate::migrate::switch::differences::{DIFFERENCES, differences, not_repaired};
use client::exit::Exit;
use client::interruption;
use client::output::{self, Output, counted, say, show};
use client::server_date;

/// The properties of a comparison in one direction of the migration.
#[derive(Clone, Copy)]
struct DirectionComparison {
    direction: Direction,
    /// The phases in which the comparison is allowed.
    phases: &'static [Phase],
}

/// The comparison that a cut-over requires.
const THERE: DirectionComparison =
    DirectionComparison { direction: Direction::Forward, phases: &COMPARED };
/// The comparison after a cut-over, which a revert requires.
const BACK: DirectionComparison =
    DirectionComparison { direction: Direction::Reverse, phases: &[Phase::CutOver] };

/// The phases in which sources and targets are compared for a cut-over.
pub(crate) const COMPARED: [Phase; 2] = [Phase::Tailing, Phase::Ready];

/// Interval of progress messages.
const SAID_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of attempts to start or resume a comparison. An attempt fails if another command
/// starts a comparison at the same time.
const BEGUN_MAX: u32 = 5;
/// Time without progress after which the command reports that there are probably no workers.
const WITHOUT_WORKERS: Duration = Duration::from_secs(10);

/// Arguments of `weir migrate verify`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate verify shop\n  weir migrate verify shop --repair --timeout 600\n\nA repair writes only the side that clients do not use: the targets before the cut-over, the sources after it. For an in-place change or a purge, a repair changes the items themselves, unless a client changed them meanwhile\n\nExit codes: 0 no difference, 1 failed, 3 differences, 4 refused, 5 timed out"
)]
pub(crate) struct VerifyArguments {
    /// The migration
    name: String,
    /// Repair the differences on the side that clients do not use, then compare again
    #[arg(long)]
    repair: bool,
    /// Seconds for the entire command, including the repair and the second comparison
    #[arg(long, default_value_t = 3600)]
    timeout: u64,
}

impl VerifyArguments {
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Compares sources and targets, and moves a migration without differences to `ready`. After the
/// cut-over, compares the targets with the sources, to which later writes are copied back. Returns
/// within the time limit, even if the store does not respond.
pub(crate) async fn run(context: &Context, arguments: &VerifyArguments) -> Result<Exit> {
    // A wait for workers has its own timeout, which it reports. The additional `ANSWER_LIMIT` is
    // for a request that gets no response.
    let most = arguments.limit().saturating_add(ANSWER_LIMIT);
    within(most, verified(context, arguments)).await
}

/// Limits the time of a comparison, even if the store does not respond.
async fn within(most: Duration, verified: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    if let Ok(ended) = tokio::time::timeout(most, verified).await {
        return ended;
    }
    say(&format!("timed out: the comparison did not finish within {} s", most.as_secs()));
    Ok(Exit::TimedOut)
}

async fn verified(context: &Context, arguments: &VerifyArguments) -> Result<Exit> {
    let begun = Instant::now();
    let (state, _) = advance(context, &arguments.name).await?;
    let (plan, _) = context.plan(&arguments.name).await?;
    if let VerbDecision::Refused(why) =
        decide_verb(&arguments.name, plan.kind, Verb::Verify, state.phase)
    {
        return Err(Failure::Refused(why));
    }
    let way = if state.phase == Phase::CutOver { BACK } else { THERE };
    if way.direction == Direction::Reverse && plan.inverse.is_empty() {
        return Err(refused!(
            "`{}` is cut over, and its plan has no `inverse`, so nothing is copied back to compare",
            arguments.name
        ));
    }
    let left = || arguments.limit().saturating_sub(begun.elapsed());
    let found = compared(context, &arguments.name, way, arguments.repair, left()).await?;
    let Some(mut found) = found else { return Ok(Exit::TimedOut) };
    let lost = match arguments.repair {
        true => repair_lost(context, &arguments.name, &plan, way).await?,
        false => 0,
    };
    if lost > 0 {
        let targets = counted(lost, "target was", "targets were");
        say(&format!("{targets} repaired from stream records that had not been applied"));
    }
    if arguments.repair && (lost > 0 || differences(&found) > 0) {
        report(context, &arguments.name, plan.kind, &found);
        if left().is_zero() {
            say("timed out after the repair and before the next comparison; run `verify` again");
            return Ok(Exit::TimedOut);
        }
        let again = compared(context, &arguments.name, way, false, left()).await?;
        let Some(again) = again else { return Ok(Exit::TimedOut) };
        found = again;
    }
    report(context, &arguments.name, plan.kind, &found);
    if differences(&found) > 0 {
        not_repairable(&found, way.direction).iter().for_each(|line| say(line));
        // A repair cannot remove any of these differences, so `--repair` is not suggested.
        if differences(&found) == not_repaired(&found) {
            output::next(&[(
                &format!("weir migrate verify {}", arguments.name),
                "compare again, once the named items are corrected or deleted",
            )]);
            return Ok(Exit::Differences);
        }
        output::next(&[(
            &format!("weir migrate verify {} --repair", arguments.name),
            "repair the differences",
        )]);
        return Ok(Exit::Differences);
    }
    warn_of_foreign(way.direction, found.count("foreign"));
    let phase = match way.direction {
        Direction::Forward => Phase::Ready,
        Direction::Reverse => Phase::CutOver,
    };
    MigrationFacts::new(&arguments.name, phase, Some(&plan)).show();
    Ok(Exit::Done)
}

/// Returns advice about the differences that a repair cannot remove.
fn not_repairable(found: &Progress, direction: Direction) -> Vec<&'static str> {
    let refused = match direction {
        Direction::Forward => "`refused` items: change them, or abort and correct the plan",
        Direction::Reverse => "`refused` items cannot be converted back: change or delete them",
    };
    let kinds = [
        ("refused", refused),
        (
            "not_invertible",
            "`not_invertible` items: change them, or abort and correct `inverse` in the plan",
        ),
        (
            "occupied",
            "foreign items (`occupied`) are neither overwritten nor removed: delete or move them first",
        ),
    ];
    let found = kinds.into_iter().filter(|(kind, _)| found.count(kind) > 0);
    found.map(|(_, line)| line).collect()
}

/// Replays records that have not been applied for so long that the event source mapping may no
/// longer deliver them. For an in-place change, does nothing, because the comparison itself has
/// repaired all items.
async fn repair_lost(
    context: &Context,
    name: &str,
    plan: &Plan,
    way: DirectionComparison,
) -> Result<u64> {
    if plan.kind.is_in_place() {
        return Ok(0);
    }
    let state = context.state(name).await?;
    let counted = RecordSelection::new(state.since_of(way.direction), i64::MAX);
    let mut drain = drain(context, plan, way.direction, counted, InverseUse::Unused).await?;
    drain.look().await?;
    let (expect, now) = (Expect::phases(way.phases), context.now().await);
    let there = match way.direction {
        Direction::Reverse => Some(compile(context, plan, Direction::Forward).await?),
        Direction::Forward => None,
    };
    drain.say_again(&context.control, expect, there.as_ref(), now - LOST_SECONDS).await
}

/// Warns about items in the targets that the migration did not write. A comparison before the
/// cut-over does not count these items as differences.
fn warn_of_foreign(direction: Direction, foreign: u64) {
    if direction == Direction::Forward && foreign > 0 {
        say(&format!(
            "the migration did not write {} of the targets (`foreign`): clients see them after the cut-over, and the next `verify` then finds differences; delete them, unless they belong there",
            counted(foreign, "item", "items")
        ));
    }
}

fn report(context: &Context, name: &str, kind: Kind, found: &Progress) {
    if context.output != Output::Table {
        let report = json!({
            "schema": "weir.migration.verify/v1", "migration": name,
            "differences": differences(found), "dropped": found.count("dropped"),
            "found": found.json(),
        });
        show(&format!("{report}\n"));
        return;
    }
    let kinds = DIFFERENCES.iter().map(|kind| format!("{} {kind}", found.count(kind)));
    let sides = if kind.is_in_place() { "" } else { " of both sides" };
    show(&format!(
        "{}{sides} compared: {}; {} dropped, {} repaired, {} foreign, {}\n",
        counted(found.count("read"), "item", "items"),
        kinds.collect::<Vec<_>>().join(", "),
        found.count("dropped"),
        found.count("repaired"),
        found.count("foreign"),
        counted(found.count("tombstones"), "tombstone", "tombstones"),
    ));
    for sample in &found.samples {
        show(&format!("  {sample}\n"));
    }
}

/// The result of a complete comparison.
pub(crate) struct ComparisonResult {
    pub(crate) found: Progress,
    pub(crate) run: u64,
    /// The store's time at which the comparison began. The comparison includes all earlier writes.
    pub(crate) began: i64,
    /// The time at which the comparison began, according to the store's responses. Workers record
    /// problems with the time of this clock. `None` if responses have no time.
    began_by_answers: Option<i64>,
}

impl ComparisonResult {
    /// Returns the part of this result that the migration's state records.
    pub(crate) fn verified(&self) -> Verified {
        Verified {
            run: self.run,
            differences: differences(&self.found),
            refused: not_repaired(&self.found),
            compared: self.found.count("read"),
            at: self.began,
        }
    }

    /// Removes the entries of earlier problems if the comparison found no difference.
    async fn forget_problems(&self, context: &Context, name: &str) -> Result<()> {
        match self.began_by_answers.filter(|_| differences(&self.found) == 0) {
            Some(began) => problems::forget(context, name, began).await,
            None => Ok(()),
        }
    }
}

async fn compared(
    context: &Context,
    name: &str,
    way: DirectionComparison,
    repairs: bool,
    limit: Duration,
) -> Result<Option<Progress>> {
    let expect = Expect::phases(way.phases);
    let looked = look_through(context, name, way.direction, expect, repairs, limit).await?;
    let Some(compared) = looked else { return Ok(None) };
    let note = match way.direction {
        Direction::Forward => Move::Verified(compared.verified()),
        Direction::Reverse => Move::VerifiedBack(compared.verified()),
    };
    context.make(name, Guard::of_run(compared.run), &note).await?;
    compared.forget_problems(context, name).await?;
    Ok(Some(compared.found))
}

/// Compares sources and targets, and moves the migration to `ready` or `tailing`. Returns `None` if
/// the time limit was reached.
pub(crate) async fn compare(
    context: &Context,
    name: &str,
    limit: Duration,
) -> Result<Option<Progress>> {
    compared(context, name, THERE, false, limit).await
}

/// Compares sources and targets without a phase change. Returns `None` if the time limit was
/// reached.
pub(crate) async fn look_through(
    context: &Context,
    name: &str,
    way: Direction,
    expect: Expect<'_>,
    repairs: bool,
    limit: Duration,
) -> Result<Option<ComparisonResult>> {
    let began = context.now().await;
    let began_by_answers = server_date::seconds(&context.control.client).await;
    let begin = |state: &mut State, run| state.begin_comparison(run, None);
    let run = begin_run(context, name, expect, begin).await?;
    let found = compared_in(context, name, (run, way, repairs), expect, limit).await?;
    Ok(found.map(|found| ComparisonResult { found, run, began, began_by_answers }))
}

/// Compares sources and targets before a migration ends, without repairs. Returns `None` if the
/// time limit was reached. If the command that ends the migration is run again, it resumes the open
/// segments, unless a finished segment has a difference. Each run of the command also proves that
/// writes since the beginning of the comparison are applied.
pub(crate) async fn look_on(
    context: &Context,
    name: &str,
    expect: Expect<'_>,
    limit: Duration,
) -> Result<Option<ComparisonResult>> {
    let (run, began) = begun_for_an_end(context, name, expect).await?;
    let what = (run, Direction::Forward, false);
    let found = compared_in(context, name, what, expect, limit).await?;
    Ok(found.map(|found| ComparisonResult { found, run, began, began_by_answers: None }))
}

/// Resumes or starts the comparison before a migration ends. Returns its run number and the time at
/// which it began. If two commands run concurrently, one starts the comparison and the other
/// resumes it.
async fn begun_for_an_end(context: &Context, name: &str, expect: Expect<'_>) -> Result<(u64, i64)> {
    let (_, fingerprint) = context.plan(name).await?;
    let mut attempts = 1;
    loop {
        let (state, now) = (context.state(name).await?, context.now().await);
        let tasks = context.tasks(name).await?;
        if let Some(known) = comparison::resumable(&state, &tasks, &fingerprint, now) {
            say("resuming the comparison");
            workers::wake(context, name).await?;
            return Ok(known);
        }
        let last = state.run;
        let begin = |state: &mut State, run| state.begin_comparison(run, Some(now));
        match begin_run(context, name, expect.with_run(last), begin).await {
            Ok(run) => return Ok((run, now)),
            Err(problem) => {
                let is_of_others = context.state(name).await?.run != last;
                if !is_of_others || attempts == BEGUN_MAX {
                    return Err(problem);
                }
                attempts += 1;
            }
        }
    }
}

/// Creates the missing tasks of a comparison, and waits until all are done.
async fn compared_in(
    context: &Context,
    name: &str,
    (number, direction, repairs): (u64, Direction, bool),
    expect: Expect<'_>,
    limit: Duration,
) -> Result<Option<Progress>> {
    let (plan, fingerprint) = context.plan(name).await?;
    let run = Run { number, work: Work::CheckSource, repairs, direction };
    for table in plan.source_tables(direction) {
        make_tasks(context, &plan, &fingerprint, run, table, expect).await?;
    }
    // An in-place change has no separate targets to compare.
    if !plan.kind.is_in_place() {
        let run = Run { work: Work::CheckTarget, ..run };
        for table in plan.target_tables(direction) {
            make_tasks(context, &plan, &fingerprint, run, table, expect).await?;
        }
    }
    finished(context, name, number, limit).await
}

/// Waits until every task of a run is done.
pub(crate) async fn finished(
    context: &Context,
    name: &str,
    run: u64,
    limit: Duration,
) -> Result<Option<Progress>> {
    let started = Instant::now();
    let (mut said, mut last, mut moved) = (Instant::now(), String::new(), Some(Instant::now()));
    let (mut patience, mut seen) =
        (FailureTolerance::new(limit), "no progress could be read".to_owned());
    let mut known = Progress::default();
    loop {
        // A task may have been superseded before its work was done. The run is then incomplete,
        // although all its tasks are marked as done.
        let seen_now = context
            .tasks_of(name, run)
            .await
            .map(|tasks| (Progress::of(&tasks), tasks.iter().any(|task| task.superseded)));
        if let Some((progress, is_superseded)) = patience.seen(seen_now)? {
            if progress.is_done() && is_superseded {
                return Err(fatal!(
                    "the task run of `{name}` for which this command waits was superseded by a later run or by a switch; see `weir migrate status {name}`"
                ));
            }
            if progress.is_done() {
                return Ok(Some(progress));
            }
            let (done, tasks, read) = (progress.done, progress.tasks, progress.count("read"));
            seen = format!("{done} of {tasks} segments done, {read} items read");
            interruption::reached(seen.clone());
            known = progress;
        }
        if started.elapsed() > limit {
            say(&format!(
                "timed out after {} s: {seen}; {}",
                limit.as_secs(),
                advice(name, &known)
            ));
            return Ok(None);
        }
        if seen != last && said.elapsed() > SAID_EVERY {
            say(&seen);
            (said, last, moved) = (Instant::now(), seen.clone(), Some(Instant::now()));
        } else if moved.is_some_and(|moved| moved.elapsed() > WITHOUT_WORKERS) {
            say(&format!("{seen}; {}", advice(name, &known)));
            moved = None;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_store_does_not_block_a_comparison_forever() {
        let never = std::future::pending();
        assert_eq!(within(Duration::from_millis(20), never).await, Ok(Exit::TimedOut));
        let ended = within(Duration::from_secs(600), async { Ok(Exit::Differences) });
        assert_eq!(ended.await, Ok(Exit::Differences));
    }
}
