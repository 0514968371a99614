//! Reverts and completes migrations that change items in place. The revert of such a migration is a
//! second backfill, and a purge ends with a receipt. `executor` switches all other migrations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::{COMPARISON_SECONDS, Expect, Followed, Move, Receipt, Side, State, Switch, Work};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Kind, Output, Plan, Source};
use serde_json::{Value, json};

use crate::archive::maintenance;
use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::drain::catch_up::{LAST_LOOK, Proof, drained, within};
use crate::migrate::drain::open::{InverseUse, drain, settle_time};
use crate::migrate::drain::proof::RecordSelection;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::plan::value_copies;
use crate::migrate::report::progress::Progress;
use crate::migrate::start::fence::{Fence, FenceUse, activate};
use crate::migrate::start::tasks::{Run, begin_run, make_tasks, resumable_run};
use crate::migrate::start::{record_time, workers};
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::claim::{Claim, or_interrupted};
use crate::migrate::switch::differences::in_the_way_of_an_end;
use crate::migrate::switch::verify::ComparisonResult;
use crate::migrate::switch::{sweep, verify};
use client::exit::Exit;
use client::output::{self, no_effect, say, show};

/// The action of `complete` on the archives of a purge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArchiveEnd<'a> {
    /// Erase from the archives, except from archives for which the operator passes a response of
    /// the function archive-maintenance.
    Erase(&'a [PathBuf]),
    /// Leave the archives unchanged, and record this in the receipt.
    Skip,
}

/// Timeout of the last comparison of a migration. Writers are not blocked during this comparison.
const COMPARISON_LIMIT: Duration = Duration::from_secs(3600);

/// Changes every item back with `inverse`, while clients write the old attributes. A command that
/// is run again resumes the segments that are not complete.
pub(crate) async fn revert(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    arguments: &SwitchArguments,
) -> Result<Exit> {
    record_time::check(context).await?;
    let limit = arguments.limit();
    let direction = Direction::Reverse;
    let followed = context.control.active().await?.active.get(name).cloned();
    let reverse = || Followed { direction, fingerprint: fingerprint.to_owned(), since: 0 };
    // The latest command performs the revert. From its claim on, the steps of earlier commands have
    // no effect.
    let claim =
        Claim::acquire(context, name, Switch::REVERT, followed.unwrap_or_else(reverse)).await?;
    let expect = claim.expect();
    let epoch = turn_writers(context, &claim, plan).await?;
    let (number, since) = match resumable_change(context, plan, fingerprint).await? {
        Some(known) => {
            say("resuming the revert; items that are already changed back are not changed again");
            workers::wake(context, name).await?;
            known
        }
        None => begin_changing_back(context, name, fingerprint, expect).await?,
    };
    let run = Run { number, work: Work::Backfill, repairs: false, direction };
    for table in plan.source_tables(direction) {
        make_tasks(context, plan, fingerprint, run, table, expect).await?;
    }
    let Some(done) = verify::finished(context, name, number, limit).await? else {
        return Ok(Exit::TimedOut);
    };
    let Some(shards) = drain_changed_back(context, plan, since, limit).await? else {
        return Ok(Exit::TimedOut);
    };
    // The backfill and the comparison count the items that the inverse cannot change.
    let compared =
        verify::look_through(context, name, direction, expect, false, COMPARISON_LIMIT).await?;
    let Some(compared) = compared else { return Ok(Exit::TimedOut) };
    // Only these two counts block a revert. Items that could not be changed forward again do not.
    let left = compared.found.count("refused") + compared.found.count("different");
    if left > 0 {
        let samples = compared.found.samples.iter().map(|sample| format!("\n  {sample}"));
        say(&format!(
            "{} cannot be changed back:{}\nchange or delete the named items and run `weir migrate revert {name}` again; writers use the sources, and until then, workers change the items of their writes back",
            output::counted(left, "item", "items"),
            samples.collect::<String>()
        ));
        return Ok(Exit::Differences);
    }
    let end = Move::RevertedInPlace { items: done.count("written"), shards, epoch };
    claim.make(&end).await?;
    show(&format!("{name} is reverted: {}\n", end.why()));
    Ok(Exit::Done)
}

