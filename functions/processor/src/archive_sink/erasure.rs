//! Erasure: takes the rows of a key or a tenant out of the archive, for good, with a receipt.
//!
//! Every object of the table is read; one that holds such a row is replaced by itself without the
//! row, if it is still the object that was read. It keeps the event ids of what was erased, so a
//! record that is delivered again does not bring its row back; an event id says nothing about the
//! item. An erasure that has a name keeps one receipt, which names each row before it is erased: so
//! it may die anywhere, be asked for again, and still tell of all that it erased. Passes are repeated until one finds nothing. Then what a versioned bucket keeps of earlier
//! contents is removed as well.
//!
//! Compaction must not run at the same time: both belong to one function with a reserved
//! concurrency of one. Copies that others made of the archive are beyond its reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{AttributeValue, Item, json};
use parquet::errors::ParquetError;
use rules::archive::UtcMinute;
use rules::migration::Transform;
use serde::{Deserialize, Serialize};

use super::rewrite::{Lineage, ObjectReader, ObjectWriter, event_ids, keep, texts};
use super::{PARQUET, not_of_the_archive};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::object_store::{ChangeOutcome, ObjectEntry, ObjectMaintenance, PutOutcome};

/// Passes over a table at most: the first erases, the second confirms, the others are for writers
/// that add rows of the key meanwhile.
const PASSES_MAX: usize = 5;

/// A condition as purges have it: a jq program that gives `true` or something like it.
#[derive(Clone, Debug)]
pub struct Condition(Arc<Transform>);

impl Condition {
    /// Checks and compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(program: &str) -> Result<Self, String> {
        // By itself first: what closes no bracket of its own must not close ours.
        Transform::compile(program).map_err(|error| error.reason)?;
        let select = Transform::compile(&format!("select({program})"));
        Ok(Self(Arc::new(select.map_err(|error| error.reason)?)))
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.0.program() == other.0.program()
    }
}

impl Eq for Condition {}

/// Whose rows are erased: items for which all parts hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Attributes and their values: a key, or a partition key, or the attribute of a tenant.
    pub equals: Item,
    /// String attributes and what they begin with, such as a tenant's prefix in the key.
    pub begins_with: Vec<(String, String)>,
    /// What a purge removes.
    pub condition: Option<Condition>,
}

impl Subject {
    /// Whether an item is meant.
    ///
    /// # Errors
    /// When the condition cannot be carried out for this item.
    pub fn is_met_by(&self, item: &Item) -> Result<bool, String> {
        let is_equal = self.equals.iter().all(|(name, value)| item.get(name) == Some(value))
            && self.begins_with.iter().all(|(name, prefix)| {
                matches!(item.get(name), Some(AttributeValue::S(text)) if text.starts_with(prefix))
            });
        match &self.condition {
            Some(Condition(select)) if is_equal => Ok(!select.run(item)?.is_empty()),
            _ => Ok(is_equal),
        }
    }

    /// Whether it says nothing, and so would mean every item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.equals.is_empty()
            && self.begins_with.iter().all(|(_, prefix)| prefix.is_empty())
            && self.condition.is_none()
    }
}

/// What was erased. It names no key, so that it can be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureReceipt {
    /// The table.
    pub table: String,
    /// The object that keeps the receipt.
    #[serde(default)]
    pub receipt: String,
    /// When, in seconds since 1970.
    pub erased_seconds: u64,
    /// Objects that were read in the last pass.
    pub objects_read: usize,
    /// Objects that held such rows.
    pub objects_replaced: usize,
    /// Their names. What a versioned bucket kept of them is removed, also by who goes on later.
    #[serde(default)]
    pub objects: BTreeSet<String>,
    /// The rows that are gone, by their event ids.
    pub event_ids: BTreeSet<String>,
    /// Earlier contents that a versioned bucket had kept, and that are gone.
    pub earlier_contents_removed: usize,
    /// Passes over the table; the last one found nothing.
    pub passes: usize,
}

