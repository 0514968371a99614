//! The estimate of a model's capacity, storage, partitions and prices, from its workload and its
//! trial.
//!
//! The trial measures the units of each request on the example items. The estimate scales these
//! units to the sizes and counts of the workload, if they are stated, and multiplies them by the
//! rates. A scan has no price if the number of items is not stated.

use std::collections::BTreeMap;

use model::Item;
use serde::Serialize;
use serde_json::Value;

use crate::capacity::{
    self, GB, PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, STORED_ITEM_BYTES, float, read_units_of,
    write_units_of,
};
use crate::command::Command;
use crate::data_model::{AccessPattern, DataModel, Index, ProjectionType, Table, partition_key};
use crate::prices::Prices;
use crate::range::{self, Extent};
use crate::trial::{Consumed, Outcome};

const SECONDS_PER_DAY: f64 = 86_400.0;
/// The parameter with the class of a table. `STANDARD` is the class whose prices are known.
const TABLE_CLASS: &str = "TableClass";
const STANDARD: &str = "STANDARD";

/// The estimated resources and costs of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The tables, in the order of the model.
    pub tables: Vec<TableEstimate>,
    /// The price in dollars a month on demand, with storage; `None` if a pattern has no price.
    pub on_demand_dollars: Option<f64>,
    /// The price in dollars a month with capacity provisioned for the peak, with storage; `None` if
    /// a pattern has no price.
    pub provisioned_dollars: Option<f64>,
}

impl Estimate {
    /// Returns the estimate of a table without its indexes, or of one of its indexes.
    #[must_use]
    pub fn part(&self, table: &str, index: Option<&str>) -> Option<&Part> {
        let table = self.tables.iter().find(|found| found.table == table)?;
        table.parts.iter().find(|part| part.index.as_deref() == index)
    }

    /// Returns the load of a pattern on each table and index.
    pub fn loads(&self, pattern: usize) -> impl Iterator<Item = &Load> {
        let parts = self.tables.iter().flat_map(|table| &table.parts);
        parts.flat_map(|part| &part.loads).filter(move |load| load.pattern == pattern)
    }
}

/// The estimated resources and costs of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableEstimate {
    /// The table.
    pub table: String,
    /// The estimates of the table itself and of its indexes, in this order.
    pub parts: Vec<Part>,
    /// The write amplification: the write units of the table and its indexes, divided by those of
    /// the table only.
    pub write_amplification: Option<f64>,
    /// Whether the table has another class than Standard, but is priced as Standard.
    pub is_priced_as_standard: bool,
}

/// The estimated resources and costs of a table without its indexes, or of an index.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Part {
    /// The index; `None` for the table.
    pub index: Option<String>,
    /// Whether the part is a local index, which shares the partitions of its table.
    pub is_local: bool,
    /// The number of items; `None` if it is unknown.
    pub items: Option<f64>,
    /// The number of stored bytes.
    pub bytes: Option<f64>,
    /// The read units per second.
    pub reads: Rate,
    /// The write units per second.
    pub writes: Rate,
    /// The units per second of the busiest partition key at the peak.
    pub busiest: Busiest,
    /// The load of each pattern, in the order of the model.
    #[serde(skip)]
    pub loads: Vec<Load>,
    /// The patterns whose units are unknown although they have a rate, because the workload lacks
    /// an entry.
    pub unpriced: Vec<Unpriced>,
    /// The partitions; `None` for a local index.
    pub partitions: Option<Partitions>,
    /// The price of requests on demand, in dollars a month.
    pub on_demand_dollars: f64,
    /// The price of units that are provisioned for the peak, in dollars a month.
    pub provisioned_dollars: f64,
    /// The price of storage, in dollars a month.
    pub storage_dollars: f64,
}

/// The units that a pattern consumes in a table or an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The index of the pattern in the model.
    pub pattern: usize,
    /// The read units of a request.
    pub reads: f64,
    /// The write units of a request.
    pub writes: f64,
    /// The units per second of the busiest partition key at the peak.
    pub busiest: Busiest,
}

/// A pattern whose units are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unpriced {
    /// The name of the pattern.
    pub pattern: String,
    /// The name of the entry that the workload of the table or the index lacks.
    pub missing: &'static str,
}

/// A rate in units per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// The average rate.
    pub average: f64,
    /// The rate at the peak.
    pub peak: f64,
}

/// The units per second of the busiest partition key at the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Busiest {
    /// Read units.
    pub reads: f64,
    /// Write units.
    pub writes: f64,
}

impl Busiest {
    /// Returns the minimum number of partitions that could serve this load.
    #[must_use]
    pub fn partitions(self) -> f64 {
        (self.reads / PARTITION_READ_UNITS).max(self.writes / PARTITION_WRITE_UNITS).ceil()
    }

