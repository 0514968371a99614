//! Starts a migration: records the pairs of tables between which it moves items, writes its plan,
//! takes its route, makes it active, and creates its tasks.
//!
//! Each step is idempotent. After a transient failure, all steps are retried, unless another
//! command has claimed the start. A migration that is only partly started moves no items until a
//! command resumes the start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::{Active, BACKFILL_RUN, Expect, Move, PlanEntry, State, Work};
use rules::migration::Phase;
use rules::migration::plan::{Backfill, Direction, Plan};

use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::failure::{Failure, Result, refused};
use crate::migrate::plan::neighbours::enter;
use crate::migrate::plan::tables;
use crate::migrate::start::fence::{Fence, FenceUse, activate, wait_for};
use crate::migrate::start::record_time::RecordTime;
use crate::migrate::start::route;
use crate::migrate::start::tasks::{Run, make_tasks};
use crate::migrate::switch::claim::new_holder;
use client::output::say;

/// Maximum time for which a start is retried if the store does not respond reliably.
const BEGIN_LIMIT: Duration = Duration::from_secs(600);
/// Pause before a retry.
const BEGIN_PAUSE: Duration = Duration::from_secs(2);

/// The decision whether the running `start` command may start a migration.
#[derive(Debug, PartialEq, Eq)]
enum StartClaim {
    /// No other command has started the migration, so the running command may start it.
    Claimed,
    /// The migration is already started.
    AlreadyStarted,
    /// Another command has started or ended the migration, so the running command must not start
    /// it.
    ClaimedByOther,
}

impl StartClaim {
    fn of(state: &State, holder: &str, fingerprint: &str) -> Self {
        match state.phase {
            Phase::None => Self::Claimed,
            // A migration with the same name has a different plan.
            _ if state.fingerprint.as_deref() != Some(fingerprint) => Self::ClaimedByOther,
            Phase::Preparing if state.holder.as_deref() == Some(holder) => Self::Claimed,
            Phase::Preparing => Self::ClaimedByOther,
            phase if phase.has_ended() => Self::ClaimedByOther,
            _ => Self::AlreadyStarted,
        }
    }
}

/// Starts a migration. Retries for `BEGIN_LIMIT` if the store does not respond.
///
/// # Errors
/// When the migration cannot be started, or another command is starting it.
pub(crate) async fn begin(context: &Context, plan: &Plan, rate: u64) -> Result<()> {
    let (holder, begun, mut said) = (new_holder(), Instant::now(), String::new());
    let mut is_first = true;
    loop {
        let tried = match is_first {
            true => begin_as(context, plan, rate, &holder).await,
            false => begin_again(context, plan, rate, &holder).await,
        };
        let problem = match tried {
            Ok(()) => return Ok(()),
            Err(Failure::Unknown(problem) | Failure::Retry(problem)) => problem,
            Err(failure) => return Err(failure),
        };
        if begun.elapsed() > BEGIN_LIMIT {
            return Err(Failure::Unknown(format!(
                "{problem}; to resume, run `weir migrate start` again with the same plan"
            )));
        }
        if problem != said {
            say(&format!("`{}` has not started yet, retrying: {problem}", plan.migration));
            said = problem;
        }
        is_first = false;
        tokio::time::sleep(BEGIN_PAUSE).await;
    }
}

async fn begin_again(context: &Context, plan: &Plan, rate: u64, holder: &str) -> Result<()> {
    let state = context.control.state(&plan.migration).await?;
    let json = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    match StartClaim::of(&state, holder, &Plan::fingerprint(&json)) {
        StartClaim::Claimed => begin_as(context, plan, rate, holder).await,
        StartClaim::AlreadyStarted => Ok(()),
        StartClaim::ClaimedByOther => Err(refused!(
            "another command is already starting `{}` and will finish it",
            plan.migration
        )),
    }
}

