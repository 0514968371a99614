//! `weir migrate`: restructures tables while they are written to, and loses no write.
//!
//! Its verbs only read and write the control table; the work is done by the function `migration`,
//! on Lambda or by `--local-workers`. Saying a verb twice does nothing the second time.

pub mod api;
mod assembly;
mod attempts;
mod beginning;
mod behind;
mod catch_up;
mod comparing;
mod completion;
mod control_table;
mod cost;
mod cutover;
mod drain;
mod estimate;
mod executor;
mod failure;
mod followers;
mod following;
mod hold;
mod hooks;
mod in_place;
mod indexes;
mod kept;
mod listing;
pub mod local_workers;
mod lost;
mod making;
mod neighbours;
mod patience;
mod plan_file;
mod problems;
mod progress;
mod proof;
mod record_time;
mod report;
mod revert;
mod shard_end;
mod slowed;
mod start;
mod status_line;
mod steps;
mod sweep;
mod tables;
mod targets;
mod tasks;
mod touches;
mod unmatched;
mod verify;
mod waiting;
mod way_back;
mod workers;

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod switching_tests;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use control::verbs::{Answer, Verb, answer, left_by_abort};
use control::{BACKFILL_RUN, Expect, Move, PlanEntry, Side, State, Task};
use rules::migration::plan::{Backfill, Direction, Kind, Plan};
use rules::migration::{Migration, Phase, PlanError};

use self::control_table::{Control, Guard};
use self::failure::{Failure, Result};
use self::hooks::{HookArguments, Hooks};
use self::local_workers::StartWorkers;
use self::progress::Progress;
use client::endpoint;
use client::exit::Exit;
use client::output::{self, Output, counted, say};
use client::retries::Absence;

/// How often a waiting verb looks.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How long an answer of the store may take before it is asked again: writers may be held up meanwhile.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// A wait that is longer than any sensible one, unless a flag says otherwise: one day.
const WAIT_SECONDS: u64 = 24 * 3600;

/// Which migration, and what to do.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate plan shop.yaml\n  weir migrate start shop.yaml --local-workers 4      # another terminal for the rest\n  weir migrate status shop\n  weir migrate wait shop\n  weir migrate verify shop\n  weir migrate cutover shop\n  weir migrate revert shop\n\nExit codes: 0 done, 1 failed, 3 differences were found, 4 refused, 5 not in time"
)]
pub struct MigrateArguments {
    #[command(subcommand)]
    verb: MigrateVerb,
    /// The store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
    /// The control table
    #[arg(long, global = true, default_value = "weir-migrations", env = "WEIR_CONTROL_TABLE")]
    control_table: String,
    #[command(flatten)]
    hooks: HookArguments,
}

#[derive(Clone, Debug, Subcommand)]
enum MigrateVerb {
    /// Check a plan against its tables and report what it would do; writes nothing
    #[command(
        after_help = "Examples:\n  weir migrate plan shop.yaml\n  weir migrate plan shop.yaml --samples 5000 --output json"
    )]
    Plan {
        /// The plan file
        file: PathBuf,
        /// Items of each table to try
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
        samples: u64,
    },
    /// Start or resume: follow the stream, then backfill
    Start(start::StartArguments),
    /// Run workers for a started migration, until Ctrl-C
    Work(start::WorkArguments),
    /// Show progress, what blocks the next step, and the next commands
    #[command(
        after_help = "Examples:\n  weir migrate status shop\n  weir migrate status shop --output json\n  weir migrate status shop --exit-code && weir migrate cutover shop"
    )]
    Status {
        /// The migration
        name: String,
        /// Exit with 0 when ready or done, 3 when in progress, blocked or unknown, 1 when aborted
        #[arg(long)]
        exit_code: bool,
        /// Seconds to spend reading the streams [default: 10, on AWS 30]
        #[arg(long, value_name = "SECONDS")]
        look: Option<u64>,
    },
    /// Print each change of the status, until ready or done
    Watch {
        /// The migration
        name: String,
    },
    /// Wait until a migration reaches a phase
    #[command(after_help = "Examples:\n  weir migrate wait shop --for reverted --timeout 600")]
    Wait {
        /// The migration
        name: String,
        /// The phase, as `status` calls it
        #[arg(long = "for", default_value = "tailing")]
        phase: String,
        /// Seconds to wait at most
        #[arg(long, default_value_t = WAIT_SECONDS)]
        timeout: u64,
    },
    /// Pause the backfill; the stream is still followed
    Pause {
        /// The migration
        name: String,
    },
    /// Resume the backfill, also after its workers were away for more than a day
    Resume {
        /// The migration
        name: String,
    },
    /// Set how many items per second the backfill reads, all workers together; 0 for no limit
    Throttle {
        /// The migration
        name: String,
        /// Items per second
        #[arg(long, allow_negative_numbers = true, value_parser = start::rate)]
        rate: u64,
    },
    /// Verify that targets equal the transformed sources, under load; after a cut-over, the reverse
    Verify(verify::VerifyArguments),
    /// Switch readers and writers to the targets; writers pause meanwhile
    Cutover(cutover::CutoverArguments),
    /// Switch readers and writers back to the sources, with all writes since the cut-over
    Revert(revert::RevertArguments),
    /// Finish after the cut-over: no revert is possible afterwards; removes marks from the targets
    Complete(completion::CompleteArguments),
    /// Abort before the cut-over: sources stay as they are, targets are yours to delete; changes made
    /// in place or by a purge stay
    Abort {
        /// The migration
        name: String,
        /// Report what would happen; change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Show a document of a split, assembled from its current parts
    Document {
        /// The migration
        name: String,
        /// The document's key, as plain JSON or DynamoDB JSON
        key: String,
    },
    /// List migrations
    List,
    /// Show the journal of a migration: every phase change
    Journal {
        /// The migration
        name: String,
    },
}

