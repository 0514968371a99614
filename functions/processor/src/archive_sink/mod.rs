//! The archive sink: writes rows into the archive, each exactly once, with any number of concurrent
//! writers.
//!
//! A bucket (table, stream label, minute) is a list of numbered parts. A conditional put writes a
//! part only if no object has its name. To write part *n*, a writer first reads the event ids of
//! all earlier parts, and leaves out the rows with these ids. If another writer created part *n*
//! first, the writer reads that part too and tries the next number. So no part shares a row with an
//! earlier part. A redelivered batch adds only the missing rows, even if its boundaries differ from
//! those of the first delivery. If a writer was interrupted after its put, the next attempt finds
//! the part.
//!
//! Compaction ([`compaction`]) moves the rows of an hour's parts into larger objects, which state
//! the minutes and the part numbers that they replace. A writer also leaves out the rows in these
//! objects, and never reuses a number. The rules decide which rows exist, not this module.

mod column_metadata;
pub mod compaction;
mod encoding;
pub mod erasure;
mod known_parts;
mod part_content;
mod part_format;
mod part_rows;
mod reads;
mod rewrite;
mod united_columns;

use std::convert::Infallible;

use futures::{StreamExt, stream};
use locks::Mutex;
use rules::archive::{Archive, Bucket, PART_NUMBER_MAX, Rows};
use rules::{Folded, Found, Needs};

use self::known_parts::KnownParts;
use self::part_content::{DigestSet, PartContent, digest};
use self::part_format::write_part;
use self::part_rows::rows_of_parts;
use self::reads::Reads;
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, TargetOutcome};
use crate::object_store::{ObjectEntry, ObjectStore, PutOutcome};

/// Maximum number of buckets that are written concurrently. A batch rarely spans more than four
/// minutes.
const BUCKETS_AT_ONCE: usize = 4;
/// Maximum number of parts of one bucket that are read concurrently, if there is enough memory.
const READS_AT_ONCE: usize = 8;
/// Maximum number of objects whose reads are prepared at the same time.
const READS_BEGUN: usize = 256;
const PARQUET: &str = "application/vnd.apache.parquet";

/// The archive sink: writes rows into an archive in an object store.
#[derive(Debug)]
pub struct ArchiveSink<O> {
    store: O,
    prefix: String,
    retry: RetryPolicy,
    known: Mutex<KnownParts>,
    reads: Reads,
}

impl<O: ObjectStore> ArchiveSink<O> {
    /// Returns a sink that writes into the archive under `prefix` of `store`.
    pub fn new(store: O, prefix: String, retry: RetryPolicy) -> Self {
        Self { store, prefix, retry, known: Mutex::default(), reads: Reads::default() }
    }

