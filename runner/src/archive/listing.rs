//! `weir archive ls`: tables and days, with parts, rows, bytes, and the first and last delete.
//!
//! It reads footers only: the times come from the column's statistics.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::statistics::Statistics;
use serde_json::{Value, json};

use super::cell::time_text;
use super::output::Output;
use super::schema::READS_AT_ONCE;
use super::source::{Part, Source};
use crate::output::Output as Format;

/// One day of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Day {
    parts: u64,
    rows: u64,
    bytes: u64,
    first: Option<i64>,
    last: Option<i64>,
}

impl Day {
    fn add(&mut self, part: &Part, footer: &ArrowReaderMetadata) {
        let metadata = footer.metadata();
        self.parts += 1;
        self.bytes += part.bytes;
        self.rows += u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
        for group in metadata.row_groups() {
            let column = group
                .columns()
                .iter()
                .find(|column| column.column_path().string() == "_deleted_at");
            if let Some(Statistics::Int64(times)) = column.and_then(|column| column.statistics()) {
                // An absent time stays absent only until a part has one.
                let first = [self.first, times.min_opt().copied()];
                self.first = first.into_iter().flatten().min();
                self.last = self.last.max(times.max_opt().copied());
            }
        }
    }

    fn json(&self, table: &str, date: &str) -> Value {
        json!({
            "table": table,
            "dt": date,
            "parts": self.parts,
            "rows": self.rows,
            "bytes": self.bytes,
            "first_deleted_at": self.first.map(time_text),
            "last_deleted_at": self.last.map(time_text),
        })
    }
}

/// Writes the list.
///
/// # Errors
/// A part that cannot be read.
pub(super) async fn write(
    source: &Source,
    parts: &[Part],
    format: Format,
    output: &mut Output<'_>,
) -> Result<(), String> {
    let mut days: BTreeMap<(&str, &str), Day> = BTreeMap::new();
    let reads: Vec<_> = parts.iter().map(|part| source.footer(part)).collect();
    let mut footers = stream::iter(reads).buffered(READS_AT_ONCE);
    for part in parts {
        let Some(footer) = footers.next().await else { break };
        days.entry((&part.table, &part.date)).or_default().add(part, &footer?);
    }
    match format {
        Format::Table => write_table(&days, output),
        Format::Json => {
            let days: Vec<Value> =
                days.iter().map(|((table, date), day)| day.json(table, date)).collect();
            let listing = json!({"schema": "weir.archive-listing/v1", "days": days});
            output.line(&listing.to_string())
        }
        Format::Ndjson => days
            .iter()
            .try_for_each(|((table, date), day)| output.line(&day.json(table, date).to_string())),
    }
}

fn write_table(days: &BTreeMap<(&str, &str), Day>, output: &mut Output<'_>) -> Result<(), String> {
    let widest = days.keys().map(|(table, _)| table.len()).max().unwrap_or(0).max(5);
    output.line(&format!(
        "{:widest$}  {:10}  {:>7}  {:>10}  {:>12}  {:20}  {:20}",
        "TABLE", "DT", "PARTS", "ROWS", "BYTES", "FIRST DELETED", "LAST DELETED"
    ))?;
    let text = |time: Option<i64>| time.map_or("-".to_owned(), time_text);
    for ((table, date), day) in days {
        output.line(&format!(
            "{table:widest$}  {date:10}  {:>7}  {:>10}  {:>12}  {:20}  {:20}",
            day.parts,
            day.rows,
            day.bytes,
            text(day.first),
            text(day.last)
        ))?;
    }
    Ok(())
}