/// What every verb needs.
pub struct Context {
    pub(crate) endpoint: String,
    pub(crate) control: Control,
    pub(crate) output: Output,
    /// Whether somebody answers.
    absence: Absence,
    hooks: Hooks,
}

impl Context {
    /// A context for a store whose address is known.
    #[must_use]
    pub fn new(endpoint: &str, control_table: &str, output: Output) -> Self {
        let (client, absence) = endpoint::client_with_limit(endpoint, ANSWER_LIMIT);
        let control = Control { client, table: control_table.to_owned() };
        let (endpoint, hooks) = (endpoint.to_owned(), Hooks::default());
        Self { endpoint, control, output, absence, hooks }
    }

    /// Creates the control table if it is absent.
    ///
    /// # Errors
    /// When the store refuses it or does not answer.
    pub async fn ensure_control_table(&self) -> Result<()> {
        self.control.ensure().await
    }

    /// The time by which stream records are made, in seconds since 1970: the local store's clock, or
    /// DynamoDB's.
    pub(crate) async fn now(&self) -> i64 {
        endpoint::store_seconds(&self.endpoint, &self.control.client).await
    }

    /// The state of a migration.
    pub(crate) async fn state(&self, name: &str) -> Result<State> {
        let state = self.control.get(name, State::NAME).await?;
        state.ok_or_else(|| {
            Failure::Fatal(format!(
                "there is no migration `{name}`; `weir migrate list` shows those that there are"
            ))
        })
    }

    /// The tasks of a run.
    pub(crate) async fn tasks_of(&self, name: &str, run: u64) -> Result<Vec<Task>> {
        self.control.list(name, &Task::prefix_of(run)).await
    }

    /// The tasks of all runs.
    pub(crate) async fn tasks(&self, name: &str) -> Result<Vec<Task>> {
        self.control.list(name, Task::PREFIX).await
    }

    /// Makes a move of a migration, in its state and its journal.
    ///
    /// # Errors
    /// When its state is not what the move and `guard` expect, or the table cannot be read or written.
    pub(crate) async fn make(&self, name: &str, guard: Guard<'_>, it: &Move) -> Result<State> {
        self.control.make(name, guard, it, self.now().await).await
    }

    /// The plan of a migration.
    pub(crate) async fn plan(&self, name: &str) -> Result<(Plan, String)> {
        let entry: Option<PlanEntry> = self.control.get(name, PlanEntry::NAME).await?;
        let Some(PlanEntry { plan: json, .. }) = entry else {
            self.state(name).await?;
            return Err(Failure::Fatal(format!("migration `{name}` has no plan")));
        };
        let plan = serde_json::from_str(&json).map_err(|error| format!("its plan: {error}"))?;
        Ok((plan, Plan::fingerprint(&json)))
    }

    /// A plan, compiled for the tables as they are now.
    pub(crate) async fn compile(&self, plan: &Plan, direction: Direction) -> Result<Migration> {
        let found = tables::describe(&self.control.client, plan).await?;
        Migration::compile(plan, direction, &tables::schemas(&found))
            .map_err(|errors| Failure::Fatal(lines(&errors)))
    }

    /// The backfill's progress, and the state as [`Context::advance`] would leave it; writes nothing.
    pub(crate) async fn look(&self, name: &str) -> Result<(State, Progress)> {
        let mut state = self.state(name).await?;
        let progress = Progress::of(&self.tasks_of(name, BACKFILL_RUN).await?);
        if state.phase == Phase::Copying && progress.is_copied_to_the_end() {
            state.phase = Phase::Tailing;
        }
        Ok((state, progress))
    }

