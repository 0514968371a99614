//! `weir migrate plan`: what a plan would do, tried on samples; it writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use model::json::item_to_string;
use rules::migration::plan::{Backfill, Direction, Kind, Plan};
use rules::migration::{Migration, Rewrite};
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan_file::PlanFile;
use super::report::at;
use super::start::{Wrong, check};
use super::tables::{self, TableFacts};
use super::{Context, lines};
use client::exit::Exit;
use client::output::{self, Output, show};

/// US dollars, as data: they change, and are others in other regions.
const PRICES: &str = include_str!("prices.json");
/// Write units per second that a new on-demand table takes at once. Source: DynamoDB developer
/// guide, "On-demand capacity mode".
const FIRST_WRITE_UNITS: f64 = 4_000.0;
/// A partition that gets more of the writes than this share is told of.
const HOT_SHARE: f64 = 0.1;
/// With fewer writes than this, some of them are a large share by chance.
const HOT_WRITES_MIN: u64 = 40;
/// With fewer items than this, what one of them becomes is a large share by itself.
const HOT_SOURCES_MIN: u64 = 40;
/// Items of each table that are tried before a migration begins.
const TRIED_AT_START: u64 = 100;
/// Samples before and after that are shown.
const SHOWN: usize = 2;

#[derive(Deserialize)]
struct Prices {
    region: String,
    of: String,
    on_demand: OnDemand,
    provisioned: Provisioned,
}

#[derive(Deserialize)]
struct OnDemand {
    million_writes: f64,
    million_reads: f64,
}

#[derive(Deserialize)]
struct Provisioned {
    write_unit_hour: f64,
    read_unit_hour: f64,
}

impl Prices {
    fn on_demand(&self, writes: f64, reads: f64) -> f64 {
        (writes * self.on_demand.million_writes + reads * self.on_demand.million_reads) / 1e6
    }

    /// For units that are provisioned for as long as they are needed: one is good for one request in
    /// each second.
    fn provisioned(&self, writes: f64, reads: f64) -> f64 {
        let hours = |units: f64| units / 3600.0;
        hours(writes) * self.provisioned.write_unit_hour
            + hours(reads) * self.provisioned.read_unit_hour
    }
}

/// Of all items, as far as the samples tell.
#[derive(Default)]
struct Whole {
    items: u64,
    source_bytes: f64,
    /// What the targets hold afterwards, without marks; in place, what the changed items hold.
    target_bytes: f64,
    writes: f64,
    reads: f64,
}

#[derive(Default)]
struct Tried {
    sources: u64,
    outputs: u64,
    write_units: u64,
    /// Of what is written.
    bytes: u64,
    /// Items in place that are as they have to be.
    kept: u64,
    /// Items that the program says it drops: nothing becomes of them.
    dropped: u64,
    refused: Vec<String>,
    collisions: Vec<String>,
    /// Items that the way back does not make again.
    not_invertible: Vec<String>,
    /// Tables whose items the plan can look at as a whole, where it changes them in place.
    looks_at_any: BTreeSet<String>,
    shown: Vec<(String, Vec<String>)>,
    partitions: BTreeMap<String, u64>,
}

/// Checks a plan, tries it on samples and reports.
pub(super) async fn run(context: &Context, file: &Path, samples: u64) -> Result<Exit, String> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read `{name}`: {e}"))?;
    let file = PlanFile::read(&name, &text)?;
    let migration = check(context, &file.plan).await.map_err(|wrong| match wrong {
        Wrong::Plan(errors) => file.show(&errors),
        Wrong::Other(reason) => reason,
    })?;
    let client = &context.control.client;
    let found = tables::describe(client, &file.plan).await?;
    let inverse = inverse_of(&file.plan, &found)?;
    let mut all = Tried::default();
    let mut whole = Whole::default();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for table in file.plan.source_tables(Direction::Forward) {
        let sample = tables::sample(client, table, samples).await?;
        let before = (all.sources, all.write_units, all.bytes);
        for item in &sample {
            try_one((&migration, inverse.as_ref()), table, item, &mut all, &mut owners);
        }
        let facts = found.get(table);
        // The count of DescribeTable may be hours old; what was seen is there in any case.
        let count = facts.map_or(0, |facts| facts.items).max(sample.len() as u64);
        let tried = (all.sources - before.0).max(1);
        whole.items += count;
        whole.writes += ratio(all.write_units - before.1, tried) * float(count);
        whole.target_bytes += ratio(all.bytes - before.2, tried) * float(count);
        if file.plan.backfill == Backfill::Touch {
            // An item that becomes something is written twice where it stands: its mark is put on and
            // taken off.
            let touched = sample.iter().filter(|item| migration.selects(table, item) == Ok(true));
            let units: u64 = touched.map(write_units).sum();
            whole.writes += 2.0 * ratio(units, tried) * float(count);
        }
        // That of DescribeTable is as old as its count.
        let seen: u64 = sample.iter().map(|item| item.size() as u64).sum();
        let bytes = facts.map_or(0.0, |facts| float(facts.bytes));
        let bytes = bytes.max(ratio(seen, tried) * float(count));
        whole.source_bytes += bytes;
        whole.reads += bytes / 4096.0;
    }
    let prices: Prices =
        serde_json::from_str(PRICES).map_err(|error| format!("the list of prices: {error}"))?;
    let report = report(&file, &all, &found, &whole, &prices);
    match context.output {
        Output::Table => show(&as_text(&report)),
        _ => show(&format!("{report}\n")),
    }
    if all.sources > 0 && all.refused.len() as u64 == all.sources {
        output::say("nothing of what was tried can be transformed; correct the plan first");
        return Ok(Exit::Differences);
    }
    let next = format!("weir migrate start {name} --local-workers 4");
    output::next(&[(&next, "begin it")]);
    let is_wrong = [&all.refused, &all.collisions, &all.not_invertible];
    Ok(if is_wrong.iter().all(|found| found.is_empty()) { Exit::Done } else { Exit::Differences })
}