/// Switches writers to the old attributes, and returns the epoch of the route. Writers are blocked
/// until writes with the new attributes have ended. Otherwise, a write of a new attribute to an
/// item that is already changed back would be lost, because `inverse` prefers the old attribute. An
/// earlier command may have switched the writers already.
///
/// # Errors
/// When the control table cannot be written, or on Ctrl-C. Writers then use the new attributes,
/// unless the message reports that the rollback failed.
async fn turn_writers(context: &Context, claim: &Claim<'_>, plan: &Plan) -> Result<u64> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let sides = (Side::Source, Side::Source);
    if control.route(name).await?.is_some_and(|route| route.write == Side::Source) {
        return control.set_route(name, claim.expect(), sides).await;
    }
    let turn = async {
        claim.block_writers(plan.gate_seconds).await?;
        let epoch = control.set_route(name, claim.expect(), sides).await?;
        let open = |state: &mut State| state.held_at.take().is_some();
        control.change_state(name, claim.expect(), open).await?;
        Ok(epoch)
    };
    let failure = match or_interrupted(turn).await {
        Ok(epoch) => return Ok(epoch),
        Err(failure) => failure,
    };
    Err(match claim.release().await {
        Ok(_) => failure.with(|text| format!("{text}; the revert changed no item")),
        Err(problem) => failure.with(|text| {
            format!(
                "{text}, and the rollback failed: {problem}; writers may be blocked: run `weir migrate revert {name}` again"
            )
        }),
    })
}

/// Waits until `inverse` has changed the items of every write from before the route change back.
/// Returns the number of drained shards, or `None` if the time limit was reached.
async fn drain_changed_back(
    context: &Context,
    plan: &Plan,
    since: i64,
    limit: Duration,
) -> Result<Option<usize>> {
    // Waits until all invocations from before the switch have ended, so that their writes are
    // changed back too.
    let name = plan.migration.as_str();
    sweep::wait(context, name, plan, "until then, workers undo the changes of such invocations")
        .await?;
    let counted = RecordSelection::new(since, since);
    Ok(proved(context, plan, (Direction::Reverse, counted), limit).await?.ok())
}

/// Runs the drain proof of a direction within the time limit.
async fn proved(
    context: &Context,
    plan: &Plan,
    (direction, counted): (Direction, RecordSelection),
    limit: Duration,
) -> Result<Proof> {
    let mut drain = drain(context, plan, direction, counted, InverseUse::Unused).await?;
    let settle = settle_time(context, plan).await;
    let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
    within(most, drained(&mut drain, limit, settle)).await
}

/// Returns the open run that changes items back, with its fence. Returns `None` if this run was not
/// started or is complete, or if another run has begun after it. A complete run is not used again,
/// because streams may lack records after its fence: a stream may have trimmed them, or may have
/// been enabled later.
async fn resumable_change(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
) -> Result<Option<(u64, i64)>> {
    let name = plan.migration.as_str();
    let (state, active) = (context.state(name).await?, context.control.active().await?);
    let (last, since) = (state.run, state.back_since);
    // The migration may have become active with a newer fence after the run began. The run may miss
    // the writes between the two fences, so it is not resumed.
    let direction = Direction::Reverse;
    let followed = Followed { direction, fingerprint: fingerprint.to_owned(), since };
    let age = context.now().await.saturating_sub(since);
    if active.active.get(name) != Some(&followed) || age > COMPARISON_SECONDS {
        return Ok(None);
    }
    if context.tasks_of(name, last).await?.iter().all(|task| task.done) {
        return Ok(None);
    }
    for table in plan.source_tables(direction) {
        let of = (Work::Backfill, direction, table);
        if resumable_run(context, plan, fingerprint, of).await? == Some(last) {
            return Ok(Some((last, since)));
        }
    }
    Ok(None)
}

/// Reverses the direction and begins the run that changes items back. Returns the run's number and
/// its fence.
async fn begin_changing_back(
    context: &Context,
    name: &str,
    fingerprint: &str,
    expect: Expect<'_>,
) -> Result<(u64, i64)> {
    // Writers are not blocked, because this run is a backfill like the forward backfill.
    let fence = Fence { direction: Direction::Reverse, fingerprint, expect, after: FenceUse::Read };
    let since = activate(context, name, fence).await?;
    let switched_at = sweep::real_seconds(context).await;
    let switched = |state: &mut State| {
        state.switched_at = Some(switched_at);
        true
    };
    context.control.change_state(name, expect, switched).await?;
    let with_fence = |state: &mut State, _| state.back_since = since;
    Ok((begin_run(context, name, expect, with_fence).await?, since))
}

