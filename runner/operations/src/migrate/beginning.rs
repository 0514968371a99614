//! Beginning a migration: what it moves is noted, its plan written, it is made active, and then its tasks
//! are made.
//!
//! Each step may be done again. Where nobody answers for a moment all of it is, as long as nobody else
//! has begun it meanwhile: a migration that is half begun stays so until somebody goes on with it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use rules::migration::Phase;
use rules::migration::plan::{Backfill, Direction, Plan};

use super::control::{Entry, Expect, Move, n, phase_of, s, text};
use super::held::new_holder;
use super::record_time::RecordTime;
use super::start::{After, Fence, activate, wait_for};
use super::tasks::{Work, make_tasks};
use super::{Context, neighbours, tables};
use client::output::say;

/// For how long it is tried to begin while the store answers now and then.
const BEGIN_LIMIT: Duration = Duration::from_secs(600);
/// How long is waited before it is tried again.
const BEGIN_PAUSE: Duration = Duration::from_secs(2);
/// Where a state has how many items each source had when the backfill began.
const COUNTED: &str = "counted";

/// Whose it is to begin a migration.
#[derive(Debug, PartialEq, Eq)]
enum Beginning {
    /// Nobody else has begun it.
    Ours,
    /// It has begun.
    Done,
    /// Somebody else began it, or ended it.
    Theirs,
}

impl Beginning {
    fn of(state: Option<&Entry>, holder: &str, fingerprint: &str) -> Self {
        let Some(state) = state else { return Self::Ours };
        match phase_of(state) {
            Phase::None => Self::Ours,
            // Another plan of the same name.
            _ if text(state, "fingerprint") != Some(fingerprint) => Self::Theirs,
            Phase::Preparing if text(state, "holder") == Some(holder) => Self::Ours,
            Phase::Preparing => Self::Theirs,
            phase if phase.has_ended() => Self::Theirs,
            _ => Self::Done,
        }
    }
}

/// Begins a migration, and where nobody answered in between, goes on for a while.
///
/// # Errors
/// When it cannot be begun, or somebody else begins it.
pub(crate) async fn begin(context: &Context, plan: &Plan, rate: u64) -> Result<(), String> {
    let (holder, begun, mut said) = (new_holder(), Instant::now(), String::new());
    let mut is_first = true;
    loop {
        let unanswered = context.absence.unanswered();
        let tried = match is_first {
            true => begin_as(context, plan, rate, &holder).await,
            false => begin_again(context, plan, rate, &holder).await,
        };
        let Err(problem) = tried else { return Ok(()) };
        // What was answered is the same when it is asked again.
        if context.absence.unanswered() == unanswered {
            return Err(problem);
        }
        if begun.elapsed() > BEGIN_LIMIT {
            return Err(format!(
                "{problem}; say `weir migrate start` again with the same plan, it goes on where this one ended"
            ));
        }
        if problem != said {
            say(&format!("`{}` is not begun yet, it is tried again: {problem}", plan.migration));
            said = problem;
        }
        is_first = false;
        tokio::time::sleep(BEGIN_PAUSE).await;
    }
}

async fn begin_again(
    context: &Context,
    plan: &Plan,
    rate: u64,
    holder: &str,
) -> Result<(), String> {
    let state = context.control.get(&plan.migration, "STATE").await?;
    let json = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    match Beginning::of(state.as_ref(), holder, &Plan::fingerprint(&json)) {
        Beginning::Ours => begin_as(context, plan, rate, holder).await,
        Beginning::Done => Ok(()),
        Beginning::Theirs => Err(format!(
            "somebody else took over what was begun with `{}`; it is theirs to end",
            plan.migration
        )),
    }
}

