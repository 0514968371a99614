//! Estimates the cost of a migration from samples: the capacity units of each phase.
//!
//! The estimate models the requests of the function `migration`: the items that the function reads
//! and writes, with their marks, and the index entries that each write changes. Source of the
//! pricing rules: DynamoDB developer guide, "DynamoDB provisioned capacity mode", "Using global
//! secondary indexes", "Best practices for using sort keys".

use std::collections::{BTreeMap, BTreeSet};

use design::capacity::{READ_UNIT_BYTES, float, read_units, write_units};
use model::{Item, KeySchema};
use rules::Stamp;
use rules::migration::plan::{Backfill, Kind, Plan};
use rules::migration::{Migration, Register, Registers, Rewrite, TOUCH, Target, key_of};
use serde_json::{Value, json};

use crate::migrate::plan::tables::TableFacts;

/// Items per page of the workers' scans.
const PAGE_ITEMS: f64 = 500.0;
/// Maximum bytes per page of a scan.
const PAGE_BYTES: f64 = 1_048_576.0;

/// The capacity units of one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Phase {
    pub(crate) reads: f64,
    /// Write units of tables, without write units of indexes.
    writes: f64,
    /// Write units of indexes, by table and index.
    indexes: BTreeMap<(String, String), f64>,
}

/// The capacity units of all phases.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) backfill: Phase,
    /// Units for one change of a source item.
    pub(crate) live: Phase,
    /// Units for one comparison.
    pub(crate) comparison: Phase,
    pub(crate) completion: Phase,
}

/// The inputs of an estimate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basis<'b> {
    pub(crate) plan: &'b Plan,
    pub(crate) migration: &'b Migration,
    pub(crate) tables: &'b BTreeMap<String, TableFacts>,
}

/// The number and the bytes of the items that a phase scans.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    items: f64,
    bytes: f64,
}

impl Extent {
    fn add(&mut self, item: &Item, times: f64) {
        self.items += times;
        self.bytes += size(item) * times;
    }

    /// Returns the read units of a strongly consistent scan in segments. The units of each page are
    /// rounded up.
    fn units(self, segments: u32) -> f64 {
        let segments = f64::from(segments);
        let of_items = (self.items / segments / PAGE_ITEMS).ceil();
        let of_bytes = (self.bytes / segments / PAGE_BYTES).ceil();
        let pages = segments * of_items.max(of_bytes).max(1.0);
        pages * (self.bytes / pages / READ_UNIT_BYTES + 0.5).max(1.0)
    }
}

impl Phase {
    /// Returns the write units of the tables and their indexes.
    pub(crate) fn write_units(&self) -> f64 {
        self.writes + self.indexes.values().sum::<f64>()
    }

    /// Adds `times` writes that replace one item with another.
    fn write(
        &mut self,
        (table, facts): (&str, Option<&TableFacts>),
        (before, after): (Option<&Item>, Option<&Item>),
        times: f64,
    ) {
        self.writes += write_units(before, after) * times;
        let Some(facts) = facts else { return };
        let key = key_names(&facts.schema);
        for index in &facts.indexes {
            let units = index.write_units(&key, before, after) * times;
            *self.indexes.entry((table.to_owned(), index.name.clone())).or_default() += units;
        }
    }

    /// Returns the phase's units as JSON for the report.
    fn json(&self, name: &str, per: Option<&str>) -> Value {
        let round = |units: f64| match per {
            None => units.ceil(),
            Some(_) => (units * 100.0).round() / 100.0,
        };
        let indexes = self.indexes.iter().map(|((table, index), units)| {
            json!({"table": table, "index": index, "write_units": round(*units)})
        });
        json!({
            "phase": name,
            "per": per,
            "write_units": round(self.write_units()),
            "read_units": round(self.reads),
            "indexes": indexes.collect::<Vec<_>>(),
        })
    }
}

impl Cost {
    /// Adds the cost of a source table with `count` items, estimated from samples.
    pub(crate) fn add_table(&mut self, basis: Basis<'_>, table: &str, sample: &[Item], count: f64) {
        if sample.is_empty() {
            return;
        }
        let mut whole = Table::new(basis, table, count / float(sample.len()));
        for item in sample {
            match basis.plan.kind.is_in_place() {
                true => whole.in_place(self, item),
                false => whole.moved(self, item),
            }
        }
        whole.scans(self);
    }

    /// Divides the cost of live changes by the number of sampled items, to get the average cost of
    /// one change.
    pub(crate) fn per_source(&mut self, sampled: u64) {
        let sampled = float(usize::try_from(sampled).unwrap_or(usize::MAX)).max(1.0);
        self.live.reads /= sampled;
        self.live.writes /= sampled;
        self.live.indexes.values_mut().for_each(|units| *units /= sampled);
    }

    /// Returns the write units of all phases except live changes, whose number is not known in
    /// advance.
    pub(crate) fn write_units(&self) -> f64 {
        self.known().map(Phase::write_units).sum()
    }

    /// Returns the read units of all phases except live changes, whose number is not known in
    /// advance.
    pub(crate) fn read_units(&self) -> f64 {
        self.known().map(|phase| phase.reads).sum()
    }

    fn known(&self) -> impl Iterator<Item = &Phase> {
        [&self.backfill, &self.comparison, &self.completion].into_iter()
    }

