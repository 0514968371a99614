//! Unusual copies: copies whose origin cannot have a job, copies that are put again between the two
//! writes that delete them, copies that other workers marked for the same deletion, and more copies
//! than a batch writes immediately.

use super::*;

#[tokio::test]
async fn a_copy_whose_origin_can_have_no_job_blocks_nothing() {
    let tables = with_copies(2, Duration::ZERO);
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    // Each quotation mark takes two bytes as text, so the origin's key is too long for a job.
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

/// A copy is refused and counted if several deployments copy its value in a cycle.
#[tokio::test]
async fn a_copy_whose_value_cycles_is_refused_and_reported() {
    let tables = with_copies(2, Duration::ZERO);
    let copies = copies(&tables, "keep", Duration::ZERO);
    let mark = format!("{}@2027/{:040} 5", origin_key(9), 5);
    let origin = product(1, "Chai").with("_from_elsewhere", mark);
    tables.set(ORIGINS, &origin_key(1), Some(origin));
    tables.take_records();
    let deadline = Deadline::after(Duration::from_secs(60));
    let report = copies.check_sample(7, deadline).await.unwrap();
    let expected = SelfCheckReport { rules: 1, copies: 2, repaired: 0, postponed: 0, refused: 2 };
    assert_eq!(report, expected);
    assert_eq!(names(&tables), ["-", "-"]);
}

/// Even if origins are large, all copies are checked, and few origins are in memory at the same
/// time.
#[tokio::test]
async fn copies_of_many_large_origins_are_checked_in_several_rounds() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    let count: usize = 250;
    for number in 0..count as u64 {
        let origin = product(number, "Chai").with("description", "x".repeat(200_000));
        tables.set(ORIGINS, &origin_key(number), Some(origin));
        let key = format!("line-{number:03}");
        tables.set(COPIES, &key, Some(line(&key, number)));
    }
    tables.take_records();
    let report = copies.check_sample(7, Deadline::after(Duration::from_secs(3600))).await.unwrap();
    assert_eq!((report.copies, report.repaired, report.postponed), (count, count, 0));
    assert_eq!(tables.origins_at_once(), 40);
}

/// Even if copies are large, few bytes of them are in memory at the same time.
#[tokio::test]
async fn large_copies_are_checked_in_several_rounds() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    // Small copies come first, so the size of the later copies is underestimated.
    for number in 0..200 {
        let key = format!("line-{number:03}");
        let large = "x".repeat(if number < 20 { 10 } else { 390_000 });
        tables.set(COPIES, &key, Some(line(&key, 1).with("text", large)));
    }
    tables.take_records();
    let report = copies.check_sample(7, Deadline::after(Duration::from_secs(3600))).await.unwrap();
    assert_eq!((report.copies, report.repaired, report.postponed), (200, 200, 0));
    let bytes = tables.copy_bytes_at_once();
    assert!((390_000..=8 << 20).contains(&bytes), "{bytes}");
}

