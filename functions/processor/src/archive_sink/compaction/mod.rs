//! Compaction: merges the many small parts of an hour into a few larger objects.
//!
//! The compacted objects of an hour are numbered like the parts of a bucket. Before a run creates
//! object *n*, it reads all earlier objects, and leaves out the rows that they contain. A
//! conditional put creates *n* only if it does not exist. For each minute, the object states the
//! highest number of the parts that it replaces. A minute's parts are compacted in the order of
//! their numbers, up to the first part that is too young. When the object exists, the run removes
//! those parts, each only if it has not changed since it was read.
//!
//! An interrupted run may leave a part whose events the compacted objects contain; the next run
//! removes it. Any other part is compacted. So a run may be interrupted, repeated, or overlap with
//! another run. Between the put and the removal a row is in two objects. A reader that deduplicates
//! by event id, such as the views of `weir archive ddl`, finds each row once.
//!
//! A part is compacted only when it is older than the longest possible run of the function
//! `archive`. By then, every writer that listed the bucket before the part existed has ended, so no
//! writer can reuse the number of a removed part. A later writer reads the compacted objects and
//! continues after the numbers that they state.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use futures::{StreamExt, TryStreamExt, stream};
use parquet::errors::ParquetError;
use rules::archive::{Bucket, Hour, PART_NUMBER_MAX};
use serde::Serialize;
use tracing::{error, warn};

use super::part_content::{EVENT_ID, EventDigest, PartContent, Replaced, digest};
use super::rewrite::{Lineage, ObjectReader, ObjectWriter, event_ids, keep};
use super::united_columns::{UnitedColumns, with_columns};
use super::{PARQUET, not_of_the_archive};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::object_store::{ChangeOutcome, ObjectEntry, ObjectMaintenance, PutOutcome};

/// Maximum size of the parts that become one object, in bytes; a single part may be larger. These
/// parts are in memory together with the object that is built from them.
const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Upper bound of the parts in one object, because the footer of each part takes about 50 KB in
/// memory.
const CHUNK_PARTS_MAX: usize = 1_000;
/// Maximum number of parts that are fetched or removed concurrently. A busy stream writes a part
/// per second, so a day may have many thousands of parts, and a request takes about 30 ms.
const REQUESTS_AT_ONCE: usize = 32;
/// Maximum number of objects that one run builds for one hour. The next run builds the rest.
const CHUNKS_MAX: usize = 1_000;
/// Maximum number of hours that a run skips because they cannot be compacted. If one more hour
/// cannot be compacted, the run stops, because probably no hour can be compacted.
const REFUSED_MAX: usize = 10;
/// Minimum age of a part: 15 minutes, the longest timeout of Lambda. By then, every writer that
/// listed the bucket before the part existed has ended.
pub const AGE_SECONDS_MIN: u64 = 900;
/// Default minimum age of a part. By then the stream has trimmed all records of the part's minute,
/// so the hour is complete and becomes one object.
pub const AGE_SECONDS_DEFAULT: u64 = 26 * 3600;

/// The report of a compaction run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionReport {
    /// Hours with at least one part that is old enough to be compacted.
    pub hours: usize,
    /// Objects written.
    pub objects_written: usize,
    /// Parts that were compacted: the written objects contain their rows.
    pub parts_replaced: usize,
    /// Rows in the written objects.
    pub rows: usize,
    /// Bytes of the replaced parts.
    pub bytes_before: u64,
    /// Bytes of the written objects.
    pub bytes_after: u64,
    /// Removed parts whose rows an object contained already, because an earlier run was interrupted
    /// or the store did not respond to that run.
    pub leftovers_removed: usize,
    /// Hours that the next run must compact, because of a concurrent change or because the store
    /// did not respond. A day or a table that could not be listed counts as one hour.
    pub postponed_hours: usize,
    /// The reasons why hours could not be compacted and need an operator, such as an object that is
    /// not a part. The run compacts all other hours and then fails with the first reason.
    #[serde(skip)]
    pub refused: Vec<String>,
    /// True if all hours were checked. Otherwise increase the function's timeout, or invoke the
    /// function again.
    pub complete: bool,
}

