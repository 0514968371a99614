//! Alignment: gives the objects of a table the same columns, so that readers that take the columns
//! of one file, such as pandas and polars, read the whole folder by default.
//!
//! An object's *own* columns are those that its rows were written with. A compaction adds the columns
//! of the table's other objects as columns of NULL. An erasure removes added columns that no object
//! owns any more. The metadata `weir.added` names the added columns.
//! Rows, their order and all other metadata stay. An object is replaced only if it is unchanged
//! since it was read, so a run may be interrupted and repeated.
//!
//! It aligns compacted objects, and old parts that compaction left alone. It does not align a part
//! beside compacted objects of its hour: that part may be a leftover, which a later run must remove.

mod object_columns;

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use parquet::errors::ParquetError;
use rules::archive::Bucket;
use tracing::warn;

use self::object_columns::{ObjectColumns, TableColumns};
use super::PARQUET;
use super::rewrite::{Lineage, ObjectReader, ObjectWriter};
use super::united_columns::with_columns;
use crate::back_off::RetryPolicy;
use crate::failure::Failure;
use crate::object_store::{ChangeOutcome, ObjectEntry, ObjectMaintenance};

/// Maximum number of footers that are fetched concurrently. Few are in memory at a time.
const FOOTERS_AT_ONCE: usize = 32;
/// Bytes of the first read at an object's end: enough for the footer of most objects.
const FOOTER_BYTES: u64 = 64 << 10;
/// Maximum number of reads of a footer. The second read knows the exact size.
const FOOTER_READS_MAX: usize = 2;
/// Maximum number of objects that are rewritten concurrently. A compacted object has about 16 MB,
/// and its copy as much.
const REWRITES_AT_ONCE: usize = 4;
/// Maximum size of the objects that one run rewrites for one table, in bytes. A new attribute
/// changes every object of a table, and a run has 15 minutes for all tables.
pub(super) const REWRITTEN_BYTES_MAX: u64 = 1 << 30;

/// The result of a run for one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Aligned {
    /// Objects that were rewritten.
    pub(super) objects: usize,
    /// Objects that still have other columns, which the next run must rewrite.
    pub(super) left: usize,
}

/// The alignment of one table.
pub(super) struct Alignment<'a, O> {
    pub(super) store: &'a O,
    /// Prefix of the names of all objects of the archive.
    pub(super) prefix: &'a str,
    pub(super) table: &'a str,
    pub(super) retry: RetryPolicy,
    /// Aligns the parts that were written at or before this time, in seconds since 1970. `None` takes
    /// all objects, and only removes added columns.
    pub(super) written_until: Option<u64>,
    pub(super) bytes_max: u64,
}