/// Erases from one archive.
#[derive(Clone, Debug)]
pub struct Eraser<O> {
    /// Where the archive is.
    pub store: O,
    /// What the names of all objects of the archive begin with.
    pub prefix: String,
    /// What the names of receipts begin with; outside of the archive's prefix.
    pub receipts_prefix: String,
    /// For requests that fail.
    pub retry: RetryPolicy,
}

impl<O: ObjectMaintenance> Eraser<O> {
    /// Erases, and keeps the receipt beside the archive. Erasing the same again finds nothing and
    /// gives a receipt that says so; under the same `name`, the receipt of all of it.
    ///
    /// # Errors
    /// When the archive cannot be read or changed, or the time is over: what was erased up to then
    /// is, and the call must be repeated until it gives a receipt.
    pub async fn erase(
        &self,
        table: &str,
        subject: &Subject,
        name: Option<&str>,
        now_seconds: u64,
        deadline: Deadline,
    ) -> Result<ErasureReceipt, Failure> {
        if subject.is_empty() {
            return Err(Failure::Fatal(
                "the erasure names no key and no attribute; it would erase everything".to_owned(),
            ));
        }
        let fresh = ErasureReceipt { table: table.to_owned(), ..ErasureReceipt::default() };
        let mut receipt = match name {
            None => fresh,
            Some(name) => self.begun(name, fresh).await?,
        };
        receipt.erased_seconds = now_seconds;
        receipt.passes = 0;
        loop {
            if receipt.passes == PASSES_MAX {
                return Err(Failure::Retry(format!(
                    "rows of the subject were found in each of {PASSES_MAX} passes; somebody still deletes its items: stop that, and erase again"
                )));
            }
            receipt.passes += 1;
            if deadline.limit(self.pass(table, subject, &mut receipt)).await? {
                break;
            }
        }
        for name in &receipt.objects.clone() {
            receipt.earlier_contents_removed +=
                deadline.limit(self.persist(|| self.store.forget_earlier(name))).await?;
        }
        deadline.limit(self.keep_receipt(&mut receipt)).await?;
        Ok(receipt)
    }

    /// Looks at every object once. Answers whether there was nothing to erase.
    async fn pass(
        &self,
        table: &str,
        subject: &Subject,
        receipt: &mut ErasureReceipt,
    ) -> Result<bool, Failure> {
        let mut is_clean = true;
        receipt.objects_read = 0;
        let folder = format!("{}table={table}/", self.prefix);
        for day in self.persist(|| self.store.folders(&folder)).await? {
            let day = format!("{folder}{day}");
            for entry in self.persist(|| self.store.list(&day)).await? {
                if !entry.name.ends_with(".parquet") {
                    continue;
                }
                let Some(object) = self.persist(|| self.store.get(&entry.name)).await? else {
                    is_clean = false;
                    continue;
                };
                receipt.objects_read += 1;
                let failed = |error: ParquetError| not_of_the_archive(&entry.name, &error);
                let found = without(ObjectReader::open(object).map_err(failed)?, subject);
                let Some((object, erased)) = found.map_err(failed)? else { continue };
                is_clean = false;
                // Named before it is done: whoever goes on after this process finds it there.
                receipt.event_ids.extend(erased);
                receipt.objects.insert(entry.name.clone());
                receipt.objects_replaced = receipt.objects.len();
                if !receipt.receipt.is_empty() {
                    self.keep_receipt(receipt).await?;
                }
                // If another one replaced it, the next pass looks at it again.
                self.replace(&entry, object).await?;
            }
        }
        Ok(is_clean)
    }

    async fn replace(&self, entry: &ObjectEntry, object: bytes::Bytes) -> Result<(), Failure> {
        let replace =
            || self.store.replace(&entry.name, &entry.entity_tag, object.clone(), PARQUET);
        self.persist(replace).await.map(drop)
    }

