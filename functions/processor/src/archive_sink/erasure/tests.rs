//! Erasure over an object store in memory: an interrupted erasure resumes, a failed replacement is
//! retried, and no erased row reappears. The tests of compaction cover both running concurrently.

use std::collections::BTreeSet;

use model::json::item_from_str;

use super::super::compaction::AGE_SECONDS_MIN;
use super::super::compaction::tests::{
    Store, check_each_once, compact, compactor, eraser, event_id, film, kept_earlier, parts,
    polls_until_death, three_parts,
};
use super::super::rewrite::ObjectReader;
use super::super::tests::{block_on, contents, effect_of, folded, hour, sink};
use super::receipt::{List, NAMED_MAX};
use super::*;
use crate::frame::Executor;
use crate::maintenance::{self, Answer};
use crate::object_store::ObjectStore;
use crate::object_store::in_memory::{Faults, InMemoryObjectStore};
use bytes::Bytes;
use rules::{Found, fold};

#[test]
fn a_condition_means_for_a_row_what_it_means_for_a_live_item() {
    let row = item_from_str(r#"{"tenant":{"S":"3"},"tags":{"L":[{"S":"x1"}]}}"#).unwrap();
    for (program, expected) in [
        (".tenant == \"3\"", Ok(true)),
        (".tenant == \"4\"", Ok(false)),
        (".missing", Ok(false)),
        (".tenant = \"3\"", Err("the condition yielded an object; ")),
        (".tenant = \"4\"", Err("the condition yielded an object; ")),
        ("select(.tenant == \"4\")", Err("the condition yielded nothing; ")),
        (".tags[], .tenant", Err("the condition yielded more than one value; ")),
    ] {
        let condition = Some(Condition::parse(program).unwrap());
        let found = Subject { condition, ..Subject::default() }.is_met_by(&row);
        match expected {
            Ok(is_met) => assert_eq!(found, Ok(is_met), "{program}"),
            Err(why) => assert!(found.unwrap_err().to_string().starts_with(why), "{program}"),
        }
    }
    assert!(Condition::parse("true) | (true").is_err());
}

/// Compaction removes parts whose rows are erased later, and an erasure may be killed after it
/// replaced an object. The bucket keeps noncurrent versions of these objects until an erasure
/// completes.
#[test]
fn a_versioned_bucket_keeps_nothing_of_what_was_erased() {
    block_on(async {
        let store = Store::default();
        three_parts(&store).await;
        store.pass_seconds(AGE_SECONDS_MIN);
        compact(&store).await.unwrap();
        assert!(kept_earlier(&store).contains(&event_id(5)));
        let receipt = eraser(&store).erase("things", &film(5), None, 60, hour()).await.unwrap();
        assert_eq!(receipt.earlier_contents_removed, 4);
        assert_eq!(kept_earlier(&store), BTreeSet::new());

        for polls in 1.. {
            let erase = async || eraser(&store).erase("things", &film(6), None, 60, hour()).await;
            if polls_until_death(polls, erase()).await.is_some() {
                break;
            }
            if kept_earlier(&store).contains(&event_id(6)) {
                let again = erase().await.unwrap();
                assert_eq!((again.event_ids.len(), again.earlier_contents_removed), (0, 1));
            }
            assert!(!kept_earlier(&store).contains(&event_id(6)), "after {polls} polls");
        }
        check_each_once(&store, [4, 7, 8].into_iter());
    });
}

/// Returns the name of the object that contains this row.
fn object_with(store: &Store, number: usize) -> String {
    contents(&parts(store))[&event_id(number)][0].0.clone()
}

/// An object that could not be replaced keeps its old write time. The next pass must read it
/// nevertheless.
#[test]
fn objects_not_replaced_are_erased_by_the_next_pass() {
    block_on(async {
        for name in [None, Some("leaves")] {
            let store = Store::default();
            three_parts(&store).await;
            store.pass_seconds(10 * AGE_SECONDS_MIN);
            store.refuse_once(&object_with(&store, 5));
            let now = store.now_seconds();
            let receipt =
                eraser(&store).erase("things", &film(5), name, now, hour()).await.unwrap();
            assert_eq!(receipt.event_ids, BTreeSet::from([event_id(5)]));
            assert_eq!((receipt.passes, receipt.objects_replaced), (3, 1));
            check_each_once(&store, [4, 6, 7, 8].into_iter());
        }
    });
}

/// If a conflicting request prevents the replacement of a receipt, the next attempt replaces it.
#[test]
fn a_receipt_is_kept_although_it_was_changed_meanwhile() {
    block_on(async {
        let store = Store::default();
        three_parts(&store).await;
        let erase = async |number| {
            eraser(&store).erase("things", &film(number), Some("a"), 60, hour()).await
        };
        let first = erase(5).await.unwrap();
        store.refuse_once(&first.receipt);
        assert_eq!(erase(6).await.unwrap().event_ids.len(), 2);
        let kept = serde_json::from_slice::<ErasureReceipt>(&store.objects()[&first.receipt]);
        assert_eq!(kept.unwrap().event_ids.len(), 2);
    });
}

/// One call does not have enough time for all objects; several calls together do.
#[test]
fn a_named_erasure_resumes() {
    block_on(async {
        const PARTS: usize = 120;
        let store = Store::default();
        for number in 0..PARTS {
            sink(&store, 5).apply(folded(number..number + 1), &Found::default(), hour()).await;
        }
        store.pass_seconds(10 * AGE_SECONDS_MIN);
        store.refuse_once(&object_with(&store, 15));
        let of_some = Subject {
            condition: Some(Condition::parse(r#".id | endswith("5")"#).unwrap()),
            ..Subject::default()
        };
        let (mut calls, mut receipt) = (0, None);
        while receipt.is_none() {
            calls += 1;
            assert!(calls < 50, "it does not go on");
            // The clock advances by the duration of one call.
            store.pass_seconds(AGE_SECONDS_MIN + 1);
            let now = store.now_seconds();
            let eraser = eraser(&store);
            let erase = eraser.erase("things", &of_some, Some("some"), now, hour());
            receipt = polls_until_death(100, erase).await;
        }
        assert!(calls > 2, "{calls}");
        let receipt = receipt.unwrap().unwrap();
        let is_meant = |number: &usize| number % 10 == 5;
        let ids: BTreeSet<_> = (0..PARTS).filter(is_meant).map(event_id).collect();
        assert_eq!((receipt.event_ids, receipt.progress), (ids, None));
        check_each_once(&store, (0..PARTS).filter(|number| !is_meant(number)));
        // The first erasure is complete, so an erasure of another subject under the same name
        // starts from the beginning.
        let other = eraser(&store).erase("things", &film(4), Some("some"), 60, hour()).await;
        assert!(other.unwrap().event_ids.contains(&event_id(4)));
    });
}

/// One page of a listing has more objects than a call has time for.
#[test]
fn an_erasure_resumes_within_a_page_of_a_listing() {
    block_on(async {
        const PARTS: usize = 500;
        let faults = Faults { page_objects: 1_000, ..Faults::default() };
        let store = Store::new(InMemoryObjectStore::with_faults(1, faults));
        for number in 0..PARTS {
            sink(&store, 5).apply(folded(number..number + 1), &Found::default(), hour()).await;
        }
        let mut receipt = None;
        for _ in 0..50 {
            // The clock advances by the duration of one call.
            store.pass_seconds(AGE_SECONDS_MIN + 1);
            let (eraser, row, now) = (eraser(&store), film(PARTS - 1), store.now_seconds());
            let erase = eraser.erase("things", &row, Some("last"), now, hour());
            receipt = polls_until_death(60, erase).await;
            if receipt.is_some() {
                break;
            }
        }
        let receipt = receipt.expect("it goes on").unwrap();
        assert_eq!(receipt.event_ids, BTreeSet::from([event_id(PARTS - 1)]));
        check_each_once(&store, 0..PARTS - 1);
    });
}

/// Writes items in one part. The first item has the event number 4.
async fn write_items(store: &Store, items: &[&str]) {
    let effects = items.iter().enumerate().map(|(place, item)| {
        // The rule for these numbers discovers columns (see `effect_of`).
        let number = 4 + place;
        (place, effect_of(number, item_from_str(item).unwrap(), None).unwrap())
    });
    sink(store, 5).apply(fold(effects), &Found::default(), hour()).await;
}

/// The name of an attribute may be as sensitive as its value.
#[test]
fn attribute_names_only_of_erased_rows_are_removed() {
    block_on(async {
        let store = Store::default();
        write_items(
            &store,
            &[
                r#"{"id":{"S":"k4"},"hiv_test":{"S":"x"},"Name":{"S":"a"},"both":{"S":"a"}}"#,
                r#"{"id":{"S":"k5"},"name":{"S":"b"},"both":{"S":"b"},"far":{"N":"1e99"}}"#,
            ],
        )
        .await;
        let before: Vec<Bytes> = parts(&store).into_values().collect();
        let has = |object: &Bytes, text: &str| {
            object.windows(text.len()).any(|bytes| bytes == text.as_bytes())
        };
        assert!(before.len() == 1 && has(&before[0], "hiv_test") && has(&before[0], "\"Name\""));
        eraser(&store).erase("things", &film(4), None, 60, hour()).await.unwrap();
        let (_, object) = parts(&store).into_iter().next().unwrap();
        assert!(!has(&object, "hiv_test") && !has(&object, "\"Name\""));
        let reader = ObjectReader::open(object).unwrap();
        for (name, stays) in
            [("name_s", true), ("both_s", true), ("far_n", true), ("hiv_test_s", false)]
        {
            assert_eq!(reader.schema.column_with_name(name).is_some(), stays, "{name}");
        }
        let told = format!("{:?} {:?}", reader.metadata, reader.schema.metadata());
        assert!(!told.contains("hiv_test") && !told.contains("Name"), "{told}");
        assert!(told.contains(r#"\"name_s\":{\"path\":\"name\""#), "{told}");
        assert_eq!(contents(&parts(&store)).into_keys().collect::<Vec<_>>(), [event_id(5)]);
        // The name of a column is removed with the last row that has the attribute.
        eraser(&store).erase("things", &film(5), None, 60, hour()).await.unwrap();
        let (_, object) = parts(&store).into_iter().next().unwrap();
        assert!(!has(&object, "both_s"));
    });
}

/// Rows are listed before they are erased, so rows that an interrupted erasure listed may still
/// exist. The receipt of another erasure must not list them.
#[test]
fn a_receipt_names_no_row_of_another_erasure_that_is_not_done() {
    block_on(async {
        let (mut refused, mut is_over) = (0, false);
        for polls in 1.. {
            let store = Store::default();
            three_parts(&store).await;
            let erase = async |number| {
                eraser(&store).erase("things", &film(number), Some("gdpr"), 60, hour()).await
            };
            is_over |= polls_until_death(polls, erase(5)).await.is_some();
            match erase(4).await {
                Ok(receipt) => {
                    let stands = contents(&parts(&store));
                    assert!(receipt.event_ids.iter().all(|id| !stands.contains_key(id)), "{polls}");
                }
                Err(failure) => {
                    refused += 1;
                    let expected = "nothing was erased: the name `gdpr` belongs to an unfinished erasure of other rows";
                    assert!(failure.to_string().starts_with(expected), "{failure}");
                    assert!(contents(&parts(&store)).contains_key(&event_id(4)), "{polls}");
                    assert!(erase(5).await.unwrap().event_ids.contains(&event_id(5)));
                    assert_eq!(erase(4).await.unwrap().event_ids.len(), 2);
                }
            }
            if is_over {
                break;
            }
        }
        assert!(refused > 0);
    });
}

/// A named erasure resumes after an interruption, and its receipt lists everything that it erased.
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
        // The second call finds rows of the subject that were added later.
        let both = of(r#".id == "k5" or .id == "k7""#);
        let second = erase(&both).await.unwrap();
        assert_eq!(second.event_ids, ids(&[5, 7]));
        assert_eq!(second.receipt, "erasures/table=things/leaves.json");
        let third = erase(&both).await.unwrap();
        assert_eq!((&third.event_ids, third.passes), (&second.event_ids, 1));
        check_each_once(&store, (0..12).filter(|number| ![5, 7].contains(number)));
        let receipts = store.objects().into_keys().filter(|name| name.starts_with("erasures/"));
        assert_eq!(receipts.count(), 1);
        // A condition that fails erases nothing, and its error does not report the object as
        // damaged.
        let Err(Failure::Fatal(reason)) = erase(&of(".id | tonumber > 3")).await else {
            panic!("it was carried out")
        };
        let name = parts(&store).into_keys().next().unwrap();
        assert!(reason.starts_with("`where` fails for event `"), "{reason}");
        assert!(reason.contains(&format!("` in `{name}`: ")), "{reason}");
        assert!(!reason.contains("move it away"), "{reason}");
        let passing_over = erase(&of("any(.id | numbers; . > 3)")).await.unwrap();
        assert_eq!(passing_over.event_ids, second.event_ids);
        check_each_once(&store, (0..12).filter(|number| ![5, 7].contains(number)));
    });
}

/// Returns the stored receipt, and every row that the receipt and its lists name.
fn kept(store: &Store, name: &str) -> (ErasureReceipt, BTreeSet<String>) {
    let objects = store.objects();
    let receipt: ErasureReceipt = serde_json::from_slice(&objects[name]).unwrap();
    let mut named = receipt.event_ids.clone();
    for number in 1..=receipt.lists {
        let list = format!("{}/{number:06}.json", name.strip_suffix(".json").unwrap());
        let list: List = serde_json::from_slice(&objects[&list]).unwrap();
        let before = named.len();
        named.extend(list.event_ids.iter().cloned());
        assert_eq!(named.len(), before + list.event_ids.len(), "each is named once");
    }
    (receipt, named)
}

/// Each part has rows of the subject, so the receipt is written after every few parts.
#[test]
fn bytes_written_for_a_receipt_are_proportional_to_its_rows() {
    block_on(async {
        const ROWS: usize = 3_000;
        let faults = Faults { page_objects: 1_000, ..Faults::default() };
        let store = Store::new(InMemoryObjectStore::with_faults(1, faults));
        sink(&store, 5).apply(folded(0..ROWS), &Found::default(), hour()).await;
        assert!(parts(&store).len() > 64, "the pass saves its progress several times");
        store.pass_seconds(10 * AGE_SECONDS_MIN);
        let all =
            Subject { begins_with: vec![("id".to_owned(), "k".to_owned())], ..Subject::default() };
        let now = store.now_seconds();
        let done = eraser(&store).erase("things", &all, Some("all"), now, hour()).await.unwrap();
        assert_eq!((done.rows, done.erasures[0].rows), (ROWS, ROWS));
        let (receipt, named) = kept(&store, &done.receipt);
        assert_eq!(named, (0..ROWS).map(event_id).collect());
        assert!(receipt.lists >= 2 && receipt.event_ids.len() <= NAMED_MAX, "{}", receipt.lists);
        for (name, bytes) in store.sent("erasures/") {
            if name == done.receipt {
                assert!(bytes < 100 * NAMED_MAX, "each save of the receipt writes {bytes} bytes");
            }
        }
        let lists = store.sent("erasures/table=things/all/");
        assert_eq!(lists.len(), receipt.lists, "each list is sent once: {lists:?}");
        // A repeated request adds no row to the receipt twice.
        let again = eraser(&store).erase("things", &all, Some("all"), now, hour()).await.unwrap();
        assert_eq!((again.rows, again.lists, again.erasures), (ROWS, receipt.lists, done.erasures));
    });
}

/// The names of objects and rows in an old receipt move into a list when the same erasure erases
/// more rows.
#[test]
fn a_receipt_whose_rows_go_into_a_list_names_each_wherever_it_dies() {
    block_on(async {
        let name = "erasures/table=things/gdpr.json";
        let old: BTreeSet<String> = (10_000..10_000 + NAMED_MAX).map(event_id).collect();
        let text = serde_json::json!({
            "table": "things", "erasedSeconds": 5, "objectsRead": 1, "objectsReplaced": 1,
            "eventIds": &old, "earlierContentsRemoved": 0, "passes": 2,
        });
        let (mut has_orphan, mut polls, mut seed) = (false, 0, 1);
        while seed < 5 {
            polls += 1;
            let store = Store::new(InMemoryObjectStore::with_faults(seed, Faults::default()));
            three_parts(&store).await;
            let text = Bytes::from(text.to_string());
            store.put_if_absent(name, text, "application/json").await.unwrap();
            let erase = async |number| {
                eraser(&store).erase("things", &film(number), Some("gdpr"), 60, hour()).await
            };
            let is_over = polls_until_death(polls, erase(5)).await.is_some();
            let (died, named) = kept(&store, name);
            assert!(old.is_subset(&named), "{polls}");
            has_orphan |= died.lists == 0
                && store.objects().contains_key("erasures/table=things/gdpr/000001.json");
            assert!(
                named.contains(&event_id(5)) || contents(&parts(&store)).contains_key(&event_id(5))
            );
            // Other erasures may use this name once the interrupted erasure is complete. Their
            // receipt must not name rows of the interrupted erasure.
            let is_refused = erase(4).await.is_err();
            let done = erase(5).await.unwrap();
            let (receipt, named) = kept(&store, name);
            assert_eq!((receipt.lists, receipt.rows), (1, named.len()), "{polls}");
            assert_eq!(done.rows, NAMED_MAX + 2 - usize::from(is_refused), "{polls}");
            assert!(named.contains(&event_id(5)) && receipt.progress.is_none());
            assert_eq!(receipt.erasures[0], Erasure { seconds: 5, rows: NAMED_MAX });
            if is_over {
                (seed, polls) = (seed + 1, 0);
            }
        }
        assert!(has_orphan);
    });
}

/// Size limit of a Lambda response. Source: AWS Lambda developer guide, "Lambda quotas".
const ANSWER_BYTES_MAX: usize = 6_291_556;

/// The answer of a large erasure contains only counts, also when the request is repeated.
#[test]
fn the_answer_of_a_large_erasure_is_small() {
    block_on(async {
        let store = Store::default();
        sink(&store, 5).apply(folded(0..12), &Found::default(), hour()).await;
        let known = ErasureReceipt {
            table: "things".to_owned(),
            event_ids: (1_000..201_000).map(event_id).collect(),
            ..ErasureReceipt::default()
        };
        let name = "erasures/table=things/leaves.json";
        let known = Bytes::from(serde_json::to_vec(&known).unwrap());
        store.put_if_absent(name, known, "application/json").await.unwrap();
        let event = r#"{"erase":{"table":"things","equals":{"id":{"S":"k5"}},"name":"leaves"}}"#;
        for rows in [200_001, 200_001] {
            let request = maintenance::decode(event).unwrap();
            let (compactor, eraser) = (compactor(&store), eraser(&store));
            let done = maintenance::carry_out(request, &compactor, &eraser, 60, hour()).await;
            let Ok(Answer::Erased(erased)) = &done else { panic!("{done:?}") };
            assert_eq!((erased.rows, erased.receipt.as_str()), (rows, name));
            let logged = format!("{erased:?}");
            let answer = serde_json::to_value(done.unwrap()).unwrap();
            assert_eq!(answer["erased"]["rows"], rows);
            assert!(answer.to_string().len() < 1_000 && logged.len() < 1_000, "{answer}");
            let sizes = store.objects().into_iter().map(|(name, object)| (name, object.len()));
            let list = sizes.filter(|(name, _)| name.starts_with("erasures/table=things/leaves/"));
            let list: Vec<_> = list.collect();
            assert!(list.len() == 1 && list[0].1 > ANSWER_BYTES_MAX, "{list:?}");
            let (kept, names) = kept(&store, name);
            assert_eq!((kept.rows, names.len(), kept.progress), (rows, rows, None));
        }
    });
}

#[test]
fn erased_rows_do_not_reappear() {
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

/// The receipt keeps the time of the erasure even if the request is repeated.
#[test]
fn a_receipt_keeps_when_rows_were_erased() {
    block_on(async {
        let store = Store::default();
        three_parts(&store).await;
        let erase = async |number, now| {
            eraser(&store).erase("things", &film(number), Some("gdpr"), now, hour()).await.unwrap()
        };
        let first = erase(5, 60).await;
        let erasure = |seconds, rows| Erasure { seconds, rows };
        assert_eq!((first.erased_seconds, &first.erasures[..]), (60, &[erasure(60, 1)][..]));
        let again = erase(5, 600).await;
        assert_eq!((again.erased_seconds, &again.erasures), (60, &first.erasures));
        let more = erase(4, 700).await;
        let both = [erasure(60, 1), erasure(700, 1)];
        assert_eq!((more.erased_seconds, &more.erasures[..]), (700, &both[..]));
        // A receipt of a version without the list of erasures.
        let (name, mut old) = (more.receipt.clone(), serde_json::to_value(&more).unwrap());
        old.as_object_mut().unwrap().remove("erasures");
        let stands = store.list(&name).await.unwrap().remove(0);
        let old = Bytes::from(old.to_string());
        store.replace(&name, &stands.entity_tag, old, "application/json").await.unwrap();
        let again = erase(5, 800).await;
        assert_eq!((again.erased_seconds, &again.erasures[..]), (700, &[erasure(700, 2)][..]));
    });
}
