//! Objects of a table get the same columns, whatever interrupts the run. No row changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::json::item_from_str;
use proptest::prelude::*;
use rules::{Found, fold};

use super::super::column_metadata::added_columns;
use super::super::compaction::AGE_SECONDS_MIN;
use super::super::compaction::tests::{
    Store, check_each_once, compact, eraser, film, parts, polls_until_death,
};
use super::super::tests::{block_on, effect_of, folded, hour, sink};
use super::*;
use crate::frame::Executor;
use crate::object_store::ObjectStore as _;
use crate::object_store::in_memory::{Faults, InMemoryObjectStore};
use crate::tables::in_memory::AT_ONCE;

/// Writes one part with a row whose item has these attributes besides the key `k<number>`. Parts
/// with another `number / 1_000` are in another hour.
async fn write(store: &Store, number: usize, attributes: &str) {
    let item = format!(r#"{{"id":{{"S":"k{number}"}}{attributes}}}"#);
    // A function that discovers columns decides the records with these numbers.
    let number = number * 9 + 8;
    let effect = effect_of(number, item_from_str(&item).unwrap(), None).unwrap();
    sink(store, 5).apply(fold([(0, effect)]), &Found::default(), hour()).await;
}

/// Returns the names of each object's columns, own and added.
fn columns(store: &Store) -> BTreeMap<String, (Vec<String>, Vec<String>)> {
    let objects = parts(store).into_iter().map(|(name, object)| {
        let reader = ObjectReader::open(object).unwrap();
        let mut all: Vec<String> =
            reader.schema.fields().iter().map(|field| field.name().clone()).collect();
        all.sort();
        (name, (all, added_columns(&reader.metadata).unwrap().into_iter().collect()))
    });
    objects.collect()
}

/// Returns the rows of all objects by event id, with the columns that are not NULL.
fn rows(store: &Store) -> BTreeMap<String, Vec<(String, String)>> {
    let mut rows = BTreeMap::new();
    for object in parts(store).into_values() {
        for batch in ObjectReader::open(object).unwrap().batches() {
            let batch = batch.unwrap();
            let ids = super::super::rewrite::event_ids(&batch).unwrap();
            for (row, id) in ids.iter().enumerate() {
                let schema = batch.schema();
                let fields = schema.fields().iter().zip(batch.columns());
                let present = fields.filter(|(_, column)| column.is_valid(row));
                let mut values: Vec<_> = present
                    .map(|(field, column)| {
                        (field.name().clone(), format!("{:?}", column.slice(row, 1)))
                    })
                    .collect();
                values.sort();
                assert!(rows.insert(id.unwrap().to_owned(), values).is_none());
            }
        }
    }
    rows
}

/// Three hours: one of two parts, one of a single part, and one of many attributes.
async fn three_hours(store: &Store) {
    write(store, 0, r#","price":{"N":"1"}"#).await;
    write(store, 1, r#","Price":{"N":"2"},"tags":{"L":[]}"#).await;
    write(store, 1_000, r#","secret":{"S":"x"},"flag":{"BOOL":true},"bin":{"B":"AA=="}"#).await;
    write(store, 2_000, r#","price":{"S":"3"}"#).await;
    write(store, 2_001, "").await;
}

#[test]
fn objects_of_all_hours_get_the_same_columns_and_a_second_run_changes_nothing() {
    block_on(async {
        let store = Store::default();
        three_hours(&store).await;
        let before = rows(&store);
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.objects_written, report.objects_aligned), (2, 3), "{report:?}");
        let found = columns(&store);
        let names: Vec<&Vec<String>> = found.values().map(|(all, _)| all).collect();
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|all| *all == names[0]), "{found:?}");
        for name in ["bin_b", "flag_bool", "price_n", "price_s", "secret_s", "tags_l"] {
            assert!(names[0].iter().any(|known| known == name), "{name}");
        }
        assert_eq!(rows(&store), before);

        let objects = store.objects();
        store.pass_seconds(AGE_SECONDS_MIN);
        assert_eq!(compact(&store).await.unwrap().objects_aligned, 0);
        assert_eq!(store.objects(), objects);

        // A late part in the hour of the single one: the added columns are not those of its rows.
        write(&store, 1_001, r#","price":{"N":"5"},"new":{"S":"n"}"#).await;
        let before = rows(&store);
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.parts_replaced, report.objects_written), (2, 1));
        let found = columns(&store);
        assert!(found.values().all(|(all, _)| all.contains(&"new_s".to_owned())), "{found:?}");
        assert_eq!(
            found.values().filter(|(_, added)| added.contains(&"price_n".to_owned())).count(),
            1
        );
        assert_eq!(rows(&store), before);
    });
}

