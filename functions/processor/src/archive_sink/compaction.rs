//! Compaction: makes a few larger objects of the many small parts of an hour.
//!
//! An hour's compacted objects are a log, as the parts of a bucket are: number *n* is created only
//! if it is not there, after all before it were read, and holds no row that they hold. It says up
//! to which number it took over the parts of each minute: parts are taken in the order of their
//! numbers, up to the first one that is too young. Only then are those parts removed, each only if
//! it is still the object that was read. A part that an earlier run left behind is removed when
//! every event of it stands in a compacted object, and is taken like any other if one does not. So a
//! run that dies anywhere, runs at the same time as another, or is repeated, leaves each row where
//! the next run, and every reader that goes by event id, finds it once. Between the two steps a row
//! stands in two objects; the views that `weir archive ddl` makes show it once.
//!
//! A part is taken only when it is older than the longest run of the function `archive`: a writer
//! that listed the bucket before the part was there has given up by then, so nobody can put another
//! part under a number that was removed. A later writer reads the compacted objects and goes on
//! after the numbers that they name.

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

/// Bytes of parts that go into one object at most, unless one part alone has more. They are in
/// memory at the same time as the object that is made of them.
const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Parts that go into one object at most: each has a footer of its own in memory, some 50 KB.
const CHUNK_PARTS_MAX: usize = 1_000;
/// Parts that are fetched or removed at the same time. A second of a busy stream gives a part, so
/// there may be some hundred thousand from one day, and a request takes some 30 ms.
const REQUESTS_AT_ONCE: usize = 32;
/// Objects that one run makes of one hour at most; more are left to the next run.
const CHUNKS_MAX: usize = 1_000;
/// Hours that are passed over because they cannot be compacted; where there are more, nothing can.
const REFUSED_MAX: usize = 10;
/// Nobody may take parts of which a writer could not know. Lambda's longest time-out is 15 minutes.
pub const AGE_SECONDS_MIN: u64 = 900;
/// The default age of a part that is compacted: no record of its minute is in the stream any more,
/// so the hour is complete and becomes one object.
pub const AGE_SECONDS_DEFAULT: u64 = 26 * 3600;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionReport {
    /// Hours with parts that are old enough.
    pub hours: usize,
    /// Objects written.
    pub objects_written: usize,
    /// Parts whose rows stand in those objects.
    pub parts_replaced: usize,
    /// Rows in those objects.
    pub rows: usize,
    /// Bytes of those parts.
    pub bytes_before: u64,
    /// Bytes of those objects.
    pub bytes_after: u64,
    /// Parts whose rows stood in an object already, as a run leaves them that dies or that the store
    /// does not answer, and that were removed now.
    pub leftovers_removed: usize,
    /// Hours that are left to the next run: others changed them, or the store did not answer. A day or
    /// a table that it could not list counts as one.
    pub postponed_hours: usize,
    /// Why hours could not be compacted that somebody has to put right, such as an object that is no
    /// part; the run fails with the first one when all others are done.
    #[serde(skip)]
    pub refused: Vec<String>,
    /// Whether everything was looked at. If not, give the function more time, or run it again.
    pub complete: bool,
}

impl CompactionReport {
    /// Leaves what could not be listed to the next run: the others are compacted all the same.
    fn postpone(&mut self, what: &str, reason: &str) {
        warn!(what, reason, "what cannot be listed is left to the next compaction");
        self.postponed_hours += 1;
    }
}

/// The compaction of one archive.
#[derive(Clone, Debug)]
pub struct Compactor<O> {
    /// Where the archive is.
    pub store: O,
    /// What the names of all objects of the archive begin with.
    pub prefix: String,
    /// For hours that are changed by others at the same time.
    pub retry: RetryPolicy,
}

/// What to compact.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Only this table.
    pub table: Option<String>,
    /// The time now, in seconds since 1970.
    pub now_seconds: u64,
    /// Age of a part, since it was written, that is taken at least.
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

/// What an hour's compacted objects hold.
#[derive(Default)]
struct Compacted {
    number_last: u32,
    event_ids: HashSet<EventDigest>,
    replaced: Replaced,
}

/// What is left to do of an hour. It was listed once: what others do to it meanwhile is found where a
/// part is read, an object is created, or a part is removed, and then all of it is looked at anew.
struct HourWork {
    /// By minute and number.
    parts: VecDeque<Part>,
    known: Compacted,
}

/// Parts that become one object.
#[derive(Default)]
struct Opened<'p> {
    readers: Vec<(ObjectReader, &'p Part)>,
    lineage: Lineage,
    columns: UnitedColumns,
}

