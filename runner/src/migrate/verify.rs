//! Verifying: the workers compare every source item with its targets, and every target with its
//! source, while both are in use; here their findings are added up.

use std::time::{Duration, Instant};

use clap::Args;
use rules::migration::Phase;
use rules::migration::plan::{Direction, Kind, Plan};
use serde_json::json;

use super::control::{Entry, Expect, Move, Progress, n, number, phase_of};
use super::cutover::drain;
use super::drain::Counted;
use super::lost::LOST_SECONDS;
use super::start::{Work, begin_run, make_tasks};
use super::verbs::{Answer, Verb, answer};
use super::{Context, LOOK_EVERY};
use crate::exit::Exit;
use crate::output::{self, Output, say, show};

/// What is a difference, in the words of the workers.
const DIFFERENCES: [&str; 6] =
    ["missing", "different", "extra", "occupied", "refused", "not_invertible"];
/// The phases in which sources and targets are compared for a cut-over.
pub(super) const COMPARED: [Phase; 2] = [Phase::Tailing, Phase::Ready];

/// What to compare.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes: 0 no difference, 3 differences, 4 refused, 5 not in time")]
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
    let (plan, _) = context.plan(&arguments.name).await?;
    if let Answer::Refused(why) = answer(&arguments.name, plan.kind, Verb::Verify, phase_of(&state))
    {
        say(&why);
        return Ok(Exit::Refused);
    }
    let limit = Duration::from_secs(arguments.timeout);
    let found = compare(context, &arguments.name, arguments.repair, limit).await?;
    let Some(mut found) = found else { return Ok(Exit::TimedOut) };
    let lost = match arguments.repair {
        true => repair_lost(context, &arguments.name, &plan).await?,
        false => 0,
    };
    if lost > 0 {
        say(&format!("{lost} targets were told what records said that were lost"));
    }
    if arguments.repair && (lost > 0 || differences(&found) > 0) {
        report(context, &arguments.name, &found);
        let again = compare(context, &arguments.name, false, limit).await?;
        let Some(again) = again else { return Ok(Exit::TimedOut) };
        found = again;
    }
    report(context, &arguments.name, &found);
    if differences(&found) > 0 {
        // What cannot be transformed, one way or the other, is the same after a repair.
        if differences(&found) == found.count("refused") + found.count("not_invertible") {
            say(
                "what is refused cannot be repaired: change these items, or abort and correct the plan",
            );
            return Ok(Exit::Differences);
        }
        output::next(&[(
            &format!("weir migrate verify {} --repair", arguments.name),
            "repair them",
        )]);
        return Ok(Exit::Differences);
    }
    let (verb, why) = match plan.kind {
        Kind::Purge => ("complete", "end with a receipt"),
        Kind::Restructure | Kind::InPlace | Kind::Split => {
            ("cutover", "switch readers and writers")
        }
    };
    output::next(&[(&format!("weir migrate {verb} {}", arguments.name), why)]);
    Ok(Exit::Done)
}

/// Says again what records said that have not reached their targets for so long that no mapping may
/// deliver them any more. What is changed in place holds no data, and was repaired by its comparison.
async fn repair_lost(context: &Context, name: &str, plan: &Plan) -> Result<u64, String> {
    if plan.kind.is_in_place() {
        return Ok(0);
    }
    let state = context.state(name).await?;
    let since = number(&state, "since");
    let counted = Counted { since, compared: u64::MAX };
    let mut drain = drain(context, plan, Direction::Forward, counted).await?;
    drain.look().await?;
    drain.say_again(&context.control, context.now().await - LOST_SECONDS).await
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

/// What a comparison found.
pub(crate) struct Compared {
    pub(crate) found: Progress,
    run: u64,
    /// The store's time when it began: what was written before it was compared.
    pub(crate) began: i64,
}

impl Compared {
    /// Notes it in a state.
    pub(crate) fn note(&self, state: &mut Entry) {
        state.insert("verified_run".to_owned(), n(self.run));
        state.insert("verified_differences".to_owned(), n(differences(&self.found)));
        state.insert("verified_compared".to_owned(), n(self.found.count("read")));
        state.insert("verified_at".to_owned(), n(u64::try_from(self.began).unwrap_or(0)));
    }
}

/// One comparison of everything, after which the migration is ready or tailing; none if it was not
/// done in time.
pub(crate) async fn compare(
    context: &Context,
    name: &str,
    repairs: bool,
    limit: Duration,
) -> Result<Option<Progress>, String> {
    let expect = Expect::phases(&COMPARED);
    let Some(compared) = look_through(context, name, expect, repairs, limit).await? else {
        return Ok(None);
    };
    let differ = differences(&compared.found);
    let phase = if differ == 0 { Phase::Ready } else { Phase::Tailing };
    let now = context.now().await;
    let why = format!("{} items compared, {differ} differences", compared.found.count("read"));
    let expect = Expect { run: Some(compared.run), ..expect };
    let end = Move { expect, to: Some(phase), why: &why, now };
    context.control.to_phase(name, end, |state| compared.note(state)).await?;
    Ok(Some(compared.found))
}

/// One comparison of everything, which moves nothing on; none if it was not done in time.
pub(crate) async fn look_through(
    context: &Context,
    name: &str,
    expect: Expect<'_>,
    repairs: bool,
    limit: Duration,
) -> Result<Option<Compared>, String> {
    let (plan, fingerprint) = context.plan(name).await?;
    let began = context.now().await;
    let run = begin_run(context, name, expect).await?;
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
    let found = finished(context, name, run, limit).await?;
    Ok(found.map(|found| Compared { found, run, began }))
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
