//! The receipt of an erasure, and its storage.
//!
//! The receipt is rewritten after every few objects, so it must stay small. When a receipt names
//! many rows and objects, these names move to a numbered list next to it, which is written once.
//! The list is written before the receipt counts it. An uncounted list has no effect: the call that
//! wrote it was interrupted, and the next call writes the list again.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use rules::archive::UtcMinute;
use serde::{Deserialize, Serialize};

use super::super::part_content::{DigestSet, digest};
use super::Eraser;
use super::pass::Progress;
use crate::failure::Failure;
use crate::object_store::{ChangeOutcome, ObjectMaintenance, PutOutcome};

const JSON: &str = "application/json";
/// Maximum number of rows and objects that the receipt itself names. When there are more, all of
/// them move to a list. The receipt then has at most about 50 KB, so the bytes written for receipts
/// are proportional to the objects read and the rows.
pub(super) const NAMED_MAX: usize = 1_000;
/// Maximum number of lists that are read concurrently. Most lists have about 50 KB.
const LISTS_AT_ONCE: usize = 16;

/// The receipt of an erasure, which names the erased rows and the changed objects. It contains no
/// key, so it may be kept after the erasure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureReceipt {
    /// The table.
    pub table: String,
    /// The name of the object that stores the receipt.
    #[serde(default)]
    pub receipt: String,
    /// When rows were last erased, in seconds since 1970.
    pub erased_seconds: u64,
    /// Each erasure under this name that erased rows, oldest first.
    #[serde(default)]
    pub erasures: Vec<Erasure>,
    /// Objects read; an object counts once per pass that read it.
    pub objects_read: usize,
    /// Objects that contained rows to erase.
    pub objects_replaced: usize,
    /// Number of erased rows, including rows in lists. A receipt of an earlier version of Weir
    /// lacks this number, and names every row itself.
    #[serde(default)]
    pub rows: usize,
    /// Number of lists of objects and rows, which are numbered from 1.
    #[serde(default)]
    pub lists: usize,
    /// The names of the replaced objects, except the names in lists.
    #[serde(default)]
    pub objects: BTreeSet<String>,
    /// The event ids of the erased rows, except the ids in lists.
    pub event_ids: BTreeSet<String>,
    /// Noncurrent versions of the table's objects that were removed from a versioned bucket.
    pub earlier_contents_removed: usize,
    /// Passes over the table by the call that completed the erasure. The last pass found no row to
    /// erase.
    pub passes: usize,
    /// The progress of an incomplete erasure; `None` if it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Index of the objects and rows that the receipt and its lists name, in memory only.
    #[serde(skip)]
    pub(super) known: ReceiptContents,
}

/// Index of the objects and rows that a receipt and its lists name, and whether the receipt's
/// object exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiptContents {
    event_ids: DigestSet,
    objects: DigestSet,
    exists: bool,
}

/// A list next to a receipt. It names only objects and rows that no earlier list names.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    pub(super) objects: BTreeSet<String>,
    pub(super) event_ids: BTreeSet<String>,
}

/// The time of one erasure, and the number of rows that it erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// The time at which the erasure was completed, in seconds since 1970.
    pub seconds: u64,
    /// Erased rows.
    pub rows: usize,
}

impl ErasureReceipt {
    /// Records that the erasure is complete. If no row was erased since the previous erasure, the
    /// receipt keeps the time of that erasure. A receipt of an earlier version of Weir has no
    /// [`Self::erasures`], so this function adds the first entry.
    pub(super) fn note_erasure(&mut self, now_seconds: u64) {
        let known: usize = self.erasures.iter().map(|erasure| erasure.rows).sum();
        let rows = self.rows.saturating_sub(known);
        match self.erasures.last() {
            Some(last) if rows == 0 => self.erased_seconds = last.seconds,
            _ => {
                self.erased_seconds = now_seconds;
                self.erasures.push(Erasure { seconds: now_seconds, rows });
            }
        }
    }

    /// Adds an object and the rows that are erased from it, unless the receipt or a list already
    /// names them.
    pub(super) fn name(&mut self, object: &str, event_ids: Vec<String>) {
        if self.known.objects.insert(digest(object)) {
            self.objects.insert(object.to_owned());
        }
        let known = &mut self.known.event_ids;
        self.event_ids.extend(event_ids.into_iter().filter(|id| known.insert(digest(id))));
        self.objects_replaced = self.known.objects.len();
        self.rows = self.known.event_ids.len();
    }

    /// Adds to the index the objects and rows that the receipt itself names.
    fn note_named(&mut self) {
        self.known.objects.extend(self.objects.iter().map(|name| digest(name)));
        self.known.event_ids.extend(self.event_ids.iter().map(|id| digest(id)));
        self.rows = self.known.event_ids.len();
    }

    /// Returns the name of a list next to the receipt's object.
    fn list_name(&self, number: usize) -> String {
        let folder = self.receipt.strip_suffix(".json").unwrap_or(&self.receipt);
        format!("{folder}/{number:06}.json")
    }
}

/// The function's response to an erasure: the receipt without the names. The number of names grows
/// with the number of rows, and Lambda limits a response to 6 MB, about 170,000 event ids. The
/// object in the bucket has no such limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureSummary {
    /// The table.
    pub table: String,
    /// The name of the object that stores the receipt with the names of the objects and the rows.
    pub receipt: String,
    /// When rows were last erased, in seconds since 1970.
    pub erased_seconds: u64,
    /// Rows erased by this call and by earlier calls under the same name.
    pub rows: usize,
    /// Objects read; an object counts once per pass that read it.
    pub objects_read: usize,
    /// Objects that contained rows to erase.
    pub objects_replaced: usize,
    /// Noncurrent versions of the table's objects that were removed from a versioned bucket.
    pub earlier_contents_removed: usize,
    /// Passes over the table by the call that completed the erasure. The last pass found no row to
    /// erase.
    pub passes: usize,
}

