//! `weir migrate`: restructures tables while clients write to them, and loses no write.
//!
//! The function `migration` copies and transforms items, on Lambda or with `--local-workers`. The
//! subcommands control the function through the control table. Every subcommand is idempotent.

mod adjust;
pub mod api;
#[cfg(test)]
mod application_tests;
mod attempts;
mod context;
mod control_table;
mod create_table;
mod drain;
mod failure;
mod hooks;
pub mod local_workers;
mod operator;
mod plan;
mod report;
mod start;
mod switch;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::migrate::context::ANSWER_LIMIT;
pub use crate::migrate::context::Context;
use crate::migrate::drain::stream_lag;
use crate::migrate::failure::{Failure, Result};
use crate::migrate::hooks::{HookArguments, Hooks};
use crate::migrate::local_workers::StartWorkers;
use crate::migrate::plan::estimate;
use crate::migrate::report::{documents, list, status, wait};
use crate::migrate::start::command;
use crate::migrate::switch::{complete, cutover, revert, verb_hooks, verify};
use client::endpoint;
use client::exit::Exit;
use client::output::{Output, say};
use design::prices;

/// Default timeout of waits: one day.
const WAIT_SECONDS: u64 = 24 * 3600;

/// Arguments of `weir migrate`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate plan shop.yaml\n  weir migrate start shop.yaml --local-workers 4      # keep it open; another terminal for the rest\n  weir migrate status shop\n  weir migrate wait shop\n  weir migrate verify shop\n  weir migrate cutover shop\n  weir migrate complete shop      # or: weir migrate revert shop\n\nTerms: the route is the control table entry that selects the tables that the application uses; the epoch counts the changes of the route. A mark is an attribute that Weir writes into an item, such as `_weir`. A tombstone is an item with only a mark that replaces a deleted item: readers skip it. `complete` removes marks and tombstones\n\n`weir init migration` writes a project with a commented plan; `weir migrate plan --help` shows a short one\n\nEvery command may be interrupted and run again. An interrupted `cutover` or `revert` may leave writers blocked until you run it again\n\nExit codes: 0 done, 1 failed, 2 wrong flags, 3 differences were found, 4 refused, 5 timed out, 130 or 143 interrupted"
)]
pub struct MigrateArguments {
    #[command(subcommand)]
    verb: MigrateVerb,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
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
    /// Check a plan against its tables and report its effects; writes nothing
    #[command(
        after_help = "Examples:\n  weir migrate plan shop.yaml\n  weir migrate plan shop.yaml --samples 5000 --output json\n\nA plan; `weir init migration` writes a commented one:\n  migration: shop\n  kind: restructure        # or: split, in-place, purge\n  from:\n    - table: orders\n      items:\n        - {to: shop, transform: '. + {kind: \"order\"}', key: {pk: 'ORDER#{orderID}'}}\n  inverse:                 # for revert: back from the targets\n    - table: shop\n      items: [{to: orders, transform: 'del(.kind, .pk)'}]\n\nExit codes: 0 done, 1 failed, 3 the plan has findings"
    )]
    Plan {
        /// The plan file
        file: PathBuf,
        /// Number of items to sample from each table
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
        samples: u64,
        #[arg(long, value_name = "FILE", help = prices::option_help())]
        prices: Option<PathBuf>,
    },
    /// Start or resume a migration: apply changes from the streams, and run the backfill
    Start(command::StartArguments),
    /// Run workers for a started migration, until Ctrl-C
    Work(command::WorkArguments),
    /// Show progress, what blocks the next step, and the next commands
    #[command(
        after_help = "Examples:\n  weir migrate status shop\n  weir migrate status shop --output json\n  weir migrate status shop --exit-code && weir migrate cutover shop\n\nWritten items are the targets that the backfill wrote. This can be fewer than the items read: an item may have no target, or a change may have written its target already\n\nPhases, in this order: preparing, copying, tailing (the backfill is done), ready (`verify` found no difference), cutting-over, turning, cut-over; then completing, completed. `revert` goes from cut-over through reverting and returning to reverted. `abort`, possible before the cut-over, goes to aborted\n\nExit codes: 0 shown, 1 failed; with --exit-code as described at the flag"
    )]
    Status {
        /// The migration
        name: String,
        /// Exit with 0 when ready or done, 3 when in progress, blocked or unknown, 1 when aborted
        #[arg(long)]
        exit_code: bool,
        /// Seconds to spend on reading the streams [default: 10, on AWS 30]
        #[arg(long, value_name = "SECONDS")]
        look: Option<u64>,
    },
    /// Print each change of the status, until only a command can change it
    #[command(after_help = "Exit codes: 0 only a command can change the status, 1 failed")]
    Watch {
        /// The migration
        name: String,
    },
    /// Wait until a migration reaches a phase
    #[command(
        after_help = "Examples:\n  weir migrate wait shop --for reverted --timeout 600\n\nOnly `verify` moves a migration to `ready`\n\nExit codes: 0 in the phase or a later one, 1 the migration ended in another phase, 5 timed out"
    )]
    Wait {
        /// The migration
        name: String,
        /// The phase: copying, tailing, ready, cut-over, reverted, completed or aborted
        #[arg(long = "for", default_value = "tailing")]
        phase: String,
        /// Maximum seconds to wait
        #[arg(long, default_value_t = WAIT_SECONDS)]
        timeout: u64,
    },
    /// Pause the backfill; changes are still applied
    #[command(
        after_help = "A pause has no time limit. Keep the workers running, because they still apply changes\n\nExit codes: 0 done, 1 failed, 4 refused"
    )]
    Pause {
        /// The migration
        name: String,
    },
    /// Resume the backfill, after `pause` or once the cause of a failing segment is fixed
    #[command(
        after_help = "A pause has no time limit. Streams keep changes for 24 h: if no worker ran for 24 h, abort instead\n\nExit codes: 0 done, 1 failed, 4 refused"
    )]
    Resume {
        /// The migration
        name: String,
    },
    /// Limit the items per second that the backfill reads, over all workers; 0 for no limit
    #[command(after_help = "Exit codes: 0 done, 1 failed, 4 refused")]
    Throttle {
        /// The migration
        name: String,
        /// Items per second
        #[arg(long, allow_negative_numbers = true, value_parser = command::rate)]
        rate: u64,
    },
    /// Verify that targets equal the transformed sources, while clients write; after a cut-over,
    /// verify that sources equal the inversely transformed targets
    Verify(verify::VerifyArguments),
    /// Switch readers and writers to the targets; writers are blocked during the switch
    #[command(visible_alias = "cut-over")]
    Cutover(cutover::CutoverArguments),
    /// Switch readers and writers back to the sources, which have all writes since the cut-over
    Revert(revert::RevertArguments),
    /// Finish after the cut-over: no revert is possible afterwards; removes marks from the targets
    Complete(complete::CompleteArguments),
    /// Abort before the cut-over: sources stay unchanged, and you can delete the targets; in-place
    /// changes and removals by a purge are not undone
    #[command(
        after_help = "Exit codes: 0 done, 1 failed, 3 done, but the hook `after-abort` failed, 4 refused"
    )]
    Abort {
        /// The migration
        name: String,
        /// Report what would happen, without changing anything
        #[arg(long)]
        dry_run: bool,
    },
    /// Show a document of a split, assembled from its current parts
    #[command(
        after_help = "Exit codes: 0 shown, 1 failed or no such document, 4 the migration is not a split"
    )]
    Document {
        /// The migration
        name: String,
        /// The document's key, in plain JSON or DynamoDB JSON
        key: String,
    },
    /// List migrations
    #[command(after_help = "Exit codes: 0 listed, 1 failed")]
    List,
    /// Show the journal of a migration: every phase change
    #[command(after_help = "Exit codes: 0 shown, 1 failed or no such migration")]
    Journal {
        /// The migration
        name: String,
    },
}