    /// Returns the number of write shards for this load. It is twice the number of partitions,
    /// because hashing does not distribute shards evenly, and load grows.
    #[must_use]
    pub fn shards(self) -> f64 {
        2.0 * self.partitions()
    }
}

/// The partitions of a table or a global index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Partitions {
    /// The number of partitions.
    pub count: f64,
    /// The read units per second of each partition at the peak, if the load is even.
    pub reads_each: f64,
    /// The write units per second of each partition at the peak, if the load is even.
    pub writes_each: f64,
    /// The unused read units per second of each partition.
    pub reads_left: f64,
    /// The unused write units per second of each partition.
    pub writes_left: f64,
}

impl Partitions {
    fn of(reads: f64, writes: f64, bytes: f64) -> Self {
        let count = capacity::partitions(reads, writes, bytes / GB);
        let (reads_each, writes_each) = (reads / count, writes / count);
        let left = |most: f64, each: f64| (most - each).max(0.0);
        Self {
            count,
            reads_each,
            writes_each,
            reads_left: left(PARTITION_READ_UNITS, reads_each),
            writes_left: left(PARTITION_WRITE_UNITS, writes_each),
        }
    }
}

/// Computes the estimate of a model. `trial` contains an outcome for each access pattern that has a
/// command.
#[must_use]
pub fn estimate(model: &DataModel, trial: &[Option<Outcome>], prices: &Prices) -> Estimate {
    let tables: Vec<TableEstimate> =
        model.tables.iter().map(|table| of_table(model, table, trial, prices)).collect();
    let parts = || tables.iter().flat_map(|table| &table.parts);
    let is_known = parts().all(|part| part.unpriced.is_empty());
    let sum = |dollars: fn(&Part) -> f64| {
        let all = parts().map(|part| dollars(part) + part.storage_dollars).sum::<f64>();
        is_known.then_some(all)
    };
    let on_demand_dollars = sum(|part| part.on_demand_dollars);
    let provisioned_dollars = sum(|part| part.provisioned_dollars);
    Estimate { tables, on_demand_dollars, provisioned_dollars }
}

/// Returns the access patterns that have a command and an outcome of the trial.
pub(crate) fn tried<'m>(
    model: &'m DataModel,
    trial: &'m [Option<Outcome>],
) -> impl Iterator<Item = (usize, &'m AccessPattern, &'m Command, &'m Outcome)> {
    let all = model.patterns.iter().zip(trial).enumerate();
    all.filter_map(|(at, (pattern, outcome))| {
        Some((at, pattern, pattern.command.as_ref()?, outcome.as_ref()?))
    })
}

fn of_table(
    model: &DataModel,
    table: &Table,
    trial: &[Option<Outcome>],
    prices: &Prices,
) -> TableEstimate {
    let items = items_of(model, table, trial);
    let mut parts = vec![part(model, (table, None), items, trial)];
    parts.extend(table.indexes().map(|index| part(model, (table, Some(index)), items, trial)));
    // A local index shares the partitions of its table.
    let (mut reads, mut writes, mut bytes) = (0.0, 0.0, 0.0);
    for part in parts.iter().filter(|part| part.index.is_none() || part.is_local) {
        reads += part.reads.peak;
        writes += part.writes.peak;
        bytes += part.bytes.unwrap_or(0.0);
    }
    for part in &mut parts {
        part.partitions = match (&part.index, part.is_local) {
            (None, _) => Some(Partitions::of(reads, writes, bytes)),
            (Some(_), true) => None,
            (Some(_), false) => {
                Some(Partitions::of(part.reads.peak, part.writes.peak, part.bytes.unwrap_or(0.0)))
            }
        };
        part.on_demand_dollars = prices.month_on_demand(part.writes.average, part.reads.average);
        part.provisioned_dollars = prices.month_provisioned(part.writes.peak, part.reads.peak);
        part.storage_dollars = prices.month_storage(part.bytes.unwrap_or(0.0));
    }
    let own = parts.first().map_or(0.0, |part| part.writes.average);
    let all: f64 = parts.iter().map(|part| part.writes.average).sum();
    let write_amplification = (own > 0.0).then(|| all / own);
    let class = table.other.get(TABLE_CLASS).and_then(Value::as_str);
    TableEstimate {
        table: table.table_name.clone(),
        parts,
        write_amplification,
        is_priced_as_standard: class.is_some_and(|class| class != STANDARD),
    }
}

