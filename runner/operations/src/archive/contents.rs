//! Reads the archive for programs that display it, such as the console: its days, the first rows of
//! a day, and previews of a restore and of an erasure.
//!
//! The module prints nothing. Lists are bounded, because an archive may have millions of parts.

use std::collections::BTreeMap;

use indicatif::ProgressBar;
use serde_json::value::RawValue;

use super::erasure;
pub use super::erasure::{ErasePreview, EraseRequest};
use super::listing::Listing;
use super::place::{Found, PlaceArguments};
use super::reading::{Reading, ReturnedEvents};
use super::restore::RestoreArguments;
pub use super::restore::RestoreRequest;
use super::source::{Part, Source};
use super::{cell, restore_selected};
use client::exit::Exit;
use client::failure::Result;
use client::running::Running;

/// Default prefix of an archive's objects.
const PREFIX: &str = "archive/";
/// Maximum number of footers that a list of days reads. The list has no row counts for further
/// days.
const FOOTERS_MAX: u64 = 200;
/// Maximum number of bytes of rows that are returned. A row may have 400 KB.
const ROW_BYTES_MAX: usize = 2 << 20;

/// The location of an archive.
#[derive(Clone, Debug, Default)]
pub struct ArchivePlace {
    /// The S3 endpoint.
    pub s3: String,
    /// The bucket; `None` for the bucket of the running system, or the only bucket with an archive.
    pub bucket: Option<String>,
    /// The running system that serves the endpoint; `None` if no running system serves it.
    pub running: Option<Running>,
}

/// An archive.
#[derive(Debug)]
pub struct Archive(Source);

/// The days of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Days {
    /// All tables of the archive.
    pub tables: Vec<String>,
    /// The days, newest first.
    pub days: Vec<ArchiveDay>,
    /// Number of days that were left out at the end.
    pub left_out: usize,
    /// Reasons why parts cannot be read.
    pub damaged: Vec<String>,
}

/// One day of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveDay {
    /// The table.
    pub table: String,
    /// The UTC day, such as `2026-11-21`.
    pub day: String,
    /// Number of objects.
    pub parts: u64,
    /// Bytes of the objects.
    pub bytes: u64,
    /// The contents according to the footers; `None` if the footers were not read.
    pub contents: Option<DayContents>,
}

/// The contents of a day's parts, from their footers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayContents {
    /// Number of rows.
    pub rows: u64,
    /// Number of parts that cannot be read.
    pub damaged_parts: u64,
    /// The time of the first delete.
    pub first_deleted_at: Option<String>,
    /// The time of the last delete.
    pub last_deleted_at: Option<String>,
}

/// The first rows of a day.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<ArchiveRow>,
    /// True if the day has further rows.
    pub has_more: bool,
}

/// One archived row.
#[derive(Clone, Debug)]
pub struct ArchiveRow {
    /// The time of the delete.
    pub deleted_at: String,
    /// The cause of the delete: `ttl`, `user` or `unknown`.
    pub deleted_by: String,
    /// The item in DynamoDB JSON.
    pub item: String,
    /// All columns as JSON, with all digits of numbers.
    pub json: Box<RawValue>,
}

/// The result of a restore or of its preview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreAnswer {
    /// The counts as JSON, as `weir archive restore` writes them.
    pub json: String,
    /// Messages for the operator.
    pub notes: Vec<String>,
    /// True if every selected row can be restored.
    pub is_whole: bool,
}

impl Archive {
    /// Finds an archive. The inner error means that no archive exists yet, and states why.
    ///
    /// # Errors
    /// When there are several archives, or the endpoint does not respond.
    pub async fn find(place: &ArchivePlace) -> Result<Result<Self>> {
        let running = place.running.as_ref();
        let own = running.map(|running| running.archive_bucket.clone());
        let bucket = place.bucket.clone().or(own.filter(|bucket| !bucket.is_empty()));
        let prefix = running.map(|running| running.archive_prefix.clone());
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        let arguments = PlaceArguments {
            prefix: prefix.unwrap_or_else(|| PREFIX.to_owned()),
            ..PlaceArguments::default()
        };
        Ok(match arguments.at(&place.s3, bucket, running).await? {
            Found::Archive(source) => Ok(Self(source)),
            Found::Nothing(why) => Err(why.into()),
        })
    }

    /// Returns the address of the archive.
    #[must_use]
    pub fn location(&self) -> String {
        self.0.location()
    }