    /// The backfill's progress. When all of it is done, the migration tails the stream.
    pub(crate) async fn advance(&self, name: &str) -> Result<(State, Progress)> {
        let state = self.state(name).await?;
        let tasks = self.tasks_of(name, BACKFILL_RUN).await?;
        let progress = Progress::of(&tasks);
        if state.phase == Phase::Copying && progress.is_copied_to_the_end() {
            let at = self.now().await;
            return match self.make(name, Guard::default(), &Move::Tail { at }).await {
                Ok(state) => Ok((state, progress)),
                // Many look at the same time; one of them moves it.
                Err(failure) => match self.state(name).await? {
                    state if state.phase == Phase::Copying => Err(failure),
                    state => Ok((state, progress)),
                },
            };
        }
        if state.phase == Phase::Aborted
            && state.unswept
            && !touches::begin_clearing(self, &tasks).await?
            && progress.is_done()
        {
            let expect = Expect::phases(&[Phase::Aborted]);
            let swept = |state: &mut State| std::mem::take(&mut state.unswept);
            return Ok((self.control.change_state(name, expect, swept).await?, progress));
        }
        Ok((state, progress))
    }
}

/// Each error on its own line.
fn lines(errors: &[PlanError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Does what the command line asks for; `workers` starts the workers that `--local-workers` names.
///
/// # Errors
/// What went wrong, for a person.
pub async fn run(
    arguments: MigrateArguments,
    output: Output,
    workers: &dyn StartWorkers,
) -> std::result::Result<Exit, String> {
    match in_time(arguments, output, workers).await {
        Ok(exit) => Ok(exit),
        Err(Failure::Refused(why)) => {
            say(&why);
            Ok(Exit::Refused)
        }
        Err(failure) => Err(failure.to_string()),
    }
}

async fn in_time(
    arguments: MigrateArguments,
    output: Output,
    workers: &dyn StartWorkers,
) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    let mut context = Context::new(&endpoint, &arguments.control_table, output);
    context.hooks = Hooks::open(&arguments.hooks)?;
    let Some(limit) = arguments.verb.limit(&endpoint) else {
        return carry_out(&context, arguments.verb, workers).await;
    };
    // Who took a connection and says nothing is asked again, but not for much longer than the command
    // may take.
    context.absence.bound(limit.saturating_add(ANSWER_LIMIT));
    match carry_out(&context, arguments.verb, workers).await {
        Err(problem) if context.absence.is_silent() && !matches!(problem, Failure::Refused(_)) => {
            say(&format!("not in time: {problem}"));
            Ok(Exit::TimedOut)
        }
        ended => ended,
    }
}

impl MigrateVerb {
    /// How long it may take, where somebody says that.
    fn limit(&self, endpoint: &str) -> Option<Duration> {
        let seconds = match self {
            Self::Status { look, .. } => return Some(following::look_limit(endpoint, *look)),
            Self::Wait { timeout, .. } => *timeout,
            Self::Cutover(cutover) => return Some(cutover.switch.limit()),
            Self::Revert(revert) => return Some(revert.switch.limit()),
            Self::Verify(verify) => return Some(verify.limit()),
            Self::Complete(complete) => return Some(complete.switch.limit()),
            _ => return None,
        };
        Some(Duration::from_secs(seconds))
    }
}

async fn carry_out(
    context: &Context,
    verb: MigrateVerb,
    workers: &dyn StartWorkers,
) -> Result<Exit> {
    match verb {
        MigrateVerb::Plan { file, samples } => estimate::run(context, &file, samples).await,
        MigrateVerb::Start(start) => start::run(context, &start, workers).await,
        MigrateVerb::Work(work) => start::work(context, &work, workers).await,
        MigrateVerb::Status { name, exit_code, look } => {
            let look = following::look_limit(&context.endpoint, look);
            report::status(context, &name, exit_code, look).await
        }
        MigrateVerb::Watch { name } => report::watch(context, &name).await,
        MigrateVerb::Wait { name, phase, timeout } => {
            waiting::wait(context, &name, &phase, timeout).await
        }
        MigrateVerb::Pause { name } => pause(context, &name).await,
        MigrateVerb::Resume { name } => resume(context, &name).await,
        MigrateVerb::Throttle { name, rate } => throttle(context, &name, rate).await,
        MigrateVerb::Verify(verify) => verify::run(context, &verify).await,
        MigrateVerb::Cutover(cutover) => {
            let ended = cutover::cutover(context, &cutover).await;
            cutover.switch.with_hooks(context, "cutover", ended).await
        }
        MigrateVerb::Revert(revert) => {
            let ended = revert::revert(context, &revert).await;
            revert.switch.with_hooks(context, "revert", ended).await
        }
        MigrateVerb::Complete(complete) => {
            let ended = completion::complete(context, &complete).await;
            complete.switch.with_hooks(context, "complete", ended).await
        }
        MigrateVerb::Abort { name, dry_run: true } => abort(context, &name, true).await,
        MigrateVerb::Abort { name, dry_run: false } => {
            let ended = abort(context, &name, false).await;
            context.hooks.after(context, "abort", &name, ended).await
        }
        MigrateVerb::Document { name, key } => assembly::document(context, &name, &key).await,
        MigrateVerb::List => listing::list(context).await,
        MigrateVerb::Journal { name } => listing::journal(context, &name).await,
    }
}

/// What a verb does to a migration; refused where it does nothing.
async fn allowed(
    context: &Context,
    name: &str,
    verb: Verb,
    state: &State,
) -> Result<(Plan, Answer)> {
    let (plan, _) = context.plan(name).await?;
    match answer(name, plan.kind, verb, state.phase) {
        Answer::Refused(why) => Err(Failure::Refused(why)),
        answer => Ok((plan, answer)),
    }
}

async fn pause(context: &Context, name: &str) -> Result<Exit> {
    let state = context.state(name).await?;
    let (plan, _) = allowed(context, name, Verb::Pause, &state).await?;
    if state.paused {
        say(&format!("`{name}` is paused already"));
        return Ok(Exit::Done);
    }
    context.make(name, Guard::default(), &Move::Pause(plan.kind)).await?;
    say(&format!("`{name}` is paused: nothing more is copied, the stream is still followed"));
    output::next(&[(&format!("weir migrate resume {name}"), "go on")]);
    Ok(Exit::Done)
}

async fn resume(context: &Context, name: &str) -> Result<Exit> {
    let state = context.state(name).await?;
    let (plan, _) = allowed(context, name, Verb::Resume, &state).await?;
    if !state.paused {
        workers::wake(context, name).await?;
        say(&format!("`{name}` is not paused; workers were told of its open segments again"));
        return Ok(Exit::Done);
    }
    context.make(name, Guard::default(), &Move::Resume(plan.kind)).await?;
    workers::wake(context, name).await?;
    say(&format!("`{name}` goes on"));
    Ok(Exit::Done)
}

async fn throttle(context: &Context, name: &str, rate: u64) -> Result<Exit> {
    let state = context.state(name).await?;
    allowed(context, name, Verb::Throttle, &state).await?;
    let set = |state: &mut State| std::mem::replace(&mut state.rate, rate) != rate;
    context.control.change(State::new(name), set).await?;
    say(&match rate {
        0 => format!("the backfill of `{name}` reads as fast as it can"),
        rate => format!(
            "the backfill of `{name}` reads at most {} per second, all workers together",
            counted(rate, "item", "items")
        ),
    });
    Ok(Exit::Done)
}

async fn abort(context: &Context, name: &str, dry_run: bool) -> Result<Exit> {
    let state = context.state(name).await?;
    // A migration may have died before its plan was written.
    let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
    let kind = plan.as_ref().map_or(Kind::Restructure, |plan| plan.kind);
    let is_already = match answer(name, kind, Verb::Abort, state.phase) {
        Answer::Refused(why) => return Err(Failure::Refused(why)),
        answer => answer == Answer::Already,
    };
    if is_already {
        say(&format!("`{name}` is aborted already"));
    }
    if dry_run {
        if !is_already {
            let left = left_by_abort(kind);
            say(&format!("`{name}` would no longer follow the stream, and no longer copy; {left}"));
        }
        return Ok(Exit::Done);
    }
    let touches = plan.is_some_and(|plan| plan.backfill == Backfill::Touch);
    if !is_already {
        context.hooks.before(context, "abort", name).await?;
        context.make(name, Guard::default(), &Move::Abort { kind, touches }).await?;
    }
    // Whoever aborted it may have died here; and a cut-over may have been holding writers up.
    let expect = Expect::phases(&[Phase::Aborted]);
    context.control.set_active(name, expect, None).await?;
    context.control.set_route(name, expect, (Side::Source, Side::Source)).await?;
    let opened = |state: &mut State| state.held_at.take().is_some();
    context.control.change_state(name, expect, opened).await?;
    if touches {
        // Each segment is read once more, which is begun here.
        context.advance(name).await?;
    }
    if is_already {
        return Ok(Exit::Done);
    }
    if touches {
        say(&format!("workers take the last marks off; `weir migrate work {name}` if none run"));
    }
    say(&format!("`{name}` is aborted; {}", left_by_abort(kind)));
    Ok(Exit::Done)
}
