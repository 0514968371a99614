//! `weir archive ls`: lists tables and days with parts, rows, bytes, and the first and last delete.
//!
//! The command reads only the footers of parts; the times come from column statistics. It reports
//! unreadable parts, and lists all other parts.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::statistics::Statistics;
use serde_json::{Value, json};

use super::cell::time_text;
use super::output::Output;
use super::reading::{LOOKS_MAX, READS_AT_ONCE};
use super::source::{Part, Source};
use client::failure::Result;
use client::output::{Output as Format, counted, say};

/// Maximum number of unreadable parts that are named. More unreadable parts suggest that the store
/// has failed.
const DAMAGED_MAX: usize = 100;

/// The totals of one day of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Day {
    pub(super) parts: u64,
    pub(super) damaged_parts: u64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// The time of the first delete, in milliseconds since 1970. The next field is the last delete.
    pub(super) first: Option<i64>,
    pub(super) last: Option<i64>,
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
                // `first` and `last` are `None` until a part of the day has statistics.
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

/// The result of a listing: the days, and the parts that could not be read.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The totals by table and day.
    pub(super) days: BTreeMap<(String, String), Day>,
    /// The unreadable parts with their reasons: at most one more than the message names.
    pub(super) damaged: Vec<(Part, String)>,
}

impl Listing {
    /// Reads the footers of parts. Stops when more than [`DAMAGED_MAX`] parts are unreadable.
    pub(super) async fn read(source: &Source, parts: &[Part]) -> Self {
        let mut listing = Self::default();
        let reads: Vec<_> = parts.iter().map(|part| source.footer(part)).collect();
        let mut footers = stream::iter(reads).buffered(READS_AT_ONCE);
        for part in parts {
            let Some(footer) = footers.next().await else { break };
            let day = listing.days.entry((part.table.clone(), part.date.clone())).or_default();
            match footer {
                Ok(footer) => day.add(part, &footer),
                Err(reason) => {
                    day.add_damaged(part);
                    listing.damaged.push((part.clone(), reason.to_string()));
                }
            }
            if listing.is_cut() {
                break;
            }
        }
        listing
    }

    /// Returns true if the listing stopped early because too many parts could not be read.
    fn is_cut(&self) -> bool {
        self.damaged.len() > DAMAGED_MAX
    }

    fn write(&self, format: Format, output: &mut Output<'_>) -> Result<()> {
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

    /// Returns why the list is incomplete, and what to do. The reason of each part is on its own
    /// line.
    fn problem(&self) -> Option<String> {
        if let Some((_, reason)) = self.damaged.get(DAMAGED_MAX) {
            return Some(format!(
                "more than {DAMAGED_MAX} parts cannot be read, for example: {reason}"
            ));
        }
        let parts = match self.damaged.len() {
            0 => return None,
            parts => counted(parts, "part", "parts"),
        };
        Some(format!(
            "{parts} listed above cannot be read, so the list counts their bytes but not their rows. If the store did not respond, run the command again; if the parts are damaged, restore them from a copy (a versioned bucket keeps one), or move them out of the archive"
        ))
    }
}

/// Lists parts. If an unreadable part is missing or different in a new listing, compaction has
/// moved its rows, so the parts are listed again. Other changes are ignored.
///
/// # Errors
/// When parts cannot be listed.
async fn look(source: &Source, list: impl AsyncFn() -> Result<Vec<Part>>) -> Result<Listing> {
    let mut listing = Listing::read(source, &list().await?).await;
    for _ in 1..LOOKS_MAX {
        if listing.damaged.is_empty() {
            break;
        }
        // If the store no longer responds, the result of the previous listing is returned.
        let Ok(now) = list().await else { break };
        if listing.damaged.iter().all(|(part, _)| now.contains(part)) {
            break;
        }
        listing = Listing::read(source, &now).await;
    }
    Ok(listing)
}

/// Writes the list, even if some parts cannot be read.
///
/// # Errors
/// When parts cannot be listed. When some parts cannot be read, all readable parts are written
/// before the error is returned.
pub(super) async fn write(source: &Source, format: Format, output: &mut Output<'_>) -> Result<()> {
    let listing = look(source, async || source.parts(None, None).await).await?;
    if !listing.is_cut() {
        listing.write(format, output)?;
        output.flush()?;
        listing.damaged.iter().for_each(|(_, reason)| say(reason));
    }
    listing.problem().map_or(Ok(()), |problem| Err(problem.into()))
}

fn write_table(days: &BTreeMap<(String, String), Day>, output: &mut Output<'_>) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    /// In one case, each listing has a new part. In the other, the second listing lacks a damaged part.
    #[tokio::test]
    async fn only_a_damaged_part_that_is_missing_is_listed_again() {
        for (is_removed, lists_made, damaged) in [(false, 2, 1), (true, 2, 0)] {
            let folder = super::super::tests::archive();
            let day = folder.path().join("bucket/archive/table=movies/dt=1970-01-01");
            fs::write(day.join("a.parquet"), "?").unwrap();
            let source = Source::Folder(folder.path().to_owned());
            let lists = Cell::new(0);
            let list = async || {
                lists.set(lists.get() + 1);
                let added = day.join(format!("part-new-{}.parquet", lists.get()));
                fs::copy(day.join("part-1.parquet"), added).unwrap();
                if is_removed && lists.get() == 2 {
                    fs::remove_file(day.join("a.parquet")).unwrap();
                }
                source.parts(None, None).await
            };
            let listing = look(&source, list).await.unwrap();
            assert_eq!((lists.get(), listing.damaged.len()), (lists_made, damaged));
            let parts: u64 = listing.days.values().map(|day| day.parts).sum();
            assert_eq!(parts, 4, "as of the first list, or of the second without the damaged one");
        }
    }
}
