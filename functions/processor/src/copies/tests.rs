//! Whole histories in memory: origins and copies change at any time, every change comes as a record
//! at some time, twice, out of order, in other batches; requests fail; executors work at once. When
//! all records have been processed, every copy is what its origin says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::stream_record::LambdaRecord;
use rules::fan_out::parse_and_check;
use rules::{Rule, fold};

use super::in_memory::{COPIES, InMemoryCopies, JOBS, ORIGINS, line, origin_key, product};
use super::*;
use crate::tables::in_memory::{AT_ONCE, Faults};

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

async fn process(copies: &InMemory, batch: &[LambdaRecord]) -> Result<usize, Failure> {
    let effects = batch.iter().enumerate().flat_map(|(position, record)| {
        let effects = copies.rule.decide(record, &Found::default()).unwrap();
        effects.into_iter().map(move |effect| (position, effect))
    });
    let deadline = Deadline::after(Duration::from_secs(3600));
    let outcomes = copies.apply(fold(effects), &Found::default(), deadline).await;
    outcomes.into_iter().map(|outcome| outcome.result).sum()
}

/// The numbers of one seed.
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

/// What users know.
#[derive(Default)]
struct Known {
    /// Origins that were there once.
    once: BTreeSet<u64>,
    /// Copies as somebody read them, marks and all.
    read: Vec<(String, Item)>,
}

/// One change by a user.
fn change(draws: &mut Draws, tables: &InMemoryCopies, number: u64, known: &mut Known) {
    let origin = draws.below(3);
    let key = origin_key(origin);
    let copy = format!("line-{}", draws.below(12));
    known.read.extend(tables.items(COPIES).remove(&copy).map(|item| (copy.clone(), item)));
    match draws.below(9) {
        0..3 => {
            known.once.insert(origin);
            tables.set(ORIGINS, &key, Some(product(origin, &format!("name {number}"))));
        }
        3 => tables.set(ORIGINS, &key, None),
        4..6 => tables.set(COPIES, &copy, Some(line(&copy, origin))),
        6 => tables.set(COPIES, &copy, None),
        // Somebody changes an item that was read some time ago, and puts it whole.
        7 if !known.read.is_empty() => {
            let (copy, item) = known.read.swap_remove(draws.index(known.read.len()));
            let item = item.with("quantity", model::Number::from(number));
            tables.set(COPIES, &copy, Some(item));
        }
        // Somebody writes over what was copied.
        _ => {
            if let Some(item) = tables.items(COPIES).get(&copy) {
                let item = item.clone().with("productName", "by hand");
                tables.set(COPIES, &copy, Some(item));
            }
        }
    }
}

/// Processes some of the pending records; what fails is delivered again.
async fn deliver(draws: &mut Draws, copies: &InMemory, pending: &mut Vec<LambdaRecord>) {
    let mut batch = Vec::new();
    for _ in 0..1 + draws.below(4) {
        if !pending.is_empty() {
            let at = draws.index(pending.len());
            // Some stay, to be delivered again.
            let again = draws.below(6) == 0;
            batch.push(if again { pending[at].clone() } else { pending.swap_remove(at) });
        }
    }
    if process(copies, &batch).await.is_err() {
        pending.extend(batch);
    }
}

fn check(seed: u64, tables: &InMemoryCopies, on_delete: &str, once: &BTreeSet<u64>) {
    let origins = tables.items(ORIGINS);
    for (key, copy) in tables.items(COPIES) {
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
            let faults = Faults { lost: 5, unanswered: 5, unprocessed: 0 };
            let tables = Arc::new(InMemoryCopies::with_faults(seed, faults));
            // Written down after each page, or at the end only.
            let saved_every = Duration::from_secs(3600 * (seed % 2));
            let copies = copies(&tables, on_delete, saved_every);
            let (mut draws, mut pending) = (Draws(seed), Vec::new());
            let mut known = Known::default();
            for number in 0..60 {
                change(&mut draws, &tables, number, &mut known);
                if draws.below(2) == 0 {
                    pending.extend(tables.take_records());
                    // Two executors at once, and a change in between.
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
            for _ in 0..20_000 {
                pending.extend(tables.take_records());
                if pending.is_empty() {
                    break;
                }
                deliver(&mut draws, &copies, &mut pending).await;
            }
            assert!(pending.is_empty(), "seed {seed}: records make records without end");
            check(seed, &tables, on_delete, &known.once);
            written += tables.items(COPIES).len();
        }
    }
    assert!(written > 100, "{written}");
}

#[tokio::test]
async fn a_large_job_goes_on_through_its_own_records() {
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
    // The batch itself does one page.
    process(&copies, &tables.take_records()).await.unwrap();
    assert_eq!(named("Chai"), 3);
    // A newer change stops the older job where it stands.
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

#[tokio::test]
async fn the_self_check_repairs_what_no_record_said() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    for key in ["a", "b"] {
        tables.set(COPIES, key, Some(line(key, 1)));
    }
    // All records are lost.
    tables.take_records();
    let deadline = Deadline::after(Duration::from_secs(60));
    let report = copies.check_sample(7, deadline).await.unwrap();
    let expected = SelfCheckReport { rules: 1, copies: 2, repaired: 2, postponed: 0 };
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
async fn a_repair_goes_through_all_copies() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    for number in 0..20 {
        let key = format!("line-{number:03}");
        tables.set(COPIES, &key, Some(line(&key, 1)));
    }
    // All records are lost.
    tables.take_records();
    let mut request = RepairRequest::read(r#"{"repair":{"rule":"products"}}"#).unwrap().unwrap();
    let deadline = Deadline::after(Duration::from_secs(3600));
    let answer = copies.repair(&request, deadline).await.unwrap();
    assert!(answer.after.is_none());
    assert_eq!((answer.checked.copies, answer.checked.repaired), (20, 20));
    assert!(tables.items(COPIES).values().all(|copy| copy["productName"].as_str() == Some("Chai")));
    // From the middle on.
    let after = r#"{"line":{"S":"line-014"}}"#.to_owned();
    request.after = Some(serde_json::value::RawValue::from_string(after).unwrap());
    assert_eq!(copies.repair(&request, deadline).await.unwrap().checked.copies, 5);
    request.rule = "other".to_owned();
    let unknown = copies.repair(&request, deadline).await;
    assert!(matches!(unknown, Err(Failure::Fatal(_))));
    assert!(RepairRequest::read("{}").unwrap().is_none());
    assert!(RepairRequest::read(r#"{"repair":{"all":true}}"#).is_err());
}
