//! Compaction and erasure at the same time as archiving, over a store that loses, delays and
//! repeats: each row stands in the archive once, or is erased for good.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use model::json::item_from_str;
use proptest::prelude::*;

use super::super::erasure::{Condition, Eraser, Subject};
use super::super::part_content::text_of;
use super::super::rewrite::{COLUMNS, texts};
use super::super::tests::{block_on, contents, effect, folded, hour, poll, sink};
use super::*;
use crate::frame::Executor;
use crate::object_store::ObjectStore as _;
use crate::object_store::in_memory::{Faults, InMemoryObjectStore};
use crate::tables::in_memory::AT_ONCE;
use rules::{Effect, Found};

type Store = Arc<InMemoryObjectStore>;

fn compactor(store: &Store) -> Compactor<Store> {
    Compactor { store: Arc::clone(store), prefix: "archive/".to_owned(), retry: AT_ONCE }
}

fn eraser(store: &Store) -> Eraser<Store> {
    Eraser {
        store: Arc::clone(store),
        prefix: "archive/".to_owned(),
        receipts_prefix: "erasures/".to_owned(),
        retry: RetryPolicy { attempts_max: 50, ..AT_ONCE },
    }
}

async fn compact(store: &Store) -> Result<CompactionReport, Failure> {
    let now_seconds = store.now_seconds();
    let selection = Selection { table: None, now_seconds, age_seconds: AGE_SECONDS_MIN };
    compactor(store).run(&selection, Deadline::after(Duration::from_secs(3600))).await
}

fn item_of(number: usize) -> String {
    let Effect::Rows { rows, .. } = effect(number) else { panic!("rows") };
    rows.into_rows().next().unwrap().item().to_owned()
}

/// Every row once, in whatever object.
fn check_each_once(store: &Store, expected: impl Iterator<Item = usize>) {
    let objects = store.objects().into_iter().filter(|(name, _)| name.ends_with(".parquet"));
    let found = contents(&objects.collect());
    let expected: BTreeMap<String, String> =
        expected.map(|number| (format!("{number:032x}"), item_of(number))).collect();
    for (id, item) in &expected {
        let places = found.get(id).unwrap_or_else(|| panic!("{id} is lost"));
        assert_eq!(places.len(), 1, "{id} stands in {places:?}");
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

        // A mapping that was made anew delivers everything once more, to a new process.
        sink(&store, 5).apply(folded(0..26), &Found::default(), hour()).await;
        check_each_once(&store, 0..26);
    });
}

/// The values of a text column by event id, over all objects that have it.
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

#[test]
fn what_a_run_that_died_left_behind_is_removed() {
    block_on(async {
        let store = Store::default();
        sink(&store, 5).apply(folded(0..9), &Found::default(), hour()).await;
        sink(&store, 5).apply(folded(9..15), &Found::default(), hour()).await;
        let parts = store.objects();
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        // As if the process had died before it removed them.
        for (name, content) in parts {
            store.put_if_absent(&name, content, PARQUET).await.unwrap();
        }
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert!(report.leftovers_removed > 0 && report.objects_written == 0, "{report:?}");
        check_each_once(&store, 0..15);
    });
}

/// An erasure that has a name goes on after it died, and tells of everything that it erased.
#[test]
fn an_erasure_that_is_asked_for_again_keeps_one_receipt() {
    block_on(async {
        let store = Store::default();
        sink(&store, 5).apply(folded(0..12), &Found::default(), hour()).await;
        let of = |program: &str| Subject {
            condition: Some(Condition::parse(program).unwrap()),
            ..Subject::default()
        };
        let erase = async |subject: &Subject| {
            eraser(&store).erase("things", subject, Some("leaves"), 60, hour()).await
        };
        let first = erase(&of(r#".id == "k5""#)).await.unwrap();
        let ids = |numbers: &[u32]| -> BTreeSet<String> {
            numbers.iter().map(|number| format!("{number:032x}")).collect()
        };
        assert_eq!((first.event_ids, first.objects_replaced), (ids(&[5]), 1));
        // Found after the first time: late rows of the same subject.
        let both = of(r#".id == "k5" or .id == "k7""#);
        let second = erase(&both).await.unwrap();
        assert_eq!(second.event_ids, ids(&[5, 7]));
        assert_eq!(second.receipt, "erasures/table=things/leaves.json");
        let third = erase(&both).await.unwrap();
        assert_eq!((&third.event_ids, third.passes), (&second.event_ids, 1));
        check_each_once(&store, (0..12).filter(|number| ![5, 7].contains(number)));
        let receipts = store.objects().into_keys().filter(|name| name.starts_with("erasures/"));
        assert_eq!(receipts.count(), 1);
        // A condition that cannot be carried out erases nothing.
        assert!(erase(&of(".id | tonumber > 3")).await.is_err());
        check_each_once(&store, (0..12).filter(|number| ![5, 7].contains(number)));
    });
}

#[test]
fn what_is_erased_does_not_come_back() {
    block_on(async {
        let store = Store::default();
        sink(&store, 5).apply(folded(0..12), &Found::default(), hour()).await;
        let subject = Subject {
            equals: item_from_str(r#"{"id":{"S":"k5"}}"#).unwrap(),
            begins_with: vec![("id".to_owned(), "k".to_owned())],
            condition: None,
        };
        let receipt = eraser(&store).erase("things", &subject, None, 60, hour()).await.unwrap();
        assert_eq!(receipt.event_ids, BTreeSet::from([format!("{:032x}", 5)]));
        assert_eq!((receipt.objects_replaced, receipt.passes), (1, 2));
        check_each_once(&store, (0..12).filter(|number| *number != 5));

        sink(&store, 5).apply(folded(0..12), &Found::default(), hour()).await;
        check_each_once(&store, (0..12).filter(|number| *number != 5));
        store.pass_seconds(AGE_SECONDS_MIN);
        sink(&store, 5).apply(folded(10..14), &Found::default(), hour()).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        assert!(compact(&store).await.unwrap().objects_written > 0);
        sink(&store, 5).apply(folded(0..14), &Found::default(), hour()).await;
        check_each_once(&store, (0..14).filter(|number| *number != 5));
        let receipts = store.objects().into_keys().filter(|name| name.starts_with("erasures/"));
        assert_eq!(receipts.count(), 1);

        let everything =
            eraser(&store).erase("things", &Subject::default(), None, 60, hour()).await;
        assert!(matches!(everything, Err(Failure::Fatal(_))));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Writers come again with other boundaries and other processes while two compactions run;
    /// between the rounds the parts become old enough.
    #[test]
    fn each_row_stands_once_whatever_is_compacted(
        counts in prop::collection::vec(1..12_usize, 1..4),
        seed in any::<u64>(),
        choices in prop::collection::vec(any::<u8>(), 1..30),
        faulty in any::<bool>(),
    ) {
        let faults = if faulty { Faults { lost: 8, unanswered: 12, contended: 8 } } else { Faults::default() };
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
        // Runs that the faults did not let finish are repeated until one changes nothing.
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
