//! The switch: readers and writers move to the targets, or back, by one routing entry.
//!
//! Writers stop while the route says so; the drain proof shows that everything they wrote has
//! arrived; that is decided and written down; then the route says where to go on. Its epoch grows
//! with each change. Whatever goes wrong before the decision lets the writers go on where they were,
//! and after it the verb, said again, opens the route.

use std::time::{Duration, Instant};

use clap::Args;
use rules::migration::plan::{Direction, Plan};
use rules::migration::{Migration, Phase};

use super::catch_up::{LAST_LOOK, drained, may_hold_up, within};
use super::comparing::compares;
use super::completion::clean;
use super::control::{Entry, Expect, Move, flag, n, number, phase_of};
use super::drain::{Counted, Drain};
use super::held::{CUTOVER, HELD_AT, Hold, REVERT, held_up, is_open, or_interrupted};
use super::start::{After, Fence, activate};
use super::steps::Standing;
use super::verbs::{Answer, Verb, answer};
use super::way_back::BACK_DIFFERENCES;
use super::{Context, assembly, followers, in_place, record_time, sweep, true_value, way_back};
use client::endpoint;
use client::exit::Exit;
use client::output::{self, say, show};

/// How long a comparison stands for what was written before it: a stream keeps a record for 24 hours,
/// so one from before that may have been trimmed unread, and no drain proof would know of it.
pub(super) const COMPARISON_SECONDS: i64 = 23 * 3600;

/// How long a store may say nothing to each step once a switch is decided: writers are held up until
/// the last one is done, whatever the time was in which it had to be decided.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// What to switch.
#[derive(Clone, Debug, Args)]
pub(crate) struct SwitchArguments {
    /// The migration
    pub(super) name: String,
    /// Seconds that writers may be blocked before the switch is rolled back
    #[arg(long, default_value_t = 60)]
    pub(super) timeout: u64,
    /// Report what would happen; change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// What to cut over.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate cutover shop --dry-run\n  weir migrate cutover shop --timeout 30\n\nExit codes: 0 done, 4 refused, 5 timed out: rolled back, unless the message says that the rollback failed or that the cut-over is committed but incomplete; then run it again"
)]
pub(crate) struct CutoverArguments {
    #[command(flatten)]
    pub(super) switch: SwitchArguments,
    /// Switch although the plan has no `inverse`: later writes to the targets never reach the sources
    #[arg(long)]
    no_way_back: bool,
    /// Switch although no worker follows the targets' streams: their writes reach the sources only if a
    /// worker starts within 24 hours
    #[arg(long)]
    nobody_follows: bool,
}

