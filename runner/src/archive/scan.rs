//! `weir archive cat` and `weir archive query`: rows as NDJSON, part after part.
//!
//! One part is open and one batch decoded at a time, however large the archive is. An event that
//! stands in two objects of a day, as while a compaction is under way, is written once. No SQL.

use super::cell::rows_of;
use super::condition::{Condition, are_met_by};
use super::ddl::as_glob;
use super::output::Output;
use super::reading::{Reading, Seen};
use super::schema::Union;
use super::source::{Part, Source};

/// Writes the rows of parts that meet all conditions, at most `limit` of them. Answers how many
/// were written.
///
/// # Errors
/// A part that cannot be read.
pub(super) async fn write_rows(
    source: &Source,
    parts: &[Part],
    conditions: &[Condition],
    limit: u64,
    output: &mut Output<'_>,
) -> Result<u64, String> {
    let mut written = 0;
    let mut seen = Seen::default();
    let mut reading = Reading::of(source, parts.iter().cloned());
    while written < limit && !output.is_closed() {
        let Some((part, batches)) = reading.next(None).await? else { break };
        for batch in batches {
            let failed = |reason: String| format!("cannot read part `{}`: {reason}", part.name);
            let batch = batch.map_err(|error| failed(error.to_string()))?;
            for row in rows_of(&batch).map_err(failed)? {
                if written == limit || output.is_closed() {
                    return Ok(written);
                }
                if are_met_by(conditions, &row).map_err(failed)? && seen.is_new(&part, &row) {
                    output.line(&row.json())?;
                    written += 1;
                }
            }
        }
    }
    Ok(written)
}

/// Reads conditions against the columns that the parts have.
///
/// # Errors
/// See [`Condition::parse`].
pub(super) async fn conditions(
    source: &Source,
    parts: &[Part],
    texts: &[String],
) -> Result<Vec<Condition>, String> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let union = Union::read(source, parts).await?;
    texts.iter().map(|text| Condition::parse(text, &union)).collect()
}

/// The command that asks DuckDB the same in SQL.
pub(super) fn duckdb_command(source: &Source, table: &str) -> String {
    let from = format!(
        "read_parquet('{}/**/*.parquet', hive_partitioning = true, union_by_name = true)",
        as_glob(&source.files()).replace('\'', "''")
    );
    let sql = format!("select * from {from} where \"table\" = '{table}' limit 10");
    format!("duckdb -c \"{}\"", sql.replace('"', "\\\""))
}
