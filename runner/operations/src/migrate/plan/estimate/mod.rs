//! `weir migrate plan`: applies a plan to sampled items, and reports the effects and costs. This
//! module writes nothing.

mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use design::Prices;
use model::KeyValue;
use model::json::item_to_string;
use rules::migration::plan::{Direction, Kind, Plan};
use rules::migration::{Migration, Rewrite};
use serde_json::{Value, json};

use self::sizes::Sizes;
use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result};
use crate::migrate::plan::check::{PlanErrors, check};
use crate::migrate::plan::compile::lines;
use crate::migrate::plan::cost::{Basis, Cost};
use crate::migrate::plan::plan_file::PlanFile;
use crate::migrate::plan::tables;
use crate::migrate::plan::tables::TableFacts;
use crate::migrate::plan::{archives, lost_writes, targets, unmatched};
use crate::migrate::report::application;
use crate::migrate::report::pointer::at;
use client::exit::Exit;
use client::interruption;
use client::output::{self, Output, show};

/// Write units per second that a new on-demand table accepts immediately. Source: DynamoDB
/// developer guide, "On-demand capacity mode".
const FIRST_WRITE_UNITS: f64 = 4_000.0;
/// Fraction of all writes above which a partition is reported as hot.
const HOT_SHARE: f64 = 0.1;
/// Minimum number of sampled writes for a report of hot partitions. With fewer writes, a partition
/// may get more than `HOT_SHARE` of the writes by chance.
const HOT_WRITES_MIN: u64 = 40;
/// Minimum number of sampled items for a report of hot partitions. With fewer items, the writes of
/// a single item may exceed `HOT_SHARE`.
const HOT_SOURCES_MIN: u64 = 40;
/// Number of samples that the report shows as pairs of source item and result.
const SHOWN: usize = 2;

impl SampleResults {
    /// Counts the bytes of an item that the migration writes into a table.
    fn made(&mut self, table: &str, item: &model::Item) {
        self.bytes += item.size() as u64;
        self.after.add(item);
        self.of_targets.entry(table.to_owned()).or_default().push(item.clone());
    }
}

/// Totals for all items, estimated from the samples.
#[derive(Default)]
struct EstimatedTotals {
    items: u64,
    source_bytes: f64,
    /// Bytes of the targets after the migration, without marks. For an in-place change, bytes of
    /// the changed items.
    target_bytes: f64,
    cost: Cost,
    /// Messages about attribute names in the plan that no sampled item has.
    unmatched: Vec<String>,
    is_slip: bool,
    /// Messages about targets that are not empty.
    occupied: Vec<String>,
    /// Messages about archives that a purge could not erase.
    archives: Vec<String>,
}

#[derive(Default)]
struct SampleResults {
    /// Sizes of the source items.
    before: Sizes,
    /// Sizes of the items that are written.
    after: Sizes,
    sources: u64,
    outputs: u64,
    /// Bytes that the migration writes.
    bytes: u64,
    /// Number of items that an in-place change leaves unchanged.
    kept: u64,
    /// Number of source items for which the transform returns no item.
    dropped: u64,
    refused: Vec<String>,
    collisions: Vec<String>,
    /// Items that the inverse does not restore exactly.
    not_invertible: Vec<String>,
    /// Updates with the old attributes that an in-place change loses.
    lost_writes: Vec<String>,
    /// Tables that are changed in place by a transform that may read any attribute.
    reads_any_attribute: BTreeSet<String>,
    shown: Vec<(String, Vec<String>)>,
    partitions: BTreeMap<String, u64>,
    /// The items of each target table after the migration, which are the input of `inverse`.
    of_targets: BTreeMap<String, Vec<model::Item>>,
}

