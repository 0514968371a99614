//! Functions for programs that run and show migrations without the command line, such as `weir
//! demo` and the console. The functions print nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use control::{JournalLine, State};
pub use rules::migration::plan::Plan;
use rules::migration::plan::{Direction, Kind};
use rules::migration::visible;
use serde_json::Value;

pub use crate::migrate::adjust::{Adjusted, limit_backfill, pause_backfill, resume_backfill};
use crate::migrate::context::Context;
use crate::migrate::drain::stream_lag::{Watcher, look_limit};
pub use crate::migrate::failure::Failure;
use crate::migrate::failure::{Result, is_of_missing_table};
use crate::migrate::plan::tables;
pub use crate::migrate::report::actions::Action;
use crate::migrate::report::backfill::{advance, is_due};
pub use crate::migrate::report::phase_line::{PhasePlace, PhaseStep};
pub use crate::migrate::report::safety::{CutoverSafety, Safety, WritersBlocked};
pub use crate::migrate::report::samples::{Made, Sample, Stands};
pub use crate::migrate::report::status::Observation;
use crate::migrate::report::status::{self, Look};
pub use crate::migrate::report::switches::EndedSwitch;
use crate::migrate::report::{actions, list, phase_line, safety, samples, switches};
use crate::migrate::start::{begin, workers};
use crate::migrate::switch::{differences, verify};

/// The facts about a migration at one point in time.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The state in the control table.
    pub state: State,
    /// The plan; `None` if the command that started the migration was killed before it wrote the
    /// plan.
    pub plan: Option<Plan>,
    /// The migration's kind, as plan files spell it.
    pub kind: Option<&'static str>,
    /// The source tables.
    pub sources: Vec<String>,
    /// The target tables.
    pub targets: Vec<String>,
    /// The phases, in order.
    pub phases: Vec<PhaseStep>,
    /// The status as `weir migrate status --output json` writes it, `weir.migration.status/v1`.
    pub status: Value,
    /// The workers and their segments.
    pub workers: Workers,
    /// The verdict whether a cut-over is safe now; `None` without a plan.
    pub cutover: Option<CutoverSafety>,
    /// The subcommands that are safe to run now.
    pub actions: Vec<Action>,
    /// The phase changes of the migration, oldest first.
    pub journal: Vec<JournalLine>,
    /// The last switch that was committed or rolled back.
    pub last_switch: Option<EndedSwitch>,
    /// The current time by the store's clock, in seconds since 1970.
    pub now: i64,
}

/// The workers of a migration, counted from the leases of its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers {
    /// Number of workers that lease a segment now.
    pub at_work: usize,
    /// Number of segments that workers have not completely read, over all runs.
    pub open_segments: usize,
    /// Number of open segments that are set aside until the operator runs `resume`.
    pub set_aside: usize,
}

/// Returns the states of all migrations; none if the control table does not exist yet.
///
/// # Errors
/// When the control table cannot be read.
pub async fn states(context: &Context) -> Result<Vec<State>> {
    context.control.states().await
}

/// Returns true if a migration of this name was started.
///
/// # Errors
/// When the control table cannot be read.
pub async fn is_known(context: &Context, name: &str) -> Result<bool> {
    match context.control.get::<State>(name, State::NAME).await {
        Err(failure) if is_of_missing_table(&failure) => Ok(false),
        found => found.map(|state| state.is_some()),
    }
}