impl<O: ObjectMaintenance> Alignment<'_, O> {
    /// Rewrites the objects whose columns differ. Adds to `aligned` as it proceeds, because the
    /// caller may stop it.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn run(&self, aligned: &mut Aligned) -> Result<(), Failure> {
        let mut columns = TableColumns::new(self.written_until.is_some());
        self.each(|_, object| columns.add(object)).await?;
        if columns.are_equal() {
            return Ok(());
        }
        let (mut differing, mut bytes) = (Vec::new(), 0);
        self.each(|entry, object| {
            if columns.added_to(&object) == object.added {
                return;
            }
            aligned.left += 1;
            // A single object may be larger.
            if bytes == 0 || bytes + entry.bytes <= self.bytes_max {
                bytes += entry.bytes;
                differing.push(entry);
            }
        })
        .await?;
        let rewrites = stream::iter(&differing).map(|entry| self.rewrite(entry, &columns));
        let mut rewrites = rewrites.buffer_unordered(REWRITES_AT_ONCE);
        while let Some(outcome) = rewrites.try_next().await? {
            if outcome == ChangeOutcome::Changed {
                aligned.objects += 1;
                aligned.left -= 1;
            }
        }
        Ok(())
    }

    /// Passes the objects to align to `see`, with their columns, in the order of their names.
    async fn each(&self, mut see: impl FnMut(ObjectEntry, ObjectColumns)) -> Result<(), Failure> {
        let folder = format!("{}table={}/", self.prefix, self.table);
        let (mut after, mut compacted) = (String::new(), BTreeSet::new());
        loop {
            let page = self.retry.persist(|| self.store.page(&folder, &after)).await?;
            let mut entries = page.entries;
            entries.retain(|entry| entry.bytes > 0 && self.takes(entry, &mut compacted));
            let reads: Vec<_> = entries
                .into_iter()
                .map(async |entry| {
                    let columns = self.columns_of(&entry).await?;
                    Ok::<_, Failure>((entry, columns))
                })
                .collect();
            let mut reads = stream::iter(reads).buffered(FOOTERS_AT_ONCE);
            while let Some((entry, columns)) = reads.try_next().await? {
                if let Some(columns) = columns {
                    see(entry, columns);
                }
            }
            let Some(next) = page.after else { return Ok(()) };
            after = next;
        }
    }

    /// Returns whether an object is to be aligned. `compacted` collects the hours with compacted
    /// objects, which precede the parts of their day.
    fn takes(&self, entry: &ObjectEntry, compacted: &mut BTreeSet<String>) -> bool {
        let Some(until) = self.written_until else { return entry.name.ends_with(".parquet") };
        if let Some((bucket, _)) = Bucket::of_part(self.prefix, &entry.name) {
            let hour = bucket.hour().compacted_prefix(self.prefix);
            return entry.written_seconds <= until && !compacted.contains(&hour);
        }
        let is_compacted = entry.name.contains("/compact-") && entry.name.ends_with(".parquet");
        if let (true, Some((hour, _))) = (is_compacted, entry.name.rsplit_once('-')) {
            compacted.insert(format!("{hour}-"));
        }
        is_compacted
    }

    /// Returns the columns of an object; `None` if it changed or cannot be read. Compaction and
    /// erasure report an object that cannot be read.
    async fn columns_of(&self, entry: &ObjectEntry) -> Result<Option<ObjectColumns>, Failure> {
        let mut bytes = FOOTER_BYTES;
        for _ in 0..FOOTER_READS_MAX {
            let tail = self.retry.persist(|| self.store.tail(entry, bytes)).await?;
            let Some(tail) = tail else { return Ok(None) };
            match ObjectColumns::of_tail(&tail, entry.bytes) {
                Err(ParquetError::NeedMoreData(more)) => {
                    bytes = u64::try_from(more).unwrap_or(u64::MAX);
                }
                Ok(columns) => return Ok(Some(columns)),
                Err(error) => {
                    warn!(entry.name, %error, "an object cannot be read and keeps its columns");
                    return Ok(None);
                }
            }
        }
        warn!(entry.name, "an object has a malformed footer and keeps its columns");
        Ok(None)
    }

    async fn rewrite(
        &self,
        entry: &ObjectEntry,
        columns: &TableColumns,
    ) -> Result<ChangeOutcome, Failure> {
        let object = self.retry.persist(|| self.store.get(&entry.name)).await?;
        let Some(object) = object else { return Ok(ChangeOutcome::Stale) };
        let object = match aligned(object, columns) {
            Ok(object) => object,
            Err(error) => {
                warn!(entry.name, %error, "an object cannot be rewritten and keeps its columns");
                return Ok(ChangeOutcome::Stale);
            }
        };
        let (name, tag) = (&entry.name, &entry.entity_tag);
        self.retry.persist(|| self.store.replace(name, tag, object.clone(), PARQUET)).await
    }
}

/// Returns the object with the added columns that it should have.
fn aligned(object: Bytes, columns: &TableColumns) -> Result<Bytes, ParquetError> {
    let mut reader = ObjectReader::open(object)?;
    let own = ObjectColumns::of(&reader.schema, &reader.metadata)?;
    let added = columns.added_to(&own);
    let mut lineage = Lineage::default();
    lineage.add(&reader)?;
    lineage.tell_added(&added)?;
    let schema = own.schema_with(&added);
    let mut writer = ObjectWriter::begin(&schema, &lineage)?;
    for batch in reader.batches() {
        writer.add(&with_columns(&batch?, &schema)?)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests;
