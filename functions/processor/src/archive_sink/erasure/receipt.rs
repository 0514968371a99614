//! The receipt of an erasure, and how it is kept.
//!
//! It is written anew after every few objects, so it stays small: of an erasure that has a name, rows
//! and objects that are many go into numbered lists beside it, each of which is written once. A list is
//! there before the receipt counts it, and one that no receipt counts says nothing: the call that wrote
//! it died, and the next one writes it again.

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
/// Rows and objects that a receipt names itself; with more they go into a list. Some 50 KB, so what
/// is written of a receipt is in proportion to the objects that are read and to the rows.
pub(super) const NAMED_MAX: usize = 1_000;
/// Lists that are read at the same time; most have some 50 KB.
const LISTS_AT_ONCE: usize = 16;

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
    /// Rows that are gone, those that lists name included. A receipt from before there were lists
    /// does not say it, and names each.
    #[serde(default)]
    pub rows: usize,
    /// Lists that name objects and rows, from 1 to this number.
    #[serde(default)]
    pub lists: usize,
    /// The names of the objects, but for those that lists name.
    #[serde(default)]
    pub objects: BTreeSet<String>,
    /// The rows that are gone, by their event ids, but for those that lists name.
    pub event_ids: BTreeSet<String>,
    /// Earlier contents of the table's objects that a versioned bucket had kept, and that are gone.
    pub earlier_contents_removed: usize,
    /// Passes over the table by the call that ended it; the last one found nothing.
    pub passes: usize,
    /// How far an erasure has got that is not done; `None` when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What is named, in the receipt or in lists.
    #[serde(skip)]
    pub(super) known: Known,
}

/// What a receipt and its lists name, and whether its object stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    event_ids: DigestSet,
    objects: DigestSet,
    stands: bool,
}

/// What a list beside a receipt names; none names what one before it does.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    pub(super) objects: BTreeSet<String>,
    pub(super) event_ids: BTreeSet<String>,
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
        let rows = self.rows.saturating_sub(known);
        match self.erasures.last() {
            Some(last) if rows == 0 => self.erased_seconds = last.seconds,
            _ => {
                self.erased_seconds = now_seconds;
                self.erasures.push(Erasure { seconds: now_seconds, rows });
            }
        }
    }

    /// Names an object and the rows that are erased from it, each once.
    pub(super) fn name(&mut self, object: &str, event_ids: Vec<String>) {
        if self.known.objects.insert(digest(object)) {
            self.objects.insert(object.to_owned());
        }
        let known = &mut self.known.event_ids;
        self.event_ids.extend(event_ids.into_iter().filter(|id| known.insert(digest(id))));
        self.objects_replaced = self.known.objects.len();
        self.rows = self.known.event_ids.len();
    }

    /// Knows what is named by the receipt itself.
    fn note_named(&mut self) {
        self.known.objects.extend(self.objects.iter().map(|name| digest(name)));
        self.known.event_ids.extend(self.event_ids.iter().map(|id| digest(id)));
        self.rows = self.known.event_ids.len();
    }

    /// The list of a number, beside the object that keeps the receipt.
    fn list_name(&self, number: usize) -> String {
        let folder = self.receipt.strip_suffix(".json").unwrap_or(&self.receipt);
        format!("{folder}/{number:06}.json")
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
    /// The receipt of an erasure that may have begun before.
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
        known.known.stands = true;
        self.read_lists(&mut known).await?;
        known.note_named();
        if known.erasures.is_empty() && known.progress.is_none() {
            known.note_erasure(known.erased_seconds);
        }
        Ok(known)
    }

    /// Knows what the lists of a receipt name.
    async fn read_lists(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
        let names: Vec<String> =
            (1..=receipt.lists).map(|number| receipt.list_name(number)).collect();
        let reads: Vec<_> =
            names.iter().map(|name| self.persist(|| self.store.get(name))).collect();
        let mut lists = stream::iter(reads).buffered(LISTS_AT_ONCE);
        for name in &names {
            let Some(list) = lists.try_next().await?.flatten() else {
                return Err(Failure::Fatal(format!(
                    "the list `{name}` of the receipt `{}` is gone; put it back, or give the erasure another name",
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
        if receipt.receipt.is_empty() {
            let time = UtcMinute::of_seconds(receipt.erased_seconds)
                .map_or_else(String::new, UtcMinute::compact_text);
            let hash = xxhash_rust::xxh3::xxh3_64(text(receipt)?.as_bytes());
            receipt.receipt = format!(
                "{}table={}/erasure-{time}-{hash:016x}.json",
                self.receipts_prefix, receipt.table
            );
            // What stands there with this hash is this very receipt.
            let text = Bytes::from(text(receipt)?);
            return self.write(&receipt.receipt, &text, &mut false).await;
        }
        if receipt.objects.len() + receipt.event_ids.len() > NAMED_MAX {
            self.move_into_list(receipt).await?;
        }
        let text = Bytes::from(text(receipt)?);
        let mut stands = receipt.known.stands;
        self.write(&receipt.receipt, &text, &mut stands).await?;
        receipt.known.stands = stands;
        Ok(())
    }

    /// Writes what a receipt names into the next list, and names it there alone. The receipt has to be
    /// kept then.
    async fn move_into_list(&self, receipt: &mut ErasureReceipt) -> Result<(), Failure> {
        let name = receipt.list_name(receipt.lists + 1);
        let list = List {
            objects: std::mem::take(&mut receipt.objects),
            event_ids: std::mem::take(&mut receipt.event_ids),
        };
        // One that stands there is of a call that died before its receipt counted it.
        self.write(&name, &Bytes::from(text(&list)?), &mut false).await?;
        receipt.lists += 1;
        Ok(())
    }

    /// Writes an object, whether or not it `stands` there; which of the two is found out if it was
    /// not so. Nobody else writes it: if it changes meanwhile, that is the work of a request before,
    /// whose answer did not arrive.
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
            if self.persist(replace).await? == ChangeOutcome::Made {
                return Ok(());
            }
        }
        Err(Failure::Retry(format!("receipt `{name}` is written by somebody else; ask again")))
    }
}

fn text(written: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(written)
        .map_err(|error| Failure::Fatal(format!("the receipt cannot be written: {error}")))
}

fn damaged(name: &str, error: &serde_json::Error) -> Failure {
    Failure::Fatal(format!("receipt `{name}` is damaged: {error}"))
}
