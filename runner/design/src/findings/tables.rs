//! Findings of tables, indexes and example items.

use std::collections::BTreeSet;

use model::{AttributeValue, Item};
use template::diagnostic::{counted, listed};

use crate::capacity::{GB, PARTITION_GB, PARTITION_READ_UNITS, PARTITION_WRITE_UNITS, float};
use crate::command::attributes;
use crate::data_model::{Index, Place, Table, partition_key};
use crate::estimate::{Part, TableEstimate, partition_keys, tried};
use crate::findings::{
    Context, FEW_KEYS, HOT_PARTITION, LARGE_COLLECTION, LARGE_ITEM, TIME_TO_LIVE, UNUSED_INDEX,
    WIDE_PROJECTION,
};
use crate::report::{dollars, number};

/// The maximum size of an item in bytes. Source: DynamoDB developer guide, "Quotas".
const ITEM_BYTES_MAX: f64 = 409_600.0;
/// The fraction of the maximum size above which an item is reported.
const NEAR: f64 = 0.75;
/// The number of distinct values below which a partition key is reported.
const FEW: f64 = 20.0;
/// The names by which a TTL attribute is recognised, in lower case and without separators.
const TIMES_TO_LIVE: [&str; 8] = [
    "ttl",
    "timetolive",
    "expires",
    "expiresat",
    "expireat",
    "expiry",
    "expiration",
    "expirationtime",
];
/// The largest time in seconds, in the year 2286. A larger number is probably a time in
/// milliseconds.
const SECONDS_MAX: f64 = 9_999_999_999.0;

/// Checks each table.
pub(super) fn check(context: &Context<'_>) {
    let tables = context.model.tables.iter().zip(&context.estimate.tables);
    for (at, (table, estimate)) in tables.enumerate() {
        let one = Checked { context, at, table, estimate };
        one.keys(None);
        for index in table.indexes() {
            one.keys(Some(index));
            one.index(index);
        }
        one.collections();
        one.items();
    }
}

/// A table and its estimate.
struct Checked<'c> {
    context: &'c Context<'c>,
    at: usize,
    table: &'c Table,
    estimate: &'c TableEstimate,
}

