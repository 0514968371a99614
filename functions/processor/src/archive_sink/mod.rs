//! The archive sink: rows into the archive, each exactly once, whoever writes at the same time.
//!
//! A bucket (table, stream label, minute) is a list of numbered parts, and each part is written
//! only if no object has its name. To write part *n*, a writer first reads the event ids of all
//! parts before it and leaves out the rows that they hold; if somebody else was quicker with part
//! *n*, it reads that one too and goes on with the next number. So every part is disjoint from all
//! parts before it, by induction over their numbers: no row stands in two parts, and a batch that
//! comes again, with whatever boundaries, adds only what is missing. A writer that died after its
//! put finds its own part and is done.
//!
//! This holds as long as nobody removes parts while their records may still be delivered (the
//! stream's 24 hours). Which rows there are to write is not decided here.

mod known_parts;
mod part_format;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, stream};
use rules::archive::{Bucket, PART_NUMBER_MAX, Row, Rows, Schema};
use rules::{Folded, Found, Needs};

use self::known_parts::KnownParts;
use self::part_format::{read_event_ids, write_part};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, TargetOutcome};
use crate::object_store::{ObjectStore, PutOutcome};

/// Buckets that are written at the same time. A batch seldom spans more minutes than this.
const BUCKETS_AT_ONCE: usize = 4;
/// Parts of one bucket that are read at the same time.
const READS_AT_ONCE: usize = 8;
const PARQUET: &str = "application/vnd.apache.parquet";

/// The archive in an object store.
#[derive(Debug)]
pub struct ArchiveSink<O> {
    store: O,
    prefix: String,
    retry: RetryPolicy,
    known: Mutex<KnownParts>,
}

impl<O: ObjectStore> ArchiveSink<O> {
    /// The archive under `prefix` of `store`.
    pub fn new(store: O, prefix: String, retry: RetryPolicy) -> Self {
        Self { store, prefix, retry, known: Mutex::default() }
    }

    /// Makes a bucket hold all of `rows`. Answers how many of them it did not hold before.
    async fn join(&self, bucket: &Bucket, rows: Rows) -> Result<usize, Failure> {
        let mut missing = rows;
        let mut written = 0;
        let mut failure = "others write this bucket all the time".to_owned();
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

    /// Leaves out what the bucket's parts hold and writes the rest as the next part. What is then
    /// still missing must be tried again.
    async fn write_missing(
        &self,
        bucket: &Bucket,
        missing: &mut Rows,
        written: &mut usize,
    ) -> Result<(), Failure> {
        let mut number = self.leave_out_known(bucket, missing).await? + 1;
        for (schema, rows) in by_schema(missing) {
            if number > PART_NUMBER_MAX {
                return Err(Failure::Fatal(format!(
                    "bucket `{bucket}` of the archive has {PART_NUMBER_MAX} parts; raise BatchSize or MaximumBatchingWindowInSeconds of the event source mapping"
                )));
            }
            let name = bucket.part_name(&self.prefix, number);
            let part = write_part(&schema, &rows).map_err(|error| {
                Failure::Fatal(format!("part `{name}` cannot be built: {error}"))
            })?;
            match self.store.put_if_absent(&name, part, PARQUET).await? {
                PutOutcome::Created { entity_tag } => {
                    let event_ids: Arc<[String]> =
                        rows.into_iter().map(|row| row.event_id).collect();
                    event_ids.iter().for_each(|id| missing.remove(id));
                    *written += event_ids.len();
                    if let Some(entity_tag) = entity_tag {
                        self.remember(name, entity_tag, event_ids);
                    }
                    number += 1;
                }
                // Somebody was quicker, or may be: what stands there now must be read first.
                PutOutcome::Exists | PutOutcome::Contended => return Ok(()),
            }
        }
        Ok(())
    }

    /// Removes from `missing` what the bucket's parts hold. Answers the highest part's number.
    async fn leave_out_known(&self, bucket: &Bucket, missing: &mut Rows) -> Result<u32, Failure> {
        let listing = self.store.list(&bucket.prefix(&self.prefix)).await?;
        let parts = listing.into_iter().filter_map(|entry| {
            let number = bucket.part_number(&self.prefix, &entry.name)?;
            Some((number, entry.name, entry.entity_tag))
        });
        let parts: Vec<_> = parts.collect();
        let highest = parts.iter().map(|(number, _, _)| *number).max().unwrap_or(0);
        let reads: Vec<_> =
            parts.into_iter().map(|(_, name, tag)| self.event_ids_of(name, tag)).collect();
        let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
        while let Some(event_ids) = reads.next().await {
            event_ids?.iter().for_each(|id| missing.remove(id));
        }
        Ok(highest)
    }

    async fn event_ids_of(
        &self,
        name: String,
        entity_tag: String,
    ) -> Result<Arc<[String]>, Failure> {
        let known = {
            let parts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            parts.get(&name, &entity_tag)
        };
        if let Some(event_ids) = known {
            return Ok(event_ids);
        }
        let Some(part) = self.store.get(&name).await? else {
            return Ok(Arc::new([]));
        };
        let event_ids: Arc<[String]> = read_event_ids(part)
            .map_err(|error| {
                Failure::Fatal(format!(
                    "archive object `{name}` is not a part of the archive: {error}; move it away from the archive's prefix"
                ))
            })?
            .into();
        self.remember(name, entity_tag, Arc::clone(&event_ids));
        Ok(event_ids)
    }

    fn remember(&self, name: String, entity_tag: String, event_ids: Arc<[String]>) {
        let mut parts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(name, entity_tag, event_ids);
    }
}

/// Rows that go into one part: they have the same columns. All rows of a stream do, as long as the
/// function's configuration stays.
fn by_schema(rows: &Rows) -> BTreeMap<Arc<Schema>, Vec<Row>> {
    let mut groups: BTreeMap<Arc<Schema>, Vec<Row>> = BTreeMap::new();
    for row in rows.iter() {
        groups.entry(Arc::clone(&row.schema)).or_default().push(row.clone());
    }
    groups.values_mut().for_each(|rows| rows.sort());
    groups
}

impl<O: ObjectStore> Executor for ArchiveSink<O> {
    async fn load(&self, _needs: Needs) -> Result<Found, Failure> {
        Ok(Found::default())
    }

    async fn apply(
        &self,
        mut folded: Folded,
        _found: &Found,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let rows = std::mem::take(&mut folded.rows);
        let mut outcomes = TargetOutcome::unknown(folded);
        let joins: Vec<_> = rows
            .into_iter()
            .map(async |(bucket, joined)| {
                let result = deadline.limit(self.join(&bucket, joined.value)).await;
                TargetOutcome { target: bucket.to_string(), records: joined.records, result }
            })
            .collect();
        let mut joins = stream::iter(joins).buffer_unordered(BUCKETS_AT_ONCE);
        while let Some(outcome) = joins.next().await {
            outcomes.push(outcome);
        }
        outcomes
    }
}

#[cfg(test)]
mod tests;
