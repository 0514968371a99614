//! Totals with many slots: how many slots are in memory while a batch is loaded and written.

use std::collections::BTreeSet;
use std::sync::Mutex;

use model::Item;
use model::SequenceNumber;
use rules::Stamp;
use rules::counters::{Cell, Total};

use super::*;
use crate::tables::{Guard, KeyPage, Loaded, Table, WriteOutcome};

const SLOTS: u32 = 1_000;
const COUNTERS: usize = 120;
/// A counter whose total is damaged. There is not enough memory to load this total for the batch.
const DAMAGED: &str = "C119";

/// The number of slots in memory, and its maximum so far.
#[derive(Debug, Default)]
struct Held {
    now: usize,
    most: usize,
}

/// Slots that count as in memory until this value is dropped, even if the request is cancelled.
struct Holding<'h>(&'h Mutex<Held>, usize);

impl<'h> Holding<'h> {
    fn begin(held: &'h Mutex<Held>, slots: usize) -> Self {
        let mut now = held.lock().unwrap();
        now.now += slots;
        now.most = now.most.max(now.now);
        Self(held, slots)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().now -= self.1;
    }
}

/// A table that generates each total when it is read. Each total has every slot.
#[derive(Debug, Default)]
struct ManySlots {
    read: Mutex<Held>,
    written: Mutex<Held>,
    names: Mutex<BTreeSet<String>>,
    /// Number of loaded slots that were kept when writing began.
    kept: Mutex<usize>,
}

fn item(counter: &str) -> Item {
    let number: SequenceNumber = "1".parse().unwrap();
    let stamp = Stamp::of_record("2025", &number);
    let cell = |_| Cell { stamp: stamp.clone(), value: Number::from(1_u64), gone_at: None };
    let cells: Cells = (0..SLOTS).map(|slot| (slot, cell(slot))).collect();
    let item = Total { cells, revision: 1 }.to_item("counter", counter);
    if counter == DAMAGED { item.with("slots", "none") } else { item }
}

impl Table for ManySlots {
    async fn load_some(&self, keys: &BTreeSet<String>) -> Result<Loaded, Failure> {
        let _holding = Holding::begin(&self.read, keys.len() * SLOTS as usize);
        tokio::task::yield_now().await;
        let items: BTreeMap<String, Item> =
            keys.iter().map(|key| (key.clone(), item(key))).collect();
        Ok(Loaded { items, unprocessed: BTreeSet::new() })
    }

    async fn put(&self, item: &Item, _: &Guard) -> Result<WriteOutcome, Failure> {
        let _holding = Holding::begin(&self.written, item["slots"].as_map().unwrap().len());
        tokio::task::yield_now().await;
        let name = item["counter"].as_str().unwrap().to_owned();
        assert!(self.names.lock().unwrap().insert(name), "each once");
        Ok(WriteOutcome::Written)
    }

    async fn scan_keys(&self, _: Option<&str>) -> Result<KeyPage, Failure> {
        Ok(KeyPage::default())
    }
}

/// The executor of counters. It also records how many slots are kept for a batch.
struct Noting(Totals<Arc<ManySlots>>);

impl Executor for Noting {
    type Rule = Counters;

    async fn load(&self, needs: Needs) -> Result<Found<LoadedTotal>, Failure> {
        Executor::load(&self.0, needs).await
    }

    async fn apply(
        &self,
        folded: Folded<String, Cells>,
        found: &Found<LoadedTotal>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let slots = found.inputs.values().flatten().map(|total| total.cells.len());
        *self.0.table().kept.lock().unwrap() = slots.sum();
        self.0.apply(folded, found, deadline).await
    }
}

/// A batch with many counters of a thousand slots each is done in one invocation, and few slots are
/// in memory at the same time. A damaged total is found even if it was not loaded for the batch.
#[tokio::test]
async fn few_slots_are_held_at_once() {
    let (read, kept) = process_all(SLOTS).await;
    assert!((1_000..=10_000).contains(&read), "{read}");
    assert!((30_000..=32_000).contains(&kept), "{kept}");
}

/// Totals may have more slots than their counters currently have. These totals are also read a few
/// at a time.
#[tokio::test]
async fn totals_may_have_removed_slots() {
    let (read, _) = process_all(20).await;
    assert!((1_000..=20_000).contains(&read), "{read}");
}

/// Processes a batch with all counters, each with this many slots. Returns how many slots were read
/// at the same time, and how many were kept.
async fn process_all(slot_count: u32) -> (usize, usize) {
    let (table, store) = (Arc::new(ManySlots::default()), Arc::default());
    let CountersFrame { rule, quarantine, .. } =
        frame(Arc::new(InMemoryTable::new("counter")), Arc::clone(&store), 3);
    let totals = Totals::new(Arc::clone(&table), "counter".to_owned(), AT_ONCE);
    let rule = Counters { slot_count, ..rule };
    let frame = Frame { rule, executor: Noting(totals), quarantine };
    let records = (0..COUNTERS).map(|number| vote(number + 1, &format!("C{number}#7"), Some(5)));
    let payload = format!(r#"{{"Records":[{}]}}"#, records.collect::<Vec<_>>().join(","));
    let deadline = Deadline::after(Duration::from_secs(3600));
    let report = frame.process_event(&payload, deadline).await.unwrap().unwrap().result.unwrap();
    let expected =
        Summary { records: COUNTERS, applied: COUNTERS - 1, refused: 1, ..Summary::default() };
    assert_eq!(report.summary, expected);
    assert_eq!(table.names.lock().unwrap().len(), COUNTERS - 1);
    let names: Vec<String> = store.objects().into_keys().collect();
    assert_eq!(names, ["q/counters/slots/2026/120-e120.json"]);
    let most = |held: &Mutex<Held>| held.lock().unwrap().most;
    assert!((1_000..=5_000).contains(&most(&table.written)), "{:?}", table.written);
    let kept = *table.kept.lock().unwrap();
    (most(&table.read), kept)
}
