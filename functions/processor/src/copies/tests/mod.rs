//! Complete histories in memory. Origins and copies change at any time. Every change arrives as a
//! record: late, twice, out of order or in another batch. Requests fail, the index lags, executors
//! run concurrently. When all records are processed and the self-check finds no difference, every
//! copy matches its origin.

mod loops;
mod unusual;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::stream_record::LambdaRecord;
use rules::fan_out::parse_and_check;
use rules::{Rule, fold};

use super::in_memory::{COPIES, InMemoryCopies, JOBS, ORIGINS, line, origin_key, product};
use super::*;
use crate::tables::in_memory::{AT_ONCE, Faults};

/// The sort key of the index, in tests whose index has one.
const SORT: &str = "at";

type InMemory = Copies<Arc<InMemoryCopies>>;

fn copies(tables: &Arc<InMemoryCopies>, on_delete: &str, saved_every: Duration) -> InMemory {
    let rules = parse_and_check(&format!(
        "- {{name: products, from: {ORIGINS}, to: {COPIES}, index: by-product, key: {{productID: productID}}, attributes: {{productName: productName}}, on-delete: {on_delete}}}"
    ))
    .unwrap();
    Copies {
        tables: Arc::clone(tables),
        rule: FanOut { rules, jobs_table: JOBS.to_owned() },
        retry: AT_ONCE,
        saved_every,
    }
}

/// Returns an executor for copies whose index has a sort key, which users change.
fn sorted_copies(tables: &Arc<InMemoryCopies>, on_delete: &str, saved_every: Duration) -> InMemory {
    let mut copies = copies(tables, on_delete, saved_every);
    copies.rule.rules.iter_mut().for_each(|rule| rule.index_sort = vec![SORT.to_owned()]);
    copies
}

async fn process(copies: &InMemory, batch: &[LambdaRecord]) -> Result<usize, Failure> {
    process_by(&copies.rule, copies, batch).await
}

/// Processes records that `rule` decides. This rule may lack index keys that the executor's rule
/// has.
async fn process_by(
    rule: &FanOut,
    copies: &InMemory,
    batch: &[LambdaRecord],
) -> Result<usize, Failure> {
    let effects = batch.iter().enumerate().flat_map(|(position, record)| {
        let effects = rule.decide(record, &Found::default()).unwrap();
        effects.into_iter().map(move |effect| (position, effect))
    });
    let deadline = Deadline::after(Duration::from_secs(3600));
    let outcomes = copies.apply(fold(effects), &Found::default(), deadline).await;
    outcomes.into_iter().map(|outcome| outcome.result).sum()
}

/// A pseudo-random number generator.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap()
    }
}

/// The state of origins and copies as the simulated users know it.
#[derive(Default)]
struct Known {
    /// Origins that have existed.
    once: BTreeSet<u64>,
    /// Copies as users read them earlier, including marks.
    read: Vec<(String, Item)>,
    /// Copies that must not be deleted, by key, with their origins: they were put while the origin
    /// existed, and the origin has existed since.
    kept: BTreeMap<String, u64>,
}

/// Returns a copy at a random position in the index, or outside of the index.
fn placed(draws: &mut Draws, mut copy: Item) -> Item {
    match draws.below(6) {
        0 => drop(copy.remove(SORT)),
        at => drop(copy.insert(SORT.to_owned(), AttributeValue::from(at.to_string().as_str()))),
    }
    copy
}