/// What to switch back.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate revert shop --dry-run\n  weir migrate revert shop\n\nExit codes: 0 done, 3 some items cannot be changed back, 4 refused, 5 timed out: rolled back, unless the message says that the rollback failed, or that the revert is committed but incomplete; then run it again"
)]
pub(crate) struct RevertArguments {
    #[command(flatten)]
    pub(super) switch: SwitchArguments,
    /// Switch although the last comparison found differences: the sources keep their values there
    #[arg(long)]
    with_differences: bool,
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

    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// What happened while writers were held up.
struct Decided {
    shards: usize,
    /// When they were stopped.
    held: Instant,
}

/// Switches to the targets.
pub(super) async fn cutover(
    context: &Context,
    CutoverArguments { switch: arguments, no_way_back, nobody_follows }: &CutoverArguments,
) -> Result<Exit, String> {
    let name = arguments.name.as_str();
    let (state, _) = match arguments.dry_run {
        true => context.look(name).await?,
        false => context.advance(name).await?,
    };
    let phase = phase_of(&state);
    let (plan, fingerprint) = context.plan(name).await?;
    match answer(name, plan.kind, Verb::Cutover, phase) {
        Answer::Go | Answer::GoOn => {}
        Answer::Already => {
            say(&format!("`{name}` is cut over already"));
            return Ok(Exit::Done);
        }
        Answer::Refused(why) => {
            say(&why);
            return Ok(Exit::Refused);
        }
    }
    let is_for_good = plan.inverse.is_empty() && !plan.kind.is_in_place();
    if is_for_good && !no_way_back && phase != Phase::Turning {
        say(&format!(
            "the plan of `{name}` has no `inverse`, so `weir migrate revert` could not switch back: say --no-way-back if that is meant"
        ));
        return Ok(Exit::Refused);
    }
    let is_stale = phase != Phase::Turning && !is_fresh(context, name, &state).await;
    if is_stale && phase == Phase::Ready {
        return Ok(Exit::Refused);
    }
    if arguments.dry_run && phase == Phase::Turning {
        let targets = plan.target_tables(Direction::Forward).join(", ");
        say(&format!(
            "all is drained already: the route would be opened to {targets}; nothing was written"
        ));
        return Ok(Exit::Done);
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
    if phase == Phase::Turning {
        return open_targets(context, name, None).await;
    }
    let asks = !nobody_follows && phase == Phase::Ready;
    let before = Before { is_stale, asks };
    switch(context, (&plan, &fingerprint), &state, before, arguments.limit()).await
}

/// What is known and asked before a cut-over.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// The last comparison is too old.
    is_stale: bool,
    /// Whether somebody follows the streams of the targets is asked for.
    asks: bool,
}

/// Moves readers and writers to the targets once all is drained, or leaves everything as it was.
async fn switch(
    context: &Context,
    (plan, fingerprint): (&Plan, &str),
    state: &Entry,
    Before { is_stale, asks }: Before,
    limit: Duration,
) -> Result<Exit, String> {
    let name = plan.migration.as_str();
    let since = number(state, "since");
    let counted = Counted { since, compared: number(state, "verified_at") };
    // Before the streams are caught up with: what comes during this wait is read after it.
    if asks && !followers::are_seen(context, plan, state, limit).await? {
        return Ok(Exit::TimedOut);
    }
    let mut drain = drain(context, plan, Direction::Forward, counted, WayBack::Kept).await?;
    if phase_of(state) == Phase::Ready
        && let Err(exit) = may_hold_up(context, name, CUTOVER, false, &mut drain, limit).await?
    {
        return Ok(exit);
    }
    if record_time::is_unfit(context).await? {
        return Ok(Exit::Refused);
    }
    let (settle, fence) = (settle_time(context, plan).await, fence_time(context, plan).await?);
    let hold = Hold::take(context, name, CUTOVER, fingerprint, since).await?;
    let most = time_to_decide(plan, limit, settle).saturating_add(fence);
    let decided = hold.decide(most, async {
        if is_stale || compares(context, name, CUTOVER.held, false).await? {
            return Ok(Err(Exit::Refused));
        }
        let held = Instant::now();
        hold.close(plan.gate_seconds).await?;
        let proof = drained(&mut drain, limit, settle);
        let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
        let shards = match within(most, proof).await? {
            Ok(shards) => shards,
            Err(exit) => return Ok(Err(exit)),
        };
        let back_since = turn(context, &hold, plan, fingerprint, since).await?;
        let why = output::counted(shards, "shard drained", "shards drained");
        let (expect, now) = (hold.expect(), context.now().await);
        let decide = Move { expect, to: Some(CUTOVER.decided), why: &why, now };
        let switched_at = sweep::real_seconds(context).await;
        let also = |state: &mut Entry| {
            state.insert("back_since".to_owned(), n(u64::try_from(back_since).unwrap_or(0)));
            sweep::switched(state, switched_at);
        };
        context.control.to_phase(name, decide, also).await?;
        Ok(Ok(Decided { shards, held }))
    });
    match decided.await? {
        Ok(decided) => open_targets(context, name, decided).await,
        Err(exit) => {
            say("everything is as it was: readers and writers use the sources");
            Ok(exit)
        }
    }
}

/// The last steps of a cut-over, which nothing can go against any more.
async fn open_targets(
    context: &Context,
    name: &str,
    decided: Option<Decided>,
) -> Result<Exit, String> {
    context.absence.bound(OPEN_LIMIT);
    let expect = Expect::phases(&[Phase::Turning]);
    let undone = |problem: String| decided_and_not_done(&problem, "cutover", name);
    let was_open = is_open(context, name).await.map_err(undone)?;
    let opened = context.control.route(name, expect, "target", "target").await;
    let epoch = opened.map_err(undone)?;
    let own = decided.as_ref().map(|decided| decided.held.elapsed());
    let why = told(decided.as_ref(), epoch);
    let (now, mut held_at) = (context.now().await, 0);
    let end = Move { expect, to: Some(Phase::CutOver), why: &why, now };
    context
        .control
        .to_phase(name, end, |state| {
            state.remove("holder");
            held_at = number(state, HELD_AT);
            state.remove(HELD_AT);
        })
        .await
        .map_err(undone)?;
    // Whoever opened it and died did not say when.
    let held = if was_open { String::new() } else { held_up(own, held_at, now) };
    show(&format!("{name} is cut over: {why}{held}\n"));
    // It has gone through, whether the plan can be read again or not.
    let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
    Standing::new(name, Phase::CutOver, plan.as_ref()).show();
    Ok(Exit::Done)
}

/// Why what was decided is not done yet, and what that leaves.
fn decided_and_not_done(problem: &str, verb: &str, name: &str) -> String {
    format!(
        "{problem}; it is decided and not done: writers may be held up until `weir migrate {verb} {name}` is said again"
    )
}

/// What was done, for the journal.
fn told(decided: Option<&Decided>, epoch: u64) -> String {
    match decided {
        Some(Decided { shards, .. }) => {
            format!(
                "{}, epoch {epoch}",
                output::counted(*shards, "shard drained", "shards drained")
            )
        }
        None => format!("what was decided before was ended, epoch {epoch}"),
    }
}

/// Whether a comparison still stands for what was written before it; says so if not.
pub(super) async fn is_fresh(context: &Context, name: &str, state: &Entry) -> bool {
    let age = comparison_age(context, state).await;
    if age > COMPARISON_SECONDS {
        say(&format!(
            "`{name}` was compared {} hours ago, and a stream keeps records for 24: `weir migrate verify {name}` again",
            age / 3600
        ));
    }
    age <= COMPARISON_SECONDS
}

/// Whether a comparison is too old to stand for what was written before it.
pub(super) async fn is_too_old(context: &Context, state: &Entry) -> bool {
    comparison_age(context, state).await > COMPARISON_SECONDS
}

async fn comparison_age(context: &Context, state: &Entry) -> i64 {
    age_of_comparison(state, context.now().await)
}

/// Seconds since the last comparison for a cut-over began.
pub(super) fn age_of_comparison(state: &Entry, now: i64) -> i64 {
    now.saturating_sub(i64::try_from(number(state, "verified_at")).unwrap_or(0))
}

/// Switches back to the sources.
pub(super) async fn revert(
    context: &Context,
    RevertArguments { switch: arguments, with_differences }: &RevertArguments,
) -> Result<Exit, String> {
    let name = arguments.name.as_str();
    let state = context.state(name).await?;
    let phase = phase_of(&state);
    let (plan, fingerprint) = context.plan(name).await?;
    if phase == Phase::Reverted && !arguments.dry_run {
        // An older version could die before it did that.
        context.control.set_active(name, Expect::phases(&[phase]), None).await?;
    }
    match answer(name, plan.kind, Verb::Revert, phase) {
        Answer::Go | Answer::GoOn => {}
        Answer::Already if flag(&state, "unswept") && !arguments.dry_run => {
            // Whoever reverted it did not come to the end.
            return clean(context, &plan, &fingerprint, arguments.limit()).await;
        }
        Answer::Already => {
            say(&format!("`{name}` is reverted already"));
            return Ok(Exit::Done);
        }
        Answer::Refused(why) => {
            say(&why);
            return Ok(Exit::Refused);
        }
    }
    if plan.inverse.is_empty() {
        say(&format!(
            "the plan of `{name}` has no `inverse`: what was written since the cut-over would be lost"
        ));
        return Ok(Exit::Refused);
    }
    let is_stale = way_back::is_forgotten(context, name, &plan, &state).await;
    if phase == Phase::CutOver && (is_stale || (!with_differences && differs(name, &state))) {
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
    if phase == Phase::Returning {
        open_sources(context, name, None).await?;
    } else {
        let in_the_way = InTheWay { is_stale, may_differ: *with_differences };
        let limit = arguments.limit();
        let went = go_back(context, (&plan, &fingerprint), &state, in_the_way, limit);
        if let Some(exit) = went.await? {
            return Ok(exit);
        }
    }
    or_interrupted(clean(context, &plan, &fingerprint, arguments.limit())).await
}

/// Whether the last comparison of the way back found differences; says so, and what to do.
fn differs(name: &str, state: &Entry) -> bool {
    let differences = number(state, BACK_DIFFERENCES);
    if differences > 0 {
        say(&format!(
            "the last comparison of what came back of `{name}` found {}: `weir migrate verify {name} --repair` first; where the targets cannot be used any longer, `weir migrate revert {name} --with-differences` goes back without what differs",
            output::counted(differences, "difference", "differences")
        ));
    }
    differences > 0
}

/// What is in the way of a way back, or not.
#[derive(Clone, Copy)]
struct InTheWay {
    /// Streams may have forgotten what was written to the targets.
    is_stale: bool,
    /// Differences are accepted.
    may_differ: bool,
}

/// Brings what was written to the targets back, and opens the route to the sources; gives how the
/// verb ends if that did not go through.
async fn go_back(
    context: &Context,
    (plan, fingerprint): (&Plan, &str),
    state: &Entry,
    InTheWay { is_stale, may_differ }: InTheWay,
    limit: Duration,
) -> Result<Option<Exit>, String> {
    let name = plan.migration.as_str();
    let migration = context.compile(plan, Direction::Reverse).await?;
    let is_first = phase_of(state) == Phase::CutOver;
    if is_first && cannot_go_back(context, name, &migration).await? {
        return Ok(Some(Exit::Refused));
    }
    let since = number(state, "back_since");
    let counted = Counted { since, compared: way_back::known_since(state) };
    let mut drain = drain(context, plan, Direction::Reverse, counted, WayBack::Unused).await?;
    if is_first
        && let Err(exit) = may_hold_up(context, name, REVERT, may_differ, &mut drain, limit).await?
    {
        return Ok(Some(exit));
    }
    let settle = settle_time(context, plan).await;
    let hold = Hold::take(context, name, REVERT, fingerprint, since).await?;
    let decided = hold.decide(time_to_decide(plan, limit, settle), async {
        // A comparison may have ended since the first look; from here on none can. Whoever is taken over
        // was let through if they have held writers up.
        let may_differ = may_differ || number(state, HELD_AT) > 0;
        let is_different = !may_differ && differs(name, &context.state(name).await?);
        if is_stale || is_different || compares(context, name, REVERT.held, may_differ).await? {
            return Ok(Err(Exit::Refused));
        }
        let held = Instant::now();
        hold.close(plan.gate_seconds).await?;
        let proof = drained(&mut drain, limit, settle);
        let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
        let shards = match within(most, proof).await? {
            Ok(shards) => shards,
            Err(exit) => return Ok(Err(exit)),
        };
        // What came up since the first look; all of it has been tried by now.
        if cannot_go_back(context, name, &migration).await? {
            return Ok(Err(Exit::Refused));
        }
        context.control.set_active(name, hold.expect(), None).await?;
        let why = output::counted(shards, "shard drained", "shards drained");
        let (expect, now) = (hold.expect(), context.now().await);
        let decide = Move { expect, to: Some(REVERT.decided), why: &why, now };
        let switched_at = sweep::real_seconds(context).await;
        let switched = |state: &mut Entry| sweep::switched(state, switched_at);
        context.control.to_phase(name, decide, switched).await?;
        Ok(Ok(Decided { shards, held }))
    });
    match decided.await? {
        Ok(decided) => open_sources(context, name, decided).await.map(|()| None),
        Err(exit) => {
            say("everything is as it was: readers and writers use the targets");
            Ok(Some(exit))
        }
    }
}

/// The last steps of a way back, which nothing can go against any more.
async fn open_sources(
    context: &Context,
    name: &str,
    decided: Option<Decided>,
) -> Result<(), String> {
    context.absence.bound(OPEN_LIMIT);
    let expect = Expect::phases(&[Phase::Returning]);
    let undone = |problem: String| decided_and_not_done(&problem, "revert", name);
    let was_open = is_open(context, name).await.map_err(undone)?;
    let opened = context.control.route(name, expect, "source", "source").await;
    let epoch = opened.map_err(undone)?;
    let own = decided.as_ref().map(|decided| decided.held.elapsed());
    let why = told(decided.as_ref(), epoch);
    let (now, mut held_at) = (context.now().await, 0);
    let end = Move { expect, to: Some(Phase::Reverted), why: &why, now };
    context
        .control
        .to_phase(name, end, |state| {
            state.remove("holder");
            held_at = number(state, HELD_AT);
            state.remove(HELD_AT);
            state.insert("unswept".to_owned(), true_value());
        })
        .await
        .map_err(undone)?;
    // Whoever opened it and died did not say when.
    let held = if was_open { String::new() } else { held_up(own, held_at, now) };
    show(&format!("{name} is reverted: {why}{held}\n"));
    Ok(())
}

/// From here on what is written to the targets flows back, if there is a way back. Gives the second
/// after which records count for it.
async fn turn(
    context: &Context,
    hold: &Hold<'_>,
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
        context.control.set_active(name, hold.expect(), None).await?;
        return Ok(context.now().await);
    }
    let (expect, after) = (hold.expect(), After::Writers);
    let fence = Fence { direction: "reverse", fingerprint, expect, after };
    activate(context, name, fence).await
}

/// Whether there are documents that cannot stand in their own table, and says which.
async fn cannot_go_back(
    context: &Context,
    name: &str,
    migration: &Migration,
) -> Result<bool, String> {
    let refused = assembly::refused(context, name, migration, usize::MAX).await?;
    if !refused.is_empty() {
        let lines = refused.join("\n");
        say(&format!("these documents cannot go back; nothing was changed:\n{lines}"));
    }
    Ok(!refused.is_empty())
}

/// Whether what is made of an item has to come back as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WayBack {
    /// The plan's `inverse`, if it has one, may be used afterwards.
    Kept,
    /// It is used now, or closed.
    Unused,
}

