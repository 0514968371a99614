//! Reconciliation of tables in memory. Some tables are slow or throttled, or refuse what DynamoDB
//! refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::AttributeValue;
use model::limits::PARTITION_KEY_BYTES_MAX;
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
    // All slots of this counter are deleted. One of them was beyond the slot count.
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
            misstated_totals: 0,
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

/// Another program changed the total item, but not its slots and its revision.
#[tokio::test]
async fn a_total_that_contradicts_its_slots_is_rewritten() {
    let reconciler = reconciler(1, Faults::default());
    set_slot(&reconciler.slots, "A#0", 5);
    set_slot(&reconciler.slots, "B#0", 7);
    reconciler.run(minute()).await.unwrap();
    let table = reconciler.totals.table();
    let item = table.items()["A"].clone();
    table.insert_item(item.with("total", Number::from(12345_u64)));
    let report = reconciler.run(minute()).await.unwrap();
    let found = (report.drifted_slots, report.repaired_totals, report.misstated_totals);
    assert_eq!(found, (0, 1, 1));
    let expected = [("A", "5"), ("B", "7")];
    assert_eq!(totals(table), expected.map(|(key, n)| (key.to_owned(), n.to_owned())).into());
    let again = reconciler.run(minute()).await.unwrap();
    assert_eq!((again.repaired_totals, again.misstated_totals), (0, 0));
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
        // A run with faults may postpone totals, so runs are repeated until one postpones none.
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

/// A table that refuses a request if a key is too long, as DynamoDB does, or begins with `refused`.
/// It throttles a request if a key begins with `throttled`.
#[derive(Clone, Debug)]
struct Strict(Arc<InMemoryTable>);

impl Table for Strict {
    async fn load_some(&self, keys: &BTreeSet<String>) -> Result<Loaded, Failure> {
        let is_refused =
            |key: &String| key.len() > PARTITION_KEY_BYTES_MAX || key.starts_with("refused");
        if keys.iter().any(|key| key.starts_with("throttled")) {
            return Err(Failure::Retry("throttled".to_owned()));
        }
        match keys.iter().find(|key| is_refused(key)) {
            Some(key) => Err(Failure::Fatal(format!("a key of {} bytes was refused", key.len()))),
            None => self.0.load_some(keys).await,
        }
    }

    async fn put(&self, item: &Item, guard: &Guard) -> Result<WriteOutcome, Failure> {
        self.0.put(item, guard).await
    }

    async fn scan_keys(&self, after: Option<&str>) -> Result<KeyPage, Failure> {
        self.0.scan_keys(after).await
    }
}

/// Returns a reconciler with 20 slots per counter.
fn strict() -> Reconciler<Strict, Arc<InMemoryTable>> {
    let Reconciler { rule, slots, totals, retry, now } = reconciler(1, Faults::default());
    Reconciler {
        rule: Counters { slot_count: 20, ..rule },
        slots: Strict(slots),
        totals,
        retry,
        now,
    }
}

#[tokio::test]
async fn a_counter_whose_name_leaves_no_room_for_two_digits_is_reconciled_with_the_others() {
    let reconciler = strict();
    let long = "c".repeat(PARTITION_KEY_BYTES_MAX - 2);
    for (key, votes) in [("A#0", 5), (&*format!("{long}#7"), 3), ("B#19", 2)] {
        set_slot(&reconciler.slots.0, key, votes);
    }
    let report = reconciler.run(minute()).await.unwrap();
    assert_eq!((report.slots, report.repaired_totals, report.complete), (3, 3, true));
    let expected = [("A", "5"), ("B", "2"), (&*long, "3")];
    let expected = expected.map(|(key, total)| (key.to_owned(), total.to_owned())).into();
    assert_eq!(totals(reconciler.totals.table()), expected);
    let again = reconciler.run(minute()).await.unwrap();
    assert_eq!((again.drifted_slots, again.complete), (0, true));
}

#[tokio::test]
async fn a_group_that_is_refused_does_not_stop_the_others() {
    let reconciler = strict();
    set_slot(&reconciler.slots.0, "refused#0", 1);
    // No counter can be checked, so the deployment counts as misconfigured.
    assert!(matches!(reconciler.run(minute()).await, Err(Failure::Fatal(_))));
    for counter in 0..2 * COUNTERS_AT_ONCE {
        set_slot(&reconciler.slots.0, &format!("c{counter}#0"), 1);
    }
    let report = reconciler.run(minute()).await.unwrap();
    assert!(!report.complete, "{report:?}");
    assert_eq!(report.counters, 2 * COUNTERS_AT_ONCE + 1);
    assert!((1..=COUNTERS_AT_ONCE).contains(&report.postponed_totals), "{report:?}");
    assert_eq!(report.repaired_totals, report.counters - report.postponed_totals);
}

#[tokio::test]
async fn a_group_that_stays_throttled_is_left_to_the_next_run() {
    let reconciler = strict();
    set_slot(&reconciler.slots.0, "throttled#0", 1);
    let report = reconciler.run(minute()).await.unwrap();
    assert_eq!((report.counters, report.postponed_totals, report.complete), (1, 1, false));
    for counter in 0..2 * COUNTERS_AT_ONCE {
        set_slot(&reconciler.slots.0, &format!("c{counter}#0"), 1);
    }
    let report = reconciler.run(minute()).await.unwrap();
    assert!(!report.complete, "{report:?}");
    assert!((1..=COUNTERS_AT_ONCE).contains(&report.postponed_totals), "{report:?}");
    assert_eq!(report.repaired_totals, report.counters - report.postponed_totals);
    // Once no request is throttled, the next run checks the remaining counters.
    reconciler.slots.0.remove("throttled#0");
    let last = reconciler.run(minute()).await.unwrap();
    assert_eq!((last.repaired_totals, last.complete), (report.postponed_totals - 1, true));
}

/// A table whose reads are so slow that a run checks only some counters. After `pages` pages its
/// scans are throttled.
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

/// Returns a reconciler with 400 counters that have one slot each.
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
async fn short_runs_check_other_counters_each_time() {
    let reconciler = hindered(20, u64::MAX);
    let looked_at = || reconciler.totals.table().table.items().len();
    let (mut runs, mut incomplete) = (0, 0);
    while looked_at() < 400 {
        assert!(runs < 200, "{} counters were checked", looked_at());
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
async fn found_counters_are_checked_although_the_scan_fails() {
    let report = hindered(0, 20).run(minute()).await.unwrap();
    assert!(!report.complete);
    assert!((30..=60).contains(&report.counters), "{report:?}");
    assert_eq!(report.repaired_totals, report.counters);
    assert!(hindered(0, 0).run(minute()).await.is_err());
}

#[test]
fn names_take_no_more_than_they_may() {
    let (mut names, each) = (CounterNames::default(), NAME_OVERHEAD_BYTES + 1);
    let added = ["a", "b", "a", "c", "b"].map(|name| names.add(name, 2 * each));
    assert_eq!(added, [true, true, true, false, true]);
    assert_eq!((names.names.len(), names.bytes), (2, 2 * each));
    assert!(names.add("c", 3 * each));
}

#[tokio::test]
async fn a_run_without_time_is_incomplete() {
    let reconciler = reconciler(1, Faults::default());
    set_slot(&reconciler.slots, "A#0", 5);
    let report = reconciler.run(Deadline::after(Duration::ZERO)).await.unwrap();
    assert!(!report.complete);
}

/// Few counters with many slots are checked at a time, because their slots must fit into memory.
#[test]
fn fewer_counters_with_many_slots_are_checked_together() {
    for (slot_count, expected) in [(1, 25), (20, 25), (100, 25), (1_000, 2), (100_000, 1)] {
        let mut reconciler = strict();
        reconciler.rule.slot_count = slot_count;
        let at_once = reconciler.counters_at_once();
        assert_eq!(at_once, expected, "{slot_count}");
        let names: BTreeSet<String> = (0..60).map(|name| format!("c{name}")).collect();
        let groups = groups_in_turn(names.clone(), 7, at_once);
        assert!(groups.iter().all(|group| (1..=at_once).contains(&group.len())));
        assert_eq!(groups.into_iter().flatten().collect::<BTreeSet<_>>(), names);
    }
}