/// Makes one random change, as a user does.
fn change(draws: &mut Draws, tables: &InMemoryCopies, number: u64, known: &mut Known) {
    let origin = draws.below(3);
    let key = origin_key(origin);
    let copy = format!("line-{}", draws.below(12));
    known.read.extend(tables.items(COPIES).remove(&copy).map(|item| (copy.clone(), item)));
    match draws.below(11) {
        0..3 => {
            known.once.insert(origin);
            tables.set(ORIGINS, &key, Some(product(origin, &format!("name {number}"))));
        }
        3 => {
            known.kept.retain(|_, of| *of != origin);
            tables.set(ORIGINS, &key, None);
        }
        4..6 => {
            known.kept.remove(&copy);
            if tables.items(ORIGINS).contains_key(&key) {
                known.kept.insert(copy.clone(), origin);
            }
            let item = placed(draws, line(&copy, origin));
            tables.set(COPIES, &copy, Some(item));
        }
        6 => {
            known.kept.remove(&copy);
            tables.set(COPIES, &copy, None);
        }
        // A user changes an item that was read earlier, and puts the whole item.
        7 if !known.read.is_empty() => {
            let (copy, item) = known.read.swap_remove(draws.index(known.read.len()));
            let item = item.with("quantity", model::Number::from(number));
            known.kept.remove(&copy);
            tables.set(COPIES, &copy, Some(item));
        }
        // A user moves a copy within its index, out of the index or into it.
        8..10 => {
            if let Some(item) = tables.items(COPIES).remove(&copy) {
                let item = placed(draws, item);
                tables.set(COPIES, &copy, Some(item));
            }
        }
        // A user overwrites copied values.
        _ => {
            if let Some(item) = tables.items(COPIES).get(&copy) {
                let item = item.clone().with("productName", "by hand");
                tables.set(COPIES, &copy, Some(item));
            }
        }
    }
}

/// Processes some of the pending records. Failed records are delivered again.
async fn deliver(draws: &mut Draws, copies: &InMemory, pending: &mut Vec<LambdaRecord>) {
    let mut batch = Vec::new();
    for _ in 0..1 + draws.below(4) {
        if !pending.is_empty() {
            let at = draws.index(pending.len());
            // Some records stay pending, so they are delivered twice.
            let again = draws.below(6) == 0;
            batch.push(if again { pending[at].clone() } else { pending.swap_remove(at) });
        }
    }
    if process(copies, &batch).await.is_err() {
        pending.extend(batch);
    }
}

/// Processes pending records until none is left.
async fn drain(seed: u64, draws: &mut Draws, copies: &InMemory, pending: &mut Vec<LambdaRecord>) {
    for _ in 0..20_000 {
        pending.extend(copies.tables.take_records());
        if pending.is_empty() {
            return;
        }
        deliver(draws, copies, pending).await;
    }
    panic!("seed {seed}: records make records without end");
}

/// Checks the copies for which `is_known` returns true.
fn check(
    seed: u64,
    tables: &InMemoryCopies,
    on_delete: &str,
    known: &Known,
    is_known: impl Fn(&Item) -> bool,
) {
    let (origins, once) = (tables.items(ORIGINS), &known.once);
    for copy in known.kept.keys() {
        assert!(tables.items(COPIES).contains_key(copy), "seed {seed}, {on_delete}: {copy}");
    }
    for (key, copy) in tables.items(COPIES).into_iter().filter(|(_, copy)| is_known(copy)) {
        let origin = copy["productID"].as_number().unwrap().to_u64().unwrap();
        let name = copy.get("productName");
        let context = format!("seed {seed}, {on_delete}, {key}: {copy:?}");
        match origins.get(&origin_key(origin)) {
            Some(product) => assert_eq!(name, product.get("productName"), "{context}"),
            None if once.contains(&origin) => match on_delete {
                "cascade" => panic!("{context}: its origin was deleted"),
                "clear" => assert_eq!(name, None, "{context}"),
                _ => {}
            },
            None => {}
        }
    }
}

