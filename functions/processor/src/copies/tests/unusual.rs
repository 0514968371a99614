//! Unusual copies: of an origin that can have no job, one that is put whole between the two writes that
//! delete it, and one that was marked by somebody whose clock is ahead.

use super::*;

#[tokio::test]
async fn a_copy_whose_origin_can_have_no_job_holds_nothing_up() {
    let tables = with_copies(2, Duration::ZERO);
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    // Each quotation mark takes two bytes as text.
    let unfit = Item::new().with("line", "line-000a").with("productID", "\"".repeat(1020));
    tables.set(COPIES, "line-000a", Some(unfit));
    let deadline = Deadline::after(Duration::from_secs(60));
    let report = copies.check_sample(7, deadline).await.unwrap();
    let expected = SelfCheckReport { rules: 1, copies: 3, repaired: 2, postponed: 0, refused: 1 };
    assert_eq!(report, expected);
    assert_eq!(names(&tables), ["Chai", "-", "Chai"]);
    let request = RepairRequest::read(r#"{"repair":{"rule":"products"}}"#).unwrap().unwrap();
    let answer = copies.repair(&request, deadline).await.unwrap();
    assert_eq!(answer.checked, SelfCheckReport { repaired: 0, ..expected });
}

/// What a mark of a deletion ends with: its values came through no copy.
const DELETING: &str = " 0";

#[tokio::test]
async fn a_copy_that_is_put_whole_while_it_is_deleted_is_deleted_all_the_same() {
    let tables = with_copies(1, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    let read = tables.items(COPIES)["line-000"].clone();
    tables.take_records();
    tables.set(ORIGINS, &origin_key(1), None);
    let put_whole = async {
        // The executor comes to the mark in far fewer steps.
        for _ in 0..10_000 {
            let mark = tables.items(COPIES)["line-000"].get("_from_products").cloned();
            if mark.is_some_and(|mark| mark.as_str().is_some_and(|m| m.ends_with(DELETING))) {
                let item = read.with("quantity", "3");
                return tables.set(COPIES, "line-000", Some(item));
            }
            tokio::task::yield_now().await;
        }
        panic!("the copy was not marked");
    };
    let deleted = tables.take_records();
    let (processed, ()) = tokio::join!(process(&copies, &deleted), put_whole);
    processed.unwrap();
    // The job is done: it had marked the copy, and did not find its mark.
    assert!(job(&tables).done);
    assert_eq!(names(&tables), ["Chai"]);
    for _ in 0..10 {
        process(&copies, &tables.take_records()).await.unwrap();
    }
    assert!(names(&tables).is_empty());
}

#[tokio::test]
async fn a_copy_that_was_marked_by_a_clock_ahead_is_deleted_all_the_same() {
    let tables = with_copies(2, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    tables.take_records();
    tables.set(ORIGINS, &origin_key(1), None);
    let deleted = tables.take_records();
    // What the worker left behind that marked one copy and died.
    let effects = copies.rule.decide(&deleted[0], &Found::default()).unwrap();
    let Some(rules::Effect::Origin { origin, state }) = effects.into_iter().next() else {
        panic!("a deletion")
    };
    let rule = &copies.rule.rules[0];
    let ahead = rules::fan_out::update_of(rule, &origin, &state.0.unwrap(), u64::MAX - 7);
    let key = Item::new().with("line", "line-000");
    let guard = CopyGuard::Older;
    let marking = ahead.marking().unwrap();
    tables.write(rule, &key, &marking, &guard).await.unwrap();
    tables.take_records();
    process(&copies, &deleted).await.unwrap();
    assert!(job(&tables).done);
    assert!(names(&tables).is_empty());
}
