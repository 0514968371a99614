//! The receipt of an erasure, and how it is kept.

use std::collections::BTreeSet;

use bytes::Bytes;
use rules::archive::UtcMinute;
use serde::{Deserialize, Serialize};

use super::Eraser;
use super::pass::Progress;
use crate::failure::Failure;
use crate::object_store::{ChangeOutcome, ObjectMaintenance, PutOutcome};

const JSON: &str = "application/json";

/// What was erased. It names no key, so that it can be kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureReceipt {
    /// The table.
    pub table: String,
    /// The object that keeps the receipt.
    #[serde(default)]
    pub receipt: String,
    /// When rows were erased last, in seconds since 1970.
    pub erased_seconds: u64,
    /// Each erasure under this name that erased rows, the first one first.
    #[serde(default)]
    pub erasures: Vec<Erasure>,
    /// Objects that were read; those that were read in several passes count for each.
    pub objects_read: usize,
    /// Objects that held such rows.
    pub objects_replaced: usize,
    /// Their names.
    #[serde(default)]
    pub objects: BTreeSet<String>,
    /// The rows that are gone, by their event ids.
    pub event_ids: BTreeSet<String>,
    /// Earlier contents of the table's objects that a versioned bucket had kept, and that are gone.
    pub earlier_contents_removed: usize,
    /// Passes over the table by the call that ended it; the last one found nothing.
    pub passes: usize,
    /// How far an erasure has got that is not done; `None` when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// When rows were erased, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// When it was done, in seconds since 1970.
    pub seconds: u64,
    /// The rows that it erased.
    pub rows: usize,
}

impl ErasureReceipt {
    /// Notes that all is erased by now. Where that is nothing more than before, the receipt goes on
    /// saying when it was; so it does of one that was written before it had a list.
    pub(super) fn note_erasure(&mut self, now_seconds: u64) {
        let known: usize = self.erasures.iter().map(|erasure| erasure.rows).sum();
        let rows = self.event_ids.len().saturating_sub(known);
        match self.erasures.last() {
            Some(last) if rows == 0 => self.erased_seconds = last.seconds,
            _ => {
                self.erased_seconds = now_seconds;
                self.erasures.push(Erasure { seconds: now_seconds, rows });
            }
        }
    }
}

/// What the function says of an erasure: the receipt without its lists. They grow with the rows, and
/// an answer of Lambda has 6 MB, which some 170,000 event ids fill; the object has no such limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureSummary {
    /// The table.
    pub table: String,
    /// The object that keeps the receipt, which names the objects and the rows.
    pub receipt: String,
    /// When rows were erased last, in seconds since 1970.
    pub erased_seconds: u64,
    /// Rows that are gone, by this call and by those before it under its name.
    pub rows: usize,
    /// Objects that were read; those that were read in several passes count for each.
    pub objects_read: usize,
    /// Objects that held such rows.
    pub objects_replaced: usize,
    /// Earlier contents of the table's objects that a versioned bucket had kept, and that are gone.
    pub earlier_contents_removed: usize,
    /// Passes over the table by the call that ended it; the last one found nothing.
    pub passes: usize,
}

impl From<ErasureReceipt> for ErasureSummary {
    fn from(receipt: ErasureReceipt) -> Self {
        Self {
            rows: receipt.event_ids.len(),
            table: receipt.table,
            receipt: receipt.receipt,
            erased_seconds: receipt.erased_seconds,
            objects_read: receipt.objects_read,
            objects_replaced: receipt.objects_replaced,
            earlier_contents_removed: receipt.earlier_contents_removed,
            passes: receipt.passes,
        }
    }
}

impl<O: ObjectMaintenance> Eraser<O> {
    /// The receipt of an erasure that may have begun before.
    pub(super) async fn begun(
        &self,
        name: &str,
        fresh: ErasureReceipt,
    ) -> Result<ErasureReceipt, Failure> {
        let receipt = format!("{}table={}/{name}.json", self.receipts_prefix, fresh.table);
        match self.persist(|| self.store.get(&receipt)).await? {
            None => Ok(ErasureReceipt { receipt, ..fresh }),
            Some(known) => serde_json::from_slice(&known)
                .map(|mut known: ErasureReceipt| {
                    if known.erasures.is_empty() && known.progress.is_none() {
                        known.note_erasure(known.erased_seconds);
                    }
                    ErasureReceipt { receipt: receipt.clone(), ..known }
                })
                .map_err(|error| {
                    Failure::Fatal(format!("receipt `{receipt}` is damaged: {error}"))
                }),
        }
    }

    /// Keeps how far an erasure has got, if it has a name under which somebody can go on.
    pub(super) async fn keep_progress(
        &self,
        progress: &Progress,
        receipt: &mut ErasureReceipt,
    ) -> Result<(), Failure> {
        if receipt.receipt.is_empty() {
            return Ok(());
        }
        receipt.progress = Some(progress.clone());
        self.keep_receipt(receipt).await
    }

    /// Keeps a receipt: one with a name in its own object, instead of what stood there; others each
    /// in a new one. This function runs once at a time, so nobody else writes it.
    pub(super) async fn keep_receipt(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
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
        let (name, text) = (receipt.receipt.clone(), Bytes::from(text(receipt)?));
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            if self.put_receipt(&name, &text, is_named).await? {
                return Ok(());
            }
        }
        Err(Failure::Retry(format!("receipt `{name}` is written by somebody else; ask again")))
    }

    /// Creates the object of a receipt, or replaces it if it may stand there. Answers whether it is
    /// kept; if not, it is another one than when it was looked at: this may be the work of a request
    /// before, whose answer did not arrive.
    async fn put_receipt(&self, name: &str, text: &Bytes, replaces: bool) -> Result<bool, Failure> {
        let put = || self.store.put_if_absent(name, text.clone(), JSON);
        match self.persist(put).await? {
            PutOutcome::Created { .. } => return Ok(true),
            PutOutcome::Exists if !replaces => return Ok(true),
            PutOutcome::Exists => {}
            PutOutcome::Contended => return Ok(false),
        }
        let stands = self.persist(|| self.store.list(name)).await?;
        let Some(stands) = stands.into_iter().find(|entry| entry.name == name) else {
            return Ok(false);
        };
        let replace = || self.store.replace(name, &stands.entity_tag, text.clone(), JSON);
        Ok(self.persist(replace).await? == ChangeOutcome::Made)
    }
}