/// Checks a plan, transforms samples, and prints the report.
pub(crate) async fn run(
    context: &Context,
    file: &Path,
    samples: u64,
    prices: &Prices,
) -> Result<Exit> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read `{name}`: {e}"))?;
    let file = PlanFile::read(&name, &text)?;
    let migration = check(context, &file.plan).await.map_err(|wrong| match wrong {
        PlanErrors::Plan(errors) => Failure::Fatal(file.show(&errors)),
        PlanErrors::Other(failure) => failure,
    })?;
    let client = &context.control.client;
    let found = tables::describe(client, &file.plan).await?;
    let inverse = inverse_of(&file.plan, &found)?;
    let mut all = SampleResults::default();
    let mut whole = EstimatedTotals::default();
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    let basis = Basis { plan: &file.plan, migration: &migration, tables: &found };
    for table in file.plan.source_tables(Direction::Forward) {
        interruption::reached(format!("{} items sampled, `{table}` is next", all.sources));
        let sample = tables::sample(client, table, samples).await?;
        let bytes = all.bytes;
        for item in &sample {
            try_one((&migration, inverse.as_ref()), table, item, &mut all, &mut owners);
        }
        all.lost_writes.extend(lost_writes::tried(&migration, inverse.as_ref(), table, &sample));
        whole.add(basis, table, &sample, all.bytes - bytes);
    }
    whole.cost.per_source(all.sources);
    inverse.iter().for_each(|inverse| whole.add_inverse(inverse, &all));
    whole.occupied = targets::occupied(client, &file.plan, &found).await?;
    whole.archives = archives::unreachable(&file.plan, &context.endpoint);
    let report = report(&file, &all, &found, &whole, prices);
    match context.output {
        Output::Table => show(&as_text(&report)),
        _ => show(&format!("{report}\n")),
    }
    if all.sources > 0 && all.refused.len() as u64 == all.sources {
        output::say("none of the sampled items can be transformed; correct the plan first");
        return Ok(Exit::Differences);
    }
    if file.plan.kind == Kind::Purge && all.outputs == 0 {
        output::say("none of the sampled items would be removed; correct the condition first");
        return Ok(Exit::Differences);
    }
    application::remind(file.plan.kind);
    let is_wrong = [
        &all.refused,
        &all.collisions,
        &all.not_invertible,
        &all.lost_writes,
        &whole.occupied,
        &whole.archives,
    ];
    let is_right = is_wrong.iter().all(|found| found.is_empty()) && !whole.is_slip;
    if !is_right {
        output::say(
            "the report lists problems of the plan; start the migration only if you accept them",
        );
        return Ok(Exit::Differences);
    }
    let start = format!("weir migrate start {name}");
    output::next(&[
        (&format!("{start} --local-workers 4"), "start the migration with workers on this machine"),
        (&start, "start the migration, if `weir up` or a function on AWS follows the sources"),
    ]);
    Ok(Exit::Done)
}

impl EstimatedTotals {
    /// Adds a source table with its samples.
    fn add(&mut self, basis: Basis<'_>, table: &str, sample: &[model::Item], made: u64) {
        let facts = basis.tables.get(table);
        // DescribeTable's count may be hours old, but the table has at least the sampled items.
        let count = facts.map_or(0, |facts| facts.items).max(sample.len() as u64);
        let tried = (sample.len() as u64).max(1);
        self.items += count;
        self.target_bytes += ratio(made, tried) * float(count);
        self.cost.add_table(basis, table, sample, float(count));
        // DescribeTable's size may be hours old too, so the size of the samples is the minimum.
        let seen: u64 = sample.iter().map(|item| item.size() as u64).sum();
        let bytes = facts.map_or(0.0, |facts| float(facts.bytes));
        self.source_bytes += bytes.max(ratio(seen, tried) * float(count));
        for found in basis.migration.unmatched(table, sample) {
            self.is_slip |= unmatched::is_slip(&found);
            self.unmatched.push(unmatched::line(table, sample.len(), &found));
        }
    }

    /// Adds the attribute names that `inverse` reads and that no transformed sample has.
    fn add_inverse(&mut self, inverse: &Migration, all: &SampleResults) {
        for (table, items) in &all.of_targets {
            for found in inverse.unmatched(table, items) {
                self.is_slip |= unmatched::is_slip(&found);
                let line = unmatched::line(table, items.len(), &found);
                self.unmatched.push(format!("inverse: {line}"));
            }
        }
    }
}

