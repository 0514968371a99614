//! One pass of an erasure over the objects of a table, in the order of their names.
//!
//! A pass reads the objects that were written since a given time, and saves its progress after
//! every few objects. So an interrupted pass can be resumed, and the next pass has little to read.
//! An object's content changes only by a new write, and compaction writes rows into new objects.
//! Therefore every row that a pass missed is in an object that was written after the pass began. If
//! a pass could not replace an object, the object keeps its old write time, so the next pass starts
//! at the same time again.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use model::{Item, json};
use parquet::errors::ParquetError;
use rules::migration::UndecidedCondition;
use serde::{Deserialize, Serialize};

use super::super::part_content::EVENT_ID;
use super::super::rewrite::{Lineage, ObjectReader, ObjectWriter, event_ids, keep, texts};
use super::super::united_columns::with_columns;
use super::super::{PARQUET, not_of_the_archive};
use super::kept_columns::KeptAttributes;
use super::{Eraser, ErasureReceipt, Subject};
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::object_store::{ChangeOutcome, ObjectEntry, ObjectMaintenance};

/// The column that contains the whole item.
const ITEM: &str = "_item";
/// Maximum number of objects that are fetched or replaced concurrently. All of them are in memory,
/// and a compacted object has about 16 MB.
const REQUESTS_AT_ONCE: usize = 16;
/// Number of objects between two saves of the progress. A call makes progress only if it has time
/// to read this many objects; a save takes three requests.
const LOOKS_AT_ONCE: usize = 32;
/// Maximum size of the rewritten objects in memory, in bytes. When the objects exceed this size,
/// they are written to the store.
const CHANGED_BYTES_MAX: usize = 32 << 20;
/// Tolerance for the difference between the clocks of the object store and the function, and for
/// the duration of a write. It is as long as the longest invocation.
const MARGIN_SECONDS: u64 = 900;

/// The progress of an incomplete erasure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The hash of the subject.
    pub subject: String,
    /// The pass reads objects that were written at or after this time, in seconds since 1970.
    pub since_seconds: u64,
    /// When the pass began, in seconds since 1970.
    pub began_seconds: u64,
    /// The name of the last object that the pass has processed.
    pub after: String,
    /// True if the pass could not replace an object, because the object had changed or the store
    /// rejected the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_left_some: bool,
}

impl Progress {
    /// Returns the progress at the beginning of the first pass, which reads all objects.
    pub(super) fn begin(subject: String, now_seconds: u64) -> Self {
        Self { subject, began_seconds: now_seconds, ..Self::default() }
    }

    /// Returns the progress at the beginning of the next pass, after this pass is complete.
    pub(super) fn next_pass(self, now_seconds: u64) -> Self {
        let since = if self.has_left_some { self.since_seconds } else { self.began_seconds };
        Self { since_seconds: since, ..Self::begin(self.subject, now_seconds) }
    }

    fn looks_at(&self, entry: &ObjectEntry) -> bool {
        entry.name.ends_with(".parquet")
            && entry.written_seconds.saturating_add(MARGIN_SECONDS) >= self.since_seconds
    }
}

impl<O: ObjectMaintenance> Eraser<O> {
    /// Processes the objects that the pass has not processed yet. Returns true if it found no row
    /// to erase.
    ///
    /// # Errors
    /// When the deadline has passed. The progress is saved, and the pass can be resumed.
    pub(super) async fn pass(
        &self,
        subject: &Subject,
        progress: &mut Progress,
        receipt: &mut ErasureReceipt,
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let folder = self.folder_of(&receipt.table);
        let mut is_clean = true;
        loop {
            let page = self.persist(|| self.store.page(&folder, &progress.after));
            let page = deadline.limit(page).await?;
            let entries = page.entries.into_iter().filter(|entry| progress.looks_at(entry));
            let entries: Vec<ObjectEntry> = entries.collect();
            let mut left = entries.as_slice();
            while !left.is_empty() {
                let some;
                (some, left) = left.split_at(left.len().min(LOOKS_AT_ONCE));
                let erase = self.erase_from(some, subject, progress, receipt);
                is_clean &= deadline.limit(erase).await?;
                if let Some(last) = some.last() {
                    progress.after.clone_from(&last.name);
                    deadline.limit(self.keep_progress(progress, receipt)).await?;
                }
            }
            let Some(next) = page.after else { return Ok(is_clean) };
            progress.after = next;
        }
    }

    /// Reads objects, and replaces the objects that contain rows of the subject. Returns true if it
    /// found no row to erase.
    async fn erase_from(
        &self,
        entries: &[ObjectEntry],
        subject: &Subject,
        progress: &mut Progress,
        receipt: &mut ErasureReceipt,
    ) -> Result<bool, Failure> {
        let fetches: Vec<_> = entries
            .iter()
            .map(async |entry| {
                let object = self.persist(|| self.store.get(&entry.name)).await?;
                Ok::<_, Failure>((entry.clone(), object))
            })
            .collect();
        let mut fetches = stream::iter(fetches).buffered(REQUESTS_AT_ONCE);
        let mut is_clean = true;
        let (mut changed, mut bytes) = (Vec::new(), 0);
        while let Some((entry, object)) = fetches.try_next().await? {
            let Some(object) = object else {
                is_clean = false;
                continue;
            };
            receipt.objects_read += 1;
            let found = without(object, subject);
            let found = found.map_err(|obstacle| obstacle.in_object(&entry.name))?;
            let Some((object, erased)) = found else { continue };
            is_clean = false;
            receipt.name(&entry.name, erased);
            bytes += object.len();
            changed.push((entry, object));
            if bytes > CHANGED_BYTES_MAX {
                self.replace_all(std::mem::take(&mut changed), progress, receipt).await?;
                bytes = 0;
            }
        }
        if !changed.is_empty() {
            self.replace_all(changed, progress, receipt).await?;
        }
        Ok(is_clean)
    }

