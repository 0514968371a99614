//! Reads parts while compaction and erasure change them.
//!
//! Whoever reads has a listing, and opens the parts of it later. One that is gone by then, or is
//! another, is no error: the rows stand in an object that a new listing has. What is in the rows is
//! not looked at.

use std::collections::{BTreeSet, VecDeque};

use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::cell::Row;
use super::source::{Content, Part, Source};

/// Listings of a day that are made anew at most while its parts are read: each follows a change,
/// and compaction changes each hour a few times.
const LISTINGS_MAX: usize = 1_000;
/// How often everything is looked at anew where one look has to have all of it.
const LOOKS_MAX: usize = 5;

/// Parts, one after the other. An event may come twice, in a part and in the object that compaction
/// made of it.
pub(super) struct Reading<'s> {
    source: &'s Source,
    left: VecDeque<Part>,
    given: BTreeSet<Part>,
    listings: usize,
    is_newest_first: bool,
}

impl<'s> Reading<'s> {
    /// Reads these parts, which are by table and day.
    pub(super) fn of(source: &'s Source, parts: impl IntoIterator<Item = Part>) -> Self {
        let left = parts.into_iter().collect();
        Self { source, left, given: BTreeSet::new(), listings: 0, is_newest_first: false }
    }

    /// Reads these parts of one table, the newest first.
    pub(super) fn newest_first(source: &'s Source, parts: Vec<Part>) -> Self {
        let parts = Part::newest_first(parts);
        Self { is_newest_first: true, ..Self::of(source, parts) }
    }

    /// Opens the next part; `None` behind the last one.
    ///
    /// # Errors
    /// A part that cannot be read although it is there.
    pub(super) async fn next(
        &mut self,
        columns: Option<&[&str]>,
    ) -> Result<Option<(Part, ParquetRecordBatchReader)>, String> {
        self.next_by(async |source: &Source, part: &Part| source.open(part, columns).await).await
    }

    /// The bytes of the next part, to read its rows several times; `None` behind the last one.
    ///
    /// # Errors
    /// A part that cannot be read although it is there.
    pub(super) async fn next_content(&mut self) -> Result<Option<(Part, Content)>, String> {
        self.next_by(async |source: &Source, part: &Part| {
            let content = source.content(part).await?;
            // What was read of an object that is another one by now is none.
            content.rows(Some(&[])).map_err(|error| error.to_string())?;
            Ok(content)
        })
        .await
    }

    async fn next_by<T>(
        &mut self,
        open: impl AsyncFn(&Source, &Part) -> Result<T, String>,
    ) -> Result<Option<(Part, T)>, String> {
        while let Some(part) = self.left.pop_front() {
            match open(self.source, &part).await {
                Ok(opened) => {
                    self.given.insert(part.clone());
                    return Ok(Some((part, opened)));
                }
                Err(error) => self.list_again(&part, error).await?,
            }
        }
        Ok(None)
    }

    /// Goes on with what the part's day has now.
    async fn list_again(&mut self, part: &Part, error: String) -> Result<(), String> {
        let listed = self.source.parts(Some(&part.table), Some(&part.date)).await?;
        if listed.contains(part) || self.listings == LISTINGS_MAX {
            return Err(error);
        }
        self.listings += 1;
        self.left.retain(|left| left.table != part.table || left.date != part.date);
        let listed = if self.is_newest_first { Part::newest_first(listed) } else { listed };
        for new in listed.into_iter().rev().filter(|new| !self.given.contains(new)) {
            self.left.push_front(new);
        }
        Ok(())
    }
}

/// The events that were given, of one day: an event has one, and parts come by day.
#[derive(Default)]
pub(super) struct Seen {
    day: Option<(String, String)>,
    event_ids: BTreeSet<String>,
}

impl Seen {
    /// Whether the event of this row of a part was not given before.
    pub(super) fn is_new(&mut self, part: &Part, row: &Row) -> bool {
        let is_same = |(table, date): &(String, String)| *table == part.table && *date == part.date;
        if !self.day.as_ref().is_some_and(is_same) {
            self.day = Some((part.table.clone(), part.date.clone()));
            self.event_ids.clear();
        }
        self.event_ids.insert(row.text("_event_id").to_owned())
    }
}

/// Does what needs all parts at once with those that `list` answers, and again with a new listing
/// when it fails and the parts are others by then.
///
/// # Errors
/// What fails although the parts are as they were listed.
pub(super) async fn while_parts_change<T>(
    list: impl AsyncFn() -> Result<Vec<Part>, String>,
    mut read: impl AsyncFnMut(&[Part]) -> Result<T, String>,
) -> Result<T, String> {
    let mut parts = list().await?;
    for _ in 1..LOOKS_MAX {
        match read(&parts).await {
            Ok(found) => return Ok(found),
            Err(error) => {
                let now = list().await?;
                if now == parts {
                    return Err(error);
                }
                parts = now;
            }
        }
    }
    read(&parts).await
}
