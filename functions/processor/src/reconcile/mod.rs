//! The reconciler: reads every slot of every counter and repairs totals that differ from the slots.
//!
//! The reconciler runs on a schedule. `rules::counters::reconcile` explains what a check may
//! conclude, and why a repair cannot conflict with stream records in flight. Counters are found
//! by scanning the keys of both tables. The totals table has the counters whose slots are all
//! deleted, and the slots table has the counters whose records were all lost. So a run reads both
//! tables once, and writes nothing if nothing differs. The starting point changes from run to run,
//! so that runs with too little time still reach every counter.

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

/// Maximum number of counters that are checked together: one request reads their totals, and a few
/// requests read their slots.
const COUNTERS_AT_ONCE: usize = 25;
/// Maximum number of groups of counters that are checked concurrently.
const GROUPS_AT_ONCE: usize = 4;
/// Maximum number of slots that all groups check concurrently. A slot takes about 2 KB while it is
/// read, including its entry in the total, so this many slots take 20 MB of the function's 256 MB.
const SLOTS_AT_ONCE: usize = 10_000;
/// Maximum number of attempts to check a counter whose total other writers change at the same time.
/// If all attempts fail, the next run checks the counter.
const LOOKS_MAX: u32 = 5;
/// Maximum memory for counter names in bytes, out of the function's 256 MB. About 800,000 names of
/// 20 bytes fit, which is more than a run has time for.
const NAMES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Memory of a counter name in addition to its text.
const NAME_OVERHEAD_BYTES: usize = 64;

/// The report of a reconciliation run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileReport {
    /// Counters checked.
    pub counters: usize,
    /// Slot items read.
    pub slots: usize,
    /// Slots whose current value the total did not contain, because their records were lost or are
    /// still in flight.
    pub drifted_slots: usize,
    /// Totals that were corrected.
    pub repaired_totals: usize,
    /// Repaired totals whose item contradicted its own slots in `total`, `as_of` or `expires_at`,
    /// because another program had written it.
    pub misstated_totals: usize,
    /// Totals that the next run must check: other writers kept changing them, the table was
    /// unreachable, or the database refused to read or write them.
    pub postponed_totals: usize,
    /// Total items that this function did not write. They are not changed.
    pub damaged_totals: usize,
    /// Slot items without a readable value. The total keeps the last readable value of the slot.
    pub unreadable_slots: usize,
    /// Items of the slots table whose key is not the key of a slot.
    pub foreign_items: usize,
    /// True if every counter was checked. Otherwise the next run begins with other counters. If
    /// this does not check counters often enough, increase the function's timeout.
    pub complete: bool,
}

impl ReconcileReport {
    /// Adds the report of one group of counters.
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
    /// The rule that recognizes slots.
    pub rule: Counters,
    /// The slots table.
    pub slots: S,
    /// The totals table.
    pub totals: Totals<T>,
    /// Retry policy of throttled reads.
    pub retry: RetryPolicy,
    /// The clock, which returns the current time in seconds since 1970.
    pub now: fn() -> u64,
}

/// Distinct names of counters.
#[derive(Debug, Default)]
struct CounterNames {
    names: BTreeSet<String>,
    bytes: usize,
}

impl CounterNames {
    /// Adds a name, unless the names would take more than `most` bytes. Returns whether the set
    /// contains the name now.
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

/// The data that the check of one counter has read.
#[derive(Debug, Default)]
struct CounterReads {
    values: BTreeMap<u32, Number>,
    unreadable: BTreeSet<u32>,
}

impl<S: Table, T: Table> Reconciler<S, T> {
    /// Checks all counters, or as many as the time until the deadline allows. The starting point
    /// depends on the current minute.
    ///
    /// # Errors
    /// When the tables cannot be scanned at all, or no counter can be checked: the deployment is
    /// misconfigured.
    pub async fn run(&self, deadline: Deadline) -> Result<ReconcileReport, Failure> {
        let minute = (self.now)() / 60;
        let mut report = ReconcileReport::default();
        // Finding counters may take at most half of the time; the rest is for checking them.
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
        // A single group may contain a counter that the database refuses. If the database refuses
        // all groups, the deployment is misconfigured.
        if begun == refusals.len()
            && let Some(refusal) = refusals.pop()
        {
            return Err(refusal);
        }
        Ok(report)
    }

