//! `weir migrate complete`: ends the migration, after which no revert is possible, and removes
//! marks and tombstones. After a cut-over, marks and tombstones are in the targets; after a revert,
//! in the sources. After a backfill with `backfill: touch`, the sources have marks in both cases.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control::verbs::{Verb, VerbDecision, decide_verb};
use control::{Expect, Move, State, Work};
use rules::migration::plan::{Backfill, Direction, Kind, Plan};
use rules::migration::{MARK, Phase};

use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::failure::{Failure, Result};
use crate::migrate::plan::tables;
use crate::migrate::start::tasks::{Run, begin_run, make_tasks, resumable_run};
use crate::migrate::start::workers;
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::in_place::ArchiveEnd;
use crate::migrate::switch::verb_hooks;
use crate::migrate::switch::{in_place, sweep, verify};
use client::exit::Exit;
use client::output::{counted, say, show};

/// Arguments of `weir migrate complete`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate complete shop --dry-run\n  weir migrate complete shop\n\nExit codes: 0 done, 1 failed, 3 differences, or the hook `after-complete` failed, 4 refused, 5 timed out; run it again to resume",
    mut_arg("timeout", |timeout| timeout.help("Maximum seconds for each table"))
)]
pub(crate) struct CompleteArguments {
    #[command(flatten)]
    pub(crate) switch: SwitchArguments,
    /// For a purge with archives on AWS: the response of `archive-maintenance` to the event that
    /// `complete` prints; one file per archive
    #[arg(long, value_name = "FILE")]
    erased: Vec<PathBuf>,
    /// For a purge with `archive: true`: leave the archives unchanged; the receipt records this
    #[arg(long, conflicts_with = "erased")]
    without_archive: bool,
}

/// Describes the effects of `complete`.
pub(crate) fn consequence(kind: Kind) -> &'static str {
    match kind {
        Kind::Purge => {
            "if a last comparison found no matching item, functions would stop following the tables"
        }
        Kind::InPlace => {
            "no revert would be possible, and functions would stop following the tables"
        }
        Kind::Restructure | Kind::Split => {
            "no revert would be possible, and the marks would be removed"
        }
    }
}

/// Completes a migration: removes the marks from the targets. No revert is possible afterwards.
pub(crate) async fn complete(
    context: &Context,
    CompleteArguments { switch: arguments, erased, without_archive }: &CompleteArguments,
) -> Result<Exit> {
    let name = arguments.name.as_str();
    let state = context.state(name).await?;
    let (plan, fingerprint) = context.plan(name).await?;
    match decide_verb(name, plan.kind, Verb::Complete, state.phase) {
        VerbDecision::CarryOut | VerbDecision::TakeOver => {}
        VerbDecision::AlreadyDone => {
            if !arguments.dry_run {
                // An older version of this command may have been killed before it made the
                // migration inactive.
                let expect = Expect::phases(&[Phase::Completed]);
                context.control.set_active(name, expect, None).await?;
            }
            say(&format!("`{name}` is already completed"));
            in_place::show_receipt(context, name).await?;
            return in_place::verdict(context, name).await;
        }
        VerbDecision::Refused(why) => return Err(Failure::Refused(why)),
    }
    in_place::say_unused_answers(&plan, erased, *without_archive)?;
    if arguments.dry_run {
        say(&format!("{}; nothing was written", consequence(plan.kind)));
        return match plan.kind {
            Kind::Purge => in_place::removed_so_far(context, &plan).await,
            Kind::InPlace | Kind::Restructure | Kind::Split => Ok(Exit::Done),
        };
    }
    verb_hooks::before(context, "complete", name).await?;
    let ended = match plan.kind.is_in_place() {
        true => {
            let archive = match without_archive {
                true => ArchiveEnd::Skip,
                false => ArchiveEnd::Erase(erased),
            };
            in_place::complete(context, &plan, &fingerprint, &state, arguments, archive).await
        }
        false => close(context, &plan, &fingerprint, arguments.limit()).await,
    };
    match or_by_another(context, name, ended).await? {
        Exit::Done => in_place::verdict(context, name).await,
        other => Ok(other),
    }
}

