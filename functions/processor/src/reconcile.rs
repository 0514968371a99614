//! The reconciler: looks at every slot of every counter and repairs totals that say otherwise.
//!
//! Run on a schedule. What a look may conclude, and why that agrees with stream records that are
//! still on their way, is in `rules::counters::reconcile`. Counters are found by scanning the keys
//! of both tables: the totals know counters whose slots are all gone, the slots know counters whose
//! records were all lost. So a run reads both tables once; nothing is written when nothing differs.
//! A run that has no time for all of them begins elsewhere than the one before.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use model::{Item, Number};
use rules::counters::reconcile::{decide, first_in_turn, scan_in_turn, slots_needed};
use rules::counters::{Counters, Total};
use serde::Serialize;
use tracing::warn;

use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::tables::{Table, WriteOutcome, load_all};
use crate::totals::Totals;

/// Counters that are looked at together at most: their totals in one request, their slots in a few.
const COUNTERS_AT_ONCE: usize = 25;
/// Groups of such counters that are looked at beside each other.
const GROUPS_AT_ONCE: usize = 4;
/// Slots that are looked at at one time, over all groups. A slot takes some 2 KB while it is read, with
/// what its total knows of it, so they take 20 MB of the function's 256.
const SLOTS_AT_ONCE: usize = 10_000;
/// Looks at a counter whose total is written by others at the same time; after the last one it is
/// left to the next run.
const LOOKS_MAX: u32 = 5;
/// Memory for the names of counters, in bytes, of the function's 256 MB: some 800,000 of them with
/// names of 20 bytes, more than a run has time for.
const NAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What a name takes beside its text.
const NAME_OVERHEAD_BYTES: usize = 64;

/// What a run found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileReport {
    /// Counters looked at.
    pub counters: usize,
    /// Slot items read.
    pub slots: usize,
    /// Slots whose value was not what the total knew: records lost, or still on their way.
    pub drifted_slots: usize,
    /// Totals that were corrected.
    pub repaired_totals: usize,
    /// Of those, the ones whose item said something else than its own slots in `total`, `as_of` or
    /// `expires_at`: something else had written it.
    pub misstated_totals: usize,
    /// Totals that others kept writing, or that could not be reached, or that the database refused
    /// to read or write: left to the next run.
    pub postponed_totals: usize,
    /// Total items that were not written by this function: left alone.
    pub damaged_totals: usize,
    /// Slot items without a readable value: left as the total knows them.
    pub unreadable_slots: usize,
    /// Items of the slots table whose key is not of a slot.
    pub foreign_items: usize,
    /// Whether every counter was looked at. If not, the next run begins with others; give the
    /// function more time if that is not often enough.
    pub complete: bool,
}

impl ReconcileReport {
    /// Adds what was found and done with some of the counters.
    fn add(&mut self, part: &Self) {
        self.counters += part.counters;
        self.slots += part.slots;
        self.drifted_slots += part.drifted_slots;
        self.repaired_totals += part.repaired_totals;
        self.misstated_totals += part.misstated_totals;
        self.postponed_totals += part.postponed_totals;
        self.damaged_totals += part.damaged_totals;
        self.unreadable_slots += part.unreadable_slots;
        self.foreign_items += part.foreign_items;
        self.complete &= part.complete;
    }
}

/// The reconciler of one pair of tables.
#[derive(Clone, Debug)]
pub struct Reconciler<S, T> {
    /// What slots are.
    pub rule: Counters,
    /// The slots table.
    pub slots: S,
    /// The totals table.
    pub totals: Totals<T>,
    /// For reads that are throttled.
    pub retry: RetryPolicy,
    /// The time now, in seconds since 1970.
    pub now: fn() -> u64,
}

/// Names of counters, each once.
#[derive(Debug, Default)]
struct Names {
    names: BTreeSet<String>,
    bytes: usize,
}

impl Names {
    /// Adds a name, unless that takes more bytes than `most`. Answers whether it is there now.
    fn add(&mut self, name: &str, most: usize) -> bool {
        if self.names.contains(name) {
            return true;
        }
        let bytes = self.bytes + name.len() + NAME_OVERHEAD_BYTES;
        if bytes > most {
            return false;
        }
        self.bytes = bytes;
        self.names.insert(name.to_owned())
    }
}

/// What a look at one counter saw.
#[derive(Debug, Default)]
struct Look {
    values: BTreeMap<u32, Number>,
    unreadable: BTreeSet<u32>,
}

