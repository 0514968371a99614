//! `weir archive ls`: tables and days, with parts, rows, bytes, and the first and last delete.
//!
//! It reads footers only: the times come from the column's statistics. A part that cannot be read is
//! counted and named, and the others are listed.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::statistics::Statistics;
use serde_json::{Value, json};

use super::cell::time_text;
use super::output::Output;
use super::reading::{READS_AT_ONCE, while_parts_change};
use super::source::{Part, Source};
use crate::output::{Output as Format, counted, say};

/// Parts that are named because they cannot be read; where there are more, it is not the parts.
const DAMAGED_MAX: usize = 100;

/// One day of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Day {
    parts: u64,
    damaged_parts: u64,
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

    fn add_damaged(&mut self, part: &Part) {
        self.parts += 1;
        self.damaged_parts += 1;
        self.bytes += part.bytes;
    }

    fn json(&self, table: &str, date: &str) -> Value {
        json!({
            "table": table,
            "dt": date,
            "parts": self.parts,
            "damaged_parts": self.damaged_parts,
            "rows": self.rows,
            "bytes": self.bytes,
            "first_deleted_at": self.first.map(time_text),
            "last_deleted_at": self.last.map(time_text),
        })
    }
}

/// The days that parts have, and what could not be read.
#[derive(Debug, Default)]
struct Listing {
    days: BTreeMap<(String, String), Day>,
    /// Why, for each damaged part.
    damaged: Vec<String>,
}

impl Listing {
    /// Reads the footers of parts.
    ///
    /// # Errors
    /// When so many parts cannot be read that the list would say nothing.
    async fn read(source: &Source, parts: &[Part]) -> Result<Self, String> {
        let mut listing = Self::default();
        let reads: Vec<_> = parts.iter().map(|part| source.footer(part)).collect();
        let mut footers = stream::iter(reads).buffered(READS_AT_ONCE);
        for part in parts {
            let Some(footer) = footers.next().await else { break };
            let day = listing.days.entry((part.table.clone(), part.date.clone())).or_default();
            match footer {
                Ok(footer) => day.add(part, &footer),
                Err(reason) if listing.damaged.len() == DAMAGED_MAX => {
                    return Err(format!(
                        "more than {DAMAGED_MAX} parts cannot be read, such as this one: {reason}"
                    ));
                }
                Err(reason) => {
                    day.add_damaged(part);
                    listing.damaged.push(reason);
                }
            }
        }
        Ok(listing)
    }

    fn write(&self, format: Format, output: &mut Output<'_>) -> Result<(), String> {
        let days = &self.days;
        match format {
            Format::Table => write_table(days, output),
            Format::Json => {
                let days: Vec<Value> =
                    days.iter().map(|((table, date), day)| day.json(table, date)).collect();
                let listing = json!({"schema": "weir.archive-listing/v1", "days": days});
                output.line(&listing.to_string())
            }
            Format::Ndjson => days.iter().try_for_each(|((table, date), day)| {
                output.line(&day.json(table, date).to_string())
            }),
        }
    }

    /// That the list is not all, and what to do.
    fn problem(&self) -> Option<String> {
        let parts = match self.damaged.len() {
            0 => return None,
            parts => counted(parts, "part", "parts"),
        };
        Some(format!(
            "{parts} cannot be read, named above: the list counts their bytes, and not their rows; put them back from a copy (a versioned bucket keeps one), or move them away from the archive"
        ))
    }
}

/// Writes the list, also where parts are damaged.
///
/// # Errors
/// Parts that cannot be listed, or, behind the list of all others, that cannot be read.
pub(super) async fn write(
    source: &Source,
    format: Format,
    output: &mut Output<'_>,
) -> Result<(), String> {
    let mut listing = Listing::default();
    let list = async || source.parts(None, None).await;
    let looked = while_parts_change(list, async |parts: &[Part]| {
        listing = Listing::read(source, parts).await?;
        listing.problem().map_or(Ok(()), Err)
    });
    let looked = looked.await;
    if looked.is_ok() || !listing.damaged.is_empty() {
        listing.write(format, output)?;
        output.flush()?;
        listing.damaged.iter().for_each(|reason| say(reason));
    }
    looked
}

fn write_table(
    days: &BTreeMap<(String, String), Day>,
    output: &mut Output<'_>,
) -> Result<(), String> {
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