impl CompactionReport {
    /// Counts a folder that could not be listed. This run continues, and the next run lists the
    /// folder again.
    fn postpone(&mut self, what: &str, reason: &str) {
        warn!(what, reason, "a folder could not be listed; the next compaction retries it");
        self.postponed_hours += 1;
    }
}

/// The compaction of one archive.
#[derive(Clone, Debug)]
pub struct Compactor<O> {
    /// The object store that contains the archive.
    pub store: O,
    /// Prefix of the names of all objects of the archive.
    pub prefix: String,
    /// Retry policy for hours that other requests change at the same time.
    pub retry: RetryPolicy,
}

/// The selection of the parts to compact.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The table to compact; `None` selects all tables.
    pub table: Option<String>,
    /// The time now, in seconds since 1970.
    pub now_seconds: u64,
    /// Minimum age of a part, in seconds.
    pub age_seconds: u64,
}

impl Selection {
    fn is_old(&self, entry: &ObjectEntry) -> bool {
        entry.written_seconds.saturating_add(self.age_seconds) <= self.now_seconds
    }
}

struct Part {
    bucket: Bucket,
    number: u32,
    entry: ObjectEntry,
}

/// The content of an hour's compacted objects.
#[derive(Default)]
struct Compacted {
    number_last: u32,
    event_ids: HashSet<EventDigest>,
    replaced: Replaced,
}

/// The remaining work of one hour, from one listing of the hour. The hour is listed again only when
/// reading a part, creating an object or removing a part detects a concurrent change.
struct HourWork {
    /// The parts to compact, by minute and number.
    parts: VecDeque<Part>,
    known: Compacted,
}

/// The parts that become one object, and the object's writer.
#[derive(Default)]
struct OpenParts<'p> {
    readers: Vec<(ObjectReader, &'p Part)>,
    lineage: Lineage,
    columns: UnitedColumns,
}

struct Chunk {
    writer: ObjectWriter,
    parts: Vec<ObjectEntry>,
}

impl<O: ObjectMaintenance> Compactor<O> {
    /// Compacts all hours, until the time of the invocation runs out.
    ///
    /// # Errors
    /// When the archive's tables cannot be listed, the selected table does not exist, or an object
    /// is not an archive object.
    pub async fn run(
        &self,
        selection: &Selection,
        deadline: Deadline,
    ) -> Result<CompactionReport, Failure> {
        let mut report = CompactionReport { complete: true, ..CompactionReport::default() };
        for day in self.days(selection, deadline, &mut report).await? {
            if !report.complete && deadline.is_over() {
                break;
            }
            match self.compact_day(&day, selection, deadline, &mut report).await {
                Err(Failure::Retry(_)) if deadline.is_over() => report.complete = false,
                Err(Failure::Retry(reason)) => report.postpone(&day, &reason),
                result => result?,
            }
        }
        // All other hours are compacted. The run fails because an operator must act on these hours.
        match report.refused.first() {
            Some(reason) => Err(Failure::Fatal(reason.clone())),
            None => Ok(report),
        }
    }

    /// Returns the folders of all days of all tables, newest first. Each day costs a listing even
    /// if it has nothing to compact, so the latest days come first.
    async fn days(
        &self,
        selection: &Selection,
        deadline: Deadline,
        report: &mut CompactionReport,
    ) -> Result<Vec<String>, Failure> {
        let mut days = Vec::new();
        for table in self.tables(selection).await? {
            let folder = format!("{}table={table}/", self.prefix);
            match deadline.limit(self.store.folders(&folder)).await {
                Err(Failure::Retry(_)) if deadline.is_over() => {
                    report.complete = false;
                    break;
                }
                Err(Failure::Retry(reason)) => report.postpone(&folder, &reason),
                found => days.extend(found?.into_iter().map(|day| (day, folder.clone()))),
            }
        }
        days.sort_by(|a, b| b.0.cmp(&a.0));
        Ok(days.into_iter().map(|(day, folder)| format!("{folder}{day}")).collect())
    }