/// Records the plan's pairs of tables, writes the plan, takes the route, makes the migration
/// active, and creates the tasks of the backfill. Another command may repeat these steps
/// concurrently, or after this process was killed. From then on, the steps of the earlier command
/// have no effect.
async fn begin_as(context: &Context, plan: &Plan, rate: u64, holder: &str) -> Result<()> {
    let (control, name) = (&context.control, plan.migration.as_str());
    let json = serde_json::to_string(plan).map_err(|error| error.to_string())?;
    let fingerprint = Plan::fingerprint(&json);
    // The latest command replaces earlier commands, because two concurrent starts are not safe: the
    // first could move the fence while the second creates tasks.
    let (holder, of_plan) = (holder.to_owned(), fingerprint.clone());
    let prepare = Move::Prepare { holder: holder.clone(), fingerprint: of_plan, rate };
    let (enter, now) = (|active: &mut Active| enter(active, plan), context.now().await);
    let state = control.make_with(name, Guard::default(), &prepare, now, Some(enter)).await?;
    if state.fingerprint.as_deref() != Some(fingerprint.as_str()) {
        return Err(refused!(
            "another command is starting a different plan with the name `{name}`"
        ));
    }
    let absent = PlanEntry { migration: name.to_owned(), revision: 0, plan: json.clone() };
    let written = |entry: &mut PlanEntry| {
        let is_so = entry.revision > 0 && entry.plan == json;
        entry.plan.clone_from(&json);
        !is_so
    };
    control.change(absent, written).await?;
    let expect = Expect::claimed_by(&[Phase::Preparing], &holder);
    route::take(context, plan, expect).await?;
    let since = fence(context, name, &fingerprint, expect).await?;
    let items = source_items(context, plan).await;
    let noted = |state: &mut State| {
        let is_so = state.counted.is_some() && state.since == since;
        state.counted.get_or_insert_with(|| items.clone());
        state.since = since;
        !is_so
    };
    control.change_state(name, expect, noted).await?;
    let work = match plan.backfill {
        Backfill::Scan => Work::Backfill,
        Backfill::Touch => Work::Touch,
    };
    let direction = Direction::Forward;
    for table in plan.source_tables(direction) {
        let run = Run { number: BACKFILL_RUN, work, repairs: false, direction };
        make_tasks(context, plan, &fingerprint, run, table, expect).await?;
    }
    context.make(name, Guard::held(&holder), &Move::Copy).await.map(drop)
}

/// Returns the fence of a starting migration. The fence of an interrupted start must not be moved,
/// because records after that fence may have been applied, and these take precedence over a
/// backfill.
async fn fence(
    context: &Context,
    name: &str,
    fingerprint: &str,
    expect: Expect<'_>,
) -> Result<i64> {
    let (direction, after) = (Direction::Forward, FenceUse::Read);
    let active = context.control.active().await?;
    let known = active
        .active
        .get(name)
        .filter(|known| known.direction == direction && known.fingerprint == fingerprint);
    let Some(known) = known else {
        let fence = Fence { direction, fingerprint, expect, after };
        return activate(context, name, fence).await;
    };
    // The migration is already active, but it is unknown since when.
    let from = known.since.max(context.now().await);
    wait_for(context, name, from + after.seconds(context).await).await?;
    RecordTime::open(context).await?.pass(from).await?;
    Ok(known.since)
}

/// Returns the number of items of each source from `DescribeTable`; on AWS, the number may be up to
/// six hours old. The counts are stored until the migration ends, so that the reported progress
/// never decreases. Missing counts are allowed.
async fn source_items(context: &Context, plan: &Plan) -> BTreeMap<String, u64> {
    let found = tables::describe(&context.control.client, plan).await.unwrap_or_default();
    let sources = plan.source_tables(Direction::Forward).into_iter();
    sources.filter_map(|table| Some((table.to_owned(), found.get(table)?.items))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_takes_the_start_from_no_other_command() {
        let of = |phase, holder: &str, fingerprint| {
            let (holder, own) = (Some(holder.to_owned()), Some("f".to_owned()));
            let state = State { phase, holder, fingerprint: own, ..State::new("shop") };
            StartClaim::of(&state, "a", fingerprint)
        };
        assert_eq!(StartClaim::of(&State::new("shop"), "a", "f"), StartClaim::Claimed);
        assert_eq!(of(Phase::Copying, "", "other"), StartClaim::ClaimedByOther);
        assert_eq!(of(Phase::Preparing, "a", "f"), StartClaim::Claimed);
        assert_eq!(of(Phase::Preparing, "b", "f"), StartClaim::ClaimedByOther);
        assert_eq!(of(Phase::Aborted, "a", "f"), StartClaim::ClaimedByOther);
        assert_eq!(of(Phase::Copying, "", "f"), StartClaim::AlreadyStarted);
        assert_eq!(of(Phase::Tailing, "", "f"), StartClaim::AlreadyStarted);
    }
}
