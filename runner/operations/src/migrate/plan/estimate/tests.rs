//! Tests of reports about plans and sample items.

use model::json::item_from_str;
use model::{KeyAttribute, KeyAttributeType, KeySchema};

use super::*;

/// Returns the report about a plan and sample items of `orders`, as JSON and as text.
fn said(plan: &str, items: &[&str]) -> (Value, String) {
    let file = PlanFile::read("plan.yaml", plan).unwrap();
    let schema = |partition: &str, sort: Option<&str>| {
        let attribute = |name: &str| KeyAttribute {
            name: name.to_owned(),
            attribute_type: KeyAttributeType::S,
        };
        KeySchema { partition: attribute(partition), sort: sort.map(attribute) }
    };
    let sort = (file.plan.kind == Kind::Split).then_some("sk");
    let schemas: BTreeMap<String, KeySchema> =
        [("orders".to_owned(), schema("id", None)), ("shop".to_owned(), schema("pk", sort))].into();
    let compile = |direction| Migration::compile(&file.plan, direction, &schemas).unwrap();
    let migration = compile(Direction::Forward);
    let inverse = (!file.plan.inverse.is_empty()).then(|| compile(Direction::Reverse));
    let (mut all, mut owners) = (SampleResults::default(), BTreeMap::new());
    let items: Vec<model::Item> = items.iter().map(|item| item_from_str(item).unwrap()).collect();
    for item in &items {
        try_one((&migration, inverse.as_ref()), "orders", item, &mut all, &mut owners);
    }
    all.lost_writes.extend(lost_writes::tried(&migration, inverse.as_ref(), "orders", &items));
    let mut whole = EstimatedTotals::default();
    let basis = Basis { plan: &file.plan, migration: &migration, tables: &BTreeMap::new() };
    whole.add(basis, "orders", &items, all.bytes);
    inverse.iter().for_each(|inverse| whole.add_inverse(inverse, &all));
    let prices = Prices::own().unwrap();
    let report = report(&file, &all, &BTreeMap::new(), &whole, &prices);
    let text = as_text(&report);
    (report, text)
}