    /// Writes the rows that a bucket does not contain yet. Returns the number of written rows.
    async fn join(&self, bucket: &Bucket, rows: Rows) -> Result<usize, Failure> {
        let mut missing = rows;
        let mut written = 0;
        let mut failure = "other writers keep changing this bucket".to_owned();
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            match self.write_missing(bucket, &mut missing, &mut written).await {
                Ok(()) if missing.is_empty() => return Ok(written),
                Ok(()) => {}
                Err(Failure::Retry(reason)) => failure = reason,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }

    /// Leaves out the rows that the bucket already contains, and writes the rest as the next parts.
    /// The caller must call again while rows remain in `missing`.
    async fn write_missing(
        &self,
        bucket: &Bucket,
        missing: &mut Rows,
        written: &mut usize,
    ) -> Result<(), Failure> {
        let mut number = self.leave_out_known(bucket, missing).await? + 1;
        let mut stands = Vec::new();
        for rows in rows_of_parts(missing) {
            if number > PART_NUMBER_MAX {
                return Err(Failure::Fatal(format!(
                    "bucket `{bucket}` of the archive has {PART_NUMBER_MAX} parts, the maximum; raise BatchSize or MaximumBatchingWindowInSeconds of the event source mapping"
                )));
            }
            let name = bucket.part_name(&self.prefix, number);
            let part = write_part(&rows)
                .map_err(|error| Failure::Fatal(format!("cannot build part `{name}`: {error}")))?;
            match self.store.put_if_absent(&name, part, PARQUET).await? {
                PutOutcome::Created { entity_tag } => {
                    let content =
                        PartContent::of_event_ids(rows.rows.iter().map(|row| row.event_id()));
                    *written += rows.rows.len();
                    stands.push(content.clone());
                    if let Some(entity_tag) = entity_tag {
                        self.remember(name, entity_tag, content);
                    }
                    number += 1;
                }
                // Another writer created the part first, or may have created it. The next attempt
                // reads this part.
                PutOutcome::Exists | PutOutcome::Contended => break,
            }
        }
        if stands.iter().map(|content| content.event_ids.len()).sum::<usize>() == missing.len() {
            *missing = Rows::default();
        } else {
            without(missing, &stands);
        }
        Ok(())
    }

    /// Removes from `missing` the rows that the bucket's parts and the compacted objects of its
    /// hour contain. Returns the highest number of a part that exists or was replaced.
    ///
    /// The compacted objects are listed after the parts were read. If compaction removes a part in
    /// between, the object with the part's rows exists by then.
    async fn leave_out_known(&self, bucket: &Bucket, missing: &mut Rows) -> Result<u32, Failure> {
        let listing = self.store.list(&bucket.prefix(&self.prefix)).await?;
        let parts = listing.into_iter().filter_map(|entry| {
            let number = bucket.part_number(&self.prefix, &entry.name)?;
            Some((number, entry))
        });
        let (numbers, parts): (Vec<u32>, Vec<ObjectEntry>) = parts.unzip();
        let highest = numbers.into_iter().max().unwrap_or(0);
        let replaced = self.leave_out(parts, bucket, missing).await?;
        let highest = highest.max(replaced);
        let hour = bucket.hour();
        let mut compacted = self.store.list(&hour.compacted_prefix(&self.prefix)).await?;
        compacted.retain(|entry| hour.compacted_number(&self.prefix, &entry.name).is_some());
        let replaced = self.leave_out(compacted, bucket, missing).await?;
        Ok(highest.max(replaced))
    }

    /// Removes from `missing` the rows that objects contain. Returns the highest number of a part
    /// of the bucket that one of the objects replaces.
    ///
    /// A busy hour has millions of rows, so an object's content is dropped as soon as it has been
    /// compared with the few rows to write.
    async fn leave_out(
        &self,
        objects: Vec<ObjectEntry>,
        bucket: &Bucket,
        missing: &mut Rows,
    ) -> Result<u32, Failure> {
        let wanted: DigestSet = missing.event_ids().map(digest).collect();
        let (mut known, mut highest) = (DigestSet::default(), 0);
        let mut objects = objects.into_iter();
        loop {
            // At most `READS_BEGUN` reads are prepared at a time: each takes some kilobytes before
            // it begins, and a minute may have thousands of parts.
            let some = objects.by_ref().take(READS_BEGUN);
            let reads: Vec<_> = some.map(|entry| self.content_of(entry)).collect();
            if reads.is_empty() {
                break;
            }
            let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
            while let Some(content) = reads.next().await {
                let content = content?;
                highest = highest.max(content.replaced_of(bucket));
                known.extend(content.event_ids.iter().copied().filter(|id| wanted.contains(id)));
            }
        }
        if !known.is_empty() {
            missing.retain(|row| !known.contains(&digest(row.event_id())));
        }
        Ok(highest)
    }

    async fn content_of(&self, entry: ObjectEntry) -> Result<PartContent, Failure> {
        if let Some(content) = self.known_of(&entry) {
            return Ok(content);
        }
        let _turn = self.reads.turn(&entry.name).await;
        // The previous reader of this object may have cached its content.
        if let Some(content) = self.known_of(&entry) {
            return Ok(content);
        }
        let _room = self.reads.room_for(entry.bytes).await;
        let Some(object) = self.store.get(&entry.name).await? else {
            return Ok(PartContent::default());
        };
        let content =
            PartContent::read(object).map_err(|error| not_of_the_archive(&entry.name, &error))?;
        self.remember(entry.name, entry.entity_tag, content.clone());
        Ok(content)
    }

    fn known_of(&self, entry: &ObjectEntry) -> Option<PartContent> {
        let parts = self.known.lock();
        parts.get(&entry.name, &entry.entity_tag)
    }

    fn remember(&self, name: String, entity_tag: String, content: PartContent) {
        let mut parts = self.known.lock();
        parts.insert(name, entity_tag, content);
    }
}

/// Removes the rows whose event ids are in `contents`.
fn without(rows: &mut Rows, contents: &[PartContent]) {
    if contents.iter().all(|content| content.event_ids.is_empty()) {
        return;
    }
    let digests: DigestSet = rows.event_ids().map(digest).collect();
    let known = contents.iter().flat_map(|content| content.event_ids.iter());
    let known: DigestSet = known.copied().filter(|id| digests.contains(id)).collect();
    if !known.is_empty() {
        rows.retain(|row| !known.contains(&digest(row.event_id())));
    }
}

fn not_of_the_archive(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::Fatal(format!(
        "archive object `{name}` is not a part of the archive: {error}; move it away from the archive's prefix"
    ))
}

impl<O: ObjectStore> Executor for ArchiveSink<O> {
    type Rule = Archive;

    async fn load(&self, _needs: Needs) -> Result<Found<Infallible>, Failure> {
        Ok(Found::default())
    }

    async fn apply(
        &self,
        folded: Folded<Bucket, Rows>,
        _found: &Found<Infallible>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let joins: Vec<_> = folded
            .into_iter()
            .map(async |(bucket, joined)| {
                let result = deadline.limit(self.join(&bucket, joined.value)).await;
                TargetOutcome::new(bucket.to_string(), joined.records, result)
            })
            .collect();
        stream::iter(joins).buffer_unordered(BUCKETS_AT_ONCE).collect().await
    }
}

#[cfg(test)]
mod tests;
