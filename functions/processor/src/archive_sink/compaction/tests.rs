//! Compaction and erasure run concurrently with archiving. The store loses, delays and repeats
//! requests. Each row is in the archive once, or is permanently erased.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use model::json::item_from_str;
use proptest::prelude::*;

use super::super::column_metadata::COLUMNS;
use super::super::erasure::{Eraser, Subject};
use super::super::part_content::text_of;
use super::super::reads::Reads;
use super::super::rewrite::texts;
use super::super::tests::{block_on, contents, effect, effect_of, folded, hour, poll, sink};
use super::*;
use crate::frame::Executor;
use crate::object_store::ObjectStore as _;
use crate::object_store::in_memory::{Faults, InMemoryObjectStore};
use crate::tables::in_memory::AT_ONCE;
use rules::marks::restored::{self, Origin, RESTORED};
use rules::{Found, fold};

pub(in crate::archive_sink) type Store = Arc<InMemoryObjectStore>;

pub(in crate::archive_sink) fn compactor(store: &Store) -> Compactor<Store> {
    Compactor { store: Arc::clone(store), prefix: "archive/".to_owned(), retry: AT_ONCE }
}

pub(in crate::archive_sink) fn eraser(store: &Store) -> Eraser<Store> {
    Eraser {
        store: Arc::clone(store),
        prefix: "archive/".to_owned(),
        receipts_prefix: "erasures/".to_owned(),
        retry: RetryPolicy { attempts_max: 50, ..AT_ONCE },
    }
}

pub(in crate::archive_sink) async fn compact(store: &Store) -> Result<CompactionReport, Failure> {
    let now_seconds = store.now_seconds();
    let selection = Selection { table: None, now_seconds, age_seconds: AGE_SECONDS_MIN };
    compactor(store).run(&selection, Deadline::after(Duration::from_secs(3600))).await
}

fn item_of(number: usize) -> String {
    let rows = effect(number).statement;
    rows.iter().next().unwrap().item().to_owned()
}

/// Returns the objects without the receipts.
pub(in crate::archive_sink) fn parts(store: &Store) -> BTreeMap<String, Bytes> {
    let objects = store.objects().into_iter();
    objects.filter(|(name, _)| name.ends_with(".parquet")).collect()
}

