//! `weir migrate start` and `work`: checks before a start, and local workers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use control::verbs::{Verb, VerbDecision, decide_verb};
use rules::migration::plan::{Direction, Kind, Plan};
use rules::migration::{Migration, Phase};

use crate::migrate::context::{Context, LOOK_EVERY};
use crate::migrate::drain::trimmed;
use crate::migrate::failure::{Failure, Result, fatal, refused};
use crate::migrate::local_workers::{LocalWorkers, Problem, StartWorkers, WorkerOptions};
use crate::migrate::plan::check::{PlanErrors, check, followed};
use crate::migrate::plan::plan_file::PlanFile;
use crate::migrate::plan::{archives, estimate, lost_writes, neighbours, tables, targets};
use crate::migrate::report::failure_tolerance::{FailureTolerance, UNSEEN_MAX};
use crate::migrate::report::wait;
use crate::migrate::start::record_time;
use crate::migrate::start::unused_options::{self, StartFacts};
use crate::migrate::start::{begin, route, workers};
use client::exit::Exit;
use client::interruption;
use client::output::{self, no_effect, say};
use client::running::RunningState;
use template::Wanted;

/// Arguments of `weir migrate start`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate start shop.yaml --dry-run\n  weir migrate start shop.yaml --local-workers 4\n  weir migrate start shop.yaml --local-workers 2 --rate 500\n\nWithout `--local-workers`, the function `migration` must follow the tables, in a running `weir up` or on AWS; otherwise nothing is copied until `weir migrate work NAME` runs\n\nExit codes: 0 done, 1 failed, 4 refused"
)]
pub(crate) struct StartArguments {
    /// The plan file
    file: PathBuf,
    /// Run this many workers on this machine, until the migration ends or Ctrl-C
    #[arg(long, default_value_t = 0, value_name = "N")]
    local_workers: usize,
    #[command(flatten)]
    workers: Workers,
    /// Items per second that the backfill reads, over all workers; 0 for no limit
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_parser = rate)]
    rate: u64,
    /// On AWS, create the control table if it is missing; no deployed function reads its stream
    #[arg(long)]
    create_control_table: bool,
    /// Start an in-place change that loses updates of single attributes; safe only if clients
    /// always replace whole items
    #[arg(long)]
    with_lost_updates: bool,
    /// Report what would happen, without changing anything
    #[arg(long)]
    dry_run: bool,
}

/// Parses the value of `--rate`, in items per second.
///
/// # Errors
/// When the string is not a whole number.
pub(crate) fn rate(text: &str) -> Result<u64> {
    text.parse().map_err(|_| {
        fatal!("a rate is a whole positive number of items per second, or 0 for no limit")
    })
}

/// Arguments of `weir migrate work`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the migration has ended, 1 failed, 130 or 143 interrupted; run it again to resume"
)]
pub(crate) struct WorkArguments {
    /// The migration
    name: String,
    /// Run this many workers, until the migration ends or Ctrl-C
    #[arg(long, default_value_t = 1, value_name = "N")]
    local_workers: usize,
    #[command(flatten)]
    workers: Workers,
}

/// The data folder of local workers.
const DIRECTORY: &str = ".weir/migrate";
/// The package of the function that local workers run.
const PACKAGE: &str = "functions/processor";

#[derive(Clone, Debug, Args)]
struct Workers {
    /// Data folder of local workers, for checkpoints, logs and quarantined records
    #[arg(long, default_value = DIRECTORY, value_name = "FOLDER")]
    directory: PathBuf,
    /// The folder of the function's Rust package in a checkout of Weir; if it does not exist, the
    /// installed function runs
    #[arg(long, default_value = PACKAGE, value_name = "FOLDER")]
    package: PathBuf,
    /// Deliver each successful batch a second time, as happens on AWS
    #[arg(long)]
    duplicate_deliveries: bool,
}

impl Workers {
    /// Returns the names of the options that differ from their defaults.
    fn given(&self) -> Vec<&'static str> {
        let options = [
            ("--directory", self.directory.as_path() != Path::new(DIRECTORY)),
            ("--package", self.package.as_path() != Path::new(PACKAGE)),
            ("--duplicate-deliveries", self.duplicate_deliveries),
        ];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }
}