    /// Returns the newest days, of all tables or of one table, without the first `skip` days. Reads
    /// the footers of the first parts.
    ///
    /// # Errors
    /// When the objects cannot be listed.
    pub async fn days(&self, table: Option<&str>, skip: usize, at_most: usize) -> Result<Days> {
        let parts = self.0.parts(None, None).await?;
        let mut by_day: BTreeMap<(&str, &str), Vec<&Part>> = BTreeMap::new();
        for part in &parts {
            by_day.entry((&part.date, &part.table)).or_default().push(part);
        }
        let tables = by_day.keys().map(|(_, table)| (*table).to_owned()).collect();
        let mut days = Days { tables, ..Days::default() };
        days.tables.sort_unstable();
        days.tables.dedup();
        let of_table = |name: &str| table.is_none_or(|table| table == name);
        let wanted: Vec<_> =
            by_day.into_iter().rev().filter(|((_, name), _)| of_table(name)).skip(skip).collect();
        days.left_out = wanted.len().saturating_sub(at_most);
        let mut footers = 0;
        for ((day, table), parts) in wanted.into_iter().take(at_most) {
            footers += parts.len() as u64;
            let contents = match footers <= FOOTERS_MAX {
                true => Some(self.contents(&parts, &mut days.damaged).await),
                false => None,
            };
            days.days.push(ArchiveDay {
                table: table.to_owned(),
                day: day.to_owned(),
                parts: parts.len() as u64,
                bytes: parts.iter().map(|part| part.bytes).sum(),
                contents,
            });
        }
        Ok(days)
    }

    /// Reads the footers of the parts of one day.
    async fn contents(&self, parts: &[&Part], damaged: &mut Vec<String>) -> DayContents {
        let parts: Vec<Part> = parts.iter().map(|part| (*part).clone()).collect();
        let listing = Listing::read(&self.0, &parts).await;
        damaged.extend(listing.damaged.into_iter().map(|(_, reason)| reason));
        let Some(day) = listing.days.into_values().next() else { return DayContents::default() };
        DayContents {
            rows: day.rows,
            damaged_parts: day.damaged_parts,
            first_deleted_at: day.first.map(cell::time_text),
            last_deleted_at: day.last.map(cell::time_text),
        }
    }

    /// Returns the first rows of a day of a table.
    ///
    /// # Errors
    /// When the archive cannot be listed, or a part cannot be read. A day without parts has no
    /// rows.
    pub async fn rows(&self, table: &str, day: &str, at_most: usize) -> Result<Rows> {
        let parts = self.0.parts(Some(table), Some(day)).await?;
        let (mut reading, mut seen) = (Reading::of(&self.0, parts), ReturnedEvents::default());
        let (mut found, mut bytes) = (Rows::default(), 0);
        while let Some((part, batches)) = reading.next(None).await? {
            for row in part.rows(batches) {
                let row = row?;
                if !seen.is_new(&part, &row) {
                    continue;
                }
                if found.rows.len() == at_most || bytes > ROW_BYTES_MAX {
                    found.has_more = true;
                    return Ok(found);
                }
                let json = row.json();
                bytes += json.len();
                let json = RawValue::from_string(json).map_err(|error| part.failed(error))?;
                found.rows.push(ArchiveRow {
                    deleted_at: cell::time_text(row.deleted_at()),
                    deleted_by: row.text("_deleted_by").to_owned(),
                    item: row.text("_item").to_owned(),
                    json,
                });
            }
        }
        Ok(found)
    }

    /// Restores the selected rows into the table of the same name at this endpoint. A dry run reads
    /// the table and predicts the result.
    ///
    /// # Errors
    /// When the request is malformed, a part cannot be read, or an item cannot be written.
    pub async fn restore(
        &self,
        request: &RestoreRequest,
        endpoint: &str,
        dry_run: bool,
    ) -> Result<RestoreAnswer> {
        let arguments = RestoreArguments::of(request, endpoint, dry_run);
        let done = restore_selected(&self.0, &arguments, &ProgressBar::hidden()).await?;
        Ok(RestoreAnswer {
            json: done.answer,
            notes: done.notes,
            is_whole: done.code == Exit::Done,
        })
    }