    /// Returns the number of counters in a group. Groups are smaller if each counter has many
    /// slots.
    fn counters_at_once(&self) -> usize {
        let slots = usize::try_from(self.rule.slot_count).unwrap_or(usize::MAX).max(1);
        (SLOTS_AT_ONCE / GROUPS_AT_ONCE / slots).clamp(1, COUNTERS_AT_ONCE)
    }

    /// Checks a group of counters if time remains. Returns the reason if the database refused a
    /// read or write; the report is then incomplete.
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
                warn!(reason, "counters are postponed to the next reconciliation");
                report.postponed_totals = count;
                report.complete = false;
            }
            Err(Failure::Fatal(reason)) => {
                warn!(
                    reason,
                    "the database refused counters; they are postponed to the next reconciliation"
                );
                report.postponed_totals = count;
                report.complete = false;
                return (report, Some(Failure::Fatal(reason)));
            }
        }
        (report, None)
    }

    /// Finds the counters. Returns their names, and whether the names are complete. If memory is
    /// too small for all names, returns the names after a starting point that differs in each
    /// minute.
    async fn find_counters(
        &self,
        deadline: Deadline,
        minute: u64,
        report: &mut ReconcileReport,
    ) -> Result<(BTreeSet<String>, bool), Failure> {
        let start = scan_in_turn(minute);
        let mut names = CounterNames::default();
        let totals_read = scan(self.totals.table(), self.retry, deadline, &start, |key| {
            // The other half of the memory is for counters that have slots but no total.
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

    /// Checks counters, and repeats the check of counters whose totals changed meanwhile. Returns
    /// whether the database accepted the necessary writes. A conflict with another writer does not
    /// count as refused.
    async fn reconcile(
        &self,
        mut counters: BTreeSet<String>,
        report: &mut ReconcileReport,
    ) -> Result<bool, Failure> {
        let mut unwritten = 0;
        let mut looks = RetryPolicy { attempts_max: LOOKS_MAX, ..self.retry }.attempts();
        while looks.next().await {
            unwritten = 0;
            // Totals are read first, so the slots read afterwards are at least as new as the
            // totals' content.
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
                        warn!(counter, reason = %error, "damaged total item left unchanged");
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
                    // The total changed after it was read, so the counter is checked again.
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
    ) -> Result<BTreeMap<String, CounterReads>, Failure> {
        let mut wanted: BTreeMap<String, (&str, u32)> = BTreeMap::new();
        let mut looks: BTreeMap<String, CounterReads> = BTreeMap::new();
        for (counter, total) in totals {
            looks.insert(counter.clone(), CounterReads::default());
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

    fn see(&self, key: &str, slot: u32, item: &Item, look: &mut CounterReads) {
        match self.rule.value_of_slot(item) {
            Ok(value) => {
                look.values.insert(slot, value);
            }
            Err(refusal) => {
                look.unreadable.insert(slot);
                warn!(slot = key, reason = %refusal, "unreadable slot; the total keeps its value");
            }
        }
    }
}

/// Divides the counters into groups of at most `at_once`, which are checked together. The first
/// counter rotates with `minute`, so that runs that reach the deadline do not always skip the same
/// counters.
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

/// Calls `visit` with every key of a table, beginning after `start` and continuing from the first
/// key at the end of the table. Stops when `visit` returns `false` or the deadline passes. Returns
/// whether all keys were visited.
///
/// # Errors
/// When no page of the table can be read. If a later page cannot be read, returns false instead.
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
    // The loop is bounded by the deadline, because each iteration makes one request.
    while !deadline.is_over() {
        if !attempts.next().await {
            if first_shown.is_none() {
                return Err(Failure::Retry(failure));
            }
            warn!(reason = failure, "counters are postponed to the next reconciliation");
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