/// Starts a migration, or reports that it is already started.
pub(crate) async fn run(
    context: &Context,
    arguments: &StartArguments,
    start: &dyn StartWorkers,
) -> Result<Exit> {
    let name = arguments.file.display().to_string();
    let file = std::fs::read_to_string(&arguments.file);
    let file = file.map_err(|error| format!("cannot read `{name}`: {error}"))?;
    let file = PlanFile::read(&name, &file)?;
    let plan = &file.plan;
    let migration = check(context, plan).await.map_err(|wrong| match wrong {
        PlanErrors::Plan(errors) => Failure::Fatal(file.show(&errors)),
        PlanErrors::Other(failure) => failure,
    })?;
    let of_workers = arguments.workers.given();
    let given = StartFacts {
        name: &plan.migration,
        is_dry: arguments.dry_run,
        is_begun: false,
        has_control_table: false,
        creates_control_table: arguments.create_control_table,
        accepts_lost_updates: arguments.with_lost_updates,
        rate: arguments.rate,
        local_workers: arguments.local_workers,
        of_workers: &of_workers,
    };
    if arguments.dry_run {
        say_unused(given);
        return dry_run(context, &file, &migration, arguments).await;
    }
    let is_asked_for = arguments.create_control_table;
    let has_control_table =
        is_asked_for && context.control.missing(&context.endpoint, false).await?.is_none();
    if let Some(why) = context.control.missing(&context.endpoint, is_asked_for).await? {
        return Err(refused!("refused: {why}"));
    }
    context.control.ensure().await?;
    let is_begun = is_begun(context, &file, &migration, arguments).await?;
    say_unused(StartFacts { is_begun, has_control_table, ..given });
    if is_begun {
        let phase = context.state(&plan.migration).await?.phase;
        say(&format!("`{}` is already started; its phase is {}", plan.migration, phase.as_str()));
        workers::wake_set_aside(context, &plan.migration).await?;
    }
    if !is_begun {
        say(&format!("preparing `{}`, which takes some seconds", plan.migration));
        record_time::check(context).await?;
    }
    warn_of_unfollowed(context, plan, arguments.local_workers);
    // Local workers start first, because they have to apply changes as soon as the migration is
    // active.
    let host = local(context, plan, arguments.local_workers, &arguments.workers, start).await?;
    if !is_begun {
        says_what_is_in_the_targets(context, plan).await?;
        if let Err(problem) = begin::begin(context, plan, arguments.rate).await {
            // A conflicting migration was started concurrently, and became active first.
            return Err(match neighbours::in_the_way(context, plan).await? {
                Some(why) => refused!("refused: {why}"),
                None => problem,
            });
        }
        say(&format!("`{}` has started", plan.migration));
    }
    attend(context, &plan.migration, host).await
}

/// Returns true if the plan is already started.
///
/// # Errors
/// When the plan must not be started, for example because it can transform no item, or because
/// another migration conflicts.
async fn is_begun(
    context: &Context,
    file: &PlanFile,
    migration: &Migration,
    arguments: &StartArguments,
) -> Result<bool> {
    let plan = &file.plan;
    let answer = match begun(context, plan).await? {
        VerbDecision::AlreadyDone => return Ok(true),
        VerbDecision::Refused(why) => return Err(Failure::Refused(why)),
        answer @ (VerbDecision::CarryOut | VerbDecision::TakeOver) => answer,
    };
    if answer == VerbDecision::CarryOut {
        check_samples(context, file, migration, arguments).await?;
    }
    let why = match neighbours::in_the_way(context, plan).await? {
        None => route::in_the_way(context, plan).await?,
        why => why,
    };
    match why {
        Some(why) => Err(refused!("refused: {why}")),
        None => Ok(false),
    }
}

/// Reports the options that have no effect on a start.
fn say_unused(given: StartFacts<'_>) {
    unused_options::of(given).iter().for_each(|(option, why)| no_effect(option, why));
}

/// Reports the effects that a start would have, and writes nothing.
async fn dry_run(
    context: &Context,
    file: &PlanFile,
    migration: &Migration,
    arguments: &StartArguments,
) -> Result<Exit> {
    check_samples(context, file, migration, arguments).await?;
    let plan = &file.plan;
    say(&format!("`{}` would {}; nothing was written", plan.migration, purpose(plan)));
    Ok(match says_what_is_in_the_targets(context, plan).await? {
        true => Exit::Differences,
        false => Exit::Done,
    })
}

