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

/// Counters that are looked at together: their totals in one request, their slots in a few.
const COUNTERS_AT_ONCE: usize = 25;
/// Groups of such counters that are looked at beside each other. With the most slots a counter may
/// have, their slots take about 20 MB of the function's 256.
const GROUPS_AT_ONCE: usize = 4;
/// Looks at a counter whose total is written by others at the same time; after the last one it is
/// left to the next run.
const LOOKS_MAX: usize = 5;
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
    /// Totals that others kept writing, or that could not be reached: left to the next run.
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
    /// When the tables cannot be scanned at all, or the deployment is wrong.
    pub async fn run(&self, deadline: Deadline) -> Result<ReconcileReport, Failure> {
        let minute = (self.now)() / 60;
        let mut report = ReconcileReport::default();
        // Half of the time for finding counters, so that some are looked at in any case.
        let found = self.find_counters(deadline.half_way(), minute, &mut report);
        let (counters, all_found) = found.await?;
        report.complete = all_found;
        let groups = groups_in_turn(counters, minute).into_iter();
        let mut looks = stream::iter(groups.map(|group| self.reconcile_in_time(group, deadline)))
            .buffer_unordered(GROUPS_AT_ONCE);
        while let Some(part) = looks.next().await {
            report.add(&part?);
        }
        Ok(report)
    }

    /// Looks at some counters, if there is time.
    async fn reconcile_in_time(
        &self,
        counters: BTreeSet<String>,
        deadline: Deadline,
    ) -> Result<ReconcileReport, Failure> {
        let mut report = ReconcileReport::default();
        if deadline.is_over() {
            return Ok(report);
        }
        let count = counters.len();
        let looked = deadline.limit(self.reconcile(counters, &mut report)).await;
        report.counters = count;
        report.complete = true;
        match looked {
            Ok(()) => {}
            Err(Failure::Retry(reason)) => {
                warn!(reason, "counters are left to the next reconciliation");
                report.postponed_totals = count;
            }
            Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
        }
        Ok(report)
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

/// The counters in groups that are looked at together, beginning with the one whose turn it is.
fn groups_in_turn(counters: BTreeSet<String>, minute: u64) -> Vec<BTreeSet<String>> {
    let first = first_in_turn(minute, counters.len());
    let mut names: Vec<String> = counters.into_iter().collect();
    names.rotate_left(first);
    let mut groups = Vec::with_capacity(names.len().div_ceil(COUNTERS_AT_ONCE));
    let mut names = names.into_iter();
    while names.len() > 0 {
        groups.push(names.by_ref().take(COUNTERS_AT_ONCE).collect());
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
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use model::AttributeValue;
    use rules::Stamp;
    use rules::counters::{Cell, Cells};

    use super::*;
    use crate::tables::in_memory::{AT_ONCE, Faults, InMemoryTable};
    use crate::tables::{Guard, KeyPage, Loaded};

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

    /// A table whose reads take so long that a run gets through a part of the counters only, and
    /// whose scans are throttled from some page on.
    #[derive(Clone, Debug)]
    struct Hindered {
        table: Arc<InMemoryTable>,
        delay: Duration,
        pages: Arc<AtomicU64>,
    }

    impl Hindered {
        fn of(table: &Arc<InMemoryTable>, delay_ms: u64, pages: u64) -> Self {
            let (table, pages) = (Arc::clone(table), Arc::new(AtomicU64::new(pages)));
            Self { table, delay: Duration::from_millis(delay_ms), pages }
        }
    }

    impl Table for Hindered {
        async fn load_some(&self, keys: &BTreeSet<String>) -> Result<Loaded, Failure> {
            tokio::time::sleep(self.delay).await;
            self.table.load_some(keys).await
        }

        async fn put(&self, item: &Item, guard: &Guard) -> Result<WriteOutcome, Failure> {
            self.table.put(item, guard).await
        }

        async fn scan_keys(&self, after: Option<&str>) -> Result<KeyPage, Failure> {
            let left = self.pages.load(Ordering::Relaxed);
            self.pages.store(left.saturating_sub(1), Ordering::Relaxed);
            match left {
                0 => Err(Failure::Retry("throttled".to_owned())),
                _ => self.table.scan_keys(after).await,
            }
        }
    }

    static MINUTE: AtomicU64 = AtomicU64::new(29_920_469);

    /// With 400 counters of one slot.
    fn hindered(delay_ms: u64, pages: u64) -> Reconciler<Hindered, Hindered> {
        let Reconciler { rule, slots, totals, retry, .. } = reconciler(1, Faults::default());
        for counter in 0..400 {
            set_slot(&slots, &format!("c{counter:03}#0"), 1);
        }
        let totals = Hindered::of(totals.table(), delay_ms, u64::MAX);
        Reconciler {
            rule,
            slots: Hindered::of(&slots, delay_ms, pages),
            totals: Totals::new(totals, "counter".to_owned(), AT_ONCE),
            retry,
            now: || MINUTE.load(Ordering::Relaxed) * 60,
        }
    }

    #[tokio::test]
    async fn runs_without_time_for_all_counters_look_at_others_each_time() {
        let reconciler = hindered(20, u64::MAX);
        let looked_at = || reconciler.totals.table().table.items().len();
        let (mut runs, mut incomplete) = (0, 0);
        while looked_at() < 400 {
            assert!(runs < 200, "{} counters were looked at", looked_at());
            let report = reconciler.run(Deadline::after(Duration::from_millis(100))).await.unwrap();
            incomplete += u64::from(!report.complete);
            runs += 1;
            MINUTE.fetch_add(1, Ordering::Relaxed);
        }
        assert!(incomplete > 0, "a run had time for all counters");
    }

    #[tokio::test]
    async fn a_scan_shows_every_key_from_any_start() {
        let table = InMemoryTable::with_faults("slot", 1, Faults { lost: 20, ..Faults::default() });
        let keys: BTreeSet<String> = (0..100u64).map(|key| scan_in_turn(key * 77)).collect();
        for key in &keys {
            set_slot(&table, key, 1);
        }
        let mut seen_in_parts = BTreeSet::new();
        for turn in 0..40 {
            let start = scan_in_turn(turn);
            let mut seen = Vec::new();
            let all = scan(&table, AT_ONCE, minute(), &start, |key| {
                seen.push(key.to_owned());
                true
            });
            assert!(all.await.unwrap());
            assert_eq!(seen.len(), keys.len(), "a key was shown twice");
            assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), keys);
            let mut shown = 0;
            let all = scan(&table, AT_ONCE, minute(), &start, |key| {
                seen_in_parts.insert(key.to_owned());
                shown += 1;
                shown < 10
            });
            assert!(!all.await.unwrap());
        }
        assert_eq!(seen_in_parts, keys);
    }

    #[tokio::test]
    async fn counters_that_were_found_are_looked_at_although_the_scan_cannot_go_on() {
        let report = hindered(0, 20).run(minute()).await.unwrap();
        assert!(!report.complete);
        assert!((30..=60).contains(&report.counters), "{report:?}");
        assert_eq!(report.repaired_totals, report.counters);
        assert!(hindered(0, 0).run(minute()).await.is_err());
    }

    #[test]
    fn names_take_no_more_than_they_may() {
        let (mut names, each) = (Names::default(), NAME_OVERHEAD_BYTES + 1);
        let added = ["a", "b", "a", "c", "b"].map(|name| names.add(name, 2 * each));
        assert_eq!(added, [true, true, true, false, true]);
        assert_eq!((names.names.len(), names.bytes), (2, 2 * each));
        assert!(names.add("c", 3 * each));
    }

    #[tokio::test]
    async fn a_run_without_time_says_so() {
        let reconciler = reconciler(1, Faults::default());
        set_slot(&reconciler.slots, "A#0", 5);
        let report = reconciler.run(Deadline::after(Duration::ZERO)).await.unwrap();
        assert!(!report.complete);
    }
}