/// Notes what the plan moves, writes it, makes the migration active, and then makes the tasks of the
/// backfill. Each step may be done again by whoever begins after this process has died, or at the same
/// time; then the steps of the one before come to nothing.
async fn begin_as(context: &Context, plan: &Plan, rate: u64, holder: &str) -> Result<(), String> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let json = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    let fingerprint = Plan::fingerprint(&json);
    let expect = Expect::phases(&[Phase::None, Phase::Preparing]);
    let (why, now) = ("begun by a person", context.now().await);
    let prepare = Move { expect, to: Some(Phase::Preparing), why, now };
    // Who says it last begins it: a fence must not be moved by one while the other makes tasks.
    let also = |state: &mut Entry| {
        let known = state.entry("fingerprint".to_owned()).or_insert_with(|| s(&fingerprint));
        if *known == s(&fingerprint) {
            state.insert("rate".to_owned(), n(rate));
            state.insert("holder".to_owned(), s(holder));
        }
    };
    let enter = |active: &mut Entry| neighbours::enter(active, plan);
    let state = control.to_phase_with(name, prepare, also, Some(enter)).await?;
    if text(&state, "fingerprint") != Some(fingerprint.as_str()) {
        return Err(format!("somebody else begins another plan as `{name}` at the same time"));
    }
    control
        .change(name, "PLAN", |entry| {
            let is_so = text(entry, "plan") == Some(&json);
            entry.insert("plan".to_owned(), s(&json));
            !is_so
        })
        .await?;
    let expect = Expect::held(&[Phase::Preparing], holder);
    control.route(name, expect, "source", "source").await?;
    let fence =
        Fence { direction: "forward", fingerprint: &fingerprint, expect, after: After::Read };
    let since = match known_fence(context, name, &fingerprint).await? {
        Some(since) => {
            // It is not known when it became active, but it is by now.
            let from = since.max(context.now().await);
            wait_for(context, name, from + fence.after.seconds(context).await).await?;
            RecordTime::open(context).await?.pass(from).await?;
            since
        }
        None => activate(context, name, fence).await?,
    };
    let items = source_items(context, plan).await;
    control
        .change_state(name, expect, |state| {
            let since = n(u64::try_from(since).unwrap_or(0));
            let is_counted = state.contains_key(COUNTED);
            state.entry(COUNTED.to_owned()).or_insert_with(|| items.clone());
            state.insert("since".to_owned(), since.clone()) != Some(since) || !is_counted
        })
        .await?;
    let work = match plan.backfill {
        Backfill::Scan => "backfill",
        Backfill::Touch => "touch",
    };
    for table in plan.source_tables(Direction::Forward) {
        let work = Work { run: 0, work, repairs: false, direction: "forward" };
        make_tasks(context, plan, &fingerprint, work, table, expect).await?;
    }
    let why = "the stream is followed, the backfill begins";
    let copy = Move { expect, to: Some(Phase::Copying), why, now: context.now().await };
    let begun = |state: &mut Entry| {
        state.remove("holder");
    };
    control.to_phase(name, copy, begun).await.map(drop)
}

/// How many items each source has, as `DescribeTable` counts them, which on AWS is some hours old. What
/// is copied is told by these counts to the end: they are counted anew now and then, and nobody wants to
/// see the copied part shrink. Without them it is told as well.
async fn source_items(context: &Context, plan: &Plan) -> Sdk {
    let found = tables::describe(&context.control.client, plan).await.unwrap_or_default();
    let sources = plan.source_tables(Direction::Forward).into_iter();
    let items = |table: &str| Some((table.to_owned(), n(found.get(table)?.items)));
    Sdk::M(sources.filter_map(items).collect())
}

/// How many items each source of a migration had when its backfill began; none of one that an older
/// version began.
pub(super) fn counted(state: &Entry) -> Option<BTreeMap<String, u64>> {
    let counted = state.get(COUNTED)?.as_m().ok()?;
    let items =
        |(table, items): (&String, &Sdk)| Some((table.clone(), items.as_n().ok()?.parse().ok()?));
    counted.iter().map(items).collect()
}

/// The fence of a migration that somebody began and did not end to begin; none if it has none yet. It
/// must not be moved: records behind it may have been applied, and they count more than a backfill.
async fn known_fence(
    context: &Context,
    name: &str,
    fingerprint: &str,
) -> Result<Option<i64>, String> {
    let active = context.control.active(name).await?;
    let is_own = |direction: &str, of: &str| direction == "forward" && of == fingerprint;
    Ok(active.filter(|(direction, of, _)| is_own(direction, of)).map(|(_, _, since)| since))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn who_tries_again_takes_it_from_nobody() {
        let state = |phase: Phase, holder: &str| {
            HashMap::from([
                ("phase".to_owned(), s(phase.as_str())),
                ("holder".to_owned(), s(holder)),
                ("fingerprint".to_owned(), s("f")),
            ])
        };
        let of = |phase, holder| Beginning::of(Some(&state(phase, holder)), "a", "f");
        assert_eq!(Beginning::of(None, "a", "f"), Beginning::Ours);
        let of_another_plan = Beginning::of(Some(&state(Phase::Copying, "")), "a", "other");
        assert_eq!(of_another_plan, Beginning::Theirs);
        assert_eq!(of(Phase::Preparing, "a"), Beginning::Ours);
        assert_eq!(of(Phase::Preparing, "b"), Beginning::Theirs);
        assert_eq!(of(Phase::Aborted, "a"), Beginning::Theirs);
        assert_eq!(of(Phase::Copying, ""), Beginning::Done);
        assert_eq!(of(Phase::Tailing, ""), Beginning::Done);
    }
}