impl From<ErasureReceipt> for ErasureSummary {
    fn from(receipt: ErasureReceipt) -> Self {
        Self {
            rows: receipt.rows,
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
    /// Returns the receipt of a named erasure, including the content that an earlier call may have
    /// written.
    pub(super) async fn begun(
        &self,
        name: &str,
        fresh: ErasureReceipt,
    ) -> Result<ErasureReceipt, Failure> {
        let receipt = format!("{}table={}/{name}.json", self.receipts_prefix, fresh.table);
        let Some(known) = self.persist(|| self.store.get(&receipt)).await? else {
            return Ok(ErasureReceipt { receipt, ..fresh });
        };
        let known: ErasureReceipt =
            serde_json::from_slice(&known).map_err(|error| damaged(&receipt, &error))?;
        let mut known = ErasureReceipt { receipt, ..known };
        known.known.exists = true;
        self.read_lists(&mut known).await?;
        known.note_named();
        if known.erasures.is_empty() && known.progress.is_none() {
            known.note_erasure(known.erased_seconds);
        }
        Ok(known)
    }

    /// Reads the lists of a receipt, and adds their objects and rows to the receipt's index.
    async fn read_lists(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
        let names: Vec<String> =
            (1..=receipt.lists).map(|number| receipt.list_name(number)).collect();
        let reads: Vec<_> =
            names.iter().map(|name| self.persist(|| self.store.get(name))).collect();
        let mut lists = stream::iter(reads).buffered(LISTS_AT_ONCE);
        for name in &names {
            let Some(list) = lists.try_next().await?.flatten() else {
                return Err(Failure::Fatal(format!(
                    "the list `{name}` of the receipt `{}` is missing; restore the list, or use another name for the erasure",
                    receipt.receipt
                )));
            };
            let list: List =
                serde_json::from_slice(&list).map_err(|error| damaged(name, &error))?;
            receipt.known.objects.extend(list.objects.iter().map(|name| digest(name)));
            receipt.known.event_ids.extend(list.event_ids.iter().map(|id| digest(id)));
        }
        Ok(())
    }

    /// Saves an erasure's progress if the erasure has a name, so that it can be resumed.
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

    /// Writes a receipt. A receipt with a name replaces the object of that name; any other receipt
    /// gets a new object. Only one invocation of this function runs at a time, so there is no
    /// concurrent writer.
    pub(super) async fn keep_receipt(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
        if receipt.receipt.is_empty() {
            let time = UtcMinute::of_seconds(receipt.erased_seconds)
                .map_or_else(String::new, UtcMinute::compact_text);
            let hash = xxhash_rust::xxh3::xxh3_64(text(receipt)?.as_bytes());
            receipt.receipt = format!(
                "{}table={}/erasure-{time}-{hash:016x}.json",
                self.receipts_prefix, receipt.table
            );
            // The object's name contains a hash of the content, so an object of this name has the
            // same content.
            let text = Bytes::from(text(receipt)?);
            return self.write(&receipt.receipt, &text, &mut false).await;
        }
        if receipt.objects.len() + receipt.event_ids.len() > NAMED_MAX {
            self.move_into_list(receipt).await?;
        }
        let text = Bytes::from(text(receipt)?);
        let mut stands = receipt.known.exists;
        self.write(&receipt.receipt, &text, &mut stands).await?;
        receipt.known.exists = stands;
        Ok(())
    }

    /// Moves the names in a receipt into the next list. The receipt must be written afterwards.
    async fn move_into_list(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
        let name = receipt.list_name(receipt.lists + 1);
        let list = List {
            objects: std::mem::take(&mut receipt.objects),
            event_ids: std::mem::take(&mut receipt.event_ids),
        };
        // If the list exists already, a call wrote it and was interrupted before the receipt
        // counted the list. This write replaces that list.
        self.write(&name, &Bytes::from(text(&list)?), &mut false).await?;
        receipt.lists += 1;
        Ok(())
    }

    /// Writes an object. `stands` is true if the object is assumed to exist; the store's response
    /// corrects this value. There is no concurrent writer: if the object has changed, an earlier
    /// request whose response was lost has changed it.
    async fn write(&self, name: &str, text: &Bytes, stands: &mut bool) -> Result<(), Failure> {
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            if !*stands {
                let put = || self.store.put_if_absent(name, text.clone(), JSON);
                let outcome = self.persist(put).await?;
                *stands = outcome != PutOutcome::Contended;
                if matches!(outcome, PutOutcome::Created { .. }) {
                    return Ok(());
                }
                continue;
            }
            let found = self.persist(|| self.store.list(name)).await?;
            let Some(found) = found.into_iter().find(|entry| entry.name == name) else {
                *stands = false;
                continue;
            };
            let replace = || self.store.replace(name, &found.entity_tag, text.clone(), JSON);
            if self.persist(replace).await? == ChangeOutcome::Changed {
                return Ok(());
            }
        }
        Err(Failure::Retry(format!(
            "receipt `{name}` was changed by another writer; repeat the request"
        )))
    }
}

fn text(written: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(written)
        .map_err(|error| Failure::Fatal(format!("cannot encode the receipt: {error}")))
}

fn damaged(name: &str, error: &serde_json::Error) -> Failure {
    Failure::Fatal(format!("receipt `{name}` is damaged: {error}"))
}
