//! Two deployments write the same copies. A cycle between them ends, and deployments without a
//! cycle are not affected.

use super::*;

/// Returns a deployment with one rule. The attribute `key` of a copy identifies its origin.
fn deployment(tables: &Arc<InMemoryCopies>, name: &str, key: &str, attributes: &str) -> InMemory {
    let rules = parse_and_check(&format!(
        "- {{name: {name}, from: {ORIGINS}, to: {COPIES}, index: by-{key}, key: {{{key}: productID}}, attributes: {{{attributes}}}, on-delete: keep}}"
    ))
    .unwrap();
    let mut copies = copies(tables, "keep", Duration::ZERO);
    copies.rule.rules = rules;
    copies
}

/// Delivers every record to both deployments until no record is left. Returns the number of writes
/// of copies.
async fn settle(deployments: &[InMemory; 2]) -> usize {
    let mut writes = 0;
    for _ in 0..100 {
        let records = deployments[0].tables.take_records();
        if records.is_empty() {
            return writes;
        }
        writes += records.iter().filter(|r| r.event_source_arn.contains(COPIES)).count();
        for deployment in deployments {
            // Each deployment has its own jobs table.
            let name = &deployment.rule.rules[0].name;
            let is_its = |record: &LambdaRecord| match record.record.keys.get("job") {
                Some(job) => job.as_str().unwrap().starts_with(&format!("{name}#")),
                None => true,
            };
            let its: Vec<_> = records.iter().filter(|record| is_its(record)).cloned().collect();
            process(deployment, &its).await.unwrap();
        }
    }
    panic!("records make records without end");
}

/// Runs the self-checks of both deployments. Returns the numbers of repaired and refused copies.
async fn checked(deployments: &[InMemory; 2]) -> (usize, usize) {
    let deadline = Deadline::after(Duration::from_secs(60));
    let mut sums = (0, 0);
    for deployment in deployments {
        let report = deployment.check_sample(7, deadline).await.unwrap();
        sums = (sums.0 + report.repaired, sums.1 + report.refused);
    }
    sums
}

fn number(number: u64) -> AttributeValue {
    AttributeValue::N(model::Number::from(number))
}

/// The rules of two deployments write each other's index keys. The cycle ends, although no origin
/// changes. No self-check starts it again, and a user's write is still propagated.
#[tokio::test]
async fn a_loop_through_index_keys_ends() {
    let tables = Arc::new(InMemoryCopies::default());
    let deployments = [
        deployment(&tables, "one", "shop", "productID: other"),
        deployment(&tables, "two", "productID", "shop: same"),
    ];
    for (id, other) in [(1, 2), (2, 1)] {
        let origin = product(id, "Chai").with("other", number(other)).with("same", number(id));
        tables.set(ORIGINS, &origin_key(id), Some(origin));
    }
    assert_eq!(settle(&deployments).await, 0);
    tables.set(COPIES, "a", Some(Item::new().with("line", "a").with("shop", number(1))));
    let writes = settle(&deployments).await;
    assert!((3..20).contains(&writes), "{writes}");
    for _ in 0..3 {
        assert_eq!(checked(&deployments).await, (0, 1));
        assert_eq!(settle(&deployments).await, 0);
    }
    // The marks of this copy are from the cycle, but a user makes the write.
    let copy = tables.items(COPIES).remove("a").unwrap();
    let shop = if copy["shop"] == number(1) { 2 } else { 1 };
    tables.set(COPIES, "a", Some(copy.with("shop", number(shop))));
    process(&deployments[0], &tables.take_records()).await.unwrap();
    assert_eq!(tables.items(COPIES)["a"]["productID"], number(3 - shop));
}

/// The rules of two deployments write the same attribute. This cycle ends too.
#[tokio::test]
async fn two_that_write_one_attribute_end() {
    let tables = Arc::new(InMemoryCopies::default());
    let deployments = [
        deployment(&tables, "one", "productID", "productName: productName"),
        deployment(&tables, "two", "productID", "productName: otherName"),
    ];
    let origin = product(1, "Chai").with("otherName", "Tea");
    tables.set(ORIGINS, &origin_key(1), Some(origin));
    tables.set(COPIES, "a", Some(line("a", 1)));
    let writes = settle(&deployments).await;
    assert!((2..40).contains(&writes), "{writes}");
    for _ in 0..3 {
        assert_eq!(checked(&deployments).await.0, 0);
        assert_eq!(settle(&deployments).await, 0);
    }
}

/// Two deployments write different attributes of the same copies. Neither refuses the other's
/// writes as a cycle, even if copies move often.
#[tokio::test]
async fn two_that_only_meet_do_not_count() {
    let tables = Arc::new(InMemoryCopies::default());
    let deployments = [
        deployment(&tables, "one", "productID", "productName: productName"),
        deployment(&tables, "two", "productID", "unit: unit"),
    ];
    for (id, name) in [(1, "Chai"), (2, "Tea")] {
        let origin = product(id, name).with("unit", format!("{name} bags"));
        tables.set(ORIGINS, &origin_key(id), Some(origin));
    }
    tables.set(COPIES, "a", Some(line("a", 1)));
    settle(&deployments).await;
    for round in 0..20 {
        let (id, name) = [(2, "Tea"), (1, "Chai")][round % 2];
        let copy = tables.items(COPIES).remove("a").unwrap();
        tables.set(COPIES, "a", Some(copy.with("productID", number(id))));
        if round % 3 == 0 {
            // The records are lost, so the self-checks must find the difference.
            tables.take_records();
            assert_eq!(checked(&deployments).await, (2, 0), "round {round}");
        }
        settle(&deployments).await;
        let copy = tables.items(COPIES).remove("a").unwrap();
        assert_eq!(copy["productName"].as_str(), Some(name), "round {round}");
        assert_eq!(copy["unit"].as_str(), Some(format!("{name} bags").as_str()), "round {round}");
    }
}

/// Another deployment left a mark on an origin when it wrote another attribute. The mark does not
/// stop the check of a new copy, because the job stores where the copied value came from.
#[tokio::test]
async fn a_mark_without_the_value_stops_no_check() {
    let tables = Arc::new(InMemoryCopies::default());
    let copies = copies(&tables, "keep", Duration::ZERO);
    let mark = format!("{}@2027/{:040} 5", origin_key(9), 5);
    let marked = product(1, "Chai").with("_from_elsewhere", mark);
    tables.set(ORIGINS, &origin_key(1), Some(marked.clone()));
    tables.take_records();
    // A user renames the product.
    let renamed = marked.with("productName", "Tea");
    tables.set(ORIGINS, &origin_key(1), Some(renamed.clone()));
    process(&copies, &tables.take_records()).await.unwrap();
    tables.take_records();
    tables.set(COPIES, "a", Some(line("a", 1)));
    process(&copies, &tables.take_records()).await.unwrap();
    assert_eq!(names(&tables), ["Tea"]);
    // The job does not contain this value, so the value may have come with the mark.
    tables.set(ORIGINS, &origin_key(1), Some(renamed.with("productName", "Mate")));
    tables.set(COPIES, "b", Some(line("b", 1)));
    let records = tables.take_records();
    let of_copies: Vec<_> =
        records.into_iter().filter(|r| r.event_source_arn.contains(COPIES)).collect();
    process(&copies, &of_copies).await.unwrap();
    assert_eq!(names(&tables), ["Tea", "-"]);
}
