//! The end of migrations that change items where they stand: the way back, which is a backfill of
//! its own, and the receipt of a purge.
//!
//! Switching is done where all migrations are switched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::{COMPARISON_SECONDS, Expect, Followed, Move, Receipt, Side, State, Switch, Work};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Kind, Output, Plan};
use serde_json::{Value, json};

use crate::archive::maintenance;
use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::drain::catch_up::{LAST_LOOK, Proof, drained, within};
use crate::migrate::drain::open::{WayBack, drain, settle_time};
use crate::migrate::drain::proof::Counted;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::plan::kept;
use crate::migrate::report::progress::Progress;
use crate::migrate::start::fence::{After, Fence, activate};
use crate::migrate::start::tasks::begin_run;
use crate::migrate::start::tasks::{Run, make_tasks, resumable_run};
use crate::migrate::start::{record_time, workers};
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::differences::in_the_way_of_an_end;
use crate::migrate::switch::hold::Hold;
use crate::migrate::switch::verify::Compared;
use crate::migrate::switch::{sweep, verify};
use client::exit::Exit;
use client::output::{self, say, show};

/// How long a comparison before the end may take. Nobody is held up meanwhile.
const COMPARISON_LIMIT: Duration = Duration::from_secs(3600);

/// Changes every item back. Writers may go on: what they write is changed back as well, until all
/// is done. Whoever says it again goes on with what is open.
pub(crate) async fn revert(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    arguments: &SwitchArguments,
) -> Result<Exit> {
    record_time::check(context).await?;
    let limit = arguments.limit();
    // Who says it last carries it out: the steps of the one before come to nothing.
    let direction = Direction::Reverse;
    let followed = Followed { direction, fingerprint: fingerprint.to_owned(), since: 0 };
    let hold = Hold::take(context, name, Switch::REVERT, followed).await?;
    let expect = hold.expect();
    let (number, since) = match resumable_change(context, plan, fingerprint).await? {
        Some(known) => {
            say("what is changed back already stays so, and the rest goes on");
            workers::wake(context, name).await?;
            known
        }
        None => begin_changing_back(context, name, fingerprint, expect).await?,
    };
    let epoch = context.control.set_route(name, expect, (Side::Source, Side::Source)).await?;
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
    // What the inverse cannot change was put aside, by the backfill and since then.
    let compared =
        verify::look_through(context, name, direction, expect, false, COMPARISON_LIMIT).await?;
    let Some(compared) = compared else { return Ok(Exit::TimedOut) };
    // Whether it could be changed there again does not matter any more.
    let left = compared.found.count("refused") + compared.found.count("different");
    if left > 0 {
        let samples = compared.found.samples.iter().map(|sample| format!("\n  {sample}"));
        say(&format!(
            "{} cannot be changed back as now:{}\nchange or delete what is named and say `weir migrate revert {name}` again; writers use the sources, and what they write is changed back meanwhile",
            output::counted(left, "item", "items"),
            samples.collect::<String>()
        ));
        return Ok(Exit::Differences);
    }
    let end = Move::RevertedInPlace { items: done.count("written"), shards, epoch };
    hold.make(&end).await?;
    show(&format!("{name} is reverted: {}\n", end.why()));
    Ok(Exit::Done)
}

/// Waits until everything that was written before the route was changed is changed back; returns the
/// number of shards, none if that was not in time.
async fn drain_changed_back(
    context: &Context,
    plan: &Plan,
    since: i64,
    limit: Duration,
) -> Result<Option<usize>> {
    // Whoever read the route before has written by then, and that is changed back too. So is what an
    // invocation changes that began before the switch and takes its time.
    tokio::time::sleep(Duration::from_secs(plan.gate_seconds.into())).await;
    let name = plan.migration.as_str();
    sweep::wait(context, name, plan, "what it changes is changed back until then").await?;
    let counted = Counted::new(since, since);
    Ok(proved(context, plan, (Direction::Reverse, counted), limit).await?.ok())
}