/// Makes the migration inactive once every write from before this command is applied. For a purge,
/// also writes the receipt.
pub(crate) async fn complete(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    state: &State,
    arguments: &SwitchArguments,
    archive: ArchiveEnd<'_>,
) -> Result<Exit> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let is_closed = state.phase == Phase::Completing;
    if is_closed && !control.active().await?.active.contains_key(name) {
        // An earlier command was killed after it had proved that all writes are applied and had
        // made the migration inactive, so that functions apply no later writes.
        return end(context, plan).await;
    }
    let expect = Expect::phases(&[Phase::Ready, Phase::CutOver, Phase::Completing]);
    let counted = RecordSelection::new(state.since, state.verified_at());
    let proof = proved(context, plan, (Direction::Forward, counted), arguments.limit()).await;
    let proof = proof.map_err(|failure| {
        failure.with(|text| {
            format!("{text}; nothing was changed, and functions still follow the migration")
        })
    });
    if proof?.is_err() {
        say("nothing was changed, and functions still follow the migration");
        return Ok(Exit::TimedOut);
    }
    // The comparison has to be repeated in two cases: if it is so old that streams may have trimmed
    // records, or if the result of a later comparison was not recorded.
    let is_unknown = context.state(name).await?.comparing.is_some();
    // A purge always compares once more. In the phase `completing`, an earlier command has made
    // this comparison and found no matching item.
    let compares = is_unknown || (plan.kind == Kind::Purge && !is_closed);
    let is_too_old = state.comparison_age(context.now().await) > COMPARISON_SECONDS;
    let compared = if compares || is_too_old {
        let compared = verify::look_on(context, name, expect, COMPARISON_LIMIT).await?;
        let Some(compared) = compared else { return Ok(Exit::TimedOut) };
        Some(compared)
    } else {
        None
    };
    let left =
        compared.as_ref().map_or(0, |ComparisonResult { found, .. }| in_the_way_of_an_end(found));
    if left > 0 {
        say(&format!(
            "{} not as the plan requires, so the migration was not completed: before the cut-over, `weir migrate verify {name}` shows examples",
            output::counted(left, "item is", "items are")
        ));
        return Ok(Exit::Differences);
    }
    // The phase change fails if a later comparison has begun, because only the result of the last
    // comparison is valid.
    let guard = Guard { holder: None, run: compared.as_ref().map(|compared| compared.run) };
    let close = Move::CloseInPlace(compared.as_ref().map(ComparisonResult::verified));
    let state = context.make(name, guard, &close).await?;
    if plan.kind == Kind::Purge {
        receipt(context, name, plan, fingerprint, &state, archive).await?;
    }
    control.set_active(name, Expect::phases(&[Phase::Completing]), None).await?;
    end(context, plan).await
}

/// Moves a migration that is no longer active to the phase `completed`, and shows its receipt.
async fn end(context: &Context, plan: &Plan) -> Result<Exit> {
    let name = plan.migration.as_str();
    context.make(name, Guard::default(), &Move::Complete).await?;
    show_receipt(context, name).await?;
    let does = if plan.kind == Kind::Purge { "remove" } else { "change" };
    say(&format!(
        "`{name}` is completed; for up to {} s, running invocations may still {does} items that are written now",
        plan.function_seconds
    ));
    let route = context.control.route(name).await?;
    if plan.kind == Kind::InPlace && route.is_none_or(|route| route.write == Side::Source) {
        say(
            "the route stays `source`, because there was no cut-over: items that clients write with the old attributes are no longer changed",
        );
    }
    Ok(Exit::Done)
}

/// Erases from the archives of the plan's tables, and returns the receipts. The function
/// archive-maintenance stores the receipts under the migration's name, so a repeated `complete`
/// returns all of them.
///
/// # Errors
/// When no function runs on this machine and no response of the function was passed, or the
/// function failed.
async fn archives(
    name: &str,
    plan: &Plan,
    archive: ArchiveEnd<'_>,
) -> Result<BTreeMap<String, Value>> {
    let mut erased = BTreeMap::new();
    let given = match archive {
        ArchiveEnd::Erase(given) => given,
        ArchiveEnd::Skip => {
            let tables = plan.from.iter().filter(|source| source.archive);
            let skipped = |source: &Source| (source.table.clone(), json!({ "skipped": true }));
            return Ok(tables.map(skipped).collect());
        }
    };
    let answers = given.iter().map(|path| read_answer(path)).collect::<Result<Vec<_>, _>>()?;
    for source in plan.from.iter().filter(|source| source.archive) {
        let table = source.table.as_str();
        let known = answers.iter().find(|receipt| is_of(receipt, name, table)).cloned();
        let receipt = match known {
            Some(receipt) => receipt,
            None => erase(name, table, source.items.first()).await?,
        };
        let of = |member: &str| receipt.get(member).cloned().unwrap_or_default();
        let mut told = json!({
            "rows": maintenance::rows_erased(&receipt),
            "objects": of("objectsReplaced"),
            "earlier_contents": of("earlierContentsRemoved"),
            "erased_at": of("erasedSeconds"),
            "receipt": of("receipt"),
        });
        // All other times of the receipt are by the store's clock. If the function's clock differs
        // from the store's clock, the receipt also has the time of the erasure by the store's
        // clock.
        if let (Some(seconds), Some(told)) = (receipt.get("storeSeconds"), told.as_object_mut()) {
            told.insert("erased_at_of_store".to_owned(), seconds.clone());
        }
        erased.insert(table.to_owned(), told);
    }
    Ok(erased)
}

