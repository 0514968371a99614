//! Reports why a migration is slow: a pause or rate limit that the operator set, a function that
//! lags behind its stream, or throttling by DynamoDB. Workers report lag and throttling in entries
//! of the control table.

use control::{Lag, SHARED, State, Throttled};
use rules::migration::Phase;
use rules::migration::plan::{Direction, LAG_FRESH_SECONDS, Plan};

use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::start::workers;
use client::output::counted;
use client::server_date;

/// Describes why a migration is slow; `None` if no known cause slows it down.
pub(crate) async fn throttled(
    context: &Context,
    state: &State,
    plan: &Plan,
    now: i64,
) -> Result<Option<String>> {
    if state.is_paused() {
        return Ok(Some("paused by the operator".to_owned()));
    }
    // Workers take the time of their reports from DynamoDB's responses. This time may differ from
    // the clock of a local store.
    let now = server_date::seconds(&context.control.client).await.unwrap_or(now);
    if state.phase == Phase::Copying
        && let Some(behind) = behind(context, plan, now).await?
    {
        return Ok(Some(behind));
    }
    if let Some(reason) = throttled_by_dynamodb(context, plan, now).await? {
        return Ok(Some(reason));
    }
    let rate = Some(state.rate).filter(|rate| *rate > 0 && workers::keep_rate(state));
    Ok(rate
        .map(|rate| format!("{} per second, set by the operator", counted(rate, "item", "items"))))
}

/// Returns why DynamoDB throttles requests on tables of a migration, as its workers reported.
async fn throttled_by_dynamodb(context: &Context, plan: &Plan, now: i64) -> Result<Option<String>> {
    let notes: Vec<Throttled> = context.control.list(SHARED, &Throttled::name_of("")).await?;
    let concerns = |table: &str| {
        table == context.control.table
            || [Direction::Forward, Direction::Reverse].into_iter().any(|direction| {
                let tables = plan.source_tables(direction).into_iter();
                tables.chain(plan.target_tables(direction)).any(|known| known == table)
            })
    };
    // A report about a batch of requests names no table, so it applies to every migration.
    let counts = |note: &Throttled| {
        (note.table.is_empty() || concerns(&note.table)) && is_fresh(note.at, now)
    };
    let newest = notes.into_iter().filter(counts).max_by_key(|note| note.at);
    Ok(newest.map(|note| note.reason))
}

/// Returns true if a report of the second `at` is recent enough to be shown.
fn is_fresh(at: u64, now: i64) -> bool {
    at + LAG_FRESH_SECONDS >= u64::try_from(now).unwrap_or(0)
}

/// Describes a function that lags so far behind its stream that the backfill waits for the
/// function.
async fn behind(context: &Context, plan: &Plan, now: i64) -> Result<Option<String>> {
    for table in plan.source_tables(Direction::Forward) {
        let Some(lag) = lag_of(context, table).await? else { continue };
        if lag.is_too_long(u64::try_from(now).unwrap_or(0)) {
            return Ok(Some(format!("the stream of `{table}` is {} s behind", lag.seconds)));
        }
    }
    Ok(None)
}

async fn lag_of(context: &Context, table: &str) -> Result<Option<Lag>> {
    context.control.get(SHARED, &Lag::name_of(table)).await
}

/// Returns true if the function that reads a table's stream has recently reported that it lags
/// behind; false if the report cannot be read.
pub(crate) async fn is_noted_behind(context: &Context, table: &str, now: i64) -> bool {
    let now = server_date::seconds(&context.control.client).await.unwrap_or(now);
    let lag = lag_of(context, table).await;
    lag.is_ok_and(|lag| lag.is_some_and(|lag| is_fresh(lag.at, now)))
}
