//! `DescribeContinuousBackups` and `UpdateContinuousBackups`: show and change the setting of
//! point-in-time recovery, so that templates and tools work unchanged. The store makes no backups.

use model::EpochMillis;
use partition::{Command, OptionChange, Recovery, Reply, Table, UpdateTable};

use super::answer::{begin_member, number_member, text_member, time_member};
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::tables;
use crate::store::Store;

/// The maximum recovery period in days, inclusive, which is also the default.
const DAYS_MAX: u8 = 35;
/// The number of milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// The age in milliseconds of the latest time to which AWS can restore a table: five minutes.
const LATEST_AGO_MS: u64 = 5 * 60 * 1000;

pub(super) fn describe_continuous_backups(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let mut constraints = Constraints::new();
    constraints.table_name(name);
    constraints.finish()?;
    let table = find(store, name.unwrap_or_default())?;
    Ok(description(&table, store.now()))
}

pub(super) async fn update_continuous_backups(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let specification = parameters.structure("PointInTimeRecoverySpecification")?;
    let is_enabled =
        specification.map(|s| s.boolean("PointInTimeRecoveryEnabled")).transpose()?.flatten();
    let days = specification.map(|s| s.integer("RecoveryPeriodInDays")).transpose()?.flatten();
    let mut constraints = Constraints::new();
    constraints.table_name(name);
    let at = "pointInTimeRecoverySpecification";
    constraints.required(at, specification.is_some());
    if specification.is_some() {
        constraints.required(format_args!("{at}.pointInTimeRecoveryEnabled"), is_enabled.is_some());
        constraints.range(&format!("{at}.recoveryPeriodInDays"), days, 1, i64::from(DAYS_MAX));
    }
    constraints.finish()?;
    let is_enabled = is_enabled.unwrap_or(false);
    if !is_enabled && days.is_some() {
        return Err(ApiError::validation(
            "Invalid Request: Cannot specify RecoveryPeriodInDays when disabling point-in-time recovery.",
        ));
    }
    let name = name.unwrap_or_default();
    let table = find(store, name)?;
    let days = days.and_then(|days| u8::try_from(days).ok()).unwrap_or(DAYS_MAX);
    let change = OptionChange::Recovery(is_enabled.then_some(days));
    let update = UpdateTable::of_options(table.id, vec![change]);
    let replies = store.submit(vec![Command::UpdateTable(Box::new(update))]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => Ok(description(&table, store.now())),
        Some(Reply::TableNotFound) => Err(ApiError::backup_table_not_found(name)),
        _ => Err(ApiError::defect("UpdateContinuousBackups returned an unexpected reply")),
    }
}

fn find(store: &Store, name: &str) -> Result<std::sync::Arc<Table>, ApiError> {
    let name = tables::name_of(store, name)?;
    store.find_table(name).ok_or_else(|| ApiError::backup_table_not_found(name))
}

fn description(table: &Table, now: EpochMillis) -> String {
    let mut out = String::from("{");
    begin_member(&mut out, "ContinuousBackupsDescription");
    out.push('{');
    text_member(&mut out, "ContinuousBackupsStatus", "ENABLED");
    begin_member(&mut out, "PointInTimeRecoveryDescription");
    out.push('{');
    match table.options.recovery {
        None => text_member(&mut out, "PointInTimeRecoveryStatus", "DISABLED"),
        Some(Recovery { since, days }) => {
            text_member(&mut out, "PointInTimeRecoveryStatus", "ENABLED");
            number_member(&mut out, "RecoveryPeriodInDays", u64::from(days));
            let latest = EpochMillis(now.0.saturating_sub(LATEST_AGO_MS)).max(since);
            let reach = now.0.saturating_sub(u64::from(days) * DAY_MS);
            time_member(&mut out, "EarliestRestorableDateTime", EpochMillis(reach).max(since));
            time_member(&mut out, "LatestRestorableDateTime", latest);
        }
    }
    out.push_str("}}}");
    out
}