impl<S: Table, T: Table> Reconciler<S, T> {
    /// Looks at all counters, as far as the time allows; which ones come first is another matter
    /// in each minute.
    ///
    /// # Errors
    /// When the tables cannot be scanned at all, or nothing can be looked at: the deployment is
    /// wrong.
    pub async fn run(&self, deadline: Deadline) -> Result<ReconcileReport, Failure> {
        let minute = (self.now)() / 60;
        let mut report = ReconcileReport::default();
        // Half of the time for finding counters, so that some are looked at in any case.
        let found = self.find_counters(deadline.half_way(), minute, &mut report);
        let (counters, all_found) = found.await?;
        report.complete = all_found;
        let groups = groups_in_turn(counters, minute, self.counters_at_once()).into_iter();
        let mut looks = stream::iter(groups.map(|group| self.reconcile_in_time(group, deadline)))
            .buffer_unordered(GROUPS_AT_ONCE);
        let (mut begun, mut refusals) = (0, Vec::new());
        while let Some((part, refusal)) = looks.next().await {
            begun += usize::from(part.counters > 0);
            refusals.extend(refusal);
            report.add(&part);
        }
        // One group may have what the database refuses; all of them have a deployment in common.
        if begun == refusals.len()
            && let Some(refusal) = refusals.pop()
        {
            return Err(refusal);
        }
        Ok(report)
    }

    /// How many counters are a group: fewer where each has many slots.
    fn counters_at_once(&self) -> usize {
        let slots = usize::try_from(self.rule.slot_count).unwrap_or(usize::MAX).max(1);
        (SLOTS_AT_ONCE / GROUPS_AT_ONCE / slots).clamp(1, COUNTERS_AT_ONCE)
    }

    /// Looks at some counters, if there is time; and why that was refused, if it was: nobody has
    /// looked at all of them then.
    async fn reconcile_in_time(
        &self,
        counters: BTreeSet<String>,
        deadline: Deadline,
    ) -> (ReconcileReport, Option<Failure>) {
        let mut report = ReconcileReport::default();
        if deadline.is_over() {
            return (report, None);
        }
        let count = counters.len();
        let looked = deadline.limit(self.reconcile(counters, &mut report)).await;
        report.counters = count;
        match looked {
            Ok(are_written) => report.complete = are_written,
            Err(Failure::Retry(reason)) => {
                warn!(reason, "counters are left to the next reconciliation");
                report.postponed_totals = count;
                report.complete = false;
            }
            Err(Failure::Fatal(reason)) => {
                warn!(reason, "counters are refused, and left to the next reconciliation");
                report.postponed_totals = count;
                report.complete = false;
                return (report, Some(Failure::Fatal(reason)));
            }
        }
        (report, None)
    }

    /// The counters that there are, and whether they are all. Of more than there is memory for,
    /// those behind another place in each minute.
    async fn find_counters(
        &self,
        deadline: Deadline,
        minute: u64,
        report: &mut ReconcileReport,
    ) -> Result<(BTreeSet<String>, bool), Failure> {
        let start = scan_in_turn(minute);
        let mut names = Names::default();
        let totals_read = scan(self.totals.table(), self.retry, deadline, &start, |key| {
            // Room is left for counters that have slots and no total.
            names.add(key, NAMES_BYTES_MAX / 2)
        });
        let totals_read = totals_read.await?;
        let slots_read = scan(&self.slots, self.retry, deadline, &start, |key| {
            if let Ok((counter, _)) = self.rule.parse_slot_key(key) {
                return names.add(counter, NAMES_BYTES_MAX);
            }
            report.foreign_items += 1;
            true
        });
        let slots_read = slots_read.await?;
        Ok((names.names, totals_read && slots_read))
    }

    /// Looks at counters until nobody writes their totals in between. Answers whether the database
    /// wrote what had to be written: what others keep writing is no matter of it.
    async fn reconcile(
        &self,
        mut counters: BTreeSet<String>,
        report: &mut ReconcileReport,
    ) -> Result<bool, Failure> {
        let mut unwritten = 0;
        let mut looks = RetryPolicy { attempts_max: LOOKS_MAX, ..self.retry }.attempts();
        while looks.next().await {
            unwritten = 0;
            // The totals first: what the slots say then is at least as new as what the totals know.
            let items = self.totals.load_items(counters.iter().cloned()).await?;
            let mut totals = BTreeMap::new();
            for counter in counters {
                let total = items.get(&counter).map_or(Ok(Total::default()), Total::from_item);
                match total {
                    Ok(total) => {
                        totals.insert(counter, total);
                    }
                    Err(error) => {
                        report.damaged_totals += 1;
                        warn!(counter, reason = %error, "total item left alone");
                    }
                }
            }
            let seen = self.look_at_slots(&totals, looks.made() == 1, report).await?;
            counters = BTreeSet::new();
            for (counter, total) in totals {
                let seen = seen.get(&counter);
                let cells =
                    seen.map(|seen| decide(&total, &seen.values, &seen.unreadable, (self.now)()));
                let is_stated = items.get(&counter).is_none_or(|item| total.is_stated_by(item));
                let joined = cells.as_ref().and_then(|cells| total.joined(cells));
                let restated = || (!is_stated).then(|| total.restated());
                let Some(joined) = joined.or_else(restated) else { continue };
                match self.totals.replace(&counter, total.revision, &joined).await {
                    Ok(WriteOutcome::Written) => {
                        report.repaired_totals += 1;
                        report.drifted_slots += cells.map_or(0, |cells| cells.len());
                        report.misstated_totals += usize::from(!is_stated);
                        let said = items.get(&counter).and_then(|item| total.said_otherwise(item));
                        warn!(counter, from = %total.cells.sum(), to = %joined.cells.sum(), said, "total repaired");
                    }
                    // Somebody wrote the total after it was read: what was decided is void.
                    Ok(WriteOutcome::GuardFailed) => {
                        counters.insert(counter);
                    }
                    Err(Failure::Retry(reason)) => {
                        warn!(counter, reason, "a total could not be written");
                        unwritten += 1;
                        counters.insert(counter);
                    }
                    Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
                }
            }
            if counters.is_empty() {
                return Ok(true);
            }
        }
        report.postponed_totals += counters.len();
        Ok(unwritten == 0)
    }