    /// The receipt of an erasure that may have begun before.
    async fn begun(&self, name: &str, fresh: ErasureReceipt) -> Result<ErasureReceipt, Failure> {
        let receipt = format!("{}table={}/{name}.json", self.receipts_prefix, fresh.table);
        match self.persist(|| self.store.get(&receipt)).await? {
            None => Ok(ErasureReceipt { receipt, ..fresh }),
            Some(known) => serde_json::from_slice(&known)
                .map(|known| ErasureReceipt { receipt: receipt.clone(), ..known })
                .map_err(|error| {
                    Failure::Fatal(format!("receipt `{receipt}` is damaged: {error}"))
                }),
        }
    }

    /// Keeps a receipt: one with a name in its own object, instead of what stood there; others each
    /// in a new one. This function runs once at a time, so nobody else writes it.
    async fn keep_receipt(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
        let is_named = !receipt.receipt.is_empty();
        let text = |receipt: &ErasureReceipt| {
            serde_json::to_string_pretty(receipt)
                .map_err(|error| Failure::Fatal(format!("the receipt cannot be written: {error}")))
        };
        if !is_named {
            let time = UtcMinute::of_seconds(receipt.erased_seconds)
                .map_or_else(String::new, UtcMinute::compact_text);
            let hash = xxhash_rust::xxh3::xxh3_64(text(receipt)?.as_bytes());
            receipt.receipt = format!(
                "{}table={}/erasure-{time}-{hash:016x}.json",
                self.receipts_prefix, receipt.table
            );
        }
        let (name, text) = (receipt.receipt.clone(), text(receipt)?);
        let contended =
            || Failure::Retry(format!("receipt `{name}` is written by somebody else; ask again"));
        let put = || self.store.put_if_absent(&name, text.clone().into(), "application/json");
        match self.persist(put).await? {
            PutOutcome::Created { .. } => return Ok(()),
            PutOutcome::Exists if !is_named => return Ok(()),
            PutOutcome::Exists => {}
            PutOutcome::Contended => return Err(contended()),
        }
        let stands = self.persist(|| self.store.list(&name)).await?;
        let stands = stands.into_iter().find(|entry| entry.name == name).ok_or_else(contended)?;
        let replace = || {
            let content = text.clone().into();
            self.store.replace(&name, &stands.entity_tag, content, "application/json")
        };
        match self.persist(replace).await? {
            ChangeOutcome::Made => Ok(()),
            _ => Err(contended()),
        }
    }

    /// Tries again what the store did not answer.
    async fn persist<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<T, Failure> {
        let mut last = Failure::Retry("no attempt was made".to_owned());
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            match request().await {
                Err(failure @ Failure::Retry(_)) => last = failure,
                answered => return answered,
            }
        }
        Err(last)
    }
}

/// The object without the subject's rows, and their event ids; `None` if it holds none.
fn without(
    mut reader: ObjectReader,
    subject: &Subject,
) -> Result<Option<(bytes::Bytes, Vec<String>)>, ParquetError> {
    let mut kept = Vec::new();
    let mut erased = Vec::new();
    let schema = Arc::clone(&reader.schema);
    let mut lineage = Lineage::default();
    lineage.add(&reader)?;
    for batch in reader.batches() {
        let batch = batch?;
        let (ids, items) = (event_ids(&batch)?, texts(&batch, "_item")?);
        let mut is_meant = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let item = json::item_from_str(items.value(row))
                .map_err(|error| ParquetError::General(format!("`_item`: {error}")))?;
            let is_met = subject.is_met_by(&item);
            is_meant.push(is_met.map_err(|reason| {
                ParquetError::General(format!("the condition, for a row: {reason}"))
            })?);
        }
        let meant = is_meant.iter().enumerate().filter(|(_, is_meant)| **is_meant);
        erased.extend(meant.map(|(row, _)| ids.value(row).to_owned()));
        kept.push(keep(&batch, |row| !is_meant.get(row).copied().unwrap_or(false))?);
    }
    if erased.is_empty() {
        return Ok(None);
    }
    lineage.erased.extend(erased.iter().cloned());
    let mut writer = ObjectWriter::begin(&schema, &lineage)?;
    kept.iter().filter(|batch| batch.num_rows() > 0).try_for_each(|batch| writer.add(batch))?;
    Ok(Some((writer.finish()?, erased)))
}