struct Chunk {
    writer: ObjectWriter,
    parts: Vec<ObjectEntry>,
}

impl<O: ObjectMaintenance> Compactor<O> {
    /// Compacts all hours, as far as the time allows.
    ///
    /// # Errors
    /// When the archive's tables cannot be listed, it has no table that is named, or an object in it is
    /// not of an archive.
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
        // All else is compacted by now, and somebody has to look.
        match report.refused.first() {
            Some(reason) => Err(Failure::Fatal(reason.clone())),
            None => Ok(report),
        }
    }

    /// The folders of all days, newest first over all tables: looking at a day costs a listing also
    /// where nothing is left to do, and what has become of the last days matters most.
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

    /// The tables that are meant.
    async fn tables(&self, selection: &Selection) -> Result<Vec<String>, Failure> {
        let folders = self.store.folders(&self.prefix).await?;
        let tables = folders.iter().filter_map(|folder| {
            folder.strip_prefix("table=").and_then(|name| name.strip_suffix('/'))
        });
        let tables: Vec<String> = tables.map(str::to_owned).collect();
        match &selection.table {
            None => Ok(tables),
            Some(wanted) if tables.contains(wanted) => Ok(vec![wanted.clone()]),
            Some(wanted) if tables.is_empty() => {
                Err(Failure::Fatal(format!("the archive has no table `{wanted}`, nor any other")))
            }
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
                // An object of this hour, or something that is wrong for all of them.
                Err(Failure::Fatal(reason)) if report.refused.len() < REFUSED_MAX => {
                    error!(%hour, reason, "an hour cannot be compacted");
                    report.refused.push(reason);
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// The hours of a day with parts that are old enough, and whether there may be anything to do:
    /// one part alone is not made smaller by writing it again. Of a day's objects only one page at
    /// a time is in memory.
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
        // It may be what an earlier run left behind.
        for (hour, is_worth_it) in hours.iter_mut().filter(|(_, is_worth_it)| !**is_worth_it) {
            let prefix = hour.compacted_prefix(&self.prefix);
            let found = compacted.range(prefix.clone()..).next();
            *is_worth_it = found.is_some_and(|name| name.starts_with(&prefix));
        }
        Ok(hours)
    }

    /// The parts of an hour that are old enough, by minute and number: of each minute those before
    /// the first one that is not. A part that rows were erased from is young again, and what says
    /// that it stands for all parts up to a number must hold what this one has.
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
                    Ok(ChunkOutcome::Disturbed) => break,
                    Err(Failure::Retry(reason)) => {
                        warn!(%hour, reason, "compaction is disturbed");
                        break;
                    }
                    Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
                }
            }
        }
        report.postponed_hours += 1;
        Ok(())
    }

    /// Looks what there is of an hour, and removes what an earlier run left behind.
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

    /// Makes one object of the next parts and removes those.
    async fn compact_chunk(
        &self,
        hour: &Hour,
        work: &mut HourWork,
        report: &mut CompactionReport,
    ) -> Result<ChunkOutcome, Failure> {
        // One object is not made smaller by writing it again. Beside compacted objects it is written
        // all the same: as long as it stands there, they would be read again by each run.
        if work.parts.len() < 2 && (work.known.number_last == 0 || work.parts.is_empty()) {
            return Ok(ChunkOutcome::Done);
        }
        let Some(chunk) = self.gather(work).await? else {
            return Ok(ChunkOutcome::Disturbed);
        };
        let number = work.known.number_last + 1;
        if number > PART_NUMBER_MAX {
            return Err(Failure::Fatal(format!(
                "hour `{hour}` of the archive has {PART_NUMBER_MAX} compacted objects"
            )));
        }
        let name = hour.compacted_name(&self.prefix, number);
        let rows = chunk.writer.rows;
        let object = chunk.writer.finish().map_err(|error| unwritable(&name, &error))?;
        let bytes_after = object.len() as u64;
        let PutOutcome::Created { entity_tag } =
            self.store.put_if_absent(&name, object, PARQUET).await?
        else {
            return Ok(ChunkOutcome::Disturbed);
        };
        if !self.are_unchanged(hour, &chunk.parts).await? {
            // Rows were erased from a part meanwhile: what was just made of it must not stay.
            if let Some(entity_tag) = entity_tag {
                self.store.remove(&name, &entity_tag).await?;
            }
            return Ok(ChunkOutcome::Disturbed);
        }
        work.known.number_last = number;
        work.parts.drain(..chunk.parts.len());
        report.objects_written += 1;
        report.rows += rows;
        report.bytes_after += bytes_after;
        report.parts_replaced += chunk.parts.len();
        report.bytes_before += chunk.parts.iter().map(|part| part.bytes).sum::<u64>();
        // What stays of them is a leftover to the next look.
        self.remove_all(&chunk.parts, &mut 0).await?;
        Ok(ChunkOutcome::More)
    }

    /// Divides parts into those that an earlier run left behind, and those whose rows are to be
    /// taken. A number says which may be left behind; that all of its events stand in a compacted
    /// object is looked at, as nothing else has the rows once the part is removed.
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

    /// Whether compacted objects hold every event of a part. One that is gone has none.
    async fn is_within(&self, entry: &ObjectEntry, known: &Compacted) -> Result<bool, Failure> {
        let Some(object) = self.store.get(&entry.name).await? else { return Ok(true) };
        let content =
            PartContent::read(object).map_err(|error| not_of_the_archive(&entry.name, &error))?;
        Ok(content.event_ids.iter().all(|id| known.event_ids.contains(id)))
    }

    /// Removes objects that are still those that were read, and counts those that it removed, also
    /// if it cannot remove all of them.
    async fn remove_all(
        &self,
        entries: &[ObjectEntry],
        removed: &mut usize,
    ) -> Result<(), Failure> {
        let removals: Vec<_> =
            entries.iter().map(|entry| self.store.remove(&entry.name, &entry.entity_tag)).collect();
        let mut removals = stream::iter(removals).buffer_unordered(REQUESTS_AT_ONCE);
        while let Some(outcome) = removals.try_next().await? {
            *removed += usize::from(outcome == ChangeOutcome::Made);
        }
        Ok(())
    }

    async fn compacted(&self, hour: &Hour) -> Result<Compacted, Failure> {
        let mut compacted = Compacted::default();
        for entry in self.store.list(&hour.compacted_prefix(&self.prefix)).await? {
            let Some(number) = hour.compacted_number(&self.prefix, &entry.name) else { continue };
            let Some(object) = self.store.get(&entry.name).await? else {
                return Err(Failure::Retry(format!("object `{}` was removed", entry.name)));
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

    /// Makes an object of the first parts. `None` if one of them is gone.
    async fn gather(&self, work: &mut HourWork) -> Result<Option<Chunk>, Failure> {
        let HourWork { parts, known } = work;
        let Some(opened) = self.open_first(parts).await? else { return Ok(None) };
        let Opened { readers, mut lineage, columns } = opened;
        let Some((_, part)) = readers.first() else { return Ok(None) };
        let schema = columns.schema();
        let mut begin = || {
            lineage.tell_columns(columns.told()?);
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

    /// Fetches parts, in order, until there are enough for one object or one has columns that do not
    /// go with those before. `None` if a part is gone.
    ///
    /// They are fetched twice as many each time as the time before. What is fetched behind the last
    /// one that fits is fetched again for the next object: no more than what fits, however few that
    /// are.
    async fn open_first<'p>(
        &self,
        parts: &'p VecDeque<Part>,
    ) -> Result<Option<Opened<'p>>, Failure> {
        let mut opened = Opened::default();
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

    /// Whether no part has other content by now. One that is gone has lost nothing: its rows are in
    /// the object that was just made of it.
    async fn are_unchanged(&self, hour: &Hour, parts: &[ObjectEntry]) -> Result<bool, Failure> {
        let listing = self.store.list(&hour.parts_prefix(&self.prefix)).await?;
        let tags: BTreeMap<&str, &str> =
            listing.iter().map(|entry| (entry.name.as_str(), entry.entity_tag.as_str())).collect();
        Ok(parts.iter().all(|part| {
            tags.get(part.name.as_str()).is_none_or(|tag| *tag == part.entity_tag.as_str())
        }))
    }
}

/// The first of some parts, as many as go into one object.
fn of_one_object(parts: &VecDeque<Part>) -> impl Iterator<Item = &Part> {
    let mut bytes = 0;
    parts.iter().take(CHUNK_PARTS_MAX).take_while(move |part| {
        let is_first = bytes == 0;
        bytes += part.entry.bytes;
        is_first || bytes <= CHUNK_BYTES_MAX
    })
}

enum ChunkOutcome {
    /// There is nothing left to do.
    Done,
    /// An object was written; there may be more.
    More,
    /// Somebody else was there: look again.
    Disturbed,
}

fn unwritable(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Fatal(format!("object `{name}` cannot be built ({EVENT_ID}): {error}"))
}

#[cfg(test)]
pub(super) mod tests;