/// Returns the prices from a file, or by default the built-in prices.
pub(crate) fn read_prices(file: Option<&Path>) -> Result<Prices> {
    let Some(file) = file else { return Ok(Prices::own().map_err(|error| error.to_string())?) };
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read `{name}`: {e}"))?;
    Ok(Prices::parse(&text).map_err(|error| format!("`{name}`: {error}"))?)
}

/// Returns the inverse migration; `None` if the plan has no `inverse`.
fn inverse_of(plan: &Plan, found: &BTreeMap<String, TableFacts>) -> Result<Option<Migration>> {
    if plan.inverse.is_empty() {
        return Ok(None);
    }
    let compiled = Migration::compile(plan, Direction::Reverse, &tables::schemas(found));
    compiled.map(Some).map_err(|errors| Failure::Fatal(lines(&errors)))
}

/// Returns why the first sample cannot be transformed, if no sample can; `None` if at least one
/// sample can be transformed.
///
/// # Errors
/// When a table cannot be read.
pub(crate) async fn all_refused(
    context: &Context,
    plan: &Plan,
    migration: &Migration,
) -> Result<Option<String>> {
    let (mut all, mut owners) = (SampleResults::default(), BTreeMap::new());
    for table in plan.source_tables(Direction::Forward) {
        for item in tables::sample(&context.control.client, table, tables::TRIED_AT_START).await? {
            try_one((migration, None), table, &item, &mut all, &mut owners);
        }
    }
    Ok(all.refused.first().filter(|_| all.refused.len() as u64 == all.sources).cloned())
}

fn try_one(
    (migration, inverse): (&Migration, Option<&Migration>),
    table: &str,
    item: &model::Item,
    all: &mut SampleResults,
    owners: &mut BTreeMap<String, String>,
) {
    all.sources += 1;
    all.before.add(item);
    let source = match migration.source_item(table, item) {
        Ok(source) => source.to_string(),
        Err(error) => return all.refused.push(error.to_string()),
    };
    let outputs = match migration.outputs(table, item) {
        _ if migration.kind().is_in_place() => BTreeMap::new(),
        Ok(outputs) => outputs,
        Err(reason) => return all.refused.push(format!("{source}: {reason}")),
    };
    let mut after = Vec::new();
    if migration.looks_at_any(table) {
        all.reads_any_attribute.insert(table.to_owned());
    }
    if migration.kind().is_in_place() {
        // During a revert, clients write the old attributes, so `inverse` also reads items that
        // have the old attributes.
        all.of_targets.entry(table.to_owned()).or_default().push(item.clone());
        match migration.rewrite(table, item) {
            Err(reason) => return all.refused.push(format!("{source}: {reason}")),
            Ok(Rewrite::Keep) => all.kept += 1,
            Ok(Rewrite::Delete) => {
                all.outputs += 1;
                after.push(format!("{table}: removed"));
            }
            Ok(Rewrite::Change(made)) => {
                all.outputs += 1;
                all.made(table, &made);
                after.push(format!("{table}: {}", item_to_string(&made)));
            }
        }
    }
    all.dropped += u64::from(outputs.is_empty() && !migration.kind().is_in_place());
    for (target, made) in outputs {
        all.outputs += 1;
        all.made(&target.table, &made);
        let key = format!("{} {}", target.table, migration.key_text(&target.table, &target.key));
        let partition = format!("{} {}", target.table, partition_text(&target.key.partition));
        *all.partitions.entry(partition).or_default() += 1;
        if let Some(other) = owners.insert(key.clone(), source.clone()) {
            all.collisions.push(format!("{key}: {other} and {source}"));
        }
        after.push(format!("{}: {}", target.table, item_to_string(&made)));
    }
    all.not_invertible.extend(inverse.and_then(|inverse| lost(migration, inverse, table, item)));
    if after.is_empty() && migration.kind() == Kind::Purge {
        after.push(format!("{table}: stays"));
    }
    let is_new_table =
        !all.shown.iter().any(|(before, _)| before.starts_with(&format!("{table}:")));
    if all.shown.len() < SHOWN || is_new_table {
        all.shown.push((format!("{table}: {}", item_to_string(item)), after));
    }
}