/// The way back; none if the plan has none.
fn inverse_of(
    plan: &Plan,
    found: &BTreeMap<String, TableFacts>,
) -> Result<Option<Migration>, String> {
    if plan.inverse.is_empty() {
        return Ok(None);
    }
    let compiled = Migration::compile(plan, Direction::Reverse, &tables::schemas(found));
    compiled.map(Some).map_err(|errors| lines(&errors))
}

/// Why the first of some samples cannot be transformed, if none of them can.
///
/// # Errors
/// When a table cannot be read.
pub(super) async fn all_refused(
    context: &Context,
    plan: &Plan,
    migration: &Migration,
) -> Result<Option<String>, String> {
    let (mut all, mut owners) = (Tried::default(), BTreeMap::new());
    for table in plan.source_tables(Direction::Forward) {
        for item in tables::sample(&context.control.client, table, TRIED_AT_START).await? {
            try_one((migration, None), table, &item, &mut all, &mut owners);
        }
    }
    Ok(all.refused.first().filter(|_| all.refused.len() as u64 == all.sources).cloned())
}

fn try_one(
    (migration, inverse): (&Migration, Option<&Migration>),
    table: &str,
    item: &model::Item,
    all: &mut Tried,
    owners: &mut BTreeMap<String, String>,
) {
    all.sources += 1;
    let source = match migration.source_item(table, item) {
        Ok(source) => source.to_string(),
        Err(reason) => return all.refused.push(reason),
    };
    let outputs = match migration.outputs(table, item) {
        _ if migration.kind().is_in_place() => BTreeMap::new(),
        Ok(outputs) => outputs,
        Err(reason) => return all.refused.push(format!("{source}: {reason}")),
    };
    let mut after = Vec::new();
    if migration.looks_at_any(table) {
        all.looks_at_any.insert(table.to_owned());
    }
    if migration.kind().is_in_place() {
        match migration.rewrite(table, item) {
            Err(reason) => return all.refused.push(format!("{source}: {reason}")),
            Ok(Rewrite::Keep) => all.kept += 1,
            Ok(Rewrite::Delete) => {
                all.outputs += 1;
                all.write_units += write_units(item);
                after.push(format!("{table}: removed"));
            }
            Ok(Rewrite::Change(made)) => {
                all.outputs += 1;
                all.write_units += write_units(item).max(write_units(&made));
                all.bytes += made.size() as u64;
                after.push(format!("{table}: {}", item_to_string(&made)));
            }
        }
    }
    all.dropped += u64::from(outputs.is_empty() && !migration.kind().is_in_place());
    for (target, made) in outputs {
        all.outputs += 1;
        all.write_units += write_units(&made);
        all.bytes += made.size() as u64;
        let key = format!("{} {}", target.table, migration.key_text(&target.table, &target.key));
        let partition = format!("{} {:?}", target.table, target.key.partition);
        *all.partitions.entry(partition).or_default() += 1;
        if let Some(other) = owners.insert(key.clone(), source.clone()) {
            all.collisions.push(format!("{key}: {other} and {source}"));
        }
        after.push(format!("{}: {}", target.table, item_to_string(&made)));
    }
    all.not_invertible.extend(inverse.and_then(|inverse| lost(migration, inverse, table, item)));
    let is_new_table =
        !all.shown.iter().any(|(before, _)| before.starts_with(&format!("{table}:")));
    if all.shown.len() < SHOWN || is_new_table {
        all.shown.push((format!("{table}: {}", item_to_string(item)), after));
    }
}

