//! What slows a migration down, as its workers note it: a person, a stream that is behind, DynamoDB.

use rules::migration::plan::{Direction, LAG_FRESH_SECONDS, LAG_SECONDS_MAX, Plan};

use super::control::{Entry, number, text};
use super::steps::is_paused;
use super::{Context, workers};
use client::output::counted;
use client::server_date;

/// What slows a migration down, in words.
pub(super) async fn throttled(
    context: &Context,
    state: &Entry,
    plan: &Plan,
    now: i64,
) -> Result<Option<String>, String> {
    if is_paused(state) {
        return Ok(Some("paused by a person".to_owned()));
    }
    // Workers note by the clock of the answers that they get, a local store's clock may be another.
    let now = server_date::seconds(&context.control.client).await.unwrap_or(now);
    if text(state, "phase") == Some("copying")
        && let Some(behind) = behind(context, plan, now).await?
    {
        return Ok(Some(behind));
    }
    if let Some(reason) = throttled_by_dynamodb(context, plan, now).await? {
        return Ok(Some(reason));
    }
    let rate = Some(number(state, "rate")).filter(|r| *r > 0 && workers::keep_rate(state));
    Ok(rate.map(|rate| format!("{} per second, by a person", counted(rate, "item", "items"))))
}

/// Why DynamoDB throttles requests on tables of a migration, as its workers noted.
async fn throttled_by_dynamodb(
    context: &Context,
    plan: &Plan,
    now: i64,
) -> Result<Option<String>, String> {
    let notes = context.control.entries("*", "THROTTLE#").await?;
    let concerns = |table: &str| {
        table == context.control.table
            || [Direction::Forward, Direction::Reverse].into_iter().any(|direction| {
                let tables = plan.source_tables(direction).into_iter();
                tables.chain(plan.target_tables(direction)).any(|known| known == table)
            })
    };
    let newest = notes
        .iter()
        .filter(|note| {
            let table = text(note, "entry").and_then(|entry| entry.strip_prefix("THROTTLE#"));
            // A batch of requests names no table.
            table.is_some_and(|table| table.is_empty() || concerns(table)) && is_fresh(note, now)
        })
        .max_by_key(|note| number(note, "at"));
    Ok(newest.and_then(|note| text(note, "reason")).map(str::to_owned))
}

/// Whether what a worker noted still counts.
fn is_fresh(note: &Entry, now: i64) -> bool {
    number(note, "at") + LAG_FRESH_SECONDS >= u64::try_from(now).unwrap_or(0)
}

/// Which stream is so far behind that the backfill waits for it, in words.
async fn behind(context: &Context, plan: &Plan, now: i64) -> Result<Option<String>, String> {
    for table in plan.source_tables(Direction::Forward) {
        let Some(lag) = context.control.get("*", &format!("LAG#{table}")).await? else { continue };
        let seconds = number(&lag, "seconds");
        if is_fresh(&lag, now) && seconds > LAG_SECONDS_MAX {
            return Ok(Some(format!("the stream of `{table}` is {seconds} s behind")));
        }
    }
    Ok(None)
}

/// Whether the function that follows a table has said lately that its stream is behind. What cannot be
/// asked is not known.
pub(super) async fn is_noted_behind(context: &Context, table: &str, now: i64) -> bool {
    let now = server_date::seconds(&context.control.client).await.unwrap_or(now);
    let lag = context.control.get("*", &format!("LAG#{table}")).await;
    lag.is_ok_and(|lag| lag.is_some_and(|lag| is_fresh(&lag, now)))
}