/// Returns why `inverse` does not restore an item, by the rules of a comparison; `None` if the item
/// is restored. For an in-place change, the changed item is compared.
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
    let checked = match changed {
        Rewrite::Keep => migration.check_inverse(inverse, table, item),
        Rewrite::Change(made) => migration.check_inverse(inverse, table, &made),
        Rewrite::Delete => return None,
    };
    checked.err().map(|error| error.to_string())
}

/// Formats the value of a partition key.
fn partition_text(value: &KeyValue) -> String {
    match value {
        KeyValue::S(text) => text.clone(),
        KeyValue::N(number) => number.to_string(),
        KeyValue::B(bytes) => STANDARD.encode(bytes),
    }
}

fn report(
    file: &PlanFile,
    all: &SampleResults,
    found: &BTreeMap<String, TableFacts>,
    whole: &EstimatedTotals,
    prices: &Prices,
) -> Value {
    let provisioned: u64 = file
        .plan
        .target_tables(Direction::Forward)
        .iter()
        .filter_map(|table| found.get(*table))
        .map(|facts| facts.provisioned_write_units)
        .sum();
    let rate = if provisioned > 0 { float(provisioned) } else { FIRST_WRITE_UNITS };
    let (writes, reads) = (whole.cost.write_units(), whole.cost.read_units());
    let hot = hot_partitions(all);
    let refused: BTreeSet<&String> = all.refused.iter().collect();
    json!({
        "schema": "weir.migration.plan/v1",
        "migration": file.plan.migration,
        "sources": file.plan.source_tables(Direction::Forward),
        "targets": file.plan.target_tables(Direction::Forward),
        "source_items": whole.items,
        "source_bytes": whole.source_bytes.ceil(),
        "target_bytes": whole.target_bytes.ceil(),
        "tried": all.sources,
        "kept": all.kept,
        "dropped": all.dropped,
        "removed": (file.plan.kind == Kind::Purge).then_some(all.outputs),
        "sizes": (file.plan.kind != Kind::Purge).then(|| Sizes::json(&all.before, &all.after)),
        "targets_per_source": ratio(all.outputs, all.sources.max(1)),
        "write_units": writes.ceil(),
        "read_units": reads.ceil(),
        "phases": whole.cost.json(),
        "on_demand_dollars": prices.on_demand(writes, reads),
        "provisioned_dollars": prices.provisioned(writes, reads),
        "prices_of": prices.of,
        "prices_region": prices.region,
        "seconds_at_least": (whole.cost.backfill.write_units() / rate).ceil(),
        "refused": refused.iter().take(10).collect::<Vec<_>>(),
        "refused_count": all.refused.len(),
        "collisions": all.collisions.iter().take(10).collect::<Vec<_>>(),
        "collisions_count": all.collisions.len(),
        "hot_partitions": hot,
        "unmatched": whole.unmatched,
        "occupied": whole.occupied,
        "archives": whole.archives,
        "reads_any_attribute": all.reads_any_attribute,
        "has_way_back": !file.plan.inverse.is_empty(),
        "invertible": !file.plan.inverse.is_empty() && all.not_invertible.is_empty(),
        "not_invertible": all.not_invertible.iter().take(10).collect::<Vec<_>>(),
        "not_invertible_count": all.not_invertible.len(),
        "lost_writes": all.lost_writes,
        "samples": all.shown.iter().map(|(before, after)| json!({ "before": before, "after": after })).collect::<Vec<_>>(),
    })
}