/// Why the way back does not make an item again, as a comparison counts it; none if it does. What is
/// changed in place is compared when it is as the plan wants it.
fn lost(
    migration: &Migration,
    inverse: &Migration,
    table: &str,
    item: &model::Item,
) -> Option<String> {
    let changed = match migration.kind().is_in_place() {
        true => migration.rewrite(table, item).ok()?,
        false => Rewrite::Keep,
    };
    match changed {
        Rewrite::Keep => migration.comes_back(inverse, table, item).err(),
        Rewrite::Change(made) => migration.comes_back(inverse, table, &made).err(),
        Rewrite::Delete => None,
    }
}

/// A write unit is 1 KB of an item, rounded up.
fn write_units(item: &model::Item) -> u64 {
    item.size().div_ceil(1024).max(1) as u64
}

fn report(
    file: &PlanFile,
    all: &Tried,
    found: &BTreeMap<String, TableFacts>,
    &Whole { items, source_bytes, target_bytes, writes, reads }: &Whole,
    prices: &Prices,
) -> Value {
    let indexes: usize = file
        .plan
        .target_tables(Direction::Forward)
        .iter()
        .filter_map(|table| found.get(*table))
        .map(|facts| facts.indexes)
        .sum();
    let provisioned: u64 = file
        .plan
        .target_tables(Direction::Forward)
        .iter()
        .filter_map(|table| found.get(*table))
        .map(|facts| facts.provisioned_write_units)
        .sum();
    let rate = if provisioned > 0 { float(provisioned) } else { FIRST_WRITE_UNITS };
    let hot = hot_partitions(all);
    let refused: BTreeSet<&String> = all.refused.iter().collect();
    json!({
        "schema": "weir.migration.plan/v1",
        "migration": file.plan.migration,
        "sources": file.plan.source_tables(Direction::Forward),
        "targets": file.plan.target_tables(Direction::Forward),
        "source_items": items,
        "source_bytes": source_bytes.ceil(),
        "target_bytes": target_bytes.ceil(),
        "tried": all.sources,
        "kept": all.kept,
        "dropped": all.dropped,
        "removed": (file.plan.kind == Kind::Purge).then_some(all.outputs),
        "targets_per_source": ratio(all.outputs, all.sources.max(1)),
        "write_units": writes.ceil(),
        "write_units_note": format!("{indexes} global indexes of the targets add their own"),
        "read_units": reads.ceil(),
        "on_demand_dollars": prices.on_demand(writes, reads),
        "provisioned_dollars": prices.provisioned(writes, reads),
        "prices_of": prices.of,
        "prices_region": prices.region,
        "seconds_at_least": (writes / rate).ceil(),
        "refused": refused.iter().take(10).collect::<Vec<_>>(),
        "refused_count": all.refused.len(),
        "collisions": all.collisions.iter().take(10).collect::<Vec<_>>(),
        "collisions_count": all.collisions.len(),
        "hot_partitions": hot,
        "looks_at_any": all.looks_at_any,
        "has_way_back": !file.plan.inverse.is_empty(),
        "invertible": !file.plan.inverse.is_empty() && all.not_invertible.is_empty(),
        "not_invertible": all.not_invertible.iter().take(10).collect::<Vec<_>>(),
        "not_invertible_count": all.not_invertible.len(),
        "samples": all.shown.iter().map(|(before, after)| json!({ "before": before, "after": after })).collect::<Vec<_>>(),
    })
}

/// The partitions that get more of the writes than they should; none if too little was tried to tell.
fn hot_partitions(all: &Tried) -> Vec<String> {
    let is_enough = all.outputs >= HOT_WRITES_MIN && all.sources >= HOT_SOURCES_MIN;
    if !is_enough || all.partitions.len() < 2 {
        return Vec::new();
    }
    let hot = all.partitions.iter().filter(|(_, count)| ratio(**count, all.outputs) > HOT_SHARE);
    hot.map(|(partition, count)| format!("{partition} gets {count} of {} writes", all.outputs))
        .collect()
}