/// Reports `--without-archive`, and responses passed with `--erased`, if they have no effect.
///
/// # Errors
/// When a file is not a response of the function archive-maintenance.
pub(crate) fn say_unused_answers(
    plan: &Plan,
    given: &[PathBuf],
    without_archive: bool,
) -> Result<()> {
    let archived: Vec<&str> =
        plan.from.iter().filter(|it| it.archive).map(|it| it.table.as_str()).collect();
    if without_archive && archived.is_empty() {
        no_effect("--without-archive", "no table of the plan has `archive: true`");
    }
    for path in given {
        let name = plan.migration.as_str();
        let receipt = read_answer(path)?;
        if archived.is_empty() {
            no_effect("--erased", "no table of the plan has `archive: true`");
        } else if !archived.iter().any(|table| is_of(&receipt, name, table)) {
            let why = format!(
                "the file is not the response to an erasure of `{name}` in {}",
                archived.join(", ")
            );
            no_effect(&format!("--erased {}", path.display()), &why);
        }
    }
    Ok(())
}

/// Returns true if a receipt belongs to this migration and a table's archive.
fn is_of(receipt: &Value, name: &str, table: &str) -> bool {
    let text = |member: &str| receipt.get(member).and_then(Value::as_str).unwrap_or_default();
    text("table") == table && text("receipt").ends_with(&format!("/{name}.json"))
}

async fn erase(name: &str, table: &str, output: Option<&Output>) -> Result<Value> {
    let condition = output.map(|output| output.transform.as_str());
    let request = json!({ "erase": { "table": table, "where": condition, "name": name } });
    say(&format!("erasing from the archive of `{table}`"));
    let answer = maintenance::ask(request.clone()).await.map_err(|problem| {
        format!(
            "the archive of `{table}` was not erased, so `{name}` is not completed: {problem}\nRun `complete` again where `weir up` runs; on AWS, send {request} to the function archive-maintenance, and pass its response: `weir migrate complete {name} --erased answer.json`. If the condition fails for a row, send the event with a `where` that works for every row and with the same `name`, and pass the response to that event. If the table has no archive, `weir migrate complete {name} --without-archive` completes without it"
        )
    })?;
    receipt_in(&answer)
}

fn read_answer(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    receipt_in(&text).map_err(|failure| {
        failure.with(|text| {
            let file = path.display();
            format!("file `{file}`: {text}; save the function's response to this file unchanged")
        })
    })
}

/// Returns the receipt in a response of the function archive-maintenance.
fn receipt_in(answer: &str) -> Result<Value> {
    let answer: Value = serde_json::from_str(answer)
        .map_err(|error| format!("not a response from `archive-maintenance`: {error}"))?;
    answer.get("erased").cloned().ok_or_else(|| {
        fatal!("not a response from `archive-maintenance` to an erasure: it has no `erased`")
    })
}

/// Writes the receipt into the control table. The receipt states the number of removed items, and
/// that a comparison found no remaining item.
async fn receipt(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    state: &State,
    archive: ArchiveEnd<'_>,
) -> Result<()> {
    let archive = archives(name, plan, archive).await?;
    let tables: BTreeMap<&str, Value> = removals(context, plan)
        .await?
        .into_iter()
        .map(|(table, (read, removed))| (table, json!({ "read": read, "removed": removed })))
        .collect();
    let verified = state.verified.unwrap_or_default();
    let receipt = json!({
        "schema": "weir.migration.receipt/v1",
        "migration": name,
        "fingerprint": fingerprint,
        "tables": tables,
        "archive": archive,
        "where": plan.from.iter().map(|source| {
            json!({ "table": source.table, "where": source.items.first().map(|item| &item.transform) })
        }).collect::<Vec<_>>(),
        "left": verified.differences,
        "compared": verified.compared,
        "verified_at": verified.at,
        "completed_at": context.now().await,
        "kept": value_copies::told(context).await,
    })
    .to_string();
    let entry = Receipt { migration: name.to_owned(), revision: 0, receipt };
    // If an earlier command has written a receipt, it is not replaced.
    context.control.replace(entry).await.map(drop)
}

