//! The executor of counters: joins a batch's slots of a counter into the counter's total item, in
//! one write that is conditional on the item's revision.
//!
//! The rule defines totals and how slots join into them. This module does not find out which slots
//! exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::{AttributeValue, Item, Number};
use rules::counters::{Cells, Counters, DamagedTotal, LoadedTotal, REVISION_ATTRIBUTE, Total};
use rules::{Folded, Found, Needs};

use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, SetAside, TargetOutcome, in_order};
use crate::tables::{Guard, Table, WriteOutcome, load_all};

/// Maximum number of totals that are written concurrently: enough to hide the latency of a write.
const WRITES_AT_ONCE: usize = 16;
/// Maximum number of slots in the totals that are written concurrently. A slot takes about 3 KB
/// until its total is written, so this many slots take 15 MB of the function's 256 MB.
const SLOTS_AT_ONCE: usize = 5_000;

/// Maximum number of slots that one load reads at a time. Four loads run concurrently (see the
/// frame).
const SLOTS_READ_AT_ONCE: usize = 2_500;
/// Number of totals that a load reads at a time while no total's size is known. A total may have
/// more slots than its counter currently has, because removed slots stay in the total.
const UNKNOWN_AT_ONCE: usize = 5;

/// The executor of counters, with their totals table.
#[derive(Clone, Debug)]
pub struct Totals<T> {
    table: T,
    key_attribute: String,
    retry: RetryPolicy,
    /// Number of slots of the largest total that this process has loaded; 0 before the first load.
    largest: Arc<AtomicUsize>,
}

impl<T: Table> Totals<T> {
    /// Returns the executor for the totals in `table`, whose partition key is `key_attribute`.
    pub fn new(table: T, key_attribute: String, retry: RetryPolicy) -> Self {
        Self { table, key_attribute, retry, largest: Arc::default() }
    }

    /// Returns the table.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// Records that totals were loaded. `slots` is the slot count of the largest total, or 0 if no
    /// total existed.
    pub(crate) fn note_loaded(&self, slots: usize) {
        self.largest.fetch_max(slots.max(1), Ordering::Relaxed);
    }

    /// Loads total items. Returns them by counter.
    ///
    /// # Errors
    /// When the items cannot be read.
    pub async fn load_items(
        &self,
        counters: impl IntoIterator<Item = String>,
    ) -> Result<BTreeMap<String, Item>, Failure> {
        load_all(&self.table, counters, self.retry).await
    }

    /// Writes a joined total if the item still has the revision `found`.
    ///
    /// # Errors
    /// When it is unknown whether the write succeeded.
    pub async fn replace(
        &self,
        counter: &str,
        found: u64,
        total: &Total,
    ) -> Result<WriteOutcome, Failure> {
        let guard = if found == 0 {
            Guard::Absent
        } else {
            Guard::Equals {
                attribute: REVISION_ATTRIBUTE,
                value: AttributeValue::N(Number::from(found)),
            }
        };
        self.table.put(&total.to_item(&self.key_attribute, counter), &guard).await
    }

    /// Joins `cells` into a total and writes it. Retries if other writers changed the total
    /// meanwhile. Returns whether a write was necessary. If the total is damaged, joins nothing and
    /// also returns the reason.
    async fn join(
        &self,
        counter: &str,
        cells: &Cells,
        found: &Found<LoadedTotal>,
    ) -> Result<(bool, Option<DamagedTotal>), Failure> {
        let is_left_out = found.not_loaded.contains(counter);
        let mut found = found.inputs.get(counter).cloned();
        let mut failure = "other writers keep changing this total".to_owned();
        let mut attempts = self.retry.attempts();
        while attempts.next().await {
            if attempts.made() > 1 || is_left_out {
                let item = self.load_items([counter.to_owned()]).await?.remove(counter);
                found = item.as_ref().map(Total::from_item);
            }
            // The rule rejects records of a total that was damaged when the batch was loaded. This
            // total was read later, so the executor checks it too.
            let total = match found.take().unwrap_or_else(|| Ok(Total::default())) {
                Ok(total) => total,
                Err(damaged) => return Ok((false, Some(damaged))),
            };
            let Some(joined) = total.joined(cells) else {
                return Ok((false, None));
            };
            match self.replace(counter, total.revision, &joined).await {
                Ok(WriteOutcome::Written) => return Ok((true, None)),
                Ok(WriteOutcome::GuardFailed) => {}
                Err(Failure::Retry(reason)) => failure = reason,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }
}

impl<T: Table> Executor for Totals<T> {
    type Rule = Counters;

    async fn load(&self, needs: Needs) -> Result<Found<LoadedTotal>, Failure> {
        let mut found = Found::default();
        let mut counters: Vec<String> = needs.into_iter().collect();
        while !counters.is_empty() {
            let count = match self.largest.load(Ordering::Relaxed) {
                0 => UNKNOWN_AT_ONCE,
                largest => (SLOTS_READ_AT_ONCE / largest).clamp(1, BATCH_GET_KEYS_MAX),
            };
            let rest = counters.split_off(count.min(counters.len()));
            // Only the decoded totals are kept, because their items take several times as much
            // memory.
            let items = self.load_items(counters).await?.into_iter();
            let totals = items.map(|(counter, item)| (counter, Total::from_item(&item)));
            found.inputs.extend(totals);
            let slots = found.inputs.values().flatten().map(|total| total.cells.len()).max();
            self.note_loaded(slots.unwrap_or(0));
            counters = rest;
        }
        Ok(found)
    }

    async fn apply(
        &self,
        folded: Folded<String, Cells>,
        found: &Found<LoadedTotal>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let joins: Vec<_> = in_order(folded)
            .into_iter()
            .map(async |(counter, joined)| {
                let joining = deadline.limit(self.join(&counter, &joined.value, found)).await;
                let mut outcome = TargetOutcome::new(counter, joined.records, Ok(0));
                match joining {
                    Ok((true, _)) => outcome.result = Ok(outcome.records.len()),
                    Ok((false, None)) => {}
                    Ok((false, Some(damaged))) => outcome
                        .set_aside
                        .push(SetAside { event_id: None, reason: damaged.to_string() }),
                    Err(failure) => outcome.result = Err(failure),
                }
                outcome
            })
            .collect();
        // Totals that were not loaded are assumed to have as many slots as the largest loaded
        // total.
        let largest = self.largest.load(Ordering::Relaxed).max(1);
        let at_once = (SLOTS_AT_ONCE / largest).clamp(1, WRITES_AT_ONCE);
        stream::iter(joins).buffer_unordered(at_once).collect().await
    }
}