/// A drain of a direction that ends in time.
async fn proved(
    context: &Context,
    plan: &Plan,
    (direction, counted): (Direction, Counted),
    limit: Duration,
) -> Result<Proof> {
    let mut drain = drain(context, plan, direction, counted, WayBack::Unused).await?;
    let settle = settle_time(context, plan).await;
    let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
    within(most, drained(&mut drain, limit, settle)).await
}

/// The run that changes items back, and the fence from which on records are followed that way, if
/// somebody has begun it, it is not done, and nothing has come after it. Of one that was done it is what
/// follows that did not go through, and that may need a new fence, such as for a stream that was made
/// since; streams may have forgotten what was written since one that was begun long ago.
async fn resumable_change(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
) -> Result<Option<(u64, i64)>> {
    let name = plan.migration.as_str();
    let (state, active) = (context.state(name).await?, context.control.active().await?);
    let (last, since) = (state.run, state.back_since);
    // What was written between two fences only the run after the second one is sure to meet.
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

/// Turns the migration round and begins the run that changes items back; returns its number, and the
/// fence from which on records are followed that way.
async fn begin_changing_back(
    context: &Context,
    name: &str,
    fingerprint: &str,
    expect: Expect<'_>,
) -> Result<(u64, i64)> {
    // Writers are not held up meanwhile: it is a backfill like the first one.
    let fence = Fence { direction: Direction::Reverse, fingerprint, expect, after: After::Read };
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

/// Stops following the tables, when all that was written before this was said is done. A purge ends
/// with its receipt.
pub(crate) async fn complete(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    state: &State,
    arguments: &SwitchArguments,
    erased: &[PathBuf],
) -> Result<Exit> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let is_closed = state.phase == Phase::Completing;
    if is_closed && !control.active().await?.active.contains_key(name) {
        // Whoever died here had proved all, and what is written since then is not followed.
        return end(context, plan).await;
    }
    let expect = Expect::phases(&[Phase::Ready, Phase::CutOver, Phase::Completing]);
    let counted = Counted::new(state.since, state.verified_at());
    let proof = proved(context, plan, (Direction::Forward, counted), arguments.limit()).await;
    let proof = proof.map_err(|failure| {
        failure.with(|text| format!("{text}; nothing was changed, it is still followed"))
    });
    if proof?.is_err() {
        say("nothing was changed, it is still followed");
        return Ok(Exit::TimedOut);
    }
    // What came before a comparison that is too old may have been trimmed unread, and what a later one
    // found that nobody noted is not known.
    let is_unknown = context.state(name).await?.comparing.is_some();
    // A purge compares once more in any case. It is closed already where that has found nothing.
    let compares = is_unknown || (plan.kind == Kind::Purge && !is_closed);
    let is_too_old = state.comparison_age(context.now().await) > COMPARISON_SECONDS;
    let compared = if compares || is_too_old {
        let compared = verify::look_on(context, name, expect, COMPARISON_LIMIT).await?;
        let Some(compared) = compared else { return Ok(Exit::TimedOut) };
        Some(compared)
    } else {
        None
    };
    let left = compared.as_ref().map_or(0, |Compared { found, .. }| in_the_way_of_an_end(found));
    if left > 0 {
        say(&format!(
            "{} not as the plan wants, nothing was changed: `weir migrate verify {name}` shows some, as long as it is not cut over",
            output::counted(left, "item is", "items are")
        ));
        return Ok(Exit::Differences);
    }
    // Nothing is closed on what a later comparison has made void.
    let guard = Guard { holder: None, run: compared.as_ref().map(|compared| compared.run) };
    let close = Move::CloseInPlace(compared.as_ref().map(Compared::verified));
    let state = context.make(name, guard, &close).await?;
    if plan.kind == Kind::Purge {
        receipt(context, name, plan, fingerprint, &state, erased).await?;
    }
    control.set_active(name, Expect::phases(&[Phase::Completing]), None).await?;
    end(context, plan).await
}

/// The last step of a migration whose tables are no longer followed.
async fn end(context: &Context, plan: &Plan) -> Result<Exit> {
    let name = plan.migration.as_str();
    context.make(name, Guard::default(), &Move::Complete).await?;
    show_receipt(context, name).await?;
    say(&format!(
        "`{name}` is completed; what is written from now on is left as it is, once invocations under way have ended, within {} s",
        plan.function_seconds
    ));
    Ok(Exit::Done)
}

/// What was erased from the archives of the plan's tables. The function erases, and keeps what it
/// erased under the migration's name, so that whoever says `complete` again after a failure is told
/// of all of it.
///
/// # Errors
/// When nothing runs here that erases and no answer was given, or it failed.
async fn archives(name: &str, plan: &Plan, given: &[PathBuf]) -> Result<BTreeMap<String, Value>> {
    let mut erased = BTreeMap::new();
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
        // By the same clock as the other times of the receipt, if that is not the function's.
        if let (Some(seconds), Some(told)) = (receipt.get("storeSeconds"), told.as_object_mut()) {
            told.insert("erased_at_of_store".to_owned(), seconds.clone());
        }
        erased.insert(table.to_owned(), told);
    }
    Ok(erased)
}

