//! The switch: readers and writers move to the targets, or back, by one routing entry.
//!
//! Writers stop while the route says so; the drain proof shows that everything they wrote has
//! arrived; then the route says where to go on. Its epoch grows with each change. Whatever does not
//! arrive in time lets the writers go on where they were.

use std::time::{Duration, Instant};

use clap::Args;
use model::json::item_from_str;
use rules::migration::plan::{Direction, Kind, Plan};
use rules::migration::{MARK, Registers};

use super::control::{Entry, number, s, text};
use super::drain::Drain;
use super::start::{Work, activate, make_tasks};
use super::{Context, LOOK_EVERY, assembly, in_place, tables, verify};
use crate::exit::Exit;
use crate::load::{error_text, to_sdk_item, to_sdk_value};
use crate::output::{self, say, show};

/// Partitions over which the function spreads its notes of tombstones.
const NOTE_BUCKETS: u32 = 16;

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
    // From here on what is written to the targets flows back, if there is a way back.
    let back_since = if plan.kind.is_in_place() {
        // Whoever still writes as before is followed until the migration is completed.
        i64::try_from(since).unwrap_or(i64::MAX)
    } else if plan.inverse.is_empty() {
        context.control.set_active(name, None).await?;
        context.now().await
    } else {
        activate(context, name, "reverse", &fingerprint).await?
    };
    let swept = sweep(context, name).await?;
    let epoch = context.control.route(name, "target", "target").await?;
    let held = held.elapsed();
    let why = format!("{shards} shards drained, {swept} tombstones removed, epoch {epoch}");
    let now = context.now().await;
    context
        .control
        .to_phase(name, "cut-over", &why, now, |state| {
            let since = u64::try_from(back_since).unwrap_or(0);
            state.insert("back_since".to_owned(), super::control::n(since));
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
    if phase == "reverted" {
        say(&format!("`{name}` is reverted already"));
        return Ok(Exit::Done);
    }
    let (plan, fingerprint) = context.plan(name).await?;
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
    if plan.kind.is_in_place() {
        return in_place::revert(context, name, &plan, &fingerprint, arguments).await;
    }
    let migration = context.compile(&plan, Direction::Reverse).await?;
    let refused = assembly::refused(context, name, &migration).await?;
    if !refused.is_empty() {
        say(&format!(
            "these documents cannot go back; nothing was changed:\n{}",
            refused.join("\n")
        ));
        return Ok(Exit::Refused);
    }
    let limit = Duration::from_secs(arguments.timeout);
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
    let refused = assembly::refused(context, name, &migration).await?;
    if !refused.is_empty() {
        context.control.route(name, "target", "target").await?;
        say(&format!(
            "these documents cannot go back; nothing was changed:\n{}",
            refused.join("\n")
        ));
        return Ok(Exit::Refused);
    }
    context.control.set_active(name, None).await?;
    let swept = sweep(context, name).await?;
    let epoch = context.control.route(name, "source", "source").await?;
    let held = held.elapsed();
    for table in plan.source_tables(Direction::Forward) {
        unmark(context, name, &fingerprint, table, limit).await?;
    }
    let why = format!("{shards} shards drained, {swept} tombstones removed, epoch {epoch}");
    let now = context.now().await;
    context.control.to_phase(name, "reverted", &why, now, |_| {}).await?;
    show(&format!("{name} is reverted: {why}; writers were held up {:.1} s\n", held.as_secs_f64()));
    Ok(Exit::Done)
}

/// Closes the way back and takes the marks off the targets.
pub(super) async fn complete(
    context: &Context,
    arguments: &SwitchArguments,
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
    if plan.kind.is_in_place() {
        return in_place::complete(context, name, &plan, &fingerprint).await;
    }
    context.control.set_active(name, None).await?;
    sweep(context, name).await?;
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

/// Removes every tombstone that was noted, unless it lives again; gives how many.
async fn sweep(context: &Context, name: &str) -> Result<u64, String> {
    let client = &context.control.client;
    let mut swept = 0;
    for bucket in 0..NOTE_BUCKETS {
        let partition = format!("{name}/tombstones/{bucket:02}");
        for note in context.control.entries(&partition, "TOMBSTONE#").await? {
            let (Some(table), Some(key), Some(entry), Some(at)) =
                (text(&note, "table"), text(&note, "key"), text(&note, "entry"), text(&note, "at"))
            else {
                continue;
            };
            let key =
                item_from_str(key).map_err(|error| format!("a note of a tombstone: {error}"))?;
            let stands = tables::get(client, table, &key).await?;
            let is_tombstone = stands
                .as_ref()
                .and_then(|item| Registers::from_item(item).ok())
                .is_some_and(|registers| registers.is_tombstone());
            if let Some(mark) = stands.as_ref().filter(|_| is_tombstone).and_then(|i| i.get(MARK)) {
                let request = client.delete_item().table_name(table);
                let request = request
                    .set_key(Some(to_sdk_item(&key)))
                    .condition_expression("#mark = :mark")
                    .expression_attribute_names("#mark", MARK)
                    .expression_attribute_values(":mark", to_sdk_value(mark));
                match request.send().await {
                    Ok(_) => swept += 1,
                    // It was written meanwhile, so there is a newer note.
                    Err(error)
                        if error
                            .as_service_error()
                            .is_some_and(|e| e.is_conditional_check_failed_exception()) =>
                    {
                        continue;
                    }
                    Err(error) => return Err(format!("a tombstone: {}", error_text(&error))),
                }
            }
            let request = client.delete_item().table_name(&context.control.table);
            let request = request
                .key("migration", s(&partition))
                .key("entry", s(entry))
                .condition_expression("#at = :at")
                .expression_attribute_names("#at", "at")
                .expression_attribute_values(":at", s(at));
            // A note that is newer by now is left for the next sweep.
            let _ = request.send().await;
        }
    }
    Ok(swept)
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
    let state = context
        .control
        .change(name, "STATE", |state| {
            state.insert("run".to_owned(), super::control::n(number(state, "run") + 1));
            true
        })
        .await?;
    let run = number(&state, "run");
    let work = Work { run, work: "unmark", repairs: false, direction: "forward" };
    make_tasks(context, &plan, fingerprint, work, table).await?;
    Ok(verify::finished(context, name, run, limit).await?.is_some())
}
