//! The reconciler: looks at every slot of every counter and repairs totals that say otherwise.
//!
//! Run on a schedule. What a look may conclude, and why that agrees with stream records that are
//! still on their way, is in `rules::counters::reconcile`. Counters are found by scanning the keys
//! of both tables: the totals know counters whose slots are all gone, the slots know counters whose
//! records were all lost. So a run reads both tables once; nothing is written when nothing differs.

use std::collections::{BTreeMap, BTreeSet};

use model::{Item, Number};
use rules::counters::reconcile::{decide, slots_needed};
use rules::counters::{Counters, Total};
use serde::Serialize;
use tracing::warn;

use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::tables::{Table, WriteOutcome, load_all};
use crate::totals::Totals;

/// Counters that are looked at together: their totals in one request, their slots in a few.
const COUNTERS_AT_ONCE: usize = 25;
/// Looks at a counter whose total is written by others at the same time; after the last one it is
/// left to the next run.
const LOOKS_MAX: usize = 5;
/// Counters of one run at most, so that their names fit into the memory of a small function.
const COUNTERS_MAX: usize = 200_000;

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
    /// Totals that others kept writing, or that could not be reached: left to the next run.
    pub postponed_totals: usize,
    /// Total items that were not written by this function: left alone.
    pub damaged_totals: usize,
    /// Slot items without a readable value: left as the total knows them.
    pub unreadable_slots: usize,
    /// Items of the slots table whose key is not of a slot.
    pub foreign_items: usize,
    /// Whether every counter was looked at. If not, give the function more time.
    pub complete: bool,
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

/// What a look at one counter saw.
#[derive(Debug, Default)]
struct Look {
    values: BTreeMap<u32, Number>,
    unreadable: BTreeSet<u32>,
}