#[test]
fn a_purge_estimates_the_removed_items() {
    let plan = |condition: &str| {
        format!(
            "migration: leaves\nkind: purge\nfrom:\n  - table: orders\n    where: '{condition}'\n"
        )
    };
    let items =
        [r#"{"id":{"S":"1"},"tenant":{"S":"3"}}"#, r#"{"id":{"S":"2"},"tenant":{"S":"4"}}"#];
    let (report, text) = said(&plan(".tenant == \"3\""), &items);
    assert!(text.contains("source items, 1 of 2 sampled items would be removed\n"), "{text}");
    assert!(!text.contains("targets each") && report["removed"] == 1, "{text}");
    assert!(text.starts_with("leaves: orders\n") && text.contains("-> orders: stays\n"), "{text}");
    assert!(!text.contains("inverse"), "{text}");
    // A condition with a typing error is refused for every item. The report suggests a correct
    // condition.
    let (report, text) = said(&plan(".tenant = \"3\""), &items);
    assert!(text.contains("0 of 2 sampled items would be removed\n"), "{text}");
    assert_eq!(report["refused_count"], 2, "{report}");
    assert!(text.contains("write a comparison such as `.tenant == \"7\"`"), "{text}");
    // Conditions that read only named attributes are not reported.
    assert_eq!(report["reads_any_attribute"], json!([]));
    let (report, text) = said(&plan(".tenant == \"3\" and length < 9"), &items);
    assert_eq!(report["reads_any_attribute"], json!(["orders"]));
    assert!(text.contains("the transform may read any attribute; if possible, name"), "{text}");
}

#[test]
fn names_that_no_item_has_are_reported() {
    let plan = |transform: &str| {
        format!(
            "migration: shop\nkind: restructure\nfrom:\n  - table: orders\n    items: [{{to: shop, transform: '{transform}', key: {{pk: 'O#{{id}}'}}}}]\n"
        )
    };
    let items = [r#"{"id":{"S":"1"},"customer":{"S":"7"}}"#];
    for (transform, told) in [
        (
            ".name = .custmer",
            "unknown attribute: `.custmer` is in none of 1 item of `orders`; did you mean `customer`?",
        ),
        (
            ".name = .title",
            "unknown attribute: `.title` is in none of 1 item of `orders`; existing names are `customer`, `id`",
        ),
    ] {
        let (report, text) = said(&plan(transform), &items);
        assert!(text.contains(told), "{text}");
        assert_eq!(report["unmatched"].as_array().unwrap().len(), 1, "{report}");
    }
    assert_eq!(said(&plan(".name = .customer"), &items).0["unmatched"], json!([]));
}

#[test]
fn names_in_keys_and_in_the_inverse_are_reported() {
    let plan = |key: &str, inverse: &str| {
        format!(
            "migration: shop\nkind: restructure\nfrom:\n  - table: orders\n    items: [{{to: shop, transform: '.kind = 1', key: {{pk: '{key}'}}}}]\ninverse:\n  - table: shop\n    items: [{{to: orders, transform: '{inverse}'}}]\n"
        )
    };
    let right = ("O#{id}{kind}", "del(.pk, .kind)");
    let items = [r#"{"id":{"S":"1"},"customer":{"S":"7"}}"#];
    assert_eq!(said(&plan(right.0, right.1), &items).0["unmatched"], json!([]));
    for (key, inverse, told) in [
        (
            "O#{custmer}",
            right.1,
            "unknown attribute: `.custmer`, used in a key, is in none of the target items of 1 item of `orders`; did you mean `customer`?",
        ),
        (
            right.0,
            "del(.pk, .kind) | .name = .custmer",
            "unknown attribute: inverse: `.custmer` is in none of 1 item of `shop`; did you mean `customer`?",
        ),
    ] {
        let (report, text) = said(&plan(key, inverse), &items);
        assert!(text.contains(told), "{text}");
        assert_eq!(report["unmatched"].as_array().unwrap().len(), 1, "{report}");
    }
}

#[test]
fn each_phase_has_its_units() {
    let plan = "migration: shop\nkind: restructure\nfrom:\n  - table: orders\n    items: [{to: shop, key: {pk: 'O#{id}'}}]\nsegments: 1\n";
    let (report, text) = said(plan, &[r#"{"id":{"S":"1"},"total":{"N":"3"}}"#]);
    let phases = report["phases"].as_array().unwrap();
    let units = |phase: &Value| {
        (phase["write_units"].as_f64().unwrap(), phase["read_units"].as_f64().unwrap())
    };
    let found: Vec<(f64, f64)> = phases.iter().map(units).collect();
    // A comparison scans both tables, and reads the source, the target, and the source again.
    assert_eq!(found, [(1.0, 1.0), (1.0, 0.0), (0.0, 5.0), (1.0, 1.0)], "{report}");
    assert!(text.contains("  comparison: 0.0 write units and 5.0 read units\n"), "{text}");
    assert!(text.contains("1.0 write units and 0.0 read units for each source write"), "{text}");
}

#[test]
fn a_failing_inverse_is_reported_before_the_migration_begins() {
    let order = r#"{"id":{"S":"1"},"total":{"N":"3"}}"#;
    let there = "migration: shop\nkind: restructure\nfrom:\n  - table: orders\n    items: [{to: shop, key: {pk: 'O#{id}'}}]\n";
    let back = |transform: &str| {
        format!(
            "{there}inverse:\n  - table: shop\n    items: [{{to: orders, transform: '{transform}'}}]\n"
        )
    };
    for (plan, invertible, not_invertible, words) in [
        (there.to_owned(), false, 0, "no `inverse`: the migration cannot be reverted"),
        (back("del(.pk)"), true, 0, "1.00 targets for each item (1 sampled)"),
        (back("del(.pk, .total)"), false, 1, "not restored by a revert: orders|"),
        (back("del(.pk, .id)"), false, 1, "not restored by a revert: "),
    ] {
        let (report, text) = said(&plan, &[order]);
        let found = (&report["invertible"], &report["not_invertible_count"]);
        assert_eq!(found, (&json!(invertible), &json!(not_invertible)), "{plan}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn an_inverse_that_loses_updates_is_reported() {
    let plan = |inverse: &str| {
        format!(
            "migration: state\nkind: in-place\nfrom:\n  - table: orders\n    transform: 'if has(\"status\") then .state = .status | del(.status) else . end'\ninverse:\n  - table: orders\n    transform: '{inverse}'\n"
        )
    };
    let items = [r#"{"id":{"S":"1"},"status":{"S":"open"}}"#];
    let (report, text) =
        said(&plan("if has(\"state\") then .status = .state | del(.state) else . end"), &items);
    assert_eq!(report["lost_writes"].as_array().unwrap().len(), 1, "{report}");
    assert!(
        text.contains("  lost update: orders|{\"id\":{\"S\":\"1\"}}: during a revert"),
        "{text}"
    );
    let keeps = "if has(\"state\") then (if has(\"status\") then . else .status = .state end) | del(.state) else . end";
    let (report, text) = said(&plan(keeps), &items);
    assert_eq!((&report["lost_writes"], &report["invertible"]), (&json!([]), &json!(true)));
    assert!(!text.contains("lost update"), "{text}");
    // The inverse reads the old name, which no changed item has. The report does not list the name.
    assert_eq!(report["unmatched"], json!([]), "{report}");
}

#[test]
fn an_item_of_which_nothing_becomes_is_dropped_or_refused() {
    let plan = |transform: &str| {
        format!(
            "migration: prices\nkind: restructure\nfrom:\n  - table: orders\n    items:\n      - to: shop\n        key: {{pk: 'O#{{id}}'}}\n        transform: '{transform}'\n"
        )
    };
    let items = [
        r#"{"id":{"S":"kept"},"price":{"S":"19.99"}}"#,
        r#"{"id":{"S":"lost"},"price":{"S":""}}"#,
        r#"{"id":{"S":"cut"},"price":{"S":"5#c"}}"#,
        r#"{"id":{"S":"two"},"price":{"S":"5 6"}}"#,
    ];
    let (report, text) = said(&plan(".price = (.price|tonumber)"), &items);
    assert_eq!((&report["refused_count"], &report["dropped"]), (&json!(3), &json!(0)), "{report}");
    for name in ["lost", "cut", "two"] {
        assert!(text.contains(&format!(r#"orders|{{"id":{{"S":"{name}"}}}}"#)), "{text}");
    }
    assert!(text.contains("cannot be parsed as a number"), "{text}");
    let (report, text) = said(&plan("select(.price != \"\") | .price = 1"), &items);
    assert_eq!((&report["refused_count"], &report["dropped"]), (&json!(0), &json!(1)), "{report}");
    assert!(text.contains("the transform drops 1 of 4 sampled items\n"), "{text}");
    let (report, _) = said(&plan(".lines[]?"), &items);
    assert_eq!((&report["refused_count"], &report["dropped"]), (&json!(4), &json!(0)), "{report}");
}

#[test]
fn a_partition_is_hot_only_where_enough_was_tried() {
    let hot = |sources: u64, partitions: &[u64]| {
        let outputs = partitions.iter().sum();
        let partitions = partitions.iter().enumerate();
        let partitions = partitions.map(|(n, count)| (format!("shop {n}"), *count)).collect();
        hot_partitions(&SampleResults { sources, outputs, partitions, ..SampleResults::default() })
    };
    // Five documents with a few parts each are too few for a report of hot partitions.
    assert!(hot(5, &[6, 6, 6, 6, 7]).is_empty());
    assert!(hot(5, &[100, 100, 100, 100, 100]).is_empty());
    assert!(hot(500, &[1; 500]).is_empty());
    assert!(hot(500, &[500]).is_empty());
    let spread = [vec![1; 400], vec![100]].concat();
    assert_eq!(hot(500, &spread), ["shop 400 gets 100 of 500 writes"]);
}

#[test]
fn a_document_of_many_parts_makes_a_hot_partition() {
    let plan = "migration: parts\nkind: split\nfrom:\n  - table: orders\n    to: shop\n    key: {pk: 'O#{id}'}\n    parts: [{name: LINE, path: lines, cut: each}]\n";
    let document = |id: u64| {
        let lines = if id == 7 { 100 } else { 1 };
        let lines = vec![r#"{"S":"x"}"#; lines].join(",");
        format!(r#"{{"id":{{"S":"{id}"}},"lines":{{"L":[{lines}]}}}}"#)
    };
    let documents: Vec<String> = (0..50).map(document).collect();
    let (report, text) = said(plan, &documents.iter().map(String::as_str).collect::<Vec<_>>());
    let hot = report["hot_partitions"].as_array().unwrap();
    assert_eq!(hot.len(), 1, "{report}");
    let told = hot[0].as_str().unwrap();
    assert!(told.contains("O#7") && told.ends_with("gets 101 of 199 writes"), "{told}");
    assert!(text.contains(told), "{text}");
}