    async fn look_at_slots(
        &self,
        totals: &BTreeMap<String, Total>,
        is_first_look: bool,
        report: &mut ReconcileReport,
    ) -> Result<BTreeMap<String, Look>, Failure> {
        let mut wanted: BTreeMap<String, (&str, u32)> = BTreeMap::new();
        let mut looks: BTreeMap<String, Look> = BTreeMap::new();
        for (counter, total) in totals {
            looks.insert(counter.clone(), Look::default());
            let slots = slots_needed(total, self.rule.slot_count).into_iter();
            for slot in slots.filter(|slot| Counters::can_have_slot(counter, *slot)) {
                wanted.insert(Counters::slot_key_text(counter, slot), (counter, slot));
            }
        }
        let items = load_all(&self.slots, wanted.keys().cloned(), self.retry).await?;
        for (key, (counter, slot)) in wanted {
            let Some(item) = items.get(&key) else { continue };
            let Some(look) = looks.get_mut(counter) else { continue };
            self.see(&key, slot, item, look);
        }
        if is_first_look {
            report.slots += items.len();
            report.unreadable_slots +=
                looks.values().map(|look| look.unreadable.len()).sum::<usize>();
        }
        Ok(looks)
    }

    fn see(&self, key: &str, slot: u32, item: &Item, look: &mut Look) {
        match self.rule.value_of_slot(item) {
            Ok(value) => {
                look.values.insert(slot, value);
            }
            Err(refusal) => {
                look.unreadable.insert(slot);
                warn!(slot = key, reason = %refusal, "slot left as the total knows it");
            }
        }
    }
}

/// The counters in groups that are looked at together, beginning with the one whose turn it is.
fn groups_in_turn(
    counters: BTreeSet<String>,
    minute: u64,
    at_once: usize,
) -> Vec<BTreeSet<String>> {
    let first = first_in_turn(minute, counters.len());
    let mut names: Vec<String> = counters.into_iter().collect();
    names.rotate_left(first);
    let mut groups = Vec::with_capacity(names.len().div_ceil(at_once));
    let mut names = names.into_iter();
    while names.len() > 0 {
        groups.push(names.by_ref().take(at_once).collect());
    }
    groups
}

/// Shows every key of a table to `visit`, from the one behind `start` on and around, until it
/// answers `false` or the deadline is over. Answers whether all keys were shown.
///
/// # Errors
/// When the table cannot be read at all. If it cannot be read any further, what was shown counts.
async fn scan<T: Table>(
    table: &T,
    retry: RetryPolicy,
    deadline: Deadline,
    start: &str,
    mut visit: impl FnMut(&str) -> bool,
) -> Result<bool, Failure> {
    let mut after: Option<String> = Some(start.to_owned());
    let mut first_shown: Option<String> = None;
    let mut is_around = false;
    let mut attempts = retry.attempts();
    let mut failure = String::new();
    // Bounded by the deadline: each round takes a request's time.
    while !deadline.is_over() {
        if !attempts.next().await {
            if first_shown.is_none() {
                return Err(Failure::Retry(failure));
            }
            warn!(reason = failure, "counters are left to the next reconciliation");
            return Ok(false);
        }
        match table.scan_keys(after.as_deref()).await {
            Ok(page) => {
                attempts.restart();
                for key in page.keys {
                    if is_around && first_shown.as_ref() == Some(&key) {
                        return Ok(true);
                    }
                    if !visit(&key) {
                        return Ok(false);
                    }
                    first_shown.get_or_insert(key);
                }
                after = page.next;
                if after.is_none() {
                    if is_around {
                        return Ok(true);
                    }
                    is_around = true;
                }
            }
            Err(Failure::Retry(reason)) => failure = reason,
            Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