impl<S: Table, T: Table> Reconciler<S, T> {
    /// Looks at all counters, as far as the time allows.
    ///
    /// # Errors
    /// When the tables cannot be scanned at all, or the deployment is wrong.
    pub async fn run(&self, deadline: Deadline) -> Result<ReconcileReport, Failure> {
        let mut report = ReconcileReport::default();
        // Half of the time for finding counters, so that some are looked at in any case.
        let (counters, all_found) = self.find_counters(deadline.half_way(), &mut report).await?;
        report.complete = all_found;
        let mut counters = counters.into_iter();
        loop {
            let some: BTreeSet<String> = counters.by_ref().take(COUNTERS_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(report);
            }
            if deadline.is_over() {
                report.complete = false;
                return Ok(report);
            }
            report.counters += some.len();
            let count = some.len();
            let before = report.clone();
            match deadline.limit(self.reconcile(some, &mut report)).await {
                Ok(()) => {}
                Err(Failure::Retry(reason)) => {
                    warn!(reason, "counters are left to the next reconciliation");
                    report.postponed_totals = before.postponed_totals + count;
                }
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
    }

    async fn find_counters(
        &self,
        deadline: Deadline,
        report: &mut ReconcileReport,
    ) -> Result<(BTreeSet<String>, bool), Failure> {
        let mut counters = BTreeSet::new();
        let totals_read = scan(self.totals.table(), self.retry, deadline, |key| {
            counters.insert(key.to_owned());
            counters.len() < COUNTERS_MAX
        });
        let totals_read = totals_read.await?;
        let slots_read = scan(&self.slots, self.retry, deadline, |key| {
            match self.rule.parse_slot_key(key) {
                Ok((counter, _)) => {
                    if !counters.contains(counter) {
                        counters.insert(counter.to_owned());
                    }
                }
                Err(_) => report.foreign_items += 1,
            }
            counters.len() < COUNTERS_MAX
        });
        let slots_read = slots_read.await?;
        Ok((counters, totals_read && slots_read))
    }

    async fn reconcile(
        &self,
        mut counters: BTreeSet<String>,
        report: &mut ReconcileReport,
    ) -> Result<(), Failure> {
        for look in 0..LOOKS_MAX {
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
            let looks = self.look_at_slots(&totals, look == 0, report).await?;
            counters = BTreeSet::new();
            for (counter, total) in totals {
                let seen = looks.get(&counter);
                let cells =
                    seen.map(|seen| decide(&total, &seen.values, &seen.unreadable, (self.now)()));
                let Some(joined) = cells.as_ref().and_then(|cells| total.joined(cells)) else {
                    continue;
                };
                match self.totals.replace(&counter, total.revision, &joined).await {
                    Ok(WriteOutcome::Written) => {
                        report.repaired_totals += 1;
                        report.drifted_slots += cells.map_or(0, |cells| cells.len());
                        warn!(counter, from = %total.cells.sum(), to = %joined.cells.sum(), "total repaired");
                    }
                    // Somebody wrote the total after it was read: what was decided is void.
                    Ok(WriteOutcome::GuardFailed) | Err(Failure::Retry(_)) => {
                        counters.insert(counter);
                    }
                    Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
                }
            }
            if counters.is_empty() {
                return Ok(());
            }
        }
        report.postponed_totals += counters.len();
        Ok(())
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
            for slot in slots_needed(total, self.rule.slot_count) {
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

/// Shows every key of a table to `visit`, until it answers `false` or the deadline is over.
/// Answers whether all keys were shown.
async fn scan<T: Table>(
    table: &T,
    retry: RetryPolicy,
    deadline: Deadline,
    mut visit: impl FnMut(&str) -> bool,
) -> Result<bool, Failure> {
    let mut after: Option<String> = None;
    let mut attempts = retry.attempts();
    let mut failure = String::new();
    // Bounded by the deadline: each round takes a request's time.
    while !deadline.is_over() {
        if !attempts.next().await {
            return Err(Failure::Retry(failure));
        }
        match table.scan_keys(after.as_deref()).await {
            Ok(page) => {
                attempts.restart();
                if !page.keys.iter().all(|key| visit(key)) {
                    return Ok(false);
                }
                after = page.next;
                if after.is_none() {
                    return Ok(true);
                }
            }
            Err(Failure::Retry(reason)) => failure = reason,
            Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use model::AttributeValue;
    use rules::Stamp;
    use rules::counters::{Cell, Cells};

    use super::*;
    use crate::tables::in_memory::{AT_ONCE, Faults, InMemoryTable};

    fn reconciler(seed: u64, faults: Faults) -> Reconciler<Arc<InMemoryTable>, Arc<InMemoryTable>> {
        let table = |key, seed| Arc::new(InMemoryTable::with_faults(key, seed, faults));
        Reconciler {
            rule: Counters {
                slot_count: 3,
                slot_key: "slot".to_owned(),
                slot_value: "votes".to_owned(),
            },
            slots: table("slot", seed),
            totals: Totals::new(table("counter", seed + 1), "counter".to_owned(), AT_ONCE),
            retry: AT_ONCE,
            now: || 1_795_228_199,
        }
    }

    fn set_slot(table: &InMemoryTable, key: &str, votes: i64) {
        table.insert([
            ("slot", AttributeValue::from(key)),
            ("votes", AttributeValue::N(Number::from(votes))),
        ]);
    }

    fn totals(table: &InMemoryTable) -> BTreeMap<String, String> {
        let items = table.items().into_iter();
        items.map(|(key, item)| (key, item["total"].as_number().unwrap().to_string())).collect()
    }

    fn minute() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[tokio::test]
    async fn drift_is_found_repaired_and_reported() {
        let reconciler = reconciler(1, Faults::default());
        for (key, votes) in [("A#0", 5), ("A#2", -2), ("B#1", 7), ("B#9", 100), ("config", 1)] {
            set_slot(&reconciler.slots, key, votes);
        }
        reconciler.slots.insert([("slot", AttributeValue::from("B#0"))]);
        // A counter whose slots are all gone, one of them beyond the slot count.
        let cell =
            |value: i64| Cell { stamp: Stamp::lowest(), value: Number::from(value), gone_at: None };
        let gone = Total { cells: Cells::from([(0, cell(3)), (30, cell(4))]), revision: 8 };
        reconciler.totals.replace("C", 0, &gone).await.unwrap();
        reconciler.totals.table().insert([("counter", AttributeValue::from("D"))]);

        let report = reconciler.run(minute()).await.unwrap();
        assert_eq!(
            report,
            ReconcileReport {
                counters: 4,
                slots: 4,
                drifted_slots: 5,
                repaired_totals: 3,
                postponed_totals: 0,
                damaged_totals: 1,
                unreadable_slots: 1,
                foreign_items: 2,
                complete: true,
            }
        );
        reconciler.totals.table().remove("D");
        let expected = [("A", "3"), ("B", "7"), ("C", "0")];
        let expected = expected.map(|(key, total)| (key.to_owned(), total.to_owned())).into();
        assert_eq!(totals(reconciler.totals.table()), expected);

        let again = reconciler.run(minute()).await.unwrap();
        assert_eq!((again.drifted_slots, again.repaired_totals), (0, 0));
    }

    #[tokio::test]
    async fn reconcilers_and_writers_at_the_same_time_converge() {
        for seed in 0..64 {
            let faults = Faults { lost: 10, unanswered: 10, unprocessed: 20 };
            let reconciler = reconciler(seed, faults);
            let voting = async {
                for vote in 1..30_i64 {
                    set_slot(&reconciler.slots, &format!("A#{}", vote % 3), vote);
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                }
            };
            let (_, first, second) =
                tokio::join!(voting, reconciler.run(minute()), reconciler.run(minute()));
            first.unwrap();
            second.unwrap();
            // The last look sees the slots at rest; a run that met faults may postpone.
            let mut last = reconciler.run(minute()).await.unwrap();
            for _ in 0..10 {
                if last.postponed_totals > 0 {
                    last = reconciler.run(minute()).await.unwrap();
                }
            }
            let expected = [("A".to_owned(), (29 + 28 + 27).to_string())];
            assert_eq!(totals(reconciler.totals.table()), expected.into(), "seed {seed}");
        }
    }

    #[tokio::test]
    async fn a_run_without_time_says_so() {
        let reconciler = reconciler(1, Faults::default());
        set_slot(&reconciler.slots, "A#0", 5);
        let report = reconciler.run(Deadline::after(Duration::ZERO)).await.unwrap();
        assert!(!report.complete);
    }
}