/// Checks that every row exists once, in any of the objects.
pub(in crate::archive_sink) fn check_each_once(
    store: &Store,
    expected: impl Iterator<Item = usize>,
) {
    let found = contents(&parts(store));
    let expected: BTreeMap<String, String> =
        expected.map(|number| (format!("{number:032x}"), item_of(number))).collect();
    for (id, item) in &expected {
        let places = found.get(id).unwrap_or_else(|| panic!("{id} is lost"));
        assert_eq!(places.len(), 1, "{id} is in {places:?}");
        assert_eq!(places[0].1, *item);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn parts_become_one_object_for_each_set_of_columns_and_a_second_run_finds_nothing() {
    block_on(async {
        let store = Store::default();
        let writer = sink(&store, 5);
        for from in (0..24).step_by(3) {
            writer.apply(folded(from..from + 3), &Found::default(), hour()).await;
        }
        let young = compact(&store).await.unwrap();
        assert_eq!((young.hours, young.objects_written), (0, 0));
        store.pass_seconds(AGE_SECONDS_MIN);
        let before = store.objects().len();
        let report = compact(&store).await.unwrap();
        assert!(report.complete && report.postponed_hours == 0, "{report:?}");
        assert!(report.objects_written > 0 && report.parts_replaced > report.objects_written);
        assert!(store.objects().len() < before);
        check_each_once(&store, 0..24);
        let again = compact(&store).await.unwrap();
        assert_eq!((again.objects_written, again.leftovers_removed), (0, 0));

        // A new event source mapping delivers all records once more, to a new process.
        sink(&store, 5).apply(folded(0..26), &Found::default(), hour()).await;
        check_each_once(&store, 0..26);
    });
}

#[test]
fn hours_that_cannot_be_listed_are_left_to_the_next_run() {
    block_on(async {
        let store = Store::default();
        let writer = sink(&store, 5);
        for from in (0..24).step_by(3) {
            writer.apply(folded(from..from + 3), &Found::default(), hour()).await;
        }
        store.pass_seconds(AGE_SECONDS_MIN);
        store.refuse_listings(Some("archive/table="));
        let report = compact(&store).await.unwrap();
        assert!(report.postponed_hours > 0 && report.objects_written == 0, "{report:?}");
        store.refuse_listings(None);
        let report = compact(&store).await.unwrap();
        assert!(report.postponed_hours == 0 && report.objects_written > 0, "{report:?}");
        check_each_once(&store, 0..24);
    });
}

/// A damaged object does not block the compaction of other hours. A single late part does not make
/// every later run read its hour again.
#[test]
fn a_damaged_object_and_a_late_part_block_nothing() {
    block_on(async {
        let store = Store::default();
        for from in (0..24).step_by(3) {
            sink(&store, 5).apply(folded(from..from + 3), &Found::default(), hour()).await;
        }
        let some = store.objects().into_keys().next().unwrap();
        let damaged = some.replace("dt=2026", "dt=2025").replace("-202611", "-202511");
        for name in [damaged.clone(), damaged.replace("1.parquet", "2.parquet")] {
            store.put_if_absent(&name, Bytes::from_static(b"?"), PARQUET).await.unwrap();
        }
        store.pass_seconds(AGE_SECONDS_MIN);
        let failed = compact(&store).await;
        assert!(
            matches!(&failed, Err(Failure::Fatal(reason)) if reason.contains("dt=2025")),
            "{failed:?}"
        );
        let parts = || store.objects().keys().filter(|name| name.contains("/part-")).count();
        assert_eq!(parts(), 2, "{:?}", store.objects().keys());
        for (name, _) in store.objects().into_iter().filter(|(name, _)| name.contains("dt=2025")) {
            let entry = store.list(&name).await.unwrap().remove(0);
            store.remove(&name, &entry.entity_tag).await.unwrap();
        }

        sink(&store, 5).apply(folded(24..25), &Found::default(), hour()).await;
        assert_eq!(parts(), 1);
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.hours, report.objects_written, parts()), (1, 1, 0), "{report:?}");
        assert_eq!(compact(&store).await.unwrap().hours, 0);
        check_each_once(&store, 0..25);
    });
}

/// Returns the values of a text column by event id, from all objects that have the column.
fn texts_of(store: &Store, name: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let objects = store.objects().into_iter().filter(|(name, _)| name.ends_with(".parquet"));
    for (_, object) in objects {
        for batch in ObjectReader::open(object).unwrap().batches() {
            let batch = batch.unwrap();
            let Ok(column) = texts(&batch, name) else { continue };
            let pairs = event_ids(&batch).unwrap().iter().flatten().zip(column);
            let some = pairs.filter_map(|(id, text)| Some((id.to_owned(), text?.to_owned())));
            found.extend(some);
        }
    }
    found
}

#[test]
fn columns_that_were_discovered_keep_their_values_in_one_object() {
    block_on(async {
        let store = Store::default();
        for number in 4..9 {
            sink(&store, 5).apply(folded(number..number + 1), &Found::default(), hour()).await;
        }
        let names = ["x0_s", "x1_s", "x2_s"];
        let before = names.map(|name| texts_of(&store, name));
        assert_eq!(before.each_ref().map(BTreeMap::len), [1, 2, 2]);
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.parts_replaced, report.objects_written), (5, 1));
        assert_eq!(names.map(|name| texts_of(&store, name)), before);
        check_each_once(&store, 4..9);
        let (_, object) = store.objects().into_iter().next().unwrap();
        let object = ObjectReader::open(object).unwrap();
        let told = text_of(&object.metadata, COLUMNS).unwrap();
        assert!(names.iter().all(|name| told.contains(name)), "{told}");
    });
}

