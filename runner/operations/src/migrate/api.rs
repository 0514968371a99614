//! Functions with which a program such as `weir demo` runs a migration without the command line.

use std::time::Duration;

use rules::migration::plan::Plan;
use rules::migration::visible;

use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::plan::tables;
use crate::migrate::report::backfill::advance;
use crate::migrate::start::begin;
use crate::migrate::switch::{differences, verify};

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

/// Returns every item of a table as readers see it, without tombstones and marks.
///
/// # Errors
/// When the table cannot be read.
pub async fn scan(client: &aws_sdk_dynamodb::Client, table: &str) -> Result<Vec<model::Item>> {
    let schema = tables::schema(client, table).await?;
    let items = tables::sample(client, table, u64::MAX).await?;
    Ok(items.iter().filter_map(|item| visible(item, &schema)).collect())
}