fn as_text(report: &Value) -> String {
    let list = |name: &str| {
        let names = at(report, &format!("/{name}")).as_array().into_iter().flatten();
        names.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    let bytes_text = |place: &str| {
        let bytes =
            at(report, place).as_u64().or_else(|| at(report, place).as_f64().map(whole_bytes));
        indicatif::BinaryBytes(bytes.unwrap_or(0)).to_string()
    };
    let tried = at(report, "/tried");
    let becomes = match at(report, "/removed").as_u64() {
        Some(removed) => format!("{removed} of {tried} tried would be removed"),
        None => {
            let targets = at(report, "/targets_per_source").as_f64().unwrap_or(0.0);
            format!("{targets:.2} targets each ({tried} tried)")
        }
    };
    let mut text = format!(
        "{}: {} -> {}\n  about {} source items, {becomes}\n  about {} read and {} written\n  about {} write units and {} read units, {:.4} dollars on demand or {:.4} provisioned ({}, prices of {}), at least {} s\n",
        at(report, "/migration").as_str().unwrap_or_default(),
        list("sources"),
        list("targets"),
        at(report, "/source_items"),
        bytes_text("/source_bytes"),
        bytes_text("/target_bytes"),
        at(report, "/write_units"),
        at(report, "/read_units"),
        at(report, "/on_demand_dollars").as_f64().unwrap_or(0.0),
        at(report, "/provisioned_dollars").as_f64().unwrap_or(0.0),
        at(report, "/prices_region").as_str().unwrap_or_default(),
        at(report, "/prices_of").as_str().unwrap_or_default(),
        at(report, "/seconds_at_least"),
    );
    for (name, title) in [
        ("refused", "cannot be transformed"),
        ("collisions", "two items for one key"),
        ("not_invertible", "does not come back"),
        ("hot_partitions", "hot partition"),
        ("looks_at_any", "can look at any attribute, so name those that it needs if you can"),
    ] {
        let shown = at(report, &format!("/{name}")).as_array().map_or(0, Vec::len);
        if let Some(all) = at(report, &format!("/{name}_count")).as_u64()
            && all > shown as u64
        {
            text.push_str(&format!("  {title}: {all} of {tried} tried, such as\n"));
        }
        for entry in at(report, &format!("/{name}")).as_array().into_iter().flatten() {
            text.push_str(&format!("  {title}: {}\n", entry.as_str().unwrap_or_default()));
        }
    }
    if at(report, "/kept").as_u64().is_some_and(|kept| kept > 0) {
        text.push_str(&format!("  {} of those tried stay as they are\n", at(report, "/kept")));
    }
    if at(report, "/dropped").as_u64().is_some_and(|dropped| dropped > 0) {
        let dropped = at(report, "/dropped");
        text.push_str(&format!("  {dropped} of {tried} tried are dropped by the transform\n"));
    }
    // A purge can have none.
    if at(report, "/has_way_back") == &json!(false) && at(report, "/removed").is_null() {
        text.push_str("  no `inverse`: there is no way back\n");
    }
    for sample in at(report, "/samples").as_array().into_iter().flatten() {
        text.push_str(&format!("  - {}\n", at(sample, "/before").as_str().unwrap_or_default()));
        for after in at(sample, "/after").as_array().into_iter().flatten() {
            text.push_str(&format!("    -> {}\n", after.as_str().unwrap_or_default()));
        }
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "estimates do not need more than 52 bits")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of bytes is neither negative nor that large"
)]
fn whole_bytes(bytes: f64) -> u64 {
    bytes as u64
}

fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole)
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;
    use model::{KeyAttribute, KeyAttributeType, KeySchema};

    use super::*;

    /// What is said of a plan that was tried on items of `orders`: as JSON, and to a person.
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
            [("orders".to_owned(), schema("id", None)), ("shop".to_owned(), schema("pk", sort))]
                .into();
        let compile = |direction| Migration::compile(&file.plan, direction, &schemas).unwrap();
        let migration = compile(Direction::Forward);
        let inverse = (!file.plan.inverse.is_empty()).then(|| compile(Direction::Reverse));
        let (mut all, mut owners) = (Tried::default(), BTreeMap::new());
        for item in items {
            let item = item_from_str(item).unwrap();
            try_one((&migration, inverse.as_ref()), "orders", &item, &mut all, &mut owners);
        }
        let prices: Prices = serde_json::from_str(PRICES).unwrap();
        let report = report(&file, &all, &BTreeMap::new(), &Whole::default(), &prices);
        let text = as_text(&report);
        (report, text)
    }

    #[test]
    fn a_purge_says_how_many_it_would_remove() {
        let plan = |condition: &str| {
            format!(
                "migration: leaves\nkind: purge\nfrom:\n  - table: orders\n    where: '{condition}'\n"
            )
        };
        let items =
            [r#"{"id":{"S":"1"},"tenant":{"S":"3"}}"#, r#"{"id":{"S":"2"},"tenant":{"S":"4"}}"#];
        let (report, text) = said(&plan(".tenant == \"3\""), &items);
        assert!(text.contains("source items, 1 of 2 tried would be removed\n"), "{text}");
        assert!(!text.contains("targets each") && report["removed"] == 1, "{text}");
        assert!(!text.contains("inverse"), "{text}");
        // A slip removes nothing, and is told.
        let (report, text) = said(&plan(".tenant = \"3\""), &items);
        assert!(text.contains("0 of 2 tried would be removed\n"), "{text}");
        assert_eq!(report["refused_count"], 2, "{report}");
        assert!(text.contains("write a comparison such as `.tenant == \"7\"`"), "{text}");
        // What no condition can say is told.
        assert_eq!(report["looks_at_any"], json!([]));
        let (report, text) = said(&plan(".tenant == \"3\" and length < 9"), &items);
        assert_eq!(report["looks_at_any"], json!(["orders"]));
        assert!(text.contains("can look at any attribute, so name"), "{text}");
    }

    #[test]
    fn a_way_back_that_does_not_work_is_told_before_the_migration_begins() {
        let order = r#"{"id":{"S":"1"},"total":{"N":"3"}}"#;
        let there = "migration: shop\nkind: restructure\nfrom:\n  - table: orders\n    items: [{to: shop, key: {pk: 'O#{id}'}}]\n";
        let back = |transform: &str| {
            format!(
                "{there}inverse:\n  - table: shop\n    items: [{{to: orders, transform: '{transform}'}}]\n"
            )
        };
        for (plan, invertible, not_invertible, words) in [
            (there.to_owned(), false, 0, "no `inverse`: there is no way back"),
            (back("del(.pk)"), true, 0, "1.00 targets each (1 tried)"),
            (back("del(.pk, .total)"), false, 1, "does not come back: orders|"),
            (back("del(.pk, .id)"), false, 1, "does not come back: "),
        ] {
            let (report, text) = said(&plan, &[order]);
            let found = (&report["invertible"], &report["not_invertible_count"]);
            assert_eq!(found, (&json!(invertible), &json!(not_invertible)), "{plan}");
            assert!(text.contains(words), "{text}");
        }
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
        assert_eq!(
            (&report["refused_count"], &report["dropped"]),
            (&json!(3), &json!(0)),
            "{report}"
        );
        for name in ["lost", "cut", "two"] {
            assert!(text.contains(&format!(r#"orders|{{"id":{{"S":"{name}"}}}}"#)), "{text}");
        }
        assert!(text.contains("cannot be parsed as a number"), "{text}");
        let (report, text) = said(&plan("select(.price != \"\") | .price = 1"), &items);
        assert_eq!(
            (&report["refused_count"], &report["dropped"]),
            (&json!(0), &json!(1)),
            "{report}"
        );
        assert!(text.contains("1 of 4 tried are dropped by the transform\n"), "{text}");
        let (report, _) = said(&plan(".lines[]?"), &items);
        assert_eq!(
            (&report["refused_count"], &report["dropped"]),
            (&json!(4), &json!(0)),
            "{report}"
        );
    }

    #[test]
    fn a_partition_is_hot_only_where_enough_was_tried() {
        let hot = |sources: u64, partitions: &[u64]| {
            let outputs = partitions.iter().sum();
            let partitions = partitions.iter().enumerate();
            let partitions = partitions.map(|(n, count)| (format!("shop {n}"), *count)).collect();
            hot_partitions(&Tried { sources, outputs, partitions, ..Tried::default() })
        };
        // Five documents of some parts each.
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

    #[test]
    fn a_million_of_each_costs_what_the_list_says() {
        let prices: Prices = serde_json::from_str(PRICES).unwrap();
        let near = |dollars: f64, expected: f64| (dollars - expected).abs() < 1e-9;
        assert!(near(prices.on_demand(1e6, 0.0), prices.on_demand.million_writes));
        assert!(near(prices.on_demand(0.0, 2e6), 2.0 * prices.on_demand.million_reads));
        // 3,600 requests are one unit for an hour.
        assert!(near(prices.provisioned(3600.0, 0.0), prices.provisioned.write_unit_hour));
        assert!(near(prices.provisioned(0.0, 7200.0), 2.0 * prices.provisioned.read_unit_hour));
        let day = prices.of.split('-').map(|part| part.parse::<u32>().unwrap());
        assert!(day.count() == 3, "{}", prices.of);
    }
}