/// Parts that have too many columns for one object become several objects. A part is not read again
/// for each object.
#[test]
fn an_hour_of_many_columns_is_read_a_few_times() {
    block_on(async {
        const PARTS: usize = 24;
        let store = Store::default();
        for part in 0..PARTS {
            // The rule for these numbers discovers columns (see `effect_of`).
            let number = 4 + part % 5 + part / 5 * 9;
            let names = (0..180).map(|name| format!(r#","x{part}_{name}":{{"BOOL":true}}"#));
            let item = format!(r#"{{"id":{{"S":"k"}}{}}}"#, names.collect::<String>());
            let effect = effect_of(number, item_from_str(&item).unwrap(), None).unwrap();
            sink(&store, 5).apply(fold([(0, effect)]), &Found::default(), hour()).await;
        }
        store.pass_seconds(AGE_SECONDS_MIN);
        let before = store.gets();
        let report = compact(&store).await.unwrap();
        // Two parts together have 360 columns, three would have 540.
        assert_eq!((report.parts_replaced, report.objects_written), (PARTS, PARTS / 2));
        let gets = store.gets() - before;
        assert!(gets <= 3 * PARTS, "{gets} gets for {PARTS} parts");
    });
}

/// Attributes whose names differ only in case share a column, also within one part.
#[test]
fn attributes_that_differ_in_case_share_a_column_of_the_object() {
    block_on(async {
        let store = Store::default();
        for (number, name) in [(4, "price"), (5, "Price"), (6, "price")] {
            let item = format!(r#"{{"id":{{"S":"k{number}"}},"{name}":{{"S":"{number}"}}}}"#);
            let effect = effect_of(number, item_from_str(&item).unwrap(), None).unwrap();
            sink(&store, 5).apply(fold([(0, effect)]), &Found::default(), hour()).await;
        }
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.parts_replaced, report.objects_written), (3, 1));
        let expected = [4, 5, 6].map(|number| (event_id(number), number.to_string()));
        assert_eq!(texts_of(&store, "price_s"), expected.into());
        let (_, object) = store.objects().into_iter().next().unwrap();
        let object = ObjectReader::open(object).unwrap();
        let told = text_of(&object.metadata, COLUMNS).unwrap();
        assert!(told.contains(r#""price_s":{"path":"Price","type":"string"}"#), "{told}");
    });
}

#[test]
fn a_table_that_the_archive_does_not_have_is_named() {
    block_on(async {
        let store = Store::default();
        three_parts(&store).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        let of = async |table: &str| {
            let (table, now_seconds) = (Some(table.to_owned()), store.now_seconds());
            let selection = Selection { table, now_seconds, age_seconds: AGE_SECONDS_MIN };
            compactor(&store).run(&selection, hour()).await
        };
        let expected = "the archive has no table `nope`; tables are things";
        assert_eq!(of("nope").await, Err(Failure::Fatal(expected.to_owned())));
        assert_eq!(of("things").await.unwrap().parts_replaced, 3);
    });
}

#[test]
fn leftovers_of_an_interrupted_run_are_removed() {
    block_on(async {
        let store = Store::default();
        sink(&store, 5).apply(folded(0..9), &Found::default(), hour()).await;
        sink(&store, 5).apply(folded(9..15), &Found::default(), hour()).await;
        let written = store.objects();
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        let compacted = parts(&store).len();
        // Simulates a compaction that was killed before it removed these parts.
        for (name, content) in written {
            store.put_if_absent(&name, content, PARQUET).await.unwrap();
        }
        store.pass_seconds(AGE_SECONDS_MIN);
        let (left, first) =
            (parts(&store).len() - compacted, parts(&store).into_keys().next_back());
        store.refuse_once(&first.unwrap());
        let report = compact(&store).await.unwrap();
        assert_eq!((report.leftovers_removed, report.objects_written), (left - 1, 0));
        assert_eq!(compact(&store).await.unwrap().leftovers_removed, 1);
        check_each_once(&store, 0..15);
    });
}

/// A store may return an empty page that is not the last page, after it skipped many deleted
/// objects.
#[test]
fn an_empty_page_of_a_listing_hides_nothing() {
    block_on(async {
        let faults = Faults { empty_pages: true, ..Faults::default() };
        let store = Arc::new(InMemoryObjectStore::with_faults(1, faults));
        three_parts(&store).await;
        // The records are delivered again, to a process with an empty cache.
        three_parts(&store).await;
        check_each_once(&store, 4..9);
        let receipt = eraser(&store).erase("things", &film(5), None, 60, hour()).await.unwrap();
        assert_eq!((receipt.event_ids.len(), receipt.objects_read > 0), (1, true));
        store.pass_seconds(AGE_SECONDS_MIN);
        assert_eq!(compact(&store).await.unwrap().parts_replaced, 3);
        check_each_once(&store, [4, 6, 7, 8].into_iter());
    });
}

/// A process with an empty cache needs the compacted objects of an hour for each minute with
/// redelivered records. It reads each object once, and as many concurrently as memory allows.
#[test]
fn an_object_of_an_hour_is_read_once_for_all_of_its_minutes() {
    block_on(async {
        for (bytes_max, at_once) in [(u64::MAX, 2..100), (1, 1..2)] {
            let store = Store::default();
            for from in (0..24).step_by(3) {
                let numbers = folded(from..from + 3);
                sink(&store, 5).apply(numbers, &Found::default(), hour()).await;
            }
            store.pass_seconds(AGE_SECONDS_MIN);
            assert!(compact(&store).await.unwrap().objects_written > 1);
            let (objects, before) = (parts(&store).len(), store.gets());
            store.forget_gets_at_once();
            let mut writer = sink(&store, 5);
            writer.reads = Reads::with_bytes_max(bytes_max);
            writer.apply(folded(0..24), &Found::default(), hour()).await;
            assert_eq!((parts(&store).len(), store.gets() - before), (objects, objects));
            assert!(at_once.contains(&store.gets_at_once()), "{}", store.gets_at_once());
            check_each_once(&store, 0..24);
        }
    });
}

/// Writes three parts of one minute, the second with two rows.
pub(in crate::archive_sink) async fn three_parts(store: &Store) {
    for numbers in [4..5, 5..7, 7..9] {
        sink(store, 5).apply(folded(numbers), &Found::default(), hour()).await;
    }
}

/// Erasing rows from a part rewrites the part, so it is young again. Later parts wait for it.
#[test]
fn rows_left_by_an_erasure_are_compacted_with_the_others() {
    block_on(async {
        let store = Store::default();
        three_parts(&store).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        let now = store.now_seconds();
        eraser(&store).erase("things", &film(5), None, now, hour()).await.unwrap();
        let between = compact(&store).await.unwrap();
        assert_eq!(between.objects_written, 0, "{between:?}");
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.parts_replaced, report.leftovers_removed), (3, 0));
        check_each_once(&store, [4, 6, 7, 8].into_iter());
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        check_each_once(&store, [4, 6, 7, 8].into_iter());
    });
}

/// A part is removed only if other objects contain its rows. The part numbers in a compacted object
/// are not sufficient.
#[test]
fn a_part_in_no_compacted_object_is_not_a_leftover() {
    block_on(async {
        let store = Store::default();
        three_parts(&store).await;
        let (name, second) = store.objects().into_iter().nth(1).unwrap();
        let entries = store.list(&name).await.unwrap();
        store.remove(&name, &entries[0].entity_tag).await.unwrap();
        store.pass_seconds(AGE_SECONDS_MIN);
        assert_eq!(compact(&store).await.unwrap().parts_replaced, 2);
        store.put_if_absent(&name, second, PARQUET).await.unwrap();
        sink(&store, 5).apply(folded(3..4), &Found::default(), hour()).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        assert_eq!(compact(&store).await.unwrap().leftovers_removed, 0);
        check_each_once(&store, 3..9);
    });
}

/// Returns the subject of an erasure of one row.
pub(in crate::archive_sink) fn film(number: usize) -> Subject {
    let equals = item_from_str(&format!(r#"{{"id":{{"S":"k{number}"}}}}"#)).unwrap();
    Subject { equals, ..Subject::default() }
}

/// Returns the event ids of rows in the noncurrent versions that a versioned bucket keeps.
pub(in crate::archive_sink) fn kept_earlier(store: &Store) -> BTreeSet<String> {
    let earlier = store.earlier().into_iter().enumerate();
    let objects = earlier.filter(|(_, (name, _))| name.ends_with(".parquet"));
    let objects = objects.map(|(place, (name, content))| (format!("{place}/{name}"), content));
    contents(&objects.collect()).into_keys().collect()
}

pub(in crate::archive_sink) fn event_id(number: usize) -> String {
    format!("{number:032x}")
}

/// Polls the work at most this many times and then drops it, as if the process were killed.
/// Returns `None` if the work did not finish.
pub(in crate::archive_sink) async fn polls_until_death<T>(
    polls: usize,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut left = polls;
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
        std::task::Poll::Pending => {
            left -= 1;
            std::task::Poll::Pending
        }
    })
    .await
}

/// An item that was restored from the row of event 5 expires unchanged as event 20. The archive
/// that has or had the row of event 5 gets no second row. Any other archive gets one row.
#[test]
fn restored_items_are_archived_only_in_other_archives() {
    let (own, other) = (restored::archive_name("b", "archive/"), "c/archive/");
    block_on(async {
        let mut item = item_from_str(&item_of(5)).unwrap();
        let id = event_id(5);
        let origin =
            Origin { archive: Some(&own), table: "things", event_id: &id, stamp: "2026-11-21#5" };
        let mark = restored::mark(&item, origin, Some("expires"));
        item.insert(RESTORED.to_owned(), mark);
        for (archive, is_erased, ids) in [
            (&*own, false, &[4, 5, 6][..]),
            (&*own, true, &[4, 6]),
            (other, false, &[4, 5, 6, 20]),
            (other, true, &[4, 6, 20]),
        ] {
            let store = Store::default();
            let deliver = async || {
                let expired = effect_of(20, item.clone(), Some(archive));
                let expired = fold(expired.map(|effect| (0, effect)));
                sink(&store, 5).apply(expired, &Found::default(), hour()).await;
                sink(&store, 5).apply(folded(4..7), &Found::default(), hour()).await;
            };
            sink(&store, 5).apply(folded(4..7), &Found::default(), hour()).await;
            if is_erased {
                eraser(&store).erase("things", &film(5), None, 60, hour()).await.unwrap();
            }
            // All records are delivered three times; a compaction precedes the last two deliveries.
            for _ in 0..3 {
                deliver().await;
                let found = contents(&parts(&store));
                assert!(found.values().all(|places| places.len() == 1), "{archive}: {found:?}");
                let expected = ids.iter().map(|number| event_id(*number)).collect::<Vec<_>>();
                assert_eq!(found.into_keys().collect::<Vec<_>>(), expected, "{archive}");
                store.pass_seconds(2 * AGE_SECONDS_MIN);
                compact(&store).await.unwrap();
            }
            // A later erasure also removes the row of the restored item from the other archive.
            eraser(&store).erase("things", &film(5), None, 60, hour()).await.unwrap();
            deliver().await;
            check_each_once(&store, [4, 6].into_iter());
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Records are delivered again in different batches and to different processes while two
    /// compactions run. Between the rounds the parts become old enough to be compacted.
    #[test]
    fn each_row_exists_once_after_any_compaction(
        counts in prop::collection::vec(1..12_usize, 1..4),
        seed in any::<u64>(),
        choices in prop::collection::vec(any::<u8>(), 1..30),
        faulty in any::<bool>(),
    ) {
        let faults = if faulty { Faults { lost: 8, unanswered: 12, contended: 8, ..Faults::default() } } else { Faults::default() };
        let store = Arc::new(InMemoryObjectStore::with_faults(seed, faults));
        let mut total = 0;
        for count in counts {
            total = total.max(count);
            block_on(async {
                let run = async || { let _ = compact(&store).await; };
                let write = poll(Arc::clone(&store), total, choices.clone());
                futures::join!(run(), write, run());
            });
            store.pass_seconds(AGE_SECONDS_MIN);
        }
        // Faults may interrupt a run, so runs are repeated until one changes nothing.
        block_on(async {
            for _ in 0..50 {
                if let Ok(report) = compact(&store).await
                    && report.postponed_hours + report.objects_written + report.leftovers_removed == 0
                {
                    break;
                }
            }
        });
        check_each_once(&store, 0..total);
        let writers = (0..3).map(|_| poll(Arc::clone(&store), total, choices.clone()));
        block_on(join_all(writers));
        check_each_once(&store, 0..total);
    }
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Records are delivered.
    Write(usize, usize),
    /// A compaction that is killed after this many polls, while records are delivered.
    Compact(usize, usize),
    /// An erasure of one row that is killed after this many polls, while records are delivered.
    Erase(usize, usize, usize),
    /// Time passes, so that all parts are old enough.
    Age,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = || 0..24_usize;
    let step = prop_oneof![
        (number(), number()).prop_map(|(from, to)| Step::Write(from, to)),
        (number(), 0..80_usize).prop_map(|(from, polls)| Step::Compact(from, polls)),
        (number(), number(), 0..80_usize)
            .prop_map(|(row, from, polls)| Step::Erase(row, from, polls)),
        Just(Step::Age),
        Just(Step::Age),
    ];
    prop::collection::vec(step, 1..25)
}

async fn take(store: &Store, step: &Step) {
    let write = async |from: usize, to: usize| {
        let numbers = from.min(to)..from.max(to);
        if !numbers.is_empty() {
            sink(store, 100).apply(folded(numbers), &Found::default(), hour()).await;
        }
    };
    match step {
        Step::Write(from, to) => write(*from, *to).await,
        Step::Compact(from, polls) => {
            futures::join!(polls_until_death(*polls, compact(store)), write(*from, *from + 3));
        }
        Step::Erase(row, from, polls) => {
            let (eraser, now) = (eraser(store), store.now_seconds());
            let (subject, name) = (film(*row), format!("k{row}"));
            let erase = eraser.erase("things", &subject, Some(&name), now, hour());
            futures::join!(polls_until_death(*polls, erase), write(*from, *from + 3));
        }
        Step::Age => store.pass_seconds(2 * AGE_SECONDS_MIN),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Compactions and erasures are killed at any point, with concurrent writers. In the end each
    /// row exists once, or is permanently erased, also from noncurrent versions.
    #[test]
    fn each_row_exists_once_or_is_permanently_erased(
        steps in steps(),
        seed in any::<u64>(),
        faulty in any::<bool>(),
    ) {
        let faults = if faulty { Faults { lost: 5, unanswered: 8, contended: 5, ..Faults::default() } } else { Faults::default() };
        let store = Arc::new(InMemoryObjectStore::with_faults(seed, faults));
        let erased: BTreeSet<usize> = steps.iter().filter_map(|step| match step {
            Step::Erase(row, ..) => Some(*row),
            _ => None,
        }).collect();
        block_on(async {
            for step in &steps {
                take(&store, step).await;
            }
            take(&store, &Step::Write(0, 27)).await;
            for round in 0..3 {
                store.pass_seconds(2 * AGE_SECONDS_MIN);
                for _ in 0..50 {
                    if let Ok(report) = compact(&store).await
                        && report.postponed_hours + report.objects_written + report.leftovers_removed == 0
                    {
                        break;
                    }
                }
                for row in &erased {
                    let (now, name) = (store.now_seconds(), format!("k{row}"));
                    for _ in 0..50 {
                        let erased = eraser(&store).erase("things", &film(*row), Some(&name), now, hour()).await;
                        if let Ok(receipt) = erased {
                            assert!(receipt.event_ids.contains(&event_id(*row)));
                            break;
                        }
                    }
                }
                check_each_once(&store, (0..27).filter(|number| !erased.contains(number)));
                let kept = kept_earlier(&store);
                assert!(erased.iter().all(|row| !kept.contains(&event_id(*row))), "round {round}");
                // All records are delivered once more.
                take(&store, &Step::Write(0, 27)).await;
                check_each_once(&store, (0..27).filter(|number| !erased.contains(number)));
            }
        });
    }
}