#[tokio::test]
async fn copies_converge_under_every_seed() {
    let seeds = std::env::var("SEEDS").map_or(300, |seeds| seeds.parse().unwrap());
    let mut written = 0;
    for seed in 0..seeds {
        for on_delete in ["keep", "clear", "cascade"] {
            // If the index lags, the self-check must repair differences. Otherwise there must be no
            // difference.
            let stale_pages = if seed % 3 == 0 { 0 } else { 20 };
            let faults = Faults { lost: 5, unanswered: 5, unprocessed: 0 };
            let tables = Arc::new(InMemoryCopies::with_faults(seed, faults, stale_pages));
            // Progress is saved after each page, or only at the end.
            let saved_every = Duration::from_secs(3600 * (seed % 2));
            let copies = sorted_copies(&tables, on_delete, saved_every);
            let (mut draws, mut pending) = (Draws(seed), Vec::new());
            let mut known = Known::default();
            for number in 0..60 {
                change(&mut draws, &tables, number, &mut known);
                if draws.below(2) == 0 {
                    pending.extend(tables.take_records());
                    // Two executors run concurrently, and an origin or copy changes meanwhile.
                    let (mut left, mut right) =
                        (Draws(draws.below(1 << 30)), Draws(draws.below(1 << 30)));
                    let mut others = pending.split_off(pending.len() / 2);
                    tokio::join!(
                        deliver(&mut left, &copies, &mut pending),
                        deliver(&mut right, &copies, &mut others),
                        async {
                            tokio::task::yield_now().await;
                            change(&mut draws, &tables, number + 1000, &mut known);
                        }
                    );
                    pending.extend(others);
                }
            }
            drain(seed, &mut draws, &copies, &mut pending).await;
            if stale_pages == 0 {
                check(seed, &tables, on_delete, &known, |copy| copy.contains_key(SORT));
            }
            // The self-check finds the copies that the index did not show yet.
            for draw in 0..50 {
                let deadline = Deadline::after(Duration::from_secs(3600));
                let checked = copies.check_sample(draw, deadline).await.unwrap();
                drain(seed, &mut draws, &copies, &mut pending).await;
                if checked.repaired + checked.postponed == 0 {
                    break;
                }
                assert!(draw < 49, "seed {seed}: the self-check finds more and more");
            }
            check(seed, &tables, on_delete, &known, |_| true);
            written += tables.items(COPIES).len();
        }
    }
    assert!(written > 100, "{written}");
}

#[tokio::test]
async fn a_large_job_continues_through_its_own_records() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    for number in 0..100 {
        let key = format!("line-{number:03}");
        tables.set(COPIES, &key, Some(line(&key, 1)));
    }
    tables.take_records();
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    let named = |name: &str| {
        let copies = tables.items(COPIES).into_values();
        copies
            .filter(|c| c.get("productName").and_then(AttributeValue::as_str) == Some(name))
            .count()
    };
    // The batch itself writes the first page.
    process(&copies, &tables.take_records()).await.unwrap();
    assert_eq!(named("Chai"), 3);
    // A newer change stops the older job.
    let old_job = tables.take_records().into_iter().filter(|r| r.event_source_arn.contains(JOBS));
    let old_job: Vec<_> = old_job.collect();
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Tea")));
    process(&copies, &tables.take_records()).await.unwrap();
    assert_eq!((named("Chai"), named("Tea")), (0, 3));
    process(&copies, &old_job).await.unwrap();
    assert_eq!(named("Chai"), 0);
    for _ in 0..100 {
        let records = tables.take_records();
        process(&copies, &records).await.unwrap();
    }
    assert_eq!(named("Tea"), 100);
    let job = Job::from_item(tables.items(JOBS).values().next().unwrap()).unwrap();
    assert_eq!((job.done, job.copies), (true, 100));
}