/// Returns the number of items of a table: the number in the workload, or else the items that the
/// patterns create within the retention time.
fn items_of(model: &DataModel, table: &Table, trial: &[Option<Outcome>]) -> Option<f64> {
    let workload = model.workload.get(&table.table_name)?;
    if let Some(items) = workload.items {
        return Some(float(items));
    }
    let seconds = workload.retention_days? * SECONDS_PER_DAY;
    let mut created = 0.0;
    for (_, pattern, command, outcome) in tried(model, trial) {
        let more = outcome.created.get(&table.table_name).copied().unwrap_or(0);
        let more = f64::from(i32::try_from(more).unwrap_or(0).max(0));
        let (average, _) = pattern.rates().unwrap_or_default();
        created += average * more * times(pattern, command);
    }
    (created > 0.0).then_some(created * seconds)
}

/// Returns the factor by which a request writes more items in production than in the trial.
fn times(pattern: &AccessPattern, command: &Command) -> f64 {
    let tried = float(command.named_items().max(1));
    pattern.items.map_or(1.0, |items| items / tried)
}

/// Computes the estimate of a part, without partitions and prices. `items` is the number of the
/// table's items.
fn part(
    model: &DataModel,
    (table, index): (&Table, Option<&Index>),
    items: Option<f64>,
    trial: &[Option<Outcome>],
) -> Part {
    let name = index.map(|index| index.index_name.clone());
    let sizes = Sizes::of(model, table, index);
    let workload = model.workload.get(&table.table_name);
    let stated = name.as_ref().and_then(|name| workload?.indexes.get(name));
    let items = match index {
        None => items,
        Some(_) => stated
            .and_then(|stated| stated.items)
            .map(float)
            .or_else(|| items.map(|items| items * sizes.share)),
    };
    let mut part = Part {
        is_local: index.is_some_and(|index| table.local_secondary_indexes.contains(index)),
        items,
        bytes: items.map(|items| items * (sizes.expected + STORED_ITEM_BYTES)),
        index: name,
        ..Part::default()
    };
    let key = index.map_or(&table.key_schema, |index| &index.key_schema);
    let keys = stated_partition_keys(model, table, index);
    for (at, pattern, command, outcome) in tried(model, trial) {
        let here = outcome
            .consumed
            .iter()
            .find(|consumed| consumed.table == table.table_name && consumed.index == part.index);
        let Some(consumed) = here else { continue };
        let is_fetched = is_fetched(command, consumed);
        let is_addressed = command.operation.reads_range()
            && (is_fetched || command.index() == part.index.as_deref())
            && pattern.items.is_none();
        let extent = match is_addressed {
            true => range::extent(command, key, part.items, keys),
            false => Extent::AsTried,
        };
        let tried = (pattern, command, outcome);
        let units = match is_fetched {
            true => range::fetch_units(extent, sizes.expected),
            false => range::read_units(command, extent, sizes.expected),
        };
        let reads = match units {
            Some(units) => units * command.read_halves() / 2.0,
            None if extent == Extent::AsTried => read_units(tried, consumed, sizes),
            None => {
                let missing = if extent == Extent::Unknown { "items" } else { "item_bytes" };
                let pattern = pattern.pattern.clone();
                let is_rated = tried.0.rates().is_some();
                part.unpriced.extend(is_rated.then_some(Unpriced { pattern, missing }));
                continue;
            }
        };
        let writes = write_units(tried, consumed, sizes);
        let (average, peak) = pattern.rates().unwrap_or_default();
        part.reads.average += reads * average;
        part.reads.peak += reads * peak;
        part.writes.average += writes * average;
        part.writes.peak += writes * peak;
        let share = busiest_share(model, (table, index), (pattern, command)).unwrap_or(0.0);
        let busiest = Busiest { reads: reads * peak * share, writes: writes * peak * share };
        part.busiest.reads += busiest.reads;
        part.busiest.writes += busiest.writes;
        part.loads.push(Load { pattern: at, reads, writes, busiest });
    }
    part
}

/// Returns true if a request on a local index also reads items from the table, because the index
/// lacks requested attributes.
fn is_fetched(command: &Command, consumed: &Consumed) -> bool {
    command.index().is_some() && consumed.index.is_none()
}

/// Returns the read units of one request in production, from the units in the trial.
fn read_units(
    (pattern, command, outcome): (&AccessPattern, &Command, &Outcome),
    consumed: &Consumed,
    sizes: Sizes,
) -> f64 {
    if !command.operation.reads_range() {
        let scale = read_units_of(sizes.expected) / read_units_of(sizes.example);
        return consumed.reads * scale * times(pattern, command);
    }
    let found = f64::from(u32::try_from(outcome.read).unwrap_or(u32::MAX));
    let is_stated = pattern.items.is_some() || sizes.is_stated;
    let items = Extent::Items(pattern.items.unwrap_or(found));
    let units = match is_fetched(command, consumed) {
        true => range::fetch_units(items, sizes.expected),
        false => range::read_units(command, items, sizes.expected),
    };
    match units.filter(|_| is_stated && consumed.reads > 0.0) {
        Some(units) => units * command.read_halves() / 2.0,
        None => consumed.reads,
    }
}