/// Reports targets that are not empty. Returns true if there is such a target.
async fn says_what_is_in_the_targets(context: &Context, plan: &Plan) -> Result<bool> {
    let client = &context.control.client;
    let found = tables::describe(client, plan).await?;
    let occupied = targets::occupied(client, plan, &found).await?;
    for line in &occupied {
        say(&format!("not empty: {line}"));
    }
    Ok(!occupied.is_empty())
}

/// Describes the effects of a plan on its tables.
fn purpose(plan: &Plan) -> String {
    let sources = plan.source_tables(Direction::Forward).join(", ");
    match plan.kind {
        Kind::Purge => {
            format!("read the streams of {sources} and remove the items that match the condition")
        }
        Kind::InPlace => format!("read the streams of {sources} and change the items in place"),
        Kind::Restructure | Kind::Split => {
            let targets = plan.target_tables(Direction::Forward).join(", ");
            format!("read the streams of {sources} and copy into {targets}")
        }
    }
}

/// Checks that a plan can transform at least one sampled item, that its archives can be erased, and
/// that an in-place change loses no update of the sampled items.
///
/// # Errors
/// When no sampled item can be transformed, an archive is missing, the plan loses updates, or a
/// table cannot be read. The message gives the reason.
async fn check_samples(
    context: &Context,
    file: &PlanFile,
    migration: &Migration,
    arguments: &StartArguments,
) -> Result<()> {
    if let Some(why) = estimate::all_refused(context, &file.plan, migration).await? {
        return Err(refused!(
            "refused: none of the sampled items can be transformed; the first error: {why}\ncorrect the plan; `weir migrate plan {}` checks more items",
            file.name
        ));
    }
    let unreachable = archives::unreachable(&file.plan, &context.endpoint);
    if !unreachable.is_empty() {
        return Err(refused!("refused: {}", unreachable.join("\n")));
    }
    let lost = lost_writes::of_plan(context, &file.plan, migration).await?;
    if lost.is_empty() && arguments.with_lost_updates {
        no_effect("--with-lost-updates", "the plan loses no update of the sampled items");
    }
    if lost.is_empty() || arguments.with_lost_updates {
        return Ok(());
    }
    Err(refused!(
        "refused: the plan loses updates:\n  {}\ncorrect the plan; if clients always replace whole items, add --with-lost-updates",
        lost.join("\n  ")
    ))
}

/// Without local workers, warns about streams for which the running `weir up` does not invoke the
/// function `migration`. For a store without `weir up`, the readers of the streams are unknown, but
/// `status` reports changes that are not applied.
fn warn_of_unfollowed(context: &Context, plan: &Plan, local_workers: usize) {
    if local_workers > 0 {
        return;
    }
    let RunningState::Running(running) = RunningState::here() else { return };
    if running.dynamodb != context.endpoint {
        return;
    }
    let mut unfollowed = followed(plan);
    unfollowed.retain(|table| !running.migrated.contains(table));
    if !unfollowed.is_empty() {
        say(&format!(
            "no function of the running `weir up` applies writes to {}: run `weir migrate work {}`, or add an event of each stream to the function `migration`",
            unfollowed.join(", "),
            plan.migration
        ));
    }
}

/// Runs workers for a started migration.
pub(crate) async fn work(
    context: &Context,
    arguments: &WorkArguments,
    start: &dyn StartWorkers,
) -> Result<Exit> {
    let (plan, _) = context.plan(&arguments.name).await?;
    let host =
        local(context, &plan, arguments.local_workers.max(1), &arguments.workers, start).await?;
    workers::wake_set_aside(context, &arguments.name).await?;
    attend(context, &arguments.name, host).await
}