    /// Counts the rows that an erasure would remove.
    ///
    /// # Errors
    /// When the request selects every row or is malformed, or the archive has no such table.
    pub async fn preview_erasure(&self, request: &EraseRequest) -> Result<ErasePreview> {
        erasure::preview(&self.0, request).await
    }
}

/// Invokes the function of the running system to erase rows. Returns the receipt as JSON.
///
/// # Errors
/// When the request selects every row or is malformed, or the function fails.
pub async fn erase(running: &Running, request: &EraseRequest) -> Result<String> {
    erasure::carry_out(running, request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::restore::tests::movies_by_year;

    fn films() -> (tempfile::TempDir, Archive) {
        let folder = super::super::tests::archive();
        let archive = Archive(Source::Folder(folder.path().to_owned()));
        (folder, archive)
    }

    #[tokio::test]
    async fn days_are_listed_with_the_rows_of_their_footers() {
        let (_folder, archive) = films();
        let days = archive.days(None, 0, 10).await.unwrap();
        let [day] = days.days.as_slice() else { panic!("{days:?}") };
        assert_eq!((day.table.as_str(), day.day.as_str(), day.parts), ("movies", "1970-01-01", 2));
        assert_eq!(day.contents.as_ref().unwrap().rows, 4);
        assert_eq!((days.tables.as_slice(), days.left_out), (&["movies".to_owned()][..], 0));
        assert_eq!(archive.days(None, 0, 0).await.unwrap().left_out, 1);
        assert!(archive.days(Some("songs"), 0, 10).await.unwrap().days.is_empty());
        assert!(archive.days(None, 1, 10).await.unwrap().days.is_empty());
    }

    #[tokio::test]
    async fn the_first_rows_of_a_day_have_all_digits() {
        let (_folder, archive) = films();
        for (at_most, rows, has_more) in [(0, 0, true), (3, 3, true), (4, 4, false), (9, 4, false)]
        {
            let found = archive.rows("movies", "1970-01-01", at_most).await.unwrap();
            assert_eq!((found.rows.len(), found.has_more), (rows, has_more), "{at_most}");
        }
        let found = archive.rows("movies", "1970-01-01", 9).await.unwrap();
        let big = found.rows.iter().find(|row| row.item.contains("Big")).unwrap();
        assert!(big.json.get().contains("9007199254740993"), "{}", big.json);
        assert_eq!(big.deleted_at, "1970-01-01T00:00:40Z");
        assert!(archive.rows("movies", "1999-01-01", 9).await.unwrap().rows.is_empty());
    }

    #[tokio::test]
    async fn previews_count_without_changing_anything() {
        let (_folder, archive) = films();
        let store = movies_by_year().await;
        let request = RestoreRequest {
            table: "movies".to_owned(),
            condition: Some("year = 2013".to_owned()),
            ttl: "strip".to_owned(),
            ..RestoreRequest::default()
        };
        let preview = archive.restore(&request, &store.url, true).await.unwrap();
        let counts: serde_json::Value = serde_json::from_str(&preview.json).unwrap();
        assert_eq!((&counts["rows"], &counts["would_restore"]), (&2.into(), &1.into()));
        assert!(preview.is_whole);
        let ends = |note: &String| note.ends_with("nothing was written");
        assert!(preview.notes.iter().any(ends), "{:?}", preview.notes);
        let scan = store.client.scan().table_name("movies").send().await.unwrap();
        assert!(scan.items().is_empty());
        let nothing = RestoreRequest { condition: None, ..request.clone() };
        let refused = archive.restore(&nothing, &store.url, true).await.unwrap_err().to_string();
        assert!(refused.starts_with("no rows are selected"), "{refused}");
        let erase = |begins_with: &str| EraseRequest {
            table: "movies".to_owned(),
            begins_with: Some(begins_with.to_owned()),
            equals: None,
        };
        let preview = archive.preview_erasure(&erase("title=Ru")).await.unwrap();
        assert_eq!((preview.rows, preview.objects), (2, 2));
        assert!(preview.name.starts_with("rows-") && preview.text.contains("permanently"));
        let none = archive.preview_erasure(&erase("title=X")).await.unwrap();
        assert_eq!((none.rows, none.text.as_str()), (0, "no row has `title` beginning with `X`"));
        let unknown = EraseRequest { table: "songs".to_owned(), ..erase("a=b") };
        let unknown = archive.preview_erasure(&unknown).await.unwrap_err().to_string();
        assert!(unknown.contains("no table `songs`"), "{unknown}");
    }
}
