//! `weir archive cat` and `weir archive query`: rows as NDJSON, part after part.
//!
//! A few parts are read ahead and one batch is decoded at a time, however large the archive is. What a
//! column is, is known from the first parts that have it, so the first rows come before the last parts
//! are looked at; a part that has it in another type ends the answer. An event that stands in two
//! objects of a day, as while a compaction is under way, is written once. No SQL.

use arrow_array::RecordBatchReader as _;

use super::cell::rows_of;
use super::condition::{Comparison, Condition, are_met_by};
use super::ddl::as_glob;
use super::output::Output;
use super::reading::{READS_AT_ONCE, Reading, Seen};
use super::schema::Union;
use super::source::{Part, Source};

/// What rows have to meet.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// All of these.
    pub(super) conditions: Vec<Condition>,
    /// So many of the first parts of the days that the conditions take have no such row: each of them
    /// lacks a column, and NULL compares with nothing.
    passed: usize,
}

impl Asked {
    /// Reads conditions against the columns of the first parts that have all of these columns. Parts
    /// of days that are not asked for are looked at last: they tell a column that is not there from
    /// one that only those days lack.
    ///
    /// # Errors
    /// See [`Comparison::read`] and [`Comparison::typed`], or a part that cannot be read.
    pub(super) async fn read(
        source: &Source,
        parts: &[Part],
        texts: &[String],
    ) -> Result<Self, String> {
        let comparisons = texts.iter().map(|text| Comparison::read(text));
        let comparisons = comparisons.collect::<Result<Vec<_>, _>>()?;
        let takes = |part: &&Part| comparisons.iter().all(|known| known.takes_day(&part.date));
        let (mut order, others): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(takes);
        order.extend(others);
        let (mut union, mut passed, mut at_once) = (Union::default(), 0, 1);
        let mut left = order.as_slice();
        let are_known = |union: &Union| comparisons.iter().all(|known| known.is_known(union));
        while !left.is_empty() && !are_known(&union) {
            let some;
            (some, left) = left.split_at(left.len().min(at_once));
            at_once = (2 * at_once).min(READS_AT_ONCE);
            union.add_all(source, some).await?;
            if !are_known(&union) {
                passed += some.len();
            }
        }
        union.order();
        let conditions = comparisons.iter().map(|known| known.typed(&union));
        Ok(Self { conditions: conditions.collect::<Result<_, _>>()?, passed })
    }
}

/// Writes the rows of parts that meet all conditions, at most `limit` of them. Answers how many
/// were written.
///
/// # Errors
/// A part that cannot be read, or that has a column of a condition in another type.
pub(super) async fn write_rows(
    source: &Source,
    parts: Vec<Part>,
    asked: Asked,
    limit: u64,
    output: &mut Output<'_>,
) -> Result<u64, String> {
    let Asked { conditions, passed } = asked;
    let mut written = 0;
    let mut seen = Seen::default();
    // Parts are by day.
    let first = parts.first().map(|part| part.date.clone()).unwrap_or_default();
    let mut reading = Reading::of(source, parts.into_iter().skip(passed));
    while written < limit && !output.is_closed() {
        let Some((part, batches)) = reading.next(None).await? else { break };
        let schema = batches.schema();
        conditions.iter().try_for_each(|known| known.check_part(&part, &schema, &first))?;
        for batch in batches {
            let batch = batch.map_err(|error| part.failed(error))?;
            for row in rows_of(&batch).map_err(|reason| part.failed(reason))? {
                if written == limit || output.is_closed() {
                    return Ok(written);
                }
                let is_met = are_met_by(&conditions, &row).map_err(|reason| part.failed(reason))?;
                if is_met && seen.is_new(&part, &row) {
                    output.line(&row.json())?;
                    written += 1;
                }
            }
        }
    }
    Ok(written)
}

/// Reads conditions against the columns that all parts have.
///
/// # Errors
/// See [`Comparison::read`] and [`Comparison::typed`], or a part that cannot be read.
pub(super) async fn conditions(
    source: &Source,
    parts: &[Part],
    texts: &[String],
) -> Result<Vec<Condition>, String> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let comparisons = texts.iter().map(|text| Comparison::read(text));
    let comparisons = comparisons.collect::<Result<Vec<_>, _>>()?;
    let union = Union::read(source, parts).await?;
    comparisons.iter().map(|known| known.typed(&union)).collect()
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