/// Returns the partitions that get more than `HOT_SHARE` of the writes; empty if there are too few
/// samples.
fn hot_partitions(all: &SampleResults) -> Vec<String> {
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
        Some(removed) => format!("{removed} of {tried} sampled items would be removed"),
        None => {
            let targets = at(report, "/targets_per_source").as_f64().unwrap_or(0.0);
            format!("{targets:.2} targets for each item ({tried} sampled)")
        }
    };
    let way = match at(report, "/removed").is_null() {
        true => format!("{} -> {}", list("sources"), list("targets")),
        false => list("sources"),
    };
    let mut text = format!(
        "{}: {way}\n  about {} source items, {becomes}\n  about {} read and {} written\n{}  total: about {} write units and {} read units without live changes, {:.4} dollars on demand or {:.4} provisioned ({}, prices of {}), at least {} s\n",
        at(report, "/migration").as_str().unwrap_or_default(),
        at(report, "/source_items"),
        bytes_text("/source_bytes"),
        bytes_text("/target_bytes"),
        phases_text(report),
        at(report, "/write_units"),
        at(report, "/read_units"),
        at(report, "/on_demand_dollars").as_f64().unwrap_or(0.0),
        at(report, "/provisioned_dollars").as_f64().unwrap_or(0.0),
        at(report, "/prices_region").as_str().unwrap_or_default(),
        at(report, "/prices_of").as_str().unwrap_or_default(),
        at(report, "/seconds_at_least"),
    );
    text.push_str(&sizes::text(at(report, "/sizes")));
    text.push_str(&findings_text(report));
    if at(report, "/kept").as_u64().is_some_and(|kept| kept > 0) {
        text.push_str(&format!("  {} sampled items are unchanged\n", at(report, "/kept")));
    }
    if at(report, "/dropped").as_u64().is_some_and(|dropped| dropped > 0) {
        let dropped = at(report, "/dropped");
        text.push_str(&format!("  the transform drops {dropped} of {tried} sampled items\n"));
    }
    // A purge can never be reverted, so its report does not mention a missing `inverse`.
    if at(report, "/has_way_back") == &json!(false) && at(report, "/removed").is_null() {
        text.push_str("  no `inverse`: the migration cannot be reverted\n");
    }
    for sample in at(report, "/samples").as_array().into_iter().flatten() {
        text.push_str(&format!("  - {}\n", at(sample, "/before").as_str().unwrap_or_default()));
        for after in at(sample, "/after").as_array().into_iter().flatten() {
            text.push_str(&format!("    -> {}\n", after.as_str().unwrap_or_default()));
        }
    }
    text
}

/// Formats the problems and remarks about the samples.
fn findings_text(report: &Value) -> String {
    let (tried, mut text) = (at(report, "/tried"), String::new());
    for (name, title) in [
        ("refused", "cannot be transformed"),
        ("collisions", "two items with the same target key"),
        ("not_invertible", "not restored by a revert"),
        ("lost_writes", "lost update"),
        ("hot_partitions", "hot partition"),
        ("unmatched", "unknown attribute"),
        ("occupied", "not empty"),
        ("archives", "no archive"),
        (
            "reads_any_attribute",
            "the transform may read any attribute; if possible, name the attributes that it reads",
        ),
    ] {
        let shown = at(report, &format!("/{name}")).as_array().map_or(0, Vec::len);
        if let Some(all) = at(report, &format!("/{name}_count")).as_u64()
            && all > shown as u64
        {
            text.push_str(&format!("  {title}: {all} of {tried} sampled items, for example\n"));
        }
        for entry in at(report, &format!("/{name}")).as_array().into_iter().flatten() {
            text.push_str(&format!("  {title}: {}\n", entry.as_str().unwrap_or_default()));
        }
    }
    text
}

/// Formats a line for each phase, and for each index that the phase writes.
fn phases_text(report: &Value) -> String {
    let mut text = String::new();
    for phase in at(report, "/phases").as_array().into_iter().flatten() {
        let name = at(phase, "/phase").as_str().unwrap_or_default();
        let per = at(phase, "/per").as_str().map_or_else(String::new, |per| {
            format!(" for each {per} that reaches its targets (an estimate)")
        });
        let (writes, reads) = (at(phase, "/write_units"), at(phase, "/read_units"));
        text.push_str(&format!("  {name}: {writes} write units and {reads} read units{per}\n"));
        for index in at(phase, "/indexes").as_array().into_iter().flatten() {
            text.push_str(&format!(
                "    including {} write units in index `{}` of `{}`\n",
                at(index, "/write_units"),
                at(index, "/index").as_str().unwrap_or_default(),
                at(index, "/table").as_str().unwrap_or_default(),
            ));
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
mod tests;