/// A drain of a migration's source tables in a direction.
pub(super) async fn drain(
    context: &Context,
    plan: &Plan,
    direction: Direction,
    counted: Counted,
    way_back: WayBack,
) -> Result<Drain, String> {
    let migration = context.compile(plan, direction).await?;
    let inverse = match way_back {
        WayBack::Kept if !plan.inverse.is_empty() => {
            Some(context.compile(plan, Direction::Reverse).await?)
        }
        WayBack::Kept | WayBack::Unused => None,
    };
    let (both, tables) = ((migration, inverse), plan.source_tables(direction));
    let behind = record_time::behind(context).await?;
    let drain = Drain::new(&context.endpoint, &context.control.client, both, &tables, counted);
    Ok(drain.with_times_behind(behind))
}

/// How long streams must bring nothing more before they count as drained. A local store's record is
/// there when its write is acknowledged; DynamoDB's comes later.
pub(super) async fn settle_time(context: &Context, plan: &Plan) -> Duration {
    match endpoint::ask_clock(&context.endpoint).await {
        Some(_) => Duration::ZERO,
        None => Duration::from_secs(plan.settle_seconds.into()),
    }
}

/// How long the fence of a way back may take to pass while writers are held up, beyond what clocks need.
/// Announces it: no `--timeout` shortens it.
async fn fence_time(context: &Context, plan: &Plan) -> Result<Duration, String> {
    if plan.inverse.is_empty() || plan.kind.is_in_place() {
        return Ok(Duration::ZERO);
    }
    let fence = record_time::coarseness(context).await?;
    if !fence.is_zero() {
        say(
            "the stream records of this store show coarse times: once all is drained, writers are held up until the records show the next one, for up to a minute more",
        );
    }
    Ok(fence)
}

/// How long writers may be held up until it is decided: as long as the proof may take, and until each
/// of them has seen it.
fn time_to_decide(plan: &Plan, limit: Duration, settle: Duration) -> Duration {
    let gate = Duration::from_secs(plan.gate_seconds.into());
    limit.saturating_add(settle).saturating_add(LAST_LOOK).saturating_add(gate)
}
