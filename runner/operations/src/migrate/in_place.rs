//! The end of migrations that change items where they stand: the way back, which is a backfill of
//! its own, and the receipt of a purge.
//!
//! Switching is done where all migrations are switched.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rules::migration::Phase;
use rules::migration::plan::{Direction, Kind, Output, Plan};
use serde_json::{Value, json};

use super::catch_up::{LAST_LOOK, drained, within};
use super::control::{Entry, Expect, Move, Progress, flag, n, number, phase_of, s, text};
use super::cutover::{
    COMPARISON_SECONDS, SwitchArguments, WayBack, drain, is_too_old, settle_time,
};
use super::drain::Counted;
use super::held::{Hold, REVERT};
use super::start::{After, Fence, activate, begin_run};
use super::tasks::{Work, make_tasks, run_to_go_on_with};
use super::verify::Compared;
use super::{Context, comparing, kept, record_time, sweep, verify, workers};
use crate::archive::maintenance;
use client::exit::Exit;
use client::output::{self, say, show};

/// How long a comparison before the end may take. Nobody is held up meanwhile.
const COMPARISON_LIMIT: Duration = Duration::from_secs(3600);

/// Changes every item back. Writers may go on: what they write is changed back as well, until all
/// is done. Whoever says it again goes on with what is open.
pub(super) async fn revert(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    arguments: &SwitchArguments,
) -> Result<Exit, String> {
    if record_time::is_unfit(context).await? {
        return Ok(Exit::Refused);
    }
    let (control, limit) = (&context.control, arguments.limit());
    // Who says it last carries it out: the steps of the one before come to nothing.
    let hold = Hold::take(context, name, REVERT, fingerprint, 0).await?;
    let expect = hold.expect();
    let (run, since) = match to_go_on_with(context, plan, fingerprint).await? {
        Some(known) => {
            say("what is changed back already stays so, and the rest goes on");
            workers::wake(context, name).await?;
            known
        }
        None => begin_changing_back(context, name, fingerprint, expect).await?,
    };
    let epoch = control.route(name, expect, "source", "source").await?;
    let work = Work { run, work: "backfill", repairs: false, direction: "reverse" };
    for table in plan.source_tables(Direction::Reverse) {
        make_tasks(context, plan, fingerprint, work, table, expect).await?;
    }
    let Some(done) = verify::finished(context, name, run, limit).await? else {
        return Ok(Exit::TimedOut);
    };
    // Whoever read the route before has written by then, and that is changed back too. So is what an
    // invocation changes that began before the switch and takes its time.
    tokio::time::sleep(Duration::from_secs(plan.gate_seconds.into())).await;
    sweep::wait(context, name, plan, "what it changes is changed back until then").await?;
    let counted = Counted { since, compared: since };
    let mut drain = drain(context, plan, Direction::Reverse, counted, WayBack::Unused).await?;
    let settle = settle_time(context, plan).await;
    let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
    let shards = match within(most, drained(&mut drain, limit, settle)).await? {
        Ok(shards) => shards,
        Err(exit) => return Ok(exit),
    };
    // What the inverse cannot change was put aside, by the backfill and since then.
    let way = Direction::Reverse;
    let compared =
        verify::look_through(context, name, way, expect, false, COMPARISON_LIMIT).await?;
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
    let changed = output::counted(done.count("written"), "item changed back", "items changed back");
    let drained = output::counted(shards, "shard drained", "shards drained");
    let why = format!("{changed}, {drained}, epoch {epoch}");
    let now = context.now().await;
    let end = Move { expect, to: Some(Phase::Reverted), why: &why, now };
    let released = |state: &mut Entry| {
        state.remove("holder");
    };
    control.to_phase(name, end, released).await?;
    show(&format!("{name} is reverted: {why}\n"));
    Ok(Exit::Done)
}