/// Returns success instead of `ended` if a concurrent command has completed the migration.
async fn or_by_another(context: &Context, name: &str, ended: Result<Exit>) -> Result<Exit> {
    if ended == Ok(Exit::Done) {
        return ended;
    }
    match context.state(name).await {
        Ok(state) if state.phase == Phase::Completed => {}
        _ => return ended,
    }
    say(&format!("`{name}` is already completed"));
    in_place::show_receipt(context, name).await?;
    Ok(Exit::Done)
}

/// Removes the marks from the targets of a migration that moved items between tables.
async fn close(context: &Context, plan: &Plan, fingerprint: &str, limit: Duration) -> Result<Exit> {
    let name = plan.migration.as_str();
    context.make(name, Guard::default(), &Move::Close).await?;
    let expect = Expect::phases(&[Phase::Completing]);
    context.control.set_active(name, expect, None).await?;
    let of = (plan, fingerprint, Direction::Forward);
    if take_off(context, of, expect, limit).await?.is_none() {
        return Ok(Exit::TimedOut);
    }
    context.make(name, Guard::default(), &Move::Complete).await?;
    show(&format!("{name} is completed; the source tables are no longer needed\n"));
    say_what_stays(plan, Direction::Forward);
    Ok(Exit::Done)
}

/// Removes tombstones and marks from the sources after a revert, while clients use the sources.
pub(crate) async fn clean(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    limit: Duration,
) -> Result<Exit> {
    let name = plan.migration.as_str();
    let expect = Expect::phases(&[Phase::Reverted]);
    let of = (plan, fingerprint, Direction::Reverse);
    let Some(swept) = take_off(context, of, expect, limit).await? else {
        return Ok(Exit::TimedOut);
    };
    let swept_off = |state: &mut State| std::mem::take(&mut state.needs_cleaning);
    context.control.change_state(name, expect, swept_off).await?;
    let swept = counted(swept, "tombstone", "tombstones");
    say(&format!("{swept} and all marks are removed from the sources"));
    say_what_stays(plan, Direction::Reverse);
    Ok(Exit::Done)
}

/// Reports the tables that clients no longer use and that may still contain marks and tombstones.
fn say_what_stays(plan: &Plan, way: Direction) {
    let tables = still_marked(plan, way);
    if !tables.is_empty() {
        let tables: Vec<String> = tables.iter().map(|table| format!("`{table}`")).collect();
        say(&format!(
            "{} may still contain marks and tombstones (attribute `{MARK}`), and clients no longer use the table: delete the table; to keep the table, delete the items that have only their key and `{MARK}`, and remove `{MARK}` from the other items",
            tables.join(", ")
        ));
    }
}

/// Returns the tables in which marks remain when a migration ends in a direction: the tables that
/// functions wrote in the opposite direction.
fn still_marked(plan: &Plan, way: Direction) -> Vec<&str> {
    let written_before = match way {
        Direction::Forward if plan.inverse.is_empty() => Vec::new(),
        Direction::Forward => plan.target_tables(Direction::Reverse),
        Direction::Reverse => plan.target_tables(Direction::Forward),
    };
    let cleaned = marked(plan, way);
    written_before.into_iter().filter(|table| !cleaned.contains(table)).collect()
}