async fn local(
    context: &Context,
    plan: &Plan,
    count: usize,
    workers: &Workers,
    start: &dyn StartWorkers,
) -> Result<Option<Box<dyn LocalWorkers>>> {
    if count == 0 {
        return Ok(None);
    }
    let binary = "migration".to_owned();
    // If the function's source code is missing, the installed binary next to `weir` is used, so
    // nothing is built.
    if (Wanted { package_folder: workers.package.clone(), binary }).has_source() {
        say("building the function `migration`; the first build takes some minutes");
    }
    let directory: &Path = &workers.directory;
    let options = WorkerOptions {
        endpoint: &context.endpoint,
        control_table: &context.control.table,
        tables: followed(plan),
        workers: count,
        directory,
        package_folder: workers.package.clone(),
        timeout: Duration::from_secs(plan.function_seconds.into()),
        duplicate_deliveries: workers.duplicate_deliveries,
    };
    Ok(Some(start.start(options).await?))
}

/// Prints the next commands. With local workers, waits until the migration ends, the workers fail,
/// or Ctrl-C.
async fn attend(
    context: &Context,
    name: &str,
    host: Option<Box<dyn LocalWorkers>>,
) -> Result<Exit> {
    let Some(host) = host else {
        output::next(&[
            (&format!("weir migrate status {name}"), "show progress"),
            (
                &format!("weir migrate work {name}"),
                "run workers on this machine, if no Lambda function does",
            ),
        ]);
        return Ok(Exit::Done);
    };
    output::next(&[
        (
            &format!("weir migrate wait {name}"),
            "in another terminal, wait until all items are copied",
        ),
        (&format!("weir migrate verify {name}"), "compare sources and targets"),
    ]);
    let watching = wait::until(context, name, &["reverted", "completed", "aborted"]);
    let ended = tokio::select! {
        ended = watching => ended,
        problem = failed(context, name, host.as_ref()) => Err(problem.into()),
        signal = interruption::requested() => {
            say(&format!(
                "interrupted; `weir migrate work {name}` resumes the migration, `weir migrate status {name}` shows progress"
            ));
            host.stop().await;
            return Ok(Exit::Interrupted(signal));
        }
    };
    host.stop().await;
    ended.map(|()| Exit::Done)
}

/// Waits until a stream is no longer read, and returns the reason. If records of tasks were
/// trimmed, writes the tasks again, and only then resumes the read of the shard. A crash between
/// these two steps is safe, because the next run detects the trimmed records again.
async fn failed(context: &Context, name: &str, host: &dyn LocalWorkers) -> String {
    let mut patience = FailureTolerance::new(UNSEEN_MAX);
    loop {
        if let Some(problem) = host.problem() {
            if let Problem::NotFollowed(why) = problem {
                return why;
            }
            let phase = context.control.state(name).await.map_or(Phase::None, |state| state.phase);
            let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
            return format!("{problem}; {}", trimmed::after_loss(name, plan.as_ref(), phase));
        }
        if let Some(shard) = host.trimmed_tasks() {
            match patience.seen(workers::wake(context, name).await) {
                Ok(Some(())) => host.resume_after_trim(&shard),
                Ok(None) => {}
                Err(problem) => return problem.to_string(),
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Decides whether `start` has to start the plan, or the plan is already started.
async fn begun(context: &Context, plan: &Plan) -> Result<VerbDecision> {
    let state = context.control.state(&plan.migration).await?;
    let answer = decide_verb(&plan.migration, plan.kind, Verb::Start, state.phase);
    let json = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    let is_same = state.fingerprint == Some(Plan::fingerprint(&json));
    if !is_same && matches!(answer, VerbDecision::TakeOver | VerbDecision::AlreadyDone) {
        return Ok(VerbDecision::Refused(format!(
            "`{}` was started with a different plan, and the work of two plans must not be mixed: give this plan a different name",
            plan.migration
        )));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn a_rate_is_a_positive_number() {
        let read = |rate: &str| {
            let command = StartArguments::augment_args(clap::Command::new("start"));
            let matches = command.try_get_matches_from(["start", "plan.yaml", "--rate", rate]);
            let read = matches.and_then(|matches| StartArguments::from_arg_matches(&matches));
            read.map(|start| start.rate).map_err(|error| error.to_string())
        };
        assert_eq!(read("20"), Ok(20));
        for wrong in ["-5", "many", "1.5"] {
            let said = read(wrong).unwrap_err();
            assert!(said.contains("a rate is a whole positive number"), "{said}");
            assert!(!said.contains("-- -5"), "{said}");
        }
    }
}