/// If a self-check is throttled, it checks the copies that it has read.
#[tokio::test]
async fn a_page_of_a_sample_that_cannot_be_read_leaves_those_before_it() {
    let tables = with_copies(250, Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    tables.take_records();
    let copies = copies(&tables, "keep", Duration::ZERO);
    let deadline = Deadline::after(Duration::from_secs(3600));
    for (pages, looked_at) in [(2, 200), (0, 0)] {
        tables.limit_sample_pages(pages);
        let report = copies.check_sample(7, deadline).await.unwrap();
        assert_eq!((report.copies, report.repaired, report.postponed), (looked_at, looked_at, 1));
    }
    tables.limit_sample_pages(9);
    let report = copies.check_sample(7, deadline).await.unwrap();
    assert_eq!((report.copies, report.repaired, report.postponed), (250, 50, 0));
}

/// The end of the mark for a deletion: hop count 0, because its values came through no other copy.
const DELETING: &str = " 0";

#[tokio::test]
async fn a_copy_that_is_put_whole_while_it_is_deleted_is_deleted_all_the_same() {
    let tables = with_copies(1, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    let read = tables.items(COPIES)["line-000"].clone();
    tables.take_records();
    let begun = begun_deletion(&copies).await;
    let put_whole = async {
        // The loop is bounded; the executor writes the mark in far fewer steps.
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
    let (processed, ()) = tokio::join!(process(&copies, &begun), put_whole);
    processed.unwrap();
    // The job is complete, although the copy still exists: after the job marked the copy, the put
    // removed the mark.
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
    // Simulates a worker that marked one copy and then crashed.
    let effects = copies.rule.decide(&deleted[0], &Found::default()).unwrap();
    let Some(rules::fan_out::Effect::Origin { origin, state }) = effects.into_iter().next() else {
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
    process(&copies, &tables.take_records()).await.unwrap();
    assert!(job(&tables).done);
    assert!(names(&tables).is_empty());
}

/// Deletes the origin. Returns the record of the job that the deletion began.
async fn begun_deletion(copies: &InMemory) -> Vec<LambdaRecord> {
    copies.tables.take_records();
    copies.tables.set(ORIGINS, &origin_key(1), None);
    process(copies, &copies.tables.take_records()).await.unwrap();
    // Only the job's record continues the job.
    assert!(!job(&copies.tables).done);
    copies.tables.take_records()
}

/// Replaces the marks of all copies, once a worker has set them, by marks for the same deletion.
/// This simulates another worker that is stopped afterwards.
async fn mark_over(copies: &InMemory) {
    let origin = Origin { rule: "products".to_owned(), key: origin_key(1) };
    let state = job(&copies.tables).state;
    let rule = &copies.rule.rules[0];
    let other = rules::fan_out::update_of(rule, &origin, &state, u64::MAX - 7);
    let Some(Update::Set { mark, .. }) = other.marking() else { panic!("a deletion") };
    // The loop is bounded; the executor writes the marks in far fewer steps.
    for _ in 0..10_000 {
        let items = copies.tables.items(COPIES);
        let is_marked = |copy: &Item| {
            copy.get("_from_products")
                .is_some_and(|mark| mark.as_str().unwrap().ends_with(DELETING))
        };
        if items.values().all(is_marked) {
            for (key, item) in items {
                let item = item.with("_from_products", mark.text());
                copies.tables.set(COPIES, &key, Some(item));
            }
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the copies were not marked");
}

/// A job is complete only when its copies are deleted, even if another worker marked them last.
/// That worker may have crashed, and its redelivered record would find a complete job.
#[tokio::test]
async fn copies_marked_by_a_crashed_worker_are_deleted() {
    let tables = with_copies(3, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    let begun = begun_deletion(&copies).await;
    let (processed, ()) = tokio::join!(process(&copies, &begun), mark_over(&copies));
    processed.unwrap();
    assert!(names(&tables).is_empty());
    assert_eq!((job(&tables).done, job(&tables).copies), (true, 3));
}

/// A copy is put again after its origin was created again. The copy is not deleted, even if it has
/// the mark that a worker of the deletion read earlier.
#[tokio::test]
async fn a_copy_that_was_put_again_is_not_deleted_by_another_mark() {
    let tables = with_copies(3, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    let begun = begun_deletion(&copies).await;
    let anew = async {
        mark_over(&copies).await;
        let theirs = tables.items(COPIES)["line-000"]["_from_products"].clone();
        let is_marked_by_us =
            |copy: &Item| copy.get("_from_products").is_some_and(|mark| *mark != theirs);
        for _ in 0..10_000 {
            if tables.items(COPIES).values().all(is_marked_by_us) {
                tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
                for (key, item) in tables.items(COPIES) {
                    let put = line(&key, 1).with("_from_products", theirs.clone());
                    assert_ne!(item, put);
                    tables.set(COPIES, &key, Some(put));
                }
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the copies were not marked over");
    };
    let (processed, ()) = tokio::join!(process(&copies, &begun), anew);
    processed.unwrap();
    for _ in 0..5 {
        process(&copies, &tables.take_records()).await.unwrap();
    }
    assert_eq!(names(&tables), ["Chai"; 3]);
}

/// If the marks of copies that could not be deleted cannot be read, the job stays open.
#[tokio::test]
async fn a_job_whose_copies_were_marked_over_and_cannot_be_read_stays_open() {
    let tables = with_copies(3, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    let begun = begun_deletion(&copies).await;
    tables.limit_reads(Some(0));
    let (processed, ()) = tokio::join!(process(&copies, &begun), mark_over(&copies));
    assert!(matches!(processed, Err(Failure::Retry(_))), "{processed:?}");
    assert!(!job(&tables).done);
    tables.limit_reads(None);
    process(&copies, &begun).await.unwrap();
    assert!(job(&tables).done);
    assert!(names(&tables).is_empty());
}

/// Other workers marked many copies, and the table allows few reads at a time. Each invocation
/// deletes some of the copies. Otherwise many large copies would never be deleted.
#[tokio::test]
async fn copies_that_others_marked_are_deleted_a_few_at_a_time() {
    let count = 450;
    let tables = Arc::new(InMemoryCopies::with_pages_of(1_000));
    for key in (0..count).map(|number| format!("line-{number:03}")) {
        tables.set(COPIES, &key, Some(line(&key, 1)));
    }
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    let begun = begun_deletion(&copies).await;
    tables.limit_reads(Some(330));
    let (processed, ()) = tokio::join!(process(&copies, &begun), mark_over(&copies));
    processed.unwrap();
    assert_eq!((names(&tables).len(), job(&tables).done), (count - 330, false));
    assert!(job(&tables).cursor.is_some());
    tables.limit_reads(None);
    for _ in 0..3 {
        process(&copies, &tables.take_records()).await.unwrap();
    }
    assert!(names(&tables).is_empty());
    assert_eq!((job(&tables).done, job(&tables).copies), (true, count as u64));
}

/// The stream of the origins waits only for few copies. A larger page is left to the job's record,
/// so no two workers write the same large page.
#[tokio::test]
async fn a_large_first_page_is_left_to_the_record_of_its_job() {
    for (count, expected) in [(COPIES_AT_ONCE, COPIES_AT_ONCE), (COPIES_AT_ONCE + 1, 0)] {
        let tables = Arc::new(InMemoryCopies::with_pages_of(1_000));
        for key in (0..count).map(|number| format!("line-{number:03}")) {
            tables.set(COPIES, &key, Some(line(&key, 1)));
        }
        tables.take_records();
        let copies = copies(&tables, "keep", Duration::ZERO);
        tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
        process(&copies, &tables.take_records()).await.unwrap();
        let named = || names(&tables).iter().filter(|name| *name == "Chai").count();
        assert_eq!((named(), job(&tables).done), (expected, expected > 0));
        assert_eq!(tables.page_asked(), COPIES_AT_ONCE + 1, "more would be read in vain");
        process(&copies, &tables.take_records()).await.unwrap();
        assert_eq!((named(), job(&tables).done), (count, true));
    }
}