/// Removes the tombstones and marks that a direction has written into its tables. Returns the
/// number of removed tombstones, or `None` if the time limit was reached.
async fn take_off(
    context: &Context,
    (plan, fingerprint, way): (&Plan, &str, Direction),
    expect: Expect<'_>,
    limit: Duration,
) -> Result<Option<u64>> {
    let name = plan.migration.as_str();
    let Some(swept) = sweep::after_invocations(context, name, plan, limit).await? else {
        return Ok(None);
    };
    let there = tables::describe(&context.control.client, plan).await?;
    // Deleted tables are skipped. For example, the operator may delete the sources after a cut-over
    // that cannot be reverted.
    for table in marked(plan, way).into_iter().filter(|table| there.contains_key(*table)) {
        if !unmark(context, (plan, fingerprint, way), expect, table, limit).await? {
            return Ok(None);
        }
    }
    // While workers removed marks, they may have recorded tombstones of an earlier aborted run, so
    // a second sweep removes these tombstones.
    let late = sweep::sweep(context, name, limit).await?;
    Ok(late.map(|late| swept + late))
}

/// Returns the tables whose items a direction may have marked: the tables that the direction wrote,
/// and the tables whose items were touched for the backfill.
fn marked(plan: &Plan, way: Direction) -> Vec<&str> {
    let mut tables = match way {
        Direction::Forward => plan.target_tables(Direction::Forward),
        Direction::Reverse => Vec::new(),
    };
    if way == Direction::Reverse || plan.backfill == Backfill::Touch {
        tables.extend(plan.source_tables(Direction::Forward));
    }
    tables
}

