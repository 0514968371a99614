//! `weir archive check`: compares the TTL deletes in the stream with the archive, table by table, and
//! reports declared columns that are probably misspelt.
//!
//! This module reads the stream and the archive; `completeness` compares them.

use std::collections::BTreeSet;

use mapping::RETENTION_MS;
use rules::archive::DeletedBy;
use serde_json::json;

use super::cell;
use super::completeness::{self, Archived, Window};
use super::deletes::{self, Known};
use super::output::Output;
use super::place::Found;
use super::reading::{together, while_parts_change};
use super::source::{Part, Source};
use super::{store_for, unknown_columns};
use client::aws_host;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Result, fatal};
use client::interruption;
use client::output::say;
use client::running::RunningState;
use client::sdk_error::is_not_found;

/// Seconds after a delete within which a `weir up` on this machine should archive it.
const GRACE: u32 = 30;
/// Seconds after a delete within which functions on AWS should archive it. Lambda gathers a batch
/// for up to 300 seconds, and retries take time.
const GRACE_ON_AWS: u32 = 360;
/// Deletes whose records are trimmed within this time are not compared, because the stream may trim
/// these records during the read.
const TRIM_MARGIN_MS: i64 = 5 * 60 * 1000;

/// Returns the tables to compare: the named table, or all tables that have parts or that the
/// running `weir up` archives. An archived table may have no part yet.
async fn tables_to_check(
    found: &Found,
    table: Option<String>,
    url: &str,
) -> Result<BTreeSet<String>> {
    if let Some(table) = table {
        return Ok(BTreeSet::from([table]));
    }
    let mut tables = BTreeSet::new();
    if let Found::Archive(source) = found {
        tables.extend(source.parts(None, None).await?.into_iter().map(|part| part.table));
    }
    if let RunningState::Running(running) = RunningState::here()
        && running.is_at(url)
    {
        tables.extend(running.archived);
    }
    match (tables.is_empty(), found) {
        (false, _) => Ok(tables),
        (true, Found::Nothing(why)) => Err(fatal!("{why}; or name a table with --table")),
        (true, Found::Archive(source)) => {
            let place = source.location();
            Err(fatal!("the archive at `{place}` has no parts; name a table with --table"))
        }
    }
}

/// Returns the names of the archives at this place that have parts of a table.
async fn names(found: &Found, table: &str) -> Result<BTreeSet<String>> {
    let Found::Archive(source) = found else { return Ok(BTreeSet::new()) };
    let parts = source.parts(Some(table), None).await?;
    Ok(parts.iter().filter_map(|part| source.archive_of(part)).collect())
}

/// Compares each table, and writes one line per table.
///
/// # Errors
/// When the stream or the archive cannot be read.
pub(super) async fn check(
    found: Found,
    table: Option<String>,
    store: Option<&str>,
    grace: Option<u32>,
    output: &mut Output<'_>,
) -> Result<Exit> {
    let is_on_aws = matches!(&found, Found::Archive(source) if source.is_on_aws());
    let url = store_for(is_on_aws, store)?;
    let grace = grace.unwrap_or(if aws_host::is_on_aws(&url) { GRACE_ON_AWS } else { GRACE });
    let (client, dynamodb) = (endpoint::streams_client(&url), endpoint::client(&url));
    let is_named = table.is_some();
    let tables = tables_to_check(&found, table, &url).await?;
    let mut code = Exit::Done;
    let number = tables.len();
    for (done, table) in tables.into_iter().enumerate() {
        interruption::reached(format!("{done} of {number} tables checked, `{table}` is next"));
        let grace_ms = i64::from(grace) * 1000;
        let before = endpoint::store_seconds(&url, &dynamodb).await.saturating_mul(1000);
        let archives = names(&found, &table).await?;
        let known = Known { table: &table, archives: &archives };
        // The stream is read before the rows, so that a delete archived in between is not reported
        // as missing.
        let deletes = match deletes::read(&client, known).await {
            Ok(deletes) => deletes,
            // An archive may exist longer than its table. A missing table is skipped, and the other
            // tables are checked.
            Err(reason) if !is_named && is_gone(&dynamodb, &table).await => {
                let line =
                    json!({ "table": table, "checked": false, "reason": reason.to_string() });
                output.line(&line.to_string())?;
                continue;
            }
            Err(reason) => return Err(reason),
        };
        let after = endpoint::store_seconds(&url, &dynamodb).await.saturating_mul(1000);
        let from = after - RETENTION_MS + TRIM_MARGIN_MS;
        let window = Window { from, to: before - grace_ms, end: after + grace_ms + 1 };
        let oldest = deletes.deletes.values().copied().min().unwrap_or(from).min(from);
        let first_date = cell::time_text(oldest).chars().take(10).collect::<String>();
        let (mut rows, mut erased) = (Vec::new(), BTreeSet::new());
        if let Found::Archive(source) = &found {
            let list = async || source.parts(Some(&table), None).await;
            let read = async |parts: &[Part]| {
                let (mut rows, mut erased) = (Vec::new(), BTreeSet::new());
                let parts: Vec<&Part> =
                    parts.iter().filter(|part| part.date >= first_date).collect();
                for some in together(&parts) {
                    let reads: Vec<_> =
                        some.iter().map(|part| read_archived(source, part)).collect();
                    for (more, gone) in futures::future::try_join_all(reads).await? {
                        rows.extend(more);
                        erased.extend(gone);
                    }
                }
                Ok((rows, erased))
            };
            (rows, erased) = while_parts_change(list, read).await?;
        }
        let comparison = completeness::compare(&deletes, rows, &erased, window);
        output.line(&comparison.json(&table, deletes.restored).to_string())?;
        let has_unknown_columns = say_unknown_columns(&found, &table).await?;
        if has_unknown_columns || !comparison.is_equal() {
            code = Exit::Differences;
        }
    }
    Ok(code)
}

/// Reports the declared columns of a table that no item has. Returns true if there is such a
/// column.
async fn say_unknown_columns(found: &Found, table: &str) -> Result<bool> {
    let Found::Archive(source) = found else { return Ok(false) };
    let misspelt = unknown_columns::misspelt(source, table).await?;
    misspelt.iter().for_each(|line| say(line));
    Ok(!misspelt.is_empty())
}

/// Returns the rows of a part, and the event ids of rows erased from it.
async fn read_archived(source: &Source, part: &Part) -> Result<(Vec<Archived>, Vec<String>)> {
    let columns = ["_event_id", "_stream_arn", "_deleted_at", "_deleted_by"];
    let content = source.content(part).await?;
    let batches = content.rows(Some(&columns)).map_err(|error| part.failed(error))?;
    let rows = part.rows(batches).map(|row| {
        row.map(|row| Archived {
            event_id: row.text("_event_id").to_owned(),
            stream_arn: row.text("_stream_arn").to_owned(),
            deleted_at: row.deleted_at(),
            is_ttl: row.text("_deleted_by") == DeletedBy::TimeToLive.as_str(),
            is_compacted: part.is_compacted(),
        })
    });
    Ok((rows.collect::<Result<_, _>>()?, content.erased().map_err(|error| part.failed(error))?))
}

/// Returns true if the store reports that the table does not exist.
async fn is_gone(client: &aws_sdk_dynamodb::Client, table: &str) -> bool {
    let described = client.describe_table().table_name(table).send().await;
    described.is_err_and(|error| is_not_found(&error))
}