/// Runs the subcommand; `workers` starts the workers of `--local-workers`.
///
/// # Errors
/// When the subcommand fails; the message is for the operator.
pub async fn run(
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
    // Requests without a response are retried until `ANSWER_LIMIT` after the command's time
    // limit.
    context.absence.bound(limit.saturating_add(ANSWER_LIMIT));
    match carry_out(&context, arguments.verb, workers).await {
        Err(problem) if context.absence.is_silent() && !matches!(problem, Failure::Refused(_)) => {
            say(&format!("timed out: {problem}"));
            Ok(Exit::TimedOut)
        }
        ended => ended,
    }
}

impl MigrateVerb {
    /// Returns the time limit of the subcommand, if it has one.
    fn limit(&self, endpoint: &str) -> Option<Duration> {
        let seconds = match self {
            Self::Status { look, .. } => return Some(stream_lag::look_limit(endpoint, *look)),
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
        MigrateVerb::Plan { file, samples, prices } => {
            let prices = estimate::read_prices(prices.as_deref())?;
            estimate::run(context, &file, samples, &prices).await
        }
        MigrateVerb::Start(start) => command::run(context, &start, workers).await,
        MigrateVerb::Work(work) => command::work(context, &work, workers).await,
        MigrateVerb::Status { name, exit_code, look } => {
            let look = stream_lag::look_limit(&context.endpoint, look);
            status::status(context, &name, exit_code, look).await
        }
        MigrateVerb::Watch { name } => status::watch(context, &name).await,
        MigrateVerb::Wait { name, phase, timeout } => {
            wait::wait(context, &name, &phase, timeout).await
        }
        MigrateVerb::Pause { name } => adjust::pause(context, &name).await,
        MigrateVerb::Resume { name } => adjust::resume(context, &name).await,
        MigrateVerb::Throttle { name, rate } => adjust::throttle(context, &name, rate).await,
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
            let ended = complete::complete(context, &complete).await;
            complete.switch.with_hooks(context, "complete", ended).await
        }
        MigrateVerb::Abort { name, dry_run: true } => adjust::abort(context, &name, true).await,
        MigrateVerb::Abort { name, dry_run: false } => {
            let ended = adjust::abort(context, &name, false).await;
            verb_hooks::after(context, "abort", &name, ended).await
        }
        MigrateVerb::Document { name, key } => documents::document(context, &name, &key).await,
        MigrateVerb::List => list::list(context).await,
        MigrateVerb::Journal { name } => list::journal(context, &name).await,
    }
}