/// The run that changes items back, and the fence from which on records are followed that way, if
/// somebody has begun it, it is not done, and nothing has come after it. Of one that was done it is what
/// follows that did not go through, and that may need a new fence, such as for a stream that was made
/// since; streams may have forgotten what was written since one that was begun long ago.
async fn to_go_on_with(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
) -> Result<Option<(u64, u64)>, String> {
    let name = plan.migration.as_str();
    let (state, active) = (context.state(name).await?, context.control.active(name).await?);
    let (last, since) = (number(&state, "run"), number(&state, "back_since"));
    // What was written between two fences only the run after the second one is sure to meet.
    let is_followed = active.is_some_and(|(direction, of_plan, fence)| {
        direction == "reverse" && of_plan == fingerprint && u64::try_from(fence) == Ok(since)
    });
    let age = context.now().await.saturating_sub(i64::try_from(since).unwrap_or(0));
    if !is_followed || age > COMPARISON_SECONDS {
        return Ok(None);
    }
    let of_run = context.control.entries(name, &format!("TASK#{last}#")).await?;
    if of_run.iter().all(|task| flag(task, "done")) {
        return Ok(None);
    }
    for table in plan.source_tables(Direction::Reverse) {
        let of = ("backfill", "reverse", table);
        if run_to_go_on_with(context, plan, fingerprint, of).await? == Some(last) {
            return Ok(Some((last, since)));
        }
    }
    Ok(None)
}

/// Turns the migration round and begins the run that changes items back; gives its number, and the
/// fence from which on records are followed that way.
async fn begin_changing_back(
    context: &Context,
    name: &str,
    fingerprint: &str,
    expect: Expect<'_>,
) -> Result<(u64, u64), String> {
    // Writers are not held up meanwhile: it is a backfill like the first one.
    let fence = Fence { direction: "reverse", fingerprint, expect, after: After::Read };
    let since = u64::try_from(activate(context, name, fence).await?).unwrap_or(0);
    let switched_at = sweep::real_seconds(context).await;
    let switched = |state: &mut Entry| {
        sweep::switched(state, switched_at);
        true
    };
    context.control.change_state(name, expect, switched).await?;
    let with_fence = |state: &mut Entry, _| {
        state.insert("back_since".to_owned(), n(since));
    };
    Ok((begin_run(context, name, expect, with_fence).await?, since))
}

/// Stops following the tables, when all that was written before this was said is done. A purge ends
/// with its receipt.
pub(super) async fn complete(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    state: &Entry,
    arguments: &SwitchArguments,
    erased: &[PathBuf],
) -> Result<Exit, String> {
    let (control, name) = (&context.control, plan.migration.as_str());
    if phase_of(state) == Phase::Completing && control.active(name).await?.is_none() {
        // Whoever died here had proved all, and what is written since then is not followed.
        return end(context, plan).await;
    }
    let expect = Expect::phases(&[Phase::Ready, Phase::CutOver, Phase::Completing]);
    let since = number(state, "since");
    let counted = Counted { since, compared: number(state, "verified_at") };
    let mut drain = drain(context, plan, Direction::Forward, counted, WayBack::Unused).await?;
    let settle = settle_time(context, plan).await;
    let limit = arguments.limit();
    let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
    if let Err(exit) = within(most, drained(&mut drain, limit, settle)).await? {
        say("nothing was changed, it is still followed");
        return Ok(exit);
    }
    // What came before a comparison that is too old may have been trimmed unread, and what a later one
    // found that nobody noted is not known.
    let is_unknown = comparing::is_not_noted(&context.state(name).await?);
    // A purge compares once more in any case. It is closed already where that has found nothing.
    let is_closed = phase_of(state) == Phase::Completing;
    let compares = is_unknown || (plan.kind == Kind::Purge && !is_closed);
    let compared = if compares || is_too_old(context, state).await {
        let compared = verify::look_on(context, name, expect, COMPARISON_LIMIT).await?;
        let Some(compared) = compared else { return Ok(Exit::TimedOut) };
        Some(compared)
    } else {
        None
    };
    let left =
        compared.as_ref().map_or(0, |Compared { found, .. }| verify::in_the_way_of_an_end(found));
    if left > 0 {
        say(&format!(
            "{} not as the plan wants, nothing was changed: `weir migrate verify {name}` shows some, as long as it is not cut over",
            output::counted(left, "item is", "items are")
        ));
        return Ok(Exit::Differences);
    }
    // Nothing is closed on what a later comparison has made void.
    let expect = Expect { run: compared.as_ref().map(|compared| compared.run), ..expect };
    let (why, now) = ("all that was written is done", context.now().await);
    let close = Move { expect, to: Some(Phase::Completing), why, now };
    let state = control
        .to_phase(name, close, |state| {
            if let Some(compared) = &compared {
                compared.note(state);
            }
        })
        .await?;
    if plan.kind == Kind::Purge {
        receipt(context, name, plan, fingerprint, &state, erased).await?;
    }
    control.set_active(name, Expect::phases(&[Phase::Completing]), None).await?;
    end(context, plan).await
}