/// Two copies appear at index positions that the job has passed. The first copy moved within the
/// index; the second copy was not in the index before.
#[tokio::test]
async fn a_copy_added_behind_the_cursor_follows_its_origin() {
    for (knows_sort_key, expected) in [(true, "Tea"), (false, "Chai")] {
        let tables = Arc::new(InMemoryCopies::default());
        let sorted = sorted_copies(&tables, "keep", Duration::ZERO);
        let blind = copies(&tables, "keep", Duration::ZERO).rule;
        let rule = if knows_sort_key { sorted.rule.clone() } else { blind };
        let drain = async || {
            for _ in 0..20 {
                process_by(&rule, &sorted, &tables.take_records()).await.unwrap();
            }
        };
        tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
        for key in (0..9).map(|number| format!("line-{number}")) {
            let item = line(&key, 1);
            let item = if key == "line-7" { item } else { item.with(SORT, key.as_str()) };
            tables.set(COPIES, &key, Some(item));
        }
        drain().await;
        assert_eq!(names(&tables), ["Chai"; 9]);
        tables.set(ORIGINS, &origin_key(1), Some(product(1, "Tea")));
        process_by(&rule, &sorted, &tables.take_records()).await.unwrap();
        assert_eq!(names(&tables).iter().filter(|name| *name == "Tea").count(), 3);
        for key in ["line-7", "line-8"] {
            let item = tables.items(COPIES).remove(key).unwrap();
            tables.set(COPIES, key, Some(item.with(SORT, "line-0")));
        }
        drain().await;
        assert!(job(&tables).done);
        let mut all = ["Tea"; 9];
        (all[7], all[8]) = (expected, expected);
        assert_eq!(names(&tables), all);
    }
}

#[tokio::test]
async fn the_self_check_repairs_lost_changes() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    for key in ["a", "b"] {
        tables.set(COPIES, key, Some(line(key, 1)));
    }
    // All records are lost, so only the self-check can find the differences.
    tables.take_records();
    let deadline = Deadline::after(Duration::from_secs(60));
    let report = copies.check_sample(7, deadline).await.unwrap();
    let expected = SelfCheckReport { rules: 1, copies: 2, repaired: 2, postponed: 0, refused: 0 };
    assert_eq!(report, expected);
    let names: BTreeMap<_, _> = tables
        .items(COPIES)
        .into_iter()
        .map(|(key, copy)| (key, copy["productName"].clone()))
        .collect();
    assert!(names.values().all(|name| name.as_str() == Some("Chai")), "{names:?}");
    assert_eq!(copies.check_sample(8, deadline).await.unwrap().repaired, 0);
}