/// Returns two counts for each table of a purge: the items that the backfill has read, and the
/// items that the backfill and repairs have removed.
async fn removals<'p>(context: &Context, plan: &'p Plan) -> Result<BTreeMap<&'p str, (u64, u64)>> {
    let tasks = context.tasks(&plan.migration).await?;
    let of_table = |table: &'p str| {
        let of_work = |work: Work| {
            Progress::of(tasks.iter().filter(|task| task.table == table && task.work == work))
        };
        let (backfill, checks) = (of_work(Work::Backfill), of_work(Work::CheckSource));
        (table, (backfill.count("read"), backfill.count("written") + checks.count("repaired")))
    };
    Ok(plan.source_tables(Direction::Forward).into_iter().map(of_table).collect())
}

/// Reports the number of items that a purge has already removed from its tables. Returns
/// `Exit::Differences` if the number is 0 and the plan erases from no archive.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn removed_so_far(context: &Context, plan: &Plan) -> Result<Exit> {
    let mut all = 0;
    for (table, (read, removed)) in removals(context, plan).await? {
        let read = output::counted(read, "item", "items");
        show(&format!("{table}: {removed} removed so far, of {read} that the backfill has read\n"));
        all += removed;
    }
    if all > 0 || plan.from.iter().any(|source| source.archive) {
        return Ok(Exit::Done);
    }
    say(&format!(
        "`{}` has removed nothing: no item matched its condition; check the names in `where`",
        plan.migration
    ));
    Ok(Exit::Differences)
}

/// Returns the number of items that a purge has removed from its tables and archives, as its
/// receipt states.
fn removed(receipt: &Value) -> u64 {
    let sum = |part: &str, member: &str| -> u64 {
        let entries = receipt.get(part).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(_, entry)| entry.get(member)?.as_u64()).sum()
    };
    sum("tables", "removed") + sum("archive", "rows")
}

/// Shows the receipt of a purge, if there is one.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn show_receipt(context: &Context, name: &str) -> Result<()> {
    if let Some(Receipt { receipt, .. }) = context.control.get(name, Receipt::NAME).await? {
        show(&format!("{receipt}\n"));
    }
    Ok(())
}

/// Returns the exit code of a completed migration. Warns about a purge that removed no item.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn verdict(context: &Context, name: &str) -> Result<Exit> {
    let kept: Option<Receipt> = context.control.get(name, Receipt::NAME).await?;
    let is_in_vain = kept.is_some_and(|kept| {
        let receipt: Value = serde_json::from_str(&kept.receipt).unwrap_or_default();
        receipt.get("tables").is_some() && removed(&receipt) == 0
    });
    if !is_in_vain {
        return Ok(Exit::Done);
    }
    say(&format!(
        "`{name}` removed nothing: no item matched its condition; check the names in `where`"
    ));
    Ok(Exit::Differences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::start::begin::begin;
    use crate::migrate::switch::switching_tests::{NAME, is_in, plan_in_place, serve};

    /// Goal: no client writes the new attributes to an item that is already changed back. `inverse`
    /// prefers the old attributes, so such a write would be lost.
    #[tokio::test]
    async fn writers_are_blocked_before_items_are_changed_back() {
        let served = serve().await;
        let (context, plan) = (&served.context, Plan { gate_seconds: 1, ..plan_in_place(NAME) });
        begin(context, &plan, 0).await.unwrap();
        is_in(context, Phase::CutOver).await;
        let (expect, target) = (Expect::phases(&[Phase::CutOver]), (Side::Target, Side::Target));
        context.control.set_route(NAME, expect, target).await.unwrap();
        let followed = async || context.control.active().await.unwrap().active.get(NAME).cloned();
        let before = followed().await;
        let arguments = SwitchArguments { name: NAME.to_owned(), timeout: 0, dry_run: false };
        let (_, fingerprint) = context.plan(NAME).await.unwrap();
        let revert = revert(context, NAME, &plan, &fingerprint, &arguments);
        let seen = async {
            let mut blocked_reads = 0;
            loop {
                let now = followed().await;
                let write = context.control.route(NAME).await.unwrap().unwrap().write;
                if write == Side::Source {
                    return blocked_reads;
                }
                // While writers are blocked, workers do not apply the inverse yet.
                assert_eq!(now, before, "{write:?}");
                blocked_reads += u32::from(write == Side::None);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (ended, blocked_reads) = tokio::join!(revert, seen);
        assert_eq!(ended, Ok(Exit::TimedOut), "no worker runs");
        assert!(blocked_reads > 1, "{blocked_reads}");
        assert_ne!(followed().await, before);
        assert_eq!(context.state(NAME).await.unwrap().held_at, None);
    }
}