/// Returns the write units of one request in production, from the units in the trial.
fn write_units(
    (pattern, command, _): (&AccessPattern, &Command, &Outcome),
    consumed: &Consumed,
    sizes: Sizes,
) -> f64 {
    let scale = write_units_of(sizes.expected) / write_units_of(sizes.example);
    consumed.writes * scale * times(pattern, command)
}

/// Returns the fraction of a pattern's requests that go to the busiest partition key of a table or
/// an index; `None` if it is unknown.
fn busiest_share(
    model: &DataModel,
    (table, index): (&Table, Option<&Index>),
    (pattern, command): (&AccessPattern, &Command),
) -> Option<f64> {
    let name = index.map(|index| index.index_name.as_str());
    let is_addressed = command.index() == name;
    let of_pattern = pattern.busiest_share.filter(|_| is_addressed);
    of_pattern.or_else(|| Some(1.0 / partition_keys(model, table, index)?.max(1.0)))
}

/// Returns the number of distinct partition keys: the number that the model states, or else an
/// estimate from the examples.
#[must_use]
pub fn partition_keys(model: &DataModel, table: &Table, index: Option<&Index>) -> Option<f64> {
    let stated = stated_partition_keys(model, table, index);
    stated.or_else(|| few_values(model, table, index).map(float))
}

/// Returns the number of distinct partition keys that the model states.
fn stated_partition_keys(model: &DataModel, table: &Table, index: Option<&Index>) -> Option<f64> {
    let workload = model.workload.get(&table.table_name)?;
    let stated = match index {
        None => workload.partition_keys,
        Some(index) => workload.indexes.get(&index.index_name)?.partition_keys,
    };
    stated.map(float)
}

/// Words in the names of attributes that usually have few values.
const FEW_VALUES: [&str; 9] =
    ["status", "state", "type", "kind", "category", "priority", "level", "flag", "active"];
/// The minimum number of example items for the conclusion that an attribute has few values.
const EXAMPLES_MIN: usize = 4;

/// Returns the number of distinct partition keys in the examples. Returns `None` if the name of the
/// key or the examples do not suggest that there are few.
fn few_values(model: &DataModel, table: &Table, index: Option<&Index>) -> Option<usize> {
    let key = partition_key(index.map_or(&table.key_schema, |index| &index.key_schema));
    let [name] = key.as_slice() else { return None };
    let lower = name.to_lowercase();
    let is_named = FEW_VALUES.iter().any(|word| lower.contains(word));
    let values = model.items_of(&table.table_name).iter().filter_map(|item| item.get(*name));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in values {
        let mut text = String::new();
        model::json::write_attribute_value(&mut text, value);
        *counts.entry(text).or_default() += 1;
    }
    let items: usize = counts.values().sum();
    (is_named && items >= EXAMPLES_MIN && counts.len() * 2 <= items).then_some(counts.len())
}

/// The average sizes of the items of a table, or of the entries of an index.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    example: f64,
    /// The expected average size in production, in bytes.
    expected: f64,
    /// Whether the workload states the size.
    is_stated: bool,
    /// The fraction of the example items that are in the index.
    share: f64,
}

impl Sizes {
    /// Returns the sizes of a table's items or of an index's entries.
    fn of(model: &DataModel, table: &Table, index: Option<&Index>) -> Self {
        let items = model.items_of(&table.table_name);
        let average = |items: &[Item]| {
            let bytes: usize = items.iter().map(Item::size).sum();
            if items.is_empty() { 0.0 } else { float(bytes) / float(items.len()) }
        };
        let stated =
            model.workload.get(&table.table_name).and_then(|found| found.item_bytes).map(float);
        let (example, share) = match index {
            None => (average(items), 1.0),
            Some(index) => {
                let (shape, key) = (table.shape(index), table.key());
                let entries = items.iter().filter_map(|item| Some(shape.entry(&key, item)?.1));
                let entries: Vec<Item> = entries.collect();
                let share = float(entries.len()) / float(items.len().max(1));
                (average(&entries), if items.is_empty() { 1.0 } else { share })
            }
        };
        // If an entry does not contain all attributes, only the examples show its size.
        let has_all =
            index.is_none_or(|index| index.projection.projection_type == ProjectionType::All);
        let stated = stated.filter(|_| has_all);
        let expected = stated.unwrap_or(example);
        Self { example, expected, is_stated: stated.is_some(), share }
    }
}
