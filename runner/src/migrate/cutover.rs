//! The switch: readers and writers move to the targets, or back, by one routing entry.
//!
//! Writers stop while the route says so; the drain proof shows that everything they wrote has
//! arrived; then the route says where to go on. Its epoch grows with each change. Whatever does not
//! arrive in time lets the writers go on where they were.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rules::migration::Migration;
use rules::migration::plan::{Direction, Kind, Plan};

use super::control::{Entry, flag, n, number, text};
use super::drain::Drain;
use super::start::{Work, activate, begin_run, make_tasks};
use super::{Context, LOOK_EVERY, assembly, in_place, sweep, true_value, verify};
use crate::exit::Exit;
use crate::output::{self, say, show};

/// How long a comparison stands for what was written before it: a stream keeps a record for 24 hours,
/// so one from before that may have been trimmed unread, and no drain proof would know of it.
const COMPARISON_SECONDS: i64 = 23 * 3600;
/// Records that may be left when writers are stopped: the function does so many in a second.
const FEW_RECORDS: u64 = 1_000;

/// What to switch.
#[derive(Clone, Debug, Args)]
pub(crate) struct SwitchArguments {
    /// The migration
    name: String,
    /// Seconds that writers may be held up before everything is left as it was
    #[arg(long, default_value_t = 60)]
    pub(super) timeout: u64,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// What to complete.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompleteArguments {
    #[command(flatten)]
    pub(crate) switch: SwitchArguments,
    /// Of a purge with archives, on AWS: the answer of the function `archive-maintenance` to the
    /// event that `complete` tells, one file for each archive
    #[arg(long, value_name = "FILE")]
    erased: Vec<PathBuf>,
}

impl SwitchArguments {
    /// Runs the hook after a verb, but not after one that only said what it would do.
    pub(super) async fn with_hooks(
        &self,
        context: &Context,
        verb: &str,
        ended: Result<Exit, String>,
    ) -> Result<Exit, String> {
        if self.dry_run {
            return ended;
        }
        context.hooks.after(context, verb, &self.name, ended).await
    }
}

/// Switches to the targets.
pub(super) async fn cutover(
    context: &Context,
    arguments: &SwitchArguments,
) -> Result<Exit, String> {
    let name = arguments.name.as_str();
    let (state, _) = context.advance(name).await?;
    let phase = text(&state, "phase").unwrap_or_default();
    if phase == "cut-over" {
        say(&format!("`{name}` is cut over already"));
        return Ok(Exit::Done);
    }
    let (plan, fingerprint) = context.plan(name).await?;
    if plan.kind == Kind::Purge {
        say(&format!("a purge has nothing to switch to; `weir migrate complete {name}`"));
        return Ok(Exit::Refused);
    }
    if !is_ready(context, name, phase, &state).await {
        return Ok(Exit::Refused);
    }
    if arguments.dry_run {
        say(&format!(
            "writers of {} would stop for {} s and until all is drained, then use {}; nothing was written",
            plan.source_tables(Direction::Forward).join(", "),
            plan.gate_seconds,
            plan.target_tables(Direction::Forward).join(", ")
        ));
        return Ok(Exit::Done);
    }
    if !context.hooks.before(context, "cutover", name).await? {
        return Ok(Exit::Refused);
    }
    let limit = Duration::from_secs(arguments.timeout);
    let since = number(&state, "since");
    let mut drain = drain(context, &plan, Direction::Forward, since).await?;
    if !caught_up(&mut drain, limit).await? {
        return Ok(Exit::TimedOut);
    }
    let held = Instant::now();
    context.control.route(name, "source", "none").await?;
    tokio::time::sleep(Duration::from_secs(plan.gate_seconds.into())).await;
    let Some(shards) = drained(&mut drain, limit).await? else {
        context.control.route(name, "source", "source").await?;
        say("everything is as it was: readers and writers use the sources");
        return Ok(Exit::TimedOut);
    };
    let back_since = turn(context, &plan, &fingerprint, since).await?;
    let epoch = context.control.route(name, "target", "target").await?;
    let held = held.elapsed();
    let why = format!("{shards} shards drained, epoch {epoch}");
    let now = context.now().await;
    context
        .control
        .to_phase(name, "cut-over", &why, now, |state| {
            let since = u64::try_from(back_since).unwrap_or(0);
            state.insert("back_since".to_owned(), n(since));
            sweep::switched(state);
        })
        .await?;
    show(&format!("{name} is cut over: {why}; writers were held up {:.1} s\n", held.as_secs_f64()));
    output::next(&[
        (&format!("weir migrate revert {name}"), "switch back"),
        (&format!("weir migrate complete {name}"), "close the way back"),
    ]);
    Ok(Exit::Done)
}