    /// Saves the receipt with the rows, and only then replaces the objects. If an object changed
    /// after it was read, the next pass processes it.
    async fn replace_all(
        &self,
        changed: Vec<(ObjectEntry, Bytes)>,
        progress: &mut Progress,
        receipt: &mut ErasureReceipt,
    ) -> Result<(), Failure> {
        self.keep_progress(progress, receipt).await?;
        let replacements: Vec<_> = changed
            .iter()
            .map(async |(entry, object)| {
                let (name, tag) = (&entry.name, &entry.entity_tag);
                self.persist(|| self.store.replace(name, tag, object.clone(), PARQUET)).await
            })
            .collect();
        let mut replacements = stream::iter(replacements).buffer_unordered(REQUESTS_AT_ONCE);
        while let Some(outcome) = replacements.try_next().await? {
            progress.has_left_some |= outcome != ChangeOutcome::Changed;
        }
        Ok(())
    }
}

/// The reason why an object cannot be processed.
#[derive(Debug)]
enum Obstacle {
    /// The bytes are not an archive object.
    Object(ParquetError),
    /// The subject's condition fails for a row; the object itself is valid.
    Condition { event_id: String, reason: UndecidedCondition },
}

impl From<ParquetError> for Obstacle {
    fn from(error: ParquetError) -> Self {
        Self::Object(error)
    }
}

impl Obstacle {
    fn in_object(&self, name: &str) -> Failure {
        match self {
            Self::Object(error) => not_of_the_archive(name, error),
            Self::Condition { event_id, reason } => Failure::Fatal(format!(
                "`where` fails for event `{event_id}` in `{name}`: {reason}; no row of this object was erased; write a condition that can be evaluated for every row, such as `any(.Amt | numbers; . > 3)`"
            )),
        }
    }
}

/// Returns the object without the subject's rows, and the event ids of these rows; `None` if the
/// object contains no row of the subject. Columns that only these rows had are removed too. Most
/// objects contain no row of the subject, so only two columns are read at first.
fn without(object: Bytes, subject: &Subject) -> Result<Option<(Bytes, Vec<String>)>, Obstacle> {
    let (is_meant, erased) = meant(object.clone(), subject)?;
    if erased.is_empty() {
        return Ok(None);
    }
    let attributes = kept_attributes(object.clone(), &is_meant)?;
    let mut reader = ObjectReader::open(object)?;
    let mut lineage = Lineage::default();
    lineage.add(&reader)?;
    lineage.erased.extend(erased.iter().cloned());
    let (schema, told) = attributes.columns_of(&reader)?;
    lineage.tell_columns(told);
    let mut writer = ObjectWriter::begin(&schema, &lineage)?;
    let mut is_meant = is_meant.into_iter();
    for batch in reader.batches() {
        let kept = keep(&batch?, |_| is_meant.next() == Some(false))?;
        if kept.num_rows() > 0 {
            writer.add(&with_columns(&kept, &schema)?)?;
        }
    }
    Ok(Some((writer.finish()?, erased)))
}

/// Returns the attributes of the items that are not erased from an object.
fn kept_attributes(object: Bytes, is_meant: &[bool]) -> Result<KeptAttributes, ParquetError> {
    let mut attributes = KeptAttributes::default();
    let mut is_meant = is_meant.iter();
    for batch in ObjectReader::open_columns(object, &[ITEM])?.batches() {
        for item in texts(&batch?, ITEM)? {
            if is_meant.next() == Some(&false) {
                attributes.add(&item_of(item)?);
            }
        }
    }
    Ok(attributes)
}

fn item_of(text: Option<&str>) -> Result<Item, ParquetError> {
    json::item_from_str(text.unwrap_or_default())
        .map_err(|error| ParquetError::General(format!("column `{ITEM}`: {error}")))
}

/// Returns, for each row, whether the subject selects it, and the event ids of the selected rows.
fn meant(object: Bytes, subject: &Subject) -> Result<(Vec<bool>, Vec<String>), Obstacle> {
    let mut reader = ObjectReader::open_columns(object, &[EVENT_ID, ITEM])?;
    let (mut is_meant, mut erased) = (Vec::new(), Vec::new());
    for batch in reader.batches() {
        let batch = batch?;
        for (id, item) in event_ids(&batch)?.iter().zip(texts(&batch, ITEM)?) {
            let item = item_of(item)?;
            let is_met = subject.is_met_by(&item).map_err(|reason| {
                let event_id = id.unwrap_or_default().to_owned();
                Obstacle::Condition { event_id, reason }
            })?;
            is_meant.push(is_met);
            erased.extend(id.filter(|_| is_met).map(str::to_owned));
        }
    }
    Ok((is_meant, erased))
}