impl Checked<'_> {
    fn report(&self, check: &'static str, place: &Place, message: String, help: &str) {
        let accept = self.context.accepted_by(&self.table.table_name);
        self.context.report(check, accept, self.context.model.place(place), message, help);
    }

    fn place(&self, index: Option<&Index>) -> Place {
        match index {
            None => Place::Table(self.at),
            Some(index) => Place::Index(self.at, index.index_name.clone()),
        }
    }

    fn part(&self, index: Option<&Index>) -> Option<&Part> {
        let name = index.map(|index| &index.index_name);
        self.estimate.parts.iter().find(|part| part.index.as_ref() == name)
    }

    /// Reports a partition key that is too busy or has few values.
    fn keys(&self, index: Option<&Index>) {
        let Some(part) = self.part(index) else { return };
        let key = partition_key(index.map_or(&self.table.key_schema, |index| &index.key_schema));
        let key = listed(key.iter().copied()).replace(" or ", " and ");
        let owner = index.map_or(&self.table.table_name, |index| &index.index_name);
        if part.busiest.partitions() > 1.0 {
            self.hot_partition(index, part, &format!("{key} in `{owner}`"));
        }
        let keys = partition_keys(self.context.model, self.table, index);
        if let Some(keys) = keys.filter(|keys| *keys < FEW) {
            self.report(
                FEW_KEYS,
                &self.place(index),
                format!(
                    "{key}, the partition key of `{owner}`, has {}, so few partitions receive all load and all items",
                    counted(keys, "value", "values")
                ),
                "add an attribute with many values to the key, or spread it over write shards; accept `few-keys` if the load stays small",
            );
        }
    }

    /// Reports a partition key that receives more load than a partition can serve. `key` is its
    /// name in the message.
    fn hot_partition(&self, index: Option<&Index>, part: &Part, key: &str) {
        let (reads, writes) = (part.busiest.reads, part.busiest.writes);
        let is_write = writes / PARTITION_WRITE_UNITS >= reads / PARTITION_READ_UNITS;
        let (what, rate, most) = match is_write {
            true => ("WCU", writes, PARTITION_WRITE_UNITS),
            false => ("RCU", reads, PARTITION_READ_UNITS),
        };
        let mut loads: Vec<(f64, &str)> = part
            .loads
            .iter()
            .filter_map(|load| {
                let units = if is_write { load.busiest.writes } else { load.busiest.reads };
                let pattern = self.context.model.patterns.get(load.pattern)?;
                (units > 0.0).then_some((units, pattern.pattern.as_str()))
            })
            .collect();
        loads.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let patterns: Vec<&str> = loads.iter().map(|(_, name)| *name).collect();
        let patterns = match patterns.split_last() {
            Some((last, rest)) if !rest.is_empty() => {
                format!("patterns {} and {last}", rest.join(", "))
            }
            _ => format!("pattern {}", patterns.concat()),
        };
        let shards = part.busiest.shards();
        self.report(
            HOT_PARTITION,
            &self.place(index),
            format!(
                "the busiest value of {key} gets {} {what} ({patterns}) at the peak, but a partition serves {}",
                number(rate),
                number(most)
            ),
            &format!(
                "spread each value over {shards} write shards, twice as many as the load requires: append a shard number from 0 to {} to the key",
                shards - 1.0
            ),
        );
    }

    /// Reports an index that is unused, or contains attributes that no pattern reads.
    fn index(&self, index: &Index) {
        let (model, name) = (self.context.model, &index.index_name);
        let is_named = model.patterns.iter().any(|pattern| {
            pattern
                .index
                .as_ref()
                .is_some_and(|(table, index)| *table == self.table.table_name && index == name)
        });
        let users: Vec<_> = tried(model, self.context.trial)
            .map(|(_, _, command, _)| command)
            .filter(|command| {
                command.index() == Some(name.as_str())
                    && command.tables().first() == Some(&self.table.table_name.as_str())
            })
            .collect();
        // A model without patterns, such as an exported model, is exempt, because every index of it
        // would be reported as unused.
        if users.is_empty() && !is_named && !model.patterns.is_empty() {
            let price = self
                .part(Some(index))
                .map_or(0.0, |part| part.on_demand_dollars + part.storage_dollars);
            let price = match price >= 0.01 {
                true => format!(": {} a month on demand", dollars(price)),
                false => String::new(),
            };
            self.report(
                UNUSED_INDEX,
                &self.place(Some(index)),
                format!("no access pattern uses the index `{name}`; each write pays for it{price}"),
                "remove the index, or add the access pattern that uses it",
            );
            return;
        }
        let mut needed: BTreeSet<String> = BTreeSet::new();
        for command in &users {
            let found = attributes(&command.request);
            let Some(returned) = found.returned else { return };
            needed.extend(returned.into_iter().chain(found.filtered));
        }
        if users.is_empty() {
            return;
        }
        let (shape, key) = (self.table.shape(index), self.table.key());
        let is_key =
            |name: &str| key.contains(&name) || shape.keys.iter().any(|(key, _)| key == name);
        let items = model.items_of(&self.table.table_name).iter();
        let entries = items.filter_map(|item| Some(shape.entry(&key, item)?.1));
        let names: BTreeSet<String> =
            entries.flat_map(|entry| entry.keys().cloned().collect::<Vec<_>>()).collect();
        let names: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !is_key(name)).collect();
        let unread: Vec<&str> =
            names.iter().copied().filter(|name| !needed.contains(*name)).collect();
        if !unread.is_empty() {
            self.report(
                WIDE_PROJECTION,
                &self.place(Some(index)),
                format!(
                    "the index `{name}` contains {}, which none of its patterns reads",
                    listed(unread.iter().copied()).replace(" or ", " and ")
                ),
                "project only the attributes that are read: `KEYS_ONLY`, or `INCLUDE` with `NonKeyAttributes`",
            );
        }
    }

    /// Reports partition keys whose items exceed the limit of a local index.
    fn collections(&self) {
        if self.table.local_secondary_indexes.is_empty() {
            return;
        }
        let parts = self.estimate.parts.iter().filter(|part| part.index.is_none() || part.is_local);
        let bytes: f64 = parts.filter_map(|part| part.bytes).sum();
        let keys = partition_keys(self.context.model, self.table, None);
        let each = bytes / GB / keys.unwrap_or(1.0).max(1.0);
        if each > PARTITION_GB {
            let (message, help) = match keys {
                Some(_) => (
                    format!(
                        "each partition key has {each:.1} GB of items on average, but a local index allows only {PARTITION_GB} GB"
                    ),
                    "use a global index instead, or a key with more values",
                ),
                None => (
                    format!(
                        "the table has {each:.1} GB and a local index, which allows {PARTITION_GB} GB for each partition key"
                    ),
                    "state `partition_keys` in `workload`, or use a global index instead",
                ),
            };
            self.report(LARGE_COLLECTION, &Place::Table(self.at), message, help);
        }
    }

    /// Reports large items, and invalid values of TTL attributes.
    fn items(&self) {
        let (name, workload) =
            (&self.table.table_name, self.context.model.workload.get(&self.table.table_name));
        let help = "store large values in S3 and only their S3 keys in the item, or split the item";
        if let Some(bytes) = workload
            .and_then(|workload| workload.item_bytes)
            .map(float)
            .filter(|bytes| *bytes > NEAR * ITEM_BYTES_MAX)
        {
            let message =
                format!("items of {bytes} bytes are near the maximum of {ITEM_BYTES_MAX}");
            self.report(LARGE_ITEM, &Place::Table(self.at), message, help);
        }
        let stated = workload.and_then(|workload| workload.time_to_live.as_deref());
        let items = self.context.model.items_of(name);
        for (at, item) in items.iter().enumerate() {
            let (place, bytes) = (Place::Item(name.clone(), at), float(item.size()));
            if bytes > NEAR * ITEM_BYTES_MAX {
                let message =
                    format!("this item has {bytes} bytes, near the maximum of {ITEM_BYTES_MAX}");
                self.report(LARGE_ITEM, &place, message, help);
            }
            for (attribute, problem) in wrong_times(item, stated) {
                self.report(
                    TIME_TO_LIVE,
                    &place,
                    format!("`{attribute}` is {problem}, so the item never expires"),
                    "write the time in seconds since 1970, as a number: {\"N\": \"1767225600\"}",
                );
            }
        }
        if let Some(attribute) = stated.filter(|attribute| {
            !items.is_empty() && !items.iter().any(|item| item.contains_key(*attribute))
        }) {
            self.report(
                TIME_TO_LIVE,
                &Place::Table(self.at),
                format!("no example item has the TTL attribute `{attribute}`"),
                "correct `time_to_live`, or add the attribute to an item",
            );
        }
    }
}

/// Returns the TTL attributes of an item with invalid values, each with a description of the value.
fn wrong_times(item: &Item, stated: Option<&str>) -> Vec<(String, &'static str)> {
    let is_time = |name: &str| match stated {
        Some(stated) => name == stated,
        None => {
            let plain: String =
                name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
            TIMES_TO_LIVE.contains(&plain.as_str())
        }
    };
    let wrong = |value: &AttributeValue| match value {
        AttributeValue::N(number) => {
            let seconds = number.to_string().parse::<f64>().unwrap_or(0.0);
            (seconds > SECONDS_MAX).then_some("a time in milliseconds")
        }
        _ => Some("no number"),
    };
    let times = item.iter().filter(|(name, _)| is_time(name));
    times.filter_map(|(name, value)| Some((name.clone(), wrong(value)?))).collect()
}