/// Whether a comparison found no difference, and still stands for what was written before it; says
/// so if not.
async fn is_ready(context: &Context, name: &str, phase: &str, state: &Entry) -> bool {
    if phase != "ready" {
        say(&format!(
            "`{name}` is {phase}; `weir migrate verify {name}` must find no difference first"
        ));
        return false;
    }
    let compared = i64::try_from(number(state, "verified_at")).unwrap_or(0);
    let age = context.now().await.saturating_sub(compared);
    if age > COMPARISON_SECONDS {
        say(&format!(
            "`{name}` was compared {} hours ago, and a stream keeps records for 24: `weir migrate verify {name}` again",
            age / 3600
        ));
    }
    age <= COMPARISON_SECONDS
}

/// Switches back to the sources.
pub(super) async fn revert(context: &Context, arguments: &SwitchArguments) -> Result<Exit, String> {
    let name = arguments.name.as_str();
    let state = context.state(name).await?;
    let phase = text(&state, "phase").unwrap_or_default();
    let (plan, fingerprint) = context.plan(name).await?;
    let limit = Duration::from_secs(arguments.timeout);
    if phase == "reverted" && flag(&state, "unswept") {
        // Whoever reverted it did not come to the end.
        return clean(context, &plan, &fingerprint, limit).await;
    }
    if phase == "reverted" {
        say(&format!("`{name}` is reverted already"));
        return Ok(Exit::Done);
    }
    if phase != "cut-over" {
        say(&format!("`{name}` is {phase}; only what is cut over can be reverted"));
        return Ok(Exit::Refused);
    }
    if plan.inverse.is_empty() {
        say(&format!(
            "the plan of `{name}` has no `inverse`: what was written since the cut-over would be lost"
        ));
        return Ok(Exit::Refused);
    }
    if arguments.dry_run {
        say("writers would stop until all is drained, then use the sources; nothing was written");
        return Ok(Exit::Done);
    }
    if !context.hooks.before(context, "revert", name).await? {
        return Ok(Exit::Refused);
    }
    if plan.kind.is_in_place() {
        return in_place::revert(context, name, &plan, &fingerprint, arguments).await;
    }
    let migration = context.compile(&plan, Direction::Reverse).await?;
    if cannot_go_back(context, name, &migration).await? {
        return Ok(Exit::Refused);
    }
    let since = number(&state, "back_since");
    let mut drain = drain(context, &plan, Direction::Reverse, since).await?;
    if !caught_up(&mut drain, limit).await? {
        return Ok(Exit::TimedOut);
    }
    let held = Instant::now();
    context.control.route(name, "target", "none").await?;
    tokio::time::sleep(Duration::from_secs(plan.gate_seconds.into())).await;
    let Some(shards) = drained(&mut drain, limit).await? else {
        context.control.route(name, "target", "target").await?;
        say("everything is as it was: readers and writers use the targets");
        return Ok(Exit::TimedOut);
    };
    // What came up since the first look; all of it has been tried by now.
    if cannot_go_back(context, name, &migration).await? {
        context.control.route(name, "target", "target").await?;
        return Ok(Exit::Refused);
    }
    context.control.set_active(name, None).await?;
    let epoch = context.control.route(name, "source", "source").await?;
    let held = held.elapsed();
    let why = format!("{shards} shards drained, epoch {epoch}");
    context
        .control
        .to_phase(name, "reverted", &why, context.now().await, |state| {
            state.insert("unswept".to_owned(), true_value());
            sweep::switched(state);
        })
        .await?;
    show(&format!("{name} is reverted: {why}; writers were held up {:.1} s\n", held.as_secs_f64()));
    clean(context, &plan, &fingerprint, limit).await
}

/// From here on what is written to the targets flows back, if there is a way back. Gives the second
/// after which records count for it.
async fn turn(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    since: u64,
) -> Result<i64, String> {
    let name = plan.migration.as_str();
    if plan.kind.is_in_place() {
        // Whoever still writes as before is followed until the migration is completed.
        return Ok(i64::try_from(since).unwrap_or(i64::MAX));
    }
    if plan.inverse.is_empty() {
        context.control.set_active(name, None).await?;
        return Ok(context.now().await);
    }
    activate(context, name, "reverse", fingerprint).await
}

/// Whether there are documents that cannot stand in their own table, and says which.
async fn cannot_go_back(
    context: &Context,
    name: &str,
    migration: &Migration,
) -> Result<bool, String> {
    let refused = assembly::refused(context, name, migration).await?;
    if !refused.is_empty() {
        let lines = refused.join("\n");
        say(&format!("these documents cannot go back; nothing was changed:\n{lines}"));
    }
    Ok(!refused.is_empty())
}

