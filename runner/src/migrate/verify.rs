//! Verifying: the workers compare every source item with its targets, and every target with its
//! source, while both are in use; here their findings are added up.

use std::time::{Duration, Instant};

use clap::Args;
use rules::migration::plan::{Direction, Kind};
use serde_json::json;

use super::control::{Progress, n, text};
use super::start::{Work, begin_run, make_tasks};
use super::{Context, LOOK_EVERY};
use crate::exit::Exit;
use crate::output::{self, Output, say, show};

/// What is a difference, in the words of the workers.
const DIFFERENCES: [&str; 5] = ["missing", "different", "extra", "refused", "not_invertible"];

/// What to compare.
#[derive(Clone, Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The migration
    name: String,
    /// Repair what differs, and compare once more
    #[arg(long)]
    repair: bool,
    /// Seconds after which to give up
    #[arg(long, default_value_t = 3600)]
    timeout: u64,
}

/// Compares, and moves a migration without differences to `ready`.
pub(super) async fn run(context: &Context, arguments: &VerifyArguments) -> Result<Exit, String> {
    let (state, _) = context.advance(&arguments.name).await?;
    let phase = text(&state, "phase").unwrap_or_default();
    if !["tailing", "ready"].contains(&phase) {
        say(&format!("`{}` is {phase}; verify when it is tailing", arguments.name));
        return Ok(Exit::Refused);
    }
    let limit = Duration::from_secs(arguments.timeout);
    let found = compare(context, &arguments.name, arguments.repair, limit).await?;
    let Some(mut found) = found else { return Ok(Exit::TimedOut) };
    if arguments.repair && differences(&found) > 0 {
        report(context, &arguments.name, &found);
        let again = compare(context, &arguments.name, false, limit).await?;
        let Some(again) = again else { return Ok(Exit::TimedOut) };
        found = again;
    }
    report(context, &arguments.name, &found);
    if differences(&found) > 0 {
        output::next(&[(
            &format!("weir migrate verify {} --repair", arguments.name),
            "repair them",
        )]);
        return Ok(Exit::Differences);
    }
    let (plan, _) = context.plan(&arguments.name).await?;
    let (verb, why) = match plan.kind {
        Kind::Purge => ("complete", "end with a receipt"),
        Kind::Restructure | Kind::InPlace | Kind::Split => {
            ("cutover", "switch readers and writers")
        }
    };
    output::next(&[(&format!("weir migrate {verb} {}", arguments.name), why)]);
    Ok(Exit::Done)
}

pub(crate) fn differences(found: &Progress) -> u64 {
    DIFFERENCES.iter().map(|kind| found.count(kind)).sum()
}

fn report(context: &Context, name: &str, found: &Progress) {
    if context.output != Output::Table {
        let report = json!({
            "schema": "weir.migration.verify/v1", "migration": name,
            "differences": differences(found), "found": found.json(),
        });
        show(&format!("{report}\n"));
        return;
    }
    let kinds = DIFFERENCES.iter().map(|kind| format!("{} {kind}", found.count(kind)));
    show(&format!(
        "{} items compared: {}; {} repaired, {} foreign, {} tombstones\n",
        found.count("read"),
        kinds.collect::<Vec<_>>().join(", "),
        found.count("repaired"),
        found.count("foreign"),
        found.count("tombstones"),
    ));
    for sample in &found.samples {
        show(&format!("  {sample}\n"));
    }
}

/// One comparison of everything; none if it was not done in time.
pub(crate) async fn compare(
    context: &Context,
    name: &str,
    repairs: bool,
    limit: Duration,
) -> Result<Option<Progress>, String> {
    let (plan, fingerprint) = context.plan(name).await?;
    let run = begin_run(context, name).await?;
    let work = Work { run, work: "check-source", repairs, direction: "forward" };
    for table in plan.source_tables(Direction::Forward) {
        make_tasks(context, &plan, &fingerprint, work, table).await?;
    }
    // In place, sources and targets are the same items.
    if !plan.kind.is_in_place() {
        let work = Work { work: "check-target", ..work };
        for table in plan.target_tables(Direction::Forward) {
            make_tasks(context, &plan, &fingerprint, work, table).await?;
        }
    }
    let Some(found) = finished(context, name, run, limit).await? else { return Ok(None) };
    let differ = differences(&found);
    let phase = if differ == 0 { "ready" } else { "tailing" };
    let now = context.now().await;
    let why = format!("{} items compared, {differ} differences", found.count("read"));
    context
        .control
        .to_phase(name, phase, &why, now, |state| {
            state.insert("verified_run".to_owned(), n(run));
            state.insert("verified_differences".to_owned(), n(differ));
            state.insert("verified_compared".to_owned(), n(found.count("read")));
            state.insert("verified_at".to_owned(), n(u64::try_from(now).unwrap_or(0)));
        })
        .await?;
    Ok(Some(found))
}

/// Waits until every task of a run is done.
pub(crate) async fn finished(
    context: &Context,
    name: &str,
    run: u64,
    limit: Duration,
) -> Result<Option<Progress>, String> {
    let started = Instant::now();
    let mut said = Instant::now();
    loop {
        let progress = Progress::of(&context.control.entries(name, &format!("TASK#{run}#")).await?);
        if progress.is_done() {
            return Ok(Some(progress));
        }
        let seen = format!(
            "{} of {} segments done, {} items read",
            progress.done,
            progress.tasks,
            progress.count("read")
        );
        if started.elapsed() > limit {
            say(&format!(
                "not done after {} s: {seen}; are there workers? `weir migrate work {name}`",
                limit.as_secs()
            ));
            return Ok(None);
        }
        if said.elapsed() > Duration::from_secs(2) {
            say(&seen);
            said = Instant::now();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