/// A part that was just rewritten is too young for the next run, which must not take its columns
/// from the others.
#[test]
fn columns_of_a_young_part_stay_in_the_other_objects() {
    block_on(async {
        let store = Store::default();
        three_hours(&store).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        let aligned = columns(&store);
        store.pass_seconds(AGE_SECONDS_MIN / 2);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.objects_aligned, columns(&store)), (0, aligned));
    });
}

/// The name of an attribute can say as much as its value.
#[test]
fn an_erasure_removes_the_columns_of_its_rows_from_every_object() {
    block_on(async {
        let store = Store::default();
        three_hours(&store).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        eraser(&store).erase("things", &film(1_000), None, 60, hour()).await.unwrap();
        let found = columns(&store);
        let names =
            |name: &str| found.values().filter(|(all, _)| all.contains(&name.to_owned())).count();
        assert_eq!([names("secret_s"), names("flag_bool"), names("price_n")], [0, 0, 3]);
        for (name, object) in parts(&store) {
            let bytes = object.windows(6).any(|bytes| bytes == b"secret");
            assert!(!bytes, "{name} names the attribute");
        }
        assert!(store.earlier().is_empty());
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        assert!(columns(&store).values().all(|(all, _)| !all.contains(&"secret_s".to_owned())));
    });
}

#[test]
fn a_run_rewrites_a_bounded_number_of_bytes() {
    block_on(async {
        let store = Store::default();
        three_hours(&store).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        let (prefix, table, bytes_max) = ("archive/", "things", 1);
        let (retry, written_until) = (AT_ONCE, Some(store.now_seconds()));
        let alignment = Alignment { store: &store, prefix, table, retry, written_until, bytes_max };
        for left in [4, 3, 2, 1, 0] {
            let mut aligned = Aligned::default();
            alignment.run(&mut aligned).await.unwrap();
            assert_eq!(aligned, Aligned { objects: 1, left });
        }
        let mut aligned = Aligned::default();
        alignment.run(&mut aligned).await.unwrap();
        assert_eq!(aligned, Aligned::default());
    });
}

/// A table with more columns than an object may have keeps the columns of each object.
#[test]
fn a_table_of_too_many_columns_is_not_aligned() {
    block_on(async {
        let store = Store::default();
        for part in 0..3 {
            let names = (0..180).map(|name| format!(r#","x{part}_{name}":{{"BOOL":true}}"#));
            write(&store, part * 1_000, &names.collect::<String>()).await;
        }
        let before = store.objects();
        store.pass_seconds(AGE_SECONDS_MIN);
        let report = compact(&store).await.unwrap();
        assert_eq!((report.objects_aligned, report.objects_to_align), (0, 0));
        assert_eq!(store.objects(), before);
    });
}

/// An object that is not Parquet is reported by the compaction of its hour and stops nothing here.
#[test]
fn a_damaged_object_does_not_stop_the_alignment() {
    block_on(async {
        let store = Store::default();
        three_hours(&store).await;
        let name = parts(&store).into_keys().next().unwrap().replace("dt=2026", "dt=2025");
        let name = name.replace("-202611", "-202511");
        store.put_if_absent(&name, Bytes::from_static(b"?"), PARQUET).await.unwrap();
        store.pass_seconds(AGE_SECONDS_MIN);
        assert_eq!(compact(&store).await.unwrap().objects_aligned, 3);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Runs are killed at any point while records are delivered and the store fails. In the end
    /// each row exists once, unchanged, and all objects have the same columns.
    #[test]
    fn interrupted_runs_lose_and_repeat_no_row(
        polls in prop::collection::vec(0..400_usize, 1..6),
        seed in any::<u64>(),
        faulty in any::<bool>(),
    ) {
        let faults = if faulty { Faults { lost: 5, unanswered: 8, contended: 5, ..Faults::default() } } else { Faults::default() };
        let store = Arc::new(InMemoryObjectStore::with_faults(seed, faults));
        block_on(async {
            let deliver = async || {
                for from in (0..27).step_by(9) {
                    sink(&store, 100).apply(folded(from..from + 9), &Found::default(), hour()).await;
                }
            };
            deliver().await;
            let before = rows(&store);
            for polls in polls {
                store.pass_seconds(AGE_SECONDS_MIN);
                futures::join!(polls_until_death(polls, compact(&store)), deliver());
            }
            let mut left = usize::MAX;
            for _ in 0..50 {
                store.pass_seconds(AGE_SECONDS_MIN);
                if let Ok(report) = compact(&store).await
                    && report.postponed_hours + report.objects_written + report.leftovers_removed + report.objects_aligned == 0
                {
                    left = report.objects_to_align;
                    break;
                }
            }
            assert_eq!(left, 0);
            deliver().await;
            check_each_once(&store, 0..27);
            assert_eq!(rows(&store), before);
            let found = columns(&store);
            let first = found.values().next().unwrap();
            assert!(found.values().all(|(all, _)| *all == first.0), "{found:?}");
        });
    }
}