/// Returns a consistent snapshot of the facts about a migration; `None` if there is no such
/// migration. `seen` has the facts about its streams from an earlier read, because this function
/// does not read the streams.
///
/// # Errors
/// When the control table cannot be read.
pub async fn overview(
    context: &Context,
    name: &str,
    seen: Option<&Observation>,
) -> Result<Option<Overview>> {
    let Some(context) = &snapshot(context, name).await? else { return Ok(None) };
    let look = seen.map_or(Look::None, Look::Before);
    let status = status::describe_with(context, name, look).await?;
    let state = context.state(name).await?;
    let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
    let journal = list::journal_lines(context, name).await?;
    let tasks = context.tasks(name).await?;
    let now_ms = workers::lease_clock_ms();
    let counts =
        |task: &&control::Task| !task.done && !state.is_past(task.run) && !state.replaces(task.run);
    let open: Vec<_> = tasks.iter().filter(counts).collect();
    let at_work = open.iter().filter(|task| task.is_leased(now_ms));
    let at_work: BTreeSet<&str> = at_work.filter_map(|task| task.owner.as_deref()).collect();
    let workers = Workers {
        at_work: at_work.len(),
        open_segments: open.len(),
        set_aside: open.iter().filter(|task| task.aside).count(),
    };
    let tables = |tables: &dyn Fn(&Plan) -> Vec<&str>| -> Vec<String> {
        plan.as_ref().map(tables).unwrap_or_default().into_iter().map(str::to_owned).collect()
    };
    let kind = plan.as_ref().map(|plan| plan.kind);
    Ok(Some(Overview {
        kind: kind.map(kind_name),
        sources: tables(&|plan| plan.source_tables(Direction::Forward)),
        targets: tables(&|plan| plan.target_tables(Direction::Forward)),
        phases: phase_line::line(kind.unwrap_or(Kind::Restructure), state.phase, &journal),
        cutover: plan.as_ref().map(|plan| safety::of_cutover(plan, &status)),
        actions: actions::safe(name, plan.as_ref(), &state, &status),
        last_switch: switches::last(&journal),
        now: context.now().await,
        state,
        plan,
        status,
        workers,
        journal,
    }))
}

/// Returns a context with a snapshot of a migration. If the backfill is done and the context may
/// write, first moves the migration to the phase `tailing`.
async fn snapshot(context: &Context, name: &str) -> Result<Option<Context>> {
    let found = match context.snapshot(name).await {
        Err(failure) if is_of_missing_table(&failure) => return Ok(None),
        found => found?,
    };
    if found.control.get::<State>(name, State::NAME).await?.is_none() {
        return Ok(None);
    }
    if context.is_read_only || !is_due(&found, name).await? {
        return Ok(Some(found));
    }
    advance(context, name).await?;
    context.snapshot(name).await.map(Some)
}

/// Returns a migration kind as plan files spell it.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Restructure => "restructure",
        Kind::InPlace => "in-place",
        Kind::Purge => "purge",
        Kind::Split => "split",
    }
}

/// Returns at most `of_table` source items of each table of a plan, each with its target items.
///
/// # Errors
/// When the plan no longer fits its tables, or a table cannot be read.
pub async fn samples(context: &Context, plan: &Plan, of_table: u64) -> Result<Vec<Sample>> {
    samples::samples(context, plan, of_table).await
}

/// A reader of the streams of one migration. The reader stores its positions in the streams, so it
/// reads each record once.
pub struct StreamReader(Watcher);

impl StreamReader {
    /// Returns a reader of streams in the store of `context`.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self(Watcher::with_limit(look_limit(&context.endpoint, None)))
    }

    /// Reads all records that the streams have now, within the default time limit of a pass.
    ///
    /// # Errors
    /// When there is no such migration, it has no plan, or the control table cannot be read.
    pub async fn read(&mut self, context: &Context, name: &str) -> Result<Observation> {
        let (state, (plan, _)) = (context.state(name).await?, context.plan(name).await?);
        let now = context.now().await;
        status::observe(context, &state, &plan, &mut self.0, now).await
    }
}

/// Starts a migration with a checked plan.
///
/// # Errors
/// When the control table cannot be written.
pub async fn begin(context: &Context, plan: &Plan, rate: u64) -> Result<()> {
    begin::begin(context, plan, rate).await
}

/// Returns the phase of a migration, and the number of items that its backfill has read.
///
/// # Errors
/// When the control table cannot be read.
pub async fn phase(context: &Context, name: &str) -> Result<(String, u64)> {
    let (state, progress) = advance(context, name).await?;
    Ok((state.phase.as_str().to_owned(), progress.count("read")))
}

/// Compares sources and targets; returns the number of differences.
///
/// # Errors
/// When the comparison is not complete within `limit`.
pub async fn differences(context: &Context, name: &str, limit: Duration) -> Result<u64> {
    let found = verify::compare(context, name, limit).await?;
    let found = found
        .ok_or_else(|| format!("the comparison did not complete within {} s", limit.as_secs()))?;
    Ok(differences::differences(&found))
}

/// Returns the items of a table without tombstones and marks, as applications read them.
///
/// # Errors
/// When the table cannot be read.
pub async fn scan(client: &aws_sdk_dynamodb::Client, table: &str) -> Result<Vec<model::Item>> {
    let schema = tables::schema(client, table).await?;
    let items = tables::sample(client, table, u64::MAX).await?;
    Ok(items.iter().filter_map(|item| visible(item, &schema)).collect())
}