    /// Returns the selected tables.
    async fn tables(&self, selection: &Selection) -> Result<Vec<String>, Failure> {
        let folders = self.store.folders(&self.prefix).await?;
        let tables = folders.iter().filter_map(|folder| {
            folder.strip_prefix("table=").and_then(|name| name.strip_suffix('/'))
        });
        let tables: Vec<String> = tables.map(str::to_owned).collect();
        match &selection.table {
            None => Ok(tables),
            Some(wanted) if tables.contains(wanted) => Ok(vec![wanted.clone()]),
            Some(wanted) if tables.is_empty() => Err(Failure::Fatal(format!(
                "the archive has no table `{wanted}`; it has no tables"
            ))),
            Some(wanted) => Err(Failure::Fatal(format!(
                "the archive has no table `{wanted}`; tables are {}",
                tables.join(", ")
            ))),
        }
    }

    async fn compact_day(
        &self,
        day: &str,
        selection: &Selection,
        deadline: Deadline,
        report: &mut CompactionReport,
    ) -> Result<(), Failure> {
        let hours = deadline.limit(self.hours_of(day, selection)).await?;
        report.hours += hours.len();
        for (hour, _) in hours.into_iter().filter(|(_, is_worth_it)| *is_worth_it) {
            match self.compact_hour(&hour, selection, deadline, report).await {
                // Either an object of this hour is damaged, or no hour can be compacted. The bound
                // distinguishes these cases.
                Err(Failure::Fatal(reason)) if report.refused.len() < REFUSED_MAX => {
                    error!(%hour, reason, "an hour cannot be compacted");
                    report.refused.push(reason);
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Returns the hours of a day with parts that are old enough, and for each hour whether it is
    /// worth compacting. An hour with a single part is not, because rewriting a single part saves
    /// nothing. Only one page of a day's objects is in memory at a time.
    async fn hours_of(
        &self,
        day: &str,
        selection: &Selection,
    ) -> Result<BTreeMap<Hour, bool>, Failure> {
        let mut hours: BTreeMap<Hour, bool> = BTreeMap::new();
        let mut compacted = BTreeSet::new();
        let mut after = String::new();
        loop {
            let page = self.store.page(day, &after).await?;
            for entry in &page.entries {
                match Bucket::of_part(&self.prefix, &entry.name) {
                    Some((bucket, _)) if selection.is_old(entry) => {
                        let more = |is_worth_it: &mut bool| *is_worth_it = true;
                        hours.entry(bucket.hour()).and_modify(more).or_default();
                    }
                    Some(_) => {}
                    None => {
                        compacted.insert(entry.name.clone());
                    }
                }
            }
            let Some(next) = page.after else { break };
            after = next;
        }
        // A single part may be a leftover of an earlier run, which this run must remove. An hour
        // with a leftover has compacted objects.
        for (hour, is_worth_it) in hours.iter_mut().filter(|(_, is_worth_it)| !**is_worth_it) {
            let prefix = hour.compacted_prefix(&self.prefix);
            let found = compacted.range(prefix.clone()..).next();
            *is_worth_it = found.is_some_and(|name| name.starts_with(&prefix));
        }
        Ok(hours)
    }

    /// Returns an hour's parts to compact, by minute and number: of each minute, the parts before
    /// the first part that is too young. An object replaces all parts up to a number, so it cannot
    /// skip a young part. Erasing rows from a part rewrites the part, which makes it young again.
    async fn old_parts(&self, hour: &Hour, selection: &Selection) -> Result<Vec<Part>, Failure> {
        let listing = self.store.list(&hour.parts_prefix(&self.prefix)).await?;
        let parts = listing.into_iter().filter_map(|entry| {
            let (bucket, number) = Bucket::of_part(&self.prefix, &entry.name)?;
            Some(Part { bucket, number, entry })
        });
        let mut parts: Vec<Part> = parts.collect();
        parts.sort_by(|a, b| (&a.bucket, a.number).cmp(&(&b.bucket, b.number)));
        let mut young: Option<Bucket> = None;
        parts.retain(|part| {
            if young.as_ref() != Some(&part.bucket) && !selection.is_old(&part.entry) {
                young = Some(part.bucket.clone());
            }
            young.as_ref() != Some(&part.bucket)
        });
        Ok(parts)
    }

    async fn compact_hour(
        &self,
        hour: &Hour,
        selection: &Selection,
        deadline: Deadline,
        report: &mut CompactionReport,
    ) -> Result<(), Failure> {
        let mut chunks = 0;
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            let mut work = None;
            loop {
                if chunks == CHUNKS_MAX || deadline.is_over() {
                    report.complete = false;
                    return Ok(());
                }
                chunks += 1;
                let step = async {
                    let work = match &mut work {
                        Some(work) => work,
                        none => none.insert(self.begin_hour(hour, selection, report).await?),
                    };
                    self.compact_chunk(hour, work, report).await
                };
                match deadline.limit(step).await {
                    Ok(ChunkOutcome::Done) => return Ok(()),
                    Ok(ChunkOutcome::More) => {}
                    Ok(ChunkOutcome::ConcurrentChange) => break,
                    Err(Failure::Retry(reason)) => {
                        warn!(%hour, reason, "concurrent change during compaction; the hour is listed again");
                        break;
                    }
                    Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
                }
            }
        }
        report.postponed_hours += 1;
        Ok(())
    }

    /// Lists an hour, and removes the parts that an earlier run left behind.
    async fn begin_hour(
        &self,
        hour: &Hour,
        selection: &Selection,
        report: &mut CompactionReport,
    ) -> Result<HourWork, Failure> {
        let parts = self.old_parts(hour, selection).await?;
        let known = self.compacted(hour).await?;
        let (leftovers, parts) = self.divide(parts, &known).await?;
        self.remove_all(&leftovers, &mut report.leftovers_removed).await?;
        Ok(HourWork { parts: parts.into(), known })
    }

    /// Merges the next parts into one object and removes the parts.
    async fn compact_chunk(
        &self,
        hour: &Hour,
        work: &mut HourWork,
        report: &mut CompactionReport,
    ) -> Result<ChunkOutcome, Failure> {
        // Rewriting a single part saves nothing. But if the hour has compacted objects, the part is
        // compacted anyway, because each run would read these objects again as long as the part
        // exists.
        if work.parts.len() < 2 && (work.known.number_last == 0 || work.parts.is_empty()) {
            return Ok(ChunkOutcome::Done);
        }
        let Some(chunk) = self.gather(work).await? else {
            return Ok(ChunkOutcome::ConcurrentChange);
        };
        let number = work.known.number_last + 1;
        if number > PART_NUMBER_MAX {
            return Err(Failure::Fatal(format!(
                "hour `{hour}` of the archive has {PART_NUMBER_MAX} compacted objects, the maximum; its other parts cannot be compacted"
            )));
        }
        let name = hour.compacted_name(&self.prefix, number);
        let rows = chunk.writer.rows;
        let object = chunk.writer.finish().map_err(|error| unwritable(&name, &error))?;
        let bytes_after = object.len() as u64;
        let PutOutcome::Created { entity_tag } =
            self.store.put_if_absent(&name, object, PARQUET).await?
        else {
            return Ok(ChunkOutcome::ConcurrentChange);
        };
        if !self.are_unchanged(hour, &chunk.parts).await? {
            // A concurrent erasure changed a part, so the new object contains erased rows and must
            // be removed.
            if let Some(entity_tag) = entity_tag {
                self.store.remove(&name, &entity_tag).await?;
            }
            return Ok(ChunkOutcome::ConcurrentChange);
        }
        work.known.number_last = number;
        work.parts.drain(..chunk.parts.len());
        report.objects_written += 1;
        report.rows += rows;
        report.bytes_after += bytes_after;
        report.parts_replaced += chunk.parts.len();
        report.bytes_before += chunk.parts.iter().map(|part| part.bytes).sum::<u64>();
        // If a part cannot be removed now, the next run removes it as a leftover.
        self.remove_all(&chunk.parts, &mut 0).await?;
        Ok(ChunkOutcome::More)
    }

    /// Returns the leftovers of an earlier run, and the parts to compact. A part may be a leftover
    /// if a compacted object states that it replaces the part's number. Its event ids are checked
    /// nevertheless: a part with a row that no compacted object has must not be removed.
    async fn divide(
        &self,
        parts: Vec<Part>,
        known: &Compacted,
    ) -> Result<(Vec<ObjectEntry>, Vec<Part>), Failure> {
        let looks: Vec<_> = parts
            .into_iter()
            .map(async |part| {
                let minute = part.bucket.minute().compact_text();
                let may_be = known.replaced.get(&minute).is_some_and(|last| part.number <= *last);
                let is_leftover = may_be && self.is_within(&part.entry, known).await?;
                Ok::<_, Failure>((is_leftover, part))
            })
            .collect();
        let looked = stream::iter(looks).buffered(REQUESTS_AT_ONCE).try_collect::<Vec<_>>().await?;
        let (leftovers, parts): (Vec<_>, Vec<_>) =
            looked.into_iter().partition(|(is_leftover, _)| *is_leftover);
        let leftovers = leftovers.into_iter().map(|(_, part)| part.entry).collect();
        Ok((leftovers, parts.into_iter().map(|(_, part)| part).collect()))
    }

    /// Returns whether compacted objects contain every event of a part. Returns true for a missing
    /// part.
    async fn is_within(&self, entry: &ObjectEntry, known: &Compacted) -> Result<bool, Failure> {
        let Some(object) = self.store.get(&entry.name).await? else { return Ok(true) };
        let content =
            PartContent::read(object).map_err(|error| not_of_the_archive(&entry.name, &error))?;
        Ok(content.event_ids.iter().all(|id| known.event_ids.contains(id)))
    }

    /// Removes the objects that have not changed since they were read. Counts the removed objects
    /// even if a later removal fails.
    async fn remove_all(
        &self,
        entries: &[ObjectEntry],
        removed: &mut usize,
    ) -> Result<(), Failure> {
        let removals: Vec<_> =
            entries.iter().map(|entry| self.store.remove(&entry.name, &entry.entity_tag)).collect();
        let mut removals = stream::iter(removals).buffer_unordered(REQUESTS_AT_ONCE);
        while let Some(outcome) = removals.try_next().await? {
            *removed += usize::from(outcome == ChangeOutcome::Changed);
        }
        Ok(())
    }

    async fn compacted(&self, hour: &Hour) -> Result<Compacted, Failure> {
        let mut compacted = Compacted::default();
        for entry in self.store.list(&hour.compacted_prefix(&self.prefix)).await? {
            let Some(number) = hour.compacted_number(&self.prefix, &entry.name) else { continue };
            let Some(object) = self.store.get(&entry.name).await? else {
                return Err(Failure::Retry(format!(
                    "another writer removed compacted object `{}` during the compaction",
                    entry.name
                )));
            };
            let content = PartContent::read(object)
                .map_err(|error| not_of_the_archive(&entry.name, &error))?;
            compacted.number_last = compacted.number_last.max(number);
            compacted.event_ids.extend(content.event_ids.iter().copied());
            for (minute, highest) in content.replaced.iter() {
                let known = compacted.replaced.entry(minute.clone()).or_default();
                *known = (*known).max(*highest);
            }
        }
        Ok(compacted)
    }

    /// Builds an object from the first parts; `None` if one of these parts is missing.
    async fn gather(&self, work: &mut HourWork) -> Result<Option<Chunk>, Failure> {
        let HourWork { parts, known } = work;
        let Some(opened) = self.open_first(parts).await? else { return Ok(None) };
        let OpenParts { readers, mut lineage, columns } = opened;
        let Some((_, part)) = readers.first() else { return Ok(None) };
        let schema = columns.schema();
        let mut begin = || {
            lineage.tell_columns(columns.metadata_text()?);
            ObjectWriter::begin(&schema, &lineage)
        };
        let mut writer = begin().map_err(|error| not_of_the_archive(&part.entry.name, &error))?;
        let mut taken = Vec::new();
        for (mut reader, part) in readers {
            let failed = |error: ParquetError| not_of_the_archive(&part.entry.name, &error);
            for batch in reader.batches() {
                let batch = batch.map_err(failed)?;
                let ids = event_ids(&batch).map_err(failed)?;
                let fresh = |row| known.event_ids.insert(digest(ids.value(row)));
                let kept = keep(&batch, fresh).map_err(failed)?;
                let kept = with_columns(&kept, &schema).map_err(failed)?;
                writer.add(&kept).map_err(failed)?;
            }
            taken.push(part.entry.clone());
        }
        Ok(Some(Chunk { writer, parts: taken }))
    }

    /// Fetches parts in order until they fill one object, or until the columns of a part conflict
    /// with the columns of earlier parts. Returns `None` if a part is missing.
    ///
    /// Each round fetches twice as many parts as the previous round. Fetched parts that do not fit
    /// are fetched again for the next object. Their number is at most the number of parts that fit.
    async fn open_first<'p>(
        &self,
        parts: &'p VecDeque<Part>,
    ) -> Result<Option<OpenParts<'p>>, Failure> {
        let mut opened = OpenParts::default();
        let candidates: Vec<&Part> = of_one_object(parts).collect();
        let (mut left, mut at_once) = (candidates.as_slice(), 2);
        while !left.is_empty() {
            let some;
            (some, left) = left.split_at(left.len().min(at_once));
            at_once = (2 * at_once).min(REQUESTS_AT_ONCE);
            let fetches: Vec<_> =
                some.iter().map(|part| self.store.get(&part.entry.name)).collect();
            let mut objects = stream::iter(fetches).buffered(REQUESTS_AT_ONCE);
            for part in some {
                let Some(Some(object)) = objects.try_next().await? else { return Ok(None) };
                let failed = |error: ParquetError| not_of_the_archive(&part.entry.name, &error);
                let reader = ObjectReader::open(object).map_err(failed)?;
                if !opened.columns.add(&reader).map_err(failed)? {
                    return Ok(Some(opened));
                }
                opened.lineage.add(&reader).map_err(failed)?;
                let minute = part.bucket.minute().compact_text();
                let last = opened.lineage.replaced.entry(minute).or_default();
                *last = part.number.max(*last);
                opened.readers.push((reader, *part));
            }
        }
        Ok(Some(opened))
    }

    /// Returns whether all parts are unchanged since they were read. A missing part does not count
    /// as changed, because the new object contains its rows.
    async fn are_unchanged(&self, hour: &Hour, parts: &[ObjectEntry]) -> Result<bool, Failure> {
        let listing = self.store.list(&hour.parts_prefix(&self.prefix)).await?;
        let tags: BTreeMap<&str, &str> =
            listing.iter().map(|entry| (entry.name.as_str(), entry.entity_tag.as_str())).collect();
        Ok(parts.iter().all(|part| {
            tags.get(part.name.as_str()).is_none_or(|tag| *tag == part.entity_tag.as_str())
        }))
    }
}

/// Returns the first parts that together fit into one object.
fn of_one_object(parts: &VecDeque<Part>) -> impl Iterator<Item = &Part> {
    let mut bytes = 0;
    parts.iter().take(CHUNK_PARTS_MAX).take_while(move |part| {
        let is_first = bytes == 0;
        bytes += part.entry.bytes;
        is_first || bytes <= CHUNK_BYTES_MAX
    })
}

enum ChunkOutcome {
    /// No part of the hour is left to compact.
    Done,
    /// An object was written; the hour may have more parts to compact.
    More,
    /// A concurrent change was detected; the hour must be listed again.
    ConcurrentChange,
}

fn unwritable(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Fatal(format!("cannot build object `{name}`: column `{EVENT_ID}`: {error}"))
}

#[cfg(test)]
pub(super) mod tests;