#[tokio::test]
async fn a_repair_checks_all_copies() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    for number in 0..20 {
        let key = format!("line-{number:03}");
        tables.set(COPIES, &key, Some(line(&key, 1)));
    }
    // All records are lost, so only the repair can find the differences.
    tables.take_records();
    let mut request = RepairRequest::read(r#"{"repair":{"rule":"products"}}"#).unwrap().unwrap();
    let deadline = Deadline::after(Duration::from_secs(3600));
    let answer = copies.repair(&request, deadline).await.unwrap();
    assert!(answer.is_whole && answer.after.is_none());
    assert_eq!((answer.checked.copies, answer.checked.repaired), (20, 20));
    assert!(tables.items(COPIES).values().all(|copy| copy["productName"].as_str() == Some("Chai")));
    // The repair resumes in the middle.
    let after = r#"{"line":{"S":"line-014"}}"#.to_owned();
    request.after = Some(serde_json::value::RawValue::from_string(after).unwrap());
    assert_eq!(copies.repair(&request, deadline).await.unwrap().checked.copies, 5);
    request.rule = "other".to_owned();
    let unknown = copies.repair(&request, deadline).await;
    assert!(matches!(unknown, Err(Failure::Fatal(_))));
    assert!(RepairRequest::read("{}").unwrap().is_none());
    assert!(RepairRequest::read(r#"{"repair":{"all":true}}"#).is_err());
}

/// A throttled table allows few reads at a time. A repair completes nevertheless and skips no copy,
/// because its answer states where to resume.
#[tokio::test]
async fn a_repair_of_a_throttled_table_resumes() {
    let tables = with_copies(1_200, Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    tables.take_records();
    let copies = copies(&tables, "keep", Duration::ZERO);
    let mut request = RepairRequest::read(r#"{"repair":{"rule":"products"}}"#).unwrap().unwrap();
    let (mut looked_at, mut repaired) = (0, 0);
    for run in 0_usize.. {
        assert!(run < 200, "it does not get through");
        // The reads that the table allows in this invocation. They may be too few for a single
        // page.
        tables.limit_reads(Some(run * 37 % 700));
        let answer = match copies.repair(&request, Deadline::after(Duration::from_secs(60))).await {
            Ok(answer) => answer,
            Err(Failure::Retry(_)) => continue,
            Err(fatal) => panic!("{fatal:?}"),
        };
        looked_at += answer.checked.copies;
        repaired += answer.checked.repaired;
        assert!(answer.is_whole || answer.after.is_some() || answer.checked.copies == 0);
        request.after = answer.after;
        if answer.is_whole {
            break;
        }
    }
    assert_eq!((looked_at, repaired), (1_200, 1_200));
    assert!(names(&tables).iter().all(|name| name == "Chai"));
}

/// Returns tables with an origin and some copies of it. The records of these writes are dropped.
fn with_copies(count: usize, write_time: Duration) -> Arc<InMemoryCopies> {
    let tables = Arc::new(InMemoryCopies::with_write_time(write_time));
    for number in 0..count {
        let key = format!("line-{number:03}");
        tables.set(COPIES, &key, Some(line(&key, 1)));
    }
    tables.take_records();
    tables
}

fn names(tables: &InMemoryCopies) -> Vec<String> {
    let copies = tables.items(COPIES).into_values();
    copies
        .map(|c| c.get("productName").and_then(AttributeValue::as_str).unwrap_or("-").to_owned())
        .collect()
}

fn job(tables: &InMemoryCopies) -> Job {
    Job::from_item(tables.items(JOBS).values().next().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_page_that_takes_longer_than_an_invocation_is_written_in_several() {
    let tables = with_copies(4, Duration::from_millis(50));
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    let mut pending = tables.take_records();
    // A page has three copies, and an invocation has time for one or two.
    for _ in 0..100 {
        let effects = pending.iter().flat_map(|record| {
            copies.rule.decide(record, &Found::default()).unwrap().into_iter().map(|e| (0, e))
        });
        let deadline = Deadline::after(Duration::from_millis(180));
        let folded = fold(effects.collect::<Vec<_>>());
        let outcomes = copies.apply(folded, &Found::default(), deadline).await;
        let is_failed = outcomes.iter().any(|outcome| outcome.result.is_err());
        let new = tables.take_records();
        pending = if is_failed { [pending, new].concat() } else { new };
        if pending.is_empty() {
            break;
        }
    }
    assert_eq!(names(&tables), ["Chai"; 4]);
    assert_eq!((job(&tables).done, job(&tables).copies), (true, 4));
}

#[tokio::test]
async fn a_copy_that_cannot_be_written_blocks_nothing() {
    let tables = with_copies(8, Duration::ZERO);
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.refuse("line-001");
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    for _ in 0..10 {
        process(&copies, &tables.take_records()).await.unwrap();
    }
    let expected = ["Chai", "-", "Chai", "Chai", "Chai", "Chai", "Chai", "Chai"];
    assert_eq!(names(&tables), expected);
    let job = job(&tables);
    assert_eq!((job.done, job.copies, job.refused), (true, 7, 1));
    // A check does not write the copy either.
    tables.set(COPIES, "line-001", Some(line("line-001", 1).with("quantity", "2")));
    process(&copies, &tables.take_records()).await.unwrap();
    let deadline = Deadline::after(Duration::from_secs(60));
    let report = copies.check_sample(7, deadline).await.unwrap();
    let expected = SelfCheckReport { rules: 1, copies: 8, repaired: 0, postponed: 0, refused: 1 };
    assert_eq!(report, expected);
}

#[tokio::test]
async fn copies_of_an_origin_that_is_created_again_stay() {
    let tables = with_copies(4, Duration::ZERO);
    let copies = copies(&tables, "cascade", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    tables.set(ORIGINS, &origin_key(1), None);
    let deleted = tables.take_records();
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Tea")));
    tables.set(COPIES, "line-new", Some(line("line-new", 1)));
    let created = tables.take_records();
    // The record of the deletion arrives late, before the records of the creation.
    process(&copies, &deleted).await.unwrap();
    process(&copies, &tables.take_records()).await.unwrap();
    assert!(tables.items(COPIES).contains_key("line-new"));
    assert!(job(&tables).done);
    process(&copies, &created).await.unwrap();
    for _ in 0..10 {
        process(&copies, &tables.take_records()).await.unwrap();
    }
    assert_eq!(names(&tables), ["Tea"; 5]);
    // After the origin is deleted, each copy is deleted.
    tables.set(ORIGINS, &origin_key(1), None);
    for _ in 0..10 {
        process(&copies, &tables.take_records()).await.unwrap();
    }
    assert!(names(&tables).is_empty());
    tables.set(COPIES, "line-late", Some(line("line-late", 1)));
    process(&copies, &tables.take_records()).await.unwrap();
    assert!(names(&tables).is_empty());
}

#[tokio::test]
async fn the_table_of_jobs_may_be_emptied() {
    let tables = with_copies(2, Duration::ZERO);
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    process(&copies, &tables.take_records()).await.unwrap();
    for job in tables.items(JOBS).into_keys() {
        tables.set(JOBS, &job, None);
    }
    tables.take_records();
    let written_over = tables.items(COPIES)["line-000"].clone().with("productName", "by hand");
    tables.set(COPIES, "line-000", Some(written_over));
    // Another deployment with a newer stream has written a copy.
    let mark = format!("{}@2027/{:040} 1", origin_key(1), 5);
    let imported = line("line-002", 1).with("productName", "theirs").with("_from_products", mark);
    tables.set(COPIES, "line-002", Some(imported));
    process(&copies, &tables.take_records()).await.unwrap();
    assert_eq!(names(&tables), ["Chai"; 3]);
    tables.take_records();
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Tea")));
    process(&copies, &tables.take_records()).await.unwrap();
    // Jobs do not change a copy with a mark of a later stream, but checks do.
    assert_eq!(names(&tables), ["Tea", "Tea", "Chai"]);
    let deadline = Deadline::after(Duration::from_secs(60));
    assert_eq!(copies.check_sample(7, deadline).await.unwrap().repaired, 1);
    assert_eq!(names(&tables), ["Tea"; 3]);
}

#[tokio::test]
async fn a_damaged_job_concerns_its_own_copies() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    for origin in [1, 2] {
        tables.set(ORIGINS, &origin_key(origin), Some(product(origin, "Chai")));
        tables.set(
            COPIES,
            &format!("line-{origin}"),
            Some(line(&format!("line-{origin}"), origin)),
        );
    }
    let damaged = format!("products#{}", origin_key(1));
    tables.set(JOBS, &damaged, Some(Item::new().with("job", damaged.as_str())));
    let of_copies =
        tables.take_records().into_iter().filter(|r| r.event_source_arn.contains(COPIES));
    let failure = process(&copies, &of_copies.collect::<Vec<_>>()).await.unwrap_err();
    assert!(failure.to_string().contains("damaged job"), "{failure}");
    assert_eq!(names(&tables), ["-", "Chai"]);
}

#[test]
fn a_page_begins_anywhere() {
    let item = |text: &str| model::json::item_from_str(text).unwrap();
    let page = CopyPage {
        keys: vec![item(r#"{"k":{"S":"1"}}"#), item(r#"{"k":{"S":"2"}}"#)],
        beside: vec![Item::new(), item(r#"{"at":{"N":"7"},"of":{"N":"1"}}"#)],
        next: None,
    };
    assert_eq!(page.place_behind(0), None);
    assert_eq!(page.place_behind(1), Some(item(r#"{"k":{"S":"1"}}"#)));
    let second = item(r#"{"k":{"S":"2"},"at":{"N":"7"},"of":{"N":"1"}}"#);
    assert_eq!(page.place_behind(2), Some(second));
}
