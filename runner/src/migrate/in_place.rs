//! The end of migrations that change items where they stand: the way back, which is a backfill of
//! its own, and the receipt of a purge.
//!
//! Switching is done where all migrations are switched.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rules::migration::plan::{Direction, Kind, Plan};
use serde_json::json;

use super::control::{Progress, number, s, text};
use super::cutover::{SwitchArguments, drain, drained};
use super::start::{Work, activate, begin_run, make_tasks};
use super::{Context, verify};
use crate::exit::Exit;
use crate::output::{say, show};

/// Changes every item back. Writers may go on: what they write is changed back as well, until all
/// is done.
pub(super) async fn revert(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
    arguments: &SwitchArguments,
) -> Result<Exit, String> {
    let limit = Duration::from_secs(arguments.timeout);
    let since = activate(context, name, "reverse", fingerprint).await?;
    let epoch = context.control.route(name, "source", "source").await?;
    let run = begin_run(context, name).await?;
    let work = Work { run, work: "backfill", repairs: false, direction: "reverse" };
    for table in plan.source_tables(Direction::Reverse) {
        make_tasks(context, plan, fingerprint, work, table).await?;
    }
    let Some(done) = verify::finished(context, name, run, limit).await? else {
        return Ok(Exit::TimedOut);
    };
    // Whoever read the route before has written by then, and that is changed back too.
    tokio::time::sleep(Duration::from_secs(plan.gate_seconds.into())).await;
    let since = u64::try_from(since).unwrap_or(0);
    let mut drain = drain(context, plan, Direction::Reverse, since).await?;
    let Some(shards) = drained(&mut drain, limit).await? else {
        return Ok(Exit::TimedOut);
    };
    context.control.set_active(name, None).await?;
    let written = done.count("written");
    let why = format!("{written} items changed back, {shards} shards drained, epoch {epoch}");
    let now = context.now().await;
    context.control.to_phase(name, "reverted", &why, now, |_| {}).await?;
    show(&format!("{name} is reverted: {why}\n"));
    Ok(Exit::Done)
}

/// Stops following the tables. A purge ends with its receipt.
pub(super) async fn complete(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
) -> Result<Exit, String> {
    if plan.kind == Kind::Purge {
        receipt(context, name, plan, fingerprint).await?;
    }
    context.control.set_active(name, None).await?;
    let now = context.now().await;
    context.control.to_phase(name, "completed", "completed by a person", now, |_| {}).await?;
    say(&format!("`{name}` is completed; what is written from now on is left as it is"));
    Ok(Exit::Done)
}

/// What was removed, and that a comparison found nothing left. It is kept in the control table.
async fn receipt(
    context: &Context,
    name: &str,
    plan: &Plan,
    fingerprint: &str,
) -> Result<(), String> {
    let state = context.state(name).await?;
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
        "where": plan.from.iter().map(|source| {
            json!({ "table": source.table, "where": source.items.first().map(|item| &item.transform) })
        }).collect::<Vec<_>>(),
        "left": number(&state, "verified_differences"),
        "compared": number(&state, "verified_compared"),
        "verified_at": number(&state, "verified_at"),
        "completed_at": context.now().await,
    })
    .to_string();
    let entry = HashMap::from([
        ("migration".to_owned(), s(name)),
        ("entry".to_owned(), s("RECEIPT")),
        ("receipt".to_owned(), s(&receipt)),
    ]);
    context.control.replace(entry).await?;
    show(&format!("{receipt}\n"));
    Ok(())
}