    /// Returns all phases as JSON, in the order in which they run.
    pub(crate) fn json(&self) -> Value {
        json!([
            self.backfill.json("backfill", None),
            self.live.json("live changes", Some("source write")),
            self.comparison.json("comparison", None),
            self.completion.json("completion", None),
        ])
    }
}

/// The data of a source table while its samples are added.
struct Table<'b> {
    basis: Basis<'b>,
    table: &'b str,
    /// The number of the table's items that one sample represents.
    times: f64,
    before: Extent,
    /// The table's items after the migration, if the migration changes them in place.
    after: Extent,
    /// The items of each target table, with their marks.
    targets: BTreeMap<String, Extent>,
}

impl<'b> Table<'b> {
    fn new(basis: Basis<'b>, table: &'b str, times: f64) -> Self {
        let (before, after) = (Extent::default(), Extent::default());
        Self { basis, table, times, before, after, targets: BTreeMap::new() }
    }

    fn facts(&self, table: &str) -> Option<&'b TableFacts> {
        self.basis.tables.get(table)
    }

    /// Adds the cost of a source item that is transformed into items of other tables.
    fn moved(&mut self, cost: &mut Cost, item: &Item) {
        let (migration, times) = (self.basis.migration, self.times);
        self.before.add(item, times);
        let outputs = migration.outputs(self.table, item).unwrap_or_default();
        if self.basis.plan.backfill == Backfill::Touch && !outputs.is_empty() {
            let touched = item.clone().with(TOUCH, migration.name());
            let own = (self.table, self.facts(self.table));
            cost.backfill.write(own, (Some(item), Some(&touched)), times);
            cost.backfill.write(own, (Some(&touched), Some(item)), times);
        }
        // A comparison reads each source item once to find its targets, and once for each partition
        // of targets.
        let partitions: BTreeSet<_> =
            outputs.keys().map(|target| (&target.table, &target.key.partition)).collect();
        let reads = read_units(item) * (1.0 + float(partitions.len()));
        cost.comparison.reads += reads * times;
        for (target, made) in &outputs {
            let Some(marked) = self.marked(item, target, made) else { continue };
            let place = (target.table.as_str(), self.facts(&target.table));
            cost.backfill.write(place, (None, Some(&marked)), times);
            // A change of the source replaces the stamp in the mark by a stamp of the same length,
            // so the size of the target item stays the same. An index that contains the mark
            // changes too.
            cost.live.write(place, (Some(&marked), Some(&changed(&marked))), 1.0);
            cost.completion.write(place, (Some(&marked), Some(made)), times);
            cost.comparison.reads += read_units(&marked) * times;
            self.targets.entry(target.table.clone()).or_default().add(&marked, times);
        }
    }

    /// Returns a target item with its mark, as the backfill writes it.
    fn marked(&self, item: &Item, target: &Target, made: &Item) -> Option<Item> {
        let migration = self.basis.migration;
        let source = migration.source_item(self.table, item).ok()?.to_string();
        let register = Register { stamp: Stamp::lowest(), item: Some(made.clone()) };
        let key = key_of(made, migration.schema(&target.table)?);
        Some(Registers::of(source, register).to_item(&key))
    }

    /// Adds the cost of an item that is changed in place.
    fn in_place(&mut self, cost: &mut Cost, item: &Item) {
        let times = self.times;
        self.before.add(item, times);
        let after = match self.basis.migration.rewrite(self.table, item) {
            Ok(Rewrite::Change(made)) => Some(made),
            Ok(Rewrite::Delete) => None,
            Ok(Rewrite::Keep) | Err(_) => return self.after.add(item, times),
        };
        if let Some(after) = &after {
            self.after.add(after, times);
        }
        let place = (self.table, self.facts(self.table));
        // The current item is read before it is changed.
        cost.backfill.reads += read_units(item) * times;
        cost.backfill.write(place, (Some(item), after.as_ref()), times);
        cost.live.reads += read_units(item);
        cost.live.write(place, (Some(item), after.as_ref()), 1.0);
    }

    /// Adds the cost of the scans in each phase.
    fn scans(&self, cost: &mut Cost) {
        let segments = self.basis.plan.segments;
        cost.backfill.reads += self.before.units(segments);
        if self.basis.plan.kind.is_in_place() {
            cost.comparison.reads += self.after.units(segments);
            // A purge compares once more before it writes its receipt.
            if self.basis.plan.kind == Kind::Purge {
                cost.completion.reads += self.after.units(segments);
            }
            return;
        }
        cost.comparison.reads += self.before.units(segments);
        if self.basis.plan.backfill == Backfill::Touch {
            cost.completion.reads += self.before.units(segments);
        }
        for extent in self.targets.values() {
            cost.comparison.reads += extent.units(segments);
            cost.completion.reads += extent.units(segments);
        }
    }
}

/// Returns a target item with a changed mark. The change matters for the cost, because an index may
/// contain the mark.
fn changed(marked: &Item) -> Item {
    let mut changed = marked.clone();
    if let Some(model::AttributeValue::M(mark)) = changed.get_mut(rules::migration::MARK) {
        let stamp = Stamp::lowest().as_str().replace('0', "1");
        mark.insert(rules::migration::MARK_AT.to_owned(), stamp.as_str().into());
    }
    changed
}

/// Returns the names of the key attributes.
fn key_names(key: &KeySchema) -> Vec<&str> {
    let sort = key.sort.iter().map(|sort| sort.name.as_str());
    std::iter::once(key.partition.name.as_str()).chain(sort).collect()
}

fn size(item: &Item) -> f64 {
    float(item.size())
}