/// The last step of a migration whose tables are no longer followed.
async fn end(context: &Context, plan: &Plan) -> Result<Exit, String> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let expect = Expect::phases(&[Phase::Completing]);
    let (why, now) = ("completed by a person", context.now().await);
    let end = Move { expect, to: Some(Phase::Completed), why, now };
    control.to_phase(name, end, |_| {}).await?;
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
async fn archives(
    name: &str,
    plan: &Plan,
    given: &[PathBuf],
) -> Result<BTreeMap<String, Value>, String> {
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

async fn erase(name: &str, table: &str, output: Option<&Output>) -> Result<Value, String> {
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

fn read_answer(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    receipt_in(&text).map_err(|error| format!("`{}`: {error}", path.display()))
}

/// The receipt in an answer of the function.
fn receipt_in(answer: &str) -> Result<Value, String> {
    let answer: Value = serde_json::from_str(answer)
        .map_err(|error| format!("it is no answer of archive-maintenance: {error}"))?;
    answer.get("erased").cloned().ok_or_else(|| {
        "it is no answer of archive-maintenance to an erasure: it has no `erased`".to_owned()
    })
}

/// What was removed, and that a comparison found nothing left. It is kept in the control table.
async fn receipt(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    state: &Entry,
    erased: &[PathBuf],
) -> Result<(), String> {
    let archive = archives(name, plan, erased).await?;
    let tasks = context.control.entries(name, "TASK#").await?;
    let mut tables = BTreeMap::new();
    for table in plan.source_tables(Direction::Forward) {
        let of_work = |work: &str| {
            let of_table = tasks.iter().filter(|task| {
                text(task, "table") == Some(table) && text(task, "work") == Some(work)
            });
            Progress::of(&of_table.cloned().collect::<Vec<_>>())
        };
        let (backfill, checks) = (of_work("backfill"), of_work("check-source"));
        tables.insert(
            table,
            json!({
                "read": backfill.count("read"),
                "removed": backfill.count("written") + checks.count("repaired"),
            }),
        );
    }
    let receipt = json!({
        "schema": "weir.migration.receipt/v1",
        "migration": name,
        "fingerprint": fingerprint,
        "tables": tables,
        "archive": archive,
        "where": plan.from.iter().map(|source| {
            json!({ "table": source.table, "where": source.items.first().map(|item| &item.transform) })
        }).collect::<Vec<_>>(),
        "left": number(state, "verified_differences"),
        "compared": number(state, "verified_compared"),
        "verified_at": number(state, "verified_at"),
        "completed_at": context.now().await,
        "kept": kept::told(context).await,
    })
    .to_string();
    let entry = HashMap::from([
        ("migration".to_owned(), s(name)),
        ("entry".to_owned(), s("RECEIPT")),
        ("receipt".to_owned(), s(&receipt)),
    ]);
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
pub(super) async fn show_receipt(context: &Context, name: &str) -> Result<(), String> {
    let kept = context.control.get(name, "RECEIPT").await?;
    if let Some(receipt) = kept.as_ref().and_then(|entry| text(entry, "receipt")) {
        show(&format!("{receipt}\n"));
    }
    Ok(())
}

/// Returns how a completed migration ended. A purge that removed nothing is not what its author wants;
/// says so.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn verdict(context: &Context, name: &str) -> Result<Exit, String> {
    let kept = context.control.get(name, "RECEIPT").await?;
    let receipt = kept.as_ref().and_then(|entry| text(entry, "receipt"));
    let is_in_vain = receipt.is_some_and(|receipt| {
        let receipt: Value = serde_json::from_str(receipt).unwrap_or_default();
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