/// Whether a receipt is that of this migration for a table's archive.
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
            "the archive of `{table}` was not erased, so `{name}` is not completed: {problem}\nSay `complete` again where `weir up` runs; on AWS send {request} to the function archive-maintenance, and give its answer: `weir migrate complete {name} --erased answer.json`. If the condition fails for a row, send the event with a `where` that holds for every row, under the same `name`, and give that answer"
        )
    })?;
    receipt_in(&answer)
}

fn read_answer(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    receipt_in(&text)
        .map_err(|failure| failure.with(|text| format!("`{}`: {text}", path.display())))
}

/// The receipt in an answer of the function.
fn receipt_in(answer: &str) -> Result<Value> {
    let answer: Value = serde_json::from_str(answer)
        .map_err(|error| format!("it is no answer of archive-maintenance: {error}"))?;
    answer.get("erased").cloned().ok_or_else(|| {
        fatal!("it is no answer of archive-maintenance to an erasure: it has no `erased`")
    })
}

/// What was removed, and that a comparison found nothing left. It is kept in the control table.
async fn receipt(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    state: &State,
    erased: &[PathBuf],
) -> Result<()> {
    let archive = archives(name, plan, erased).await?;
    let tasks = context.tasks(name).await?;
    let mut tables = BTreeMap::new();
    for table in plan.source_tables(Direction::Forward) {
        let of_work = |work: Work| {
            Progress::of(tasks.iter().filter(|task| task.table == table && task.work == work))
        };
        let (backfill, checks) = (of_work(Work::Backfill), of_work(Work::CheckSource));
        tables.insert(
            table,
            json!({
                "read": backfill.count("read"),
                "removed": backfill.count("written") + checks.count("repaired"),
            }),
        );
    }
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
        "kept": kept::told(context).await,
    })
    .to_string();
    let entry = Receipt { migration: name.to_owned(), revision: 0, receipt };
    // Whoever died after this has written it, and it is not written anew. It is shown with the end.
    context.control.replace(entry).await.map(drop)
}

/// Items that a purge has removed from its tables and rows that it has erased from archives, by its
/// receipt.
fn removed(receipt: &Value) -> u64 {
    let sum = |part: &str, member: &str| -> u64 {
        let entries = receipt.get(part).and_then(Value::as_object).into_iter().flatten();
        entries.filter_map(|(_, entry)| entry.get(member)?.as_u64()).sum()
    };
    sum("tables", "removed") + sum("archive", "rows")
}

/// Shows the receipt that was kept of a purge, if it has one.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn show_receipt(context: &Context, name: &str) -> Result<()> {
    if let Some(Receipt { receipt, .. }) = context.control.get(name, Receipt::NAME).await? {
        show(&format!("{receipt}\n"));
    }
    Ok(())
}

/// Returns how a completed migration ended. A purge that removed nothing is not what its author wants;
/// says so.
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
        "`{name}` removed nothing: no item met its condition; check the names in `where`"
    ));
    Ok(Exit::Differences)
}