/// Removes the marks of a direction from a table. Returns false if the time limit was reached.
async fn unmark(
    context: &Context,
    (plan, fingerprint, way): (&Plan, &str, Direction),
    expect: Expect<'_>,
    table: &str,
    limit: Duration,
) -> Result<bool> {
    let name = plan.migration.as_str();
    let of = (Work::Unmark, way, table);
    // No process sets marks in this phase, so finished tasks need not be repeated, and open tasks
    // can be resumed.
    let number = match resumable_run(context, plan, fingerprint, of).await? {
        Some(run) => {
            workers::wake(context, name).await?;
            run
        }
        None => begin_run(context, name, expect, |_, _| ()).await?,
    };
    let run = Run { number, work: Work::Unmark, repairs: false, direction: way };
    make_tasks(context, plan, fingerprint, run, table, expect).await?;
    Ok(verify::finished(context, name, number, limit).await?.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use clap::{Args as _, FromArgMatches as _};
    use futures::FutureExt as _;

    use super::*;
    use crate::migrate::start::begin::begin;
    use crate::migrate::switch::switching_tests::{
        NAME, plan, plan_in_place, plan_with_way_back, serve, write_down,
    };
    use client::output::Output;
    use control::{Active, Receipt, Task, Verified};
    use testing::proxy;

    #[test]
    fn sources_that_were_touched_may_have_marks_whichever_way_it_ends() {
        let touching = Plan { backfill: Backfill::Touch, ..plan() };
        assert_eq!(marked(&plan(), Direction::Forward), ["pets"]);
        assert_eq!(marked(&touching, Direction::Forward), ["pets", "cats"]);
        for plan in [plan(), touching] {
            assert_eq!(marked(&plan, Direction::Reverse), ["cats"]);
        }
    }

    #[test]
    fn tables_that_keep_marks_are_those_of_the_other_direction() {
        let none: [&str; 0] = [];
        let touching = Plan { backfill: Backfill::Touch, ..plan_with_way_back() };
        for (plan, after_complete, after_revert) in [
            (plan(), &none[..], &["pets"][..]),
            (plan_with_way_back(), &["cats"], &["pets"]),
            // A backfill with `backfill: touch` marks its sources, so marks are always removed from
            // the sources.
            (touching, &none, &["pets"]),
        ] {
            assert_eq!(still_marked(&plan, Direction::Forward), after_complete);
            assert_eq!(still_marked(&plan, Direction::Reverse), after_revert);
        }
    }

    /// Goal: if two commands complete a migration concurrently, both succeed and show a receipt.
    /// The slower command may find the migration completed at any step.
    #[tokio::test]
    async fn the_slower_of_two_completions_finds_it_completed() {
        let arguments = CompleteArguments::augment_args(clap::Command::new("complete"));
        let arguments = arguments.try_get_matches_from(["complete", NAME]).unwrap();
        let arguments = CompleteArguments::from_arg_matches(&arguments).unwrap();
        // Just before the slower command's write that contains the string `before`, the other
        // command completes or aborts the migration.
        for (before, other_end, expected) in [
            ("\"S\":\"completing\"", Phase::Completed, Ok(Exit::Done)),
            ("\"S\":\"completed\"", Phase::Completed, Ok(Exit::Done)),
            ("\"S\":\"completing\"", Phase::Aborted, Err("moved `move` to aborted")),
        ] {
            let served = serve().await;
            begin(&served.context, &plan_in_place(NAME), 0).await.unwrap();
            let at = served.context.now().await + 30;
            let ready = |state: &mut State| {
                state.phase = Phase::Ready;
                state.verified = Some(Verified { at, ..Verified::default() });
                true
            };
            served.context.control.change(State::new(NAME), ready).await.unwrap();
            let (control, is_first) = (served.context.control.clone(), AtomicBool::new(true));
            let script = move |operation: &str, body: &str| {
                let is_meant = operation == "TransactWriteItems" && body.contains(before);
                let is_now = is_meant && is_first.swap(false, Ordering::SeqCst);
                let control = control.clone();
                async move {
                    if is_now {
                        let end = |state: &mut State| {
                            state.phase = other_end;
                            true
                        };
                        control.change(State::new(NAME), end).await.unwrap();
                        let leave = |active: &mut Active| active.remove(NAME);
                        control.change(Active::default(), leave).await.unwrap();
                        let (migration, receipt) = (NAME.to_owned(), "{}".to_owned());
                        let receipt = Receipt { migration, revision: 0, receipt };
                        control.change(receipt, |_| true).await.unwrap();
                    }
                    None
                }
                .boxed()
            };
            let url = proxy::before(&served.context.endpoint, script).await;
            let slower = Context::new(&url, "weir-migrations", Output::Table);
            match (complete(&slower, &arguments).await, expected) {
                (Err(problem), Err(words)) => {
                    assert!(problem.to_string().contains(words), "{problem}");
                }
                (ended, expected) => assert_eq!(ended, expected.map_err(Failure::from)),
            }
        }
    }

    #[tokio::test]
    async fn an_interrupted_removal_of_marks_resumes() {
        let served = serve().await;
        let (context, control, plan) = (&served.context, &served.context.control, plan());
        write_down(&served, &plan).await;
        let (_, fingerprint) = context.plan(NAME).await.unwrap();
        let completing = |state: &mut State| {
            state.phase = Phase::Completing;
            true
        };
        control.change(State::new(NAME), completing).await.unwrap();
        let (fingerprint, plan) = (fingerprint.as_str(), &plan);
        // Returns true if the sweep of a table is complete, and the number of the migration's last
        // run.
        let swept = async |table: &str| {
            let of = (plan, fingerprint, Direction::Forward);
            let expect = Expect::phases(&[Phase::Completing]);
            let is_done = unmark(context, of, expect, table, Duration::ZERO).await.unwrap();
            (is_done, context.state(NAME).await.unwrap().run)
        };
        let work = async |run: u64, is_superseded: bool| {
            let task = context.tasks_of(NAME, run).await.unwrap().remove(0);
            let is_so = |task: &mut Task| {
                (task.done, task.superseded) = (true, is_superseded);
                true
            };
            control.change(task, is_so).await.unwrap();
        };
        assert_eq!(swept("pets").await, (false, 1));
        assert_eq!(swept("pets").await, (false, 1));
        work(1, false).await;
        assert_eq!(swept("pets").await, (true, 1));
        // The finished sweep of `pets` stays finished while `cats` is swept.
        assert_eq!(swept("cats").await, (false, 2));
        assert_eq!(swept("pets").await, (true, 2));
        // The tasks of run 2 are superseded before their work is done, so a new run repeats them.
        work(2, true).await;
        assert_eq!(swept("cats").await, (false, 3));
    }
}