/// Takes tombstones and marks off the sources after the way back; they are in use again meanwhile.
async fn clean(
    context: &Context,
    plan: &Plan,
    fingerprint: &str,
    limit: Duration,
) -> Result<Exit, String> {
    let name = plan.migration.as_str();
    let swept = sweep::after_invocations(context, name, plan).await?;
    for table in plan.source_tables(Direction::Forward) {
        if !unmark(context, name, fingerprint, table, limit).await? {
            return Ok(Exit::TimedOut);
        }
    }
    context.control.change(name, "STATE", |state| state.remove("unswept").is_some()).await?;
    say(&format!("{swept} tombstones and all marks are removed from the sources"));
    Ok(Exit::Done)
}

/// Closes the way back and takes the marks off the targets.
pub(super) async fn complete(
    context: &Context,
    CompleteArguments { switch: arguments, erased }: &CompleteArguments,
) -> Result<Exit, String> {
    let name = arguments.name.as_str();
    let state = context.state(name).await?;
    let phase = text(&state, "phase").unwrap_or_default();
    if phase == "completed" {
        say(&format!("`{name}` is completed already"));
        return Ok(Exit::Done);
    }
    let (plan, fingerprint) = context.plan(name).await?;
    let may_end = phase == "cut-over" || (plan.kind.is_in_place() && phase == "ready");
    if !may_end {
        say(&format!("`{name}` is {phase}; only what is cut over can be completed"));
        return Ok(Exit::Refused);
    }
    if arguments.dry_run {
        say("the way back would be closed, and the marks be taken off; nothing was written");
        return Ok(Exit::Done);
    }
    if !context.hooks.before(context, "complete", name).await? {
        return Ok(Exit::Refused);
    }
    if plan.kind.is_in_place() {
        return in_place::complete(context, name, &plan, &fingerprint, erased).await;
    }
    context.control.set_active(name, None).await?;
    sweep::after_invocations(context, name, &plan).await?;
    let limit = Duration::from_secs(arguments.timeout);
    for table in plan.target_tables(Direction::Forward) {
        if !unmark(context, name, &fingerprint, table, limit).await? {
            return Ok(Exit::TimedOut);
        }
    }
    let now = context.now().await;
    context.control.to_phase(name, "completed", "completed by a person", now, |_| {}).await?;
    show(&format!("{name} is completed; the source tables are no longer needed\n"));
    Ok(Exit::Done)
}

/// A drain of a migration's source tables in a direction; `since` is the second after which records
/// count.
pub(super) async fn drain(
    context: &Context,
    plan: &Plan,
    direction: Direction,
    since: u64,
) -> Result<Drain, String> {
    let migration = context.compile(plan, direction).await?;
    let tables = plan.source_tables(direction);
    let since = i64::try_from(since).unwrap_or(i64::MAX);
    Ok(Drain::new(&context.endpoint, &context.control.client, migration, &tables, since))
}

/// Looks until everything that was written so far is drained, or until few records are left, which
/// others may write; answers whether that was in time. Nobody is held up meanwhile.
async fn caught_up(drain: &mut Drain, limit: Duration) -> Result<bool, String> {
    let started = Instant::now();
    let mut said = Instant::now();
    loop {
        let look = drain.look().await?;
        let Some(missing) = look.missing.filter(|_| look.waiting > FEW_RECORDS) else {
            return Ok(true);
        };
        let what = format!("{} records are not applied yet: {missing}", look.waiting);
        if started.elapsed() > limit {
            say(&format!("not caught up after {} s: {what}", limit.as_secs()));
            return Ok(false);
        }
        if said.elapsed() > Duration::from_secs(2) {
            say(&what);
            said = Instant::now();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks until everything is drained; gives the number of shards, or none if it took too long.
pub(super) async fn drained(drain: &mut Drain, limit: Duration) -> Result<Option<usize>, String> {
    let started = Instant::now();
    loop {
        let look = drain.look().await?;
        let Some(missing) = look.missing else { return Ok(Some(look.shards)) };
        if started.elapsed() > limit {
            say(&format!("not drained after {} s: {missing}", limit.as_secs()));
            return Ok(None);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Takes the marks off a table; gives whether that was done in time.
async fn unmark(
    context: &Context,
    name: &str,
    fingerprint: &str,
    table: &str,
    limit: Duration,
) -> Result<bool, String> {
    let (plan, _) = context.plan(name).await?;
    let run = begin_run(context, name).await?;
    let work = Work { run, work: "unmark", repairs: false, direction: "forward" };
    make_tasks(context, &plan, fingerprint, work, table).await?;
    Ok(verify::finished(context, name, run, limit).await?.is_some())
}
