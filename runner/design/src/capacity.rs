//! The rules for capacity units of requests, index entries, and numbers of partitions.
//!
//! Sources: DynamoDB developer guide, "DynamoDB provisioned capacity mode", "Using global secondary
//! indexes" and "Partitions and data distribution". Adding, removing or changing an index entry
//! costs one write; changing the key of an entry costs two. If a write does not change the
//! attributes in an index, the index costs nothing.

use model::{AttributeValue, Item};

/// The number of bytes in a gigabyte, as AWS bills storage.
pub const GB: f64 = 1_073_741_824.0;
/// The number of bytes that a read unit covers.
pub const READ_UNIT_BYTES: f64 = 4_096.0;
/// The number of bytes that a write unit covers.
pub const WRITE_UNIT_BYTES: f64 = 1_024.0;
/// The maximum read units per second of a partition, and so of a partition key.
pub const PARTITION_READ_UNITS: f64 = 3_000.0;
/// The maximum write units per second of a partition, and so of a partition key.
pub const PARTITION_WRITE_UNITS: f64 = 1_000.0;
/// The maximum size of a partition in gigabytes.
pub const PARTITION_GB: f64 = 10.0;
/// The number of bytes that DynamoDB adds to each item and index entry when it bills storage.
pub const STORED_ITEM_BYTES: f64 = 100.0;

/// The attributes of an item that an index contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexContent {
    /// All attributes.
    All,
    /// The key attributes, and the attributes with these names.
    Names(Vec<String>),
}

/// The properties of an index that determine the entry of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexShape {
    /// The name of the index.
    pub name: String,
    /// The key attributes of the index, each with its type descriptor, such as `S`.
    pub keys: Vec<(String, String)>,
    /// The attributes that an entry contains.
    pub content: IndexContent,
}

impl IndexShape {
    /// Returns true if an entry of the index contains this attribute. `table_key` lists the key
    /// attributes of the table.
    #[must_use]
    pub fn contains(&self, table_key: &[&str], attribute: &str) -> bool {
        match &self.content {
            IndexContent::All => true,
            IndexContent::Names(names) => {
                self.keys.iter().any(|(key, _)| key == attribute)
                    || table_key.contains(&attribute)
                    || names.iter().any(|name| name == attribute)
            }
        }
    }

    /// Returns an item's entry with its key values; `None` if the item is not in the index.
    #[must_use]
    pub fn entry<'i>(
        &self,
        table_key: &[&str],
        item: &'i Item,
    ) -> Option<(Vec<&'i AttributeValue>, Item)> {
        let key = self.keys.iter().map(|(name, wanted)| {
            item.get(name).filter(|value| value.attribute_type().descriptor() == wanted)
        });
        let key = key.collect::<Option<Vec<_>>>()?;
        let mut entry = item.clone();
        entry.retain(|name, _| self.contains(table_key, name));
        Some((key, entry))
    }

    /// Returns the write units for a change from `before` to `after` in this index.
    #[must_use]
    pub fn write_units(
        &self,
        table_key: &[&str],
        before: Option<&Item>,
        after: Option<&Item>,
    ) -> f64 {
        let entry = |item: Option<&'_ Item>| {
            let (key, entry) = self.entry(table_key, item?)?;
            Some((key.into_iter().cloned().collect::<Vec<_>>(), entry))
        };
        match (entry(before), entry(after)) {
            (None, None) => 0.0,
            (Some(before), Some(after)) if before == after => 0.0,
            (Some(before), Some(after)) if before.0 == after.0 => {
                write_units(Some(&before.1), Some(&after.1))
            }
            (before, after) => {
                let alone = |entry: &(_, Item)| write_units(Some(&entry.1), None);
                before.as_ref().map_or(0.0, alone) + after.as_ref().map_or(0.0, alone)
            }
        }
    }
}

/// Returns the units of a write: the size of the larger item image in KB, rounded up.
#[must_use]
pub fn write_units(before: Option<&Item>, after: Option<&Item>) -> f64 {
    let bytes = [before, after].into_iter().flatten().map(Item::size).max().unwrap_or(0);
    write_units_of(float(bytes))
}

/// Returns the units of a write of this many bytes.
#[must_use]
pub fn write_units_of(bytes: f64) -> f64 {
    (bytes / WRITE_UNIT_BYTES).ceil().max(1.0)
}

/// Returns the units of a strongly consistent read of one item.
#[must_use]
pub fn read_units(item: &Item) -> f64 {
    read_units_of(float(item.size()))
}

/// Returns the units of a strongly consistent read of this many bytes.
#[must_use]
pub fn read_units_of(bytes: f64) -> f64 {
    (bytes / READ_UNIT_BYTES).ceil().max(1.0)
}

/// Returns the number of partitions of a table or an index: enough for both its throughput and its
/// size.
#[must_use]
pub fn partitions(read_units: f64, write_units: f64, gigabytes: f64) -> f64 {
    let of_throughput = read_units / PARTITION_READ_UNITS + write_units / PARTITION_WRITE_UNITS;
    of_throughput.ceil().max((gigabytes / PARTITION_GB).ceil()).max(1.0)
}

/// Converts a count to a float.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "estimates do not need more than 52 bits")]
pub fn float(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or(u64::MAX) as f64
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn an_index_costs_what_changes_of_its_entries() {
        let index = |content| IndexShape {
            name: "by-kind".to_owned(),
            keys: vec![("kind".to_owned(), "S".to_owned())],
            content,
        };
        let item = |kind: &str, other: usize| {
            let other = "x".repeat(other);
            let text = format!(
                r#"{{"p":{{"S":"1"}},"kind":{kind},"a":{{"S":"y"}},"o":{{"S":"{other}"}}}}"#
            );
            item_from_str(&text).unwrap()
        };
        let (cat, dog) = (item(r#"{"S":"cat"}"#, 2_000), item(r#"{"S":"dog"}"#, 2_000));
        let (small, odd) = (item(r#"{"S":"cat"}"#, 1), item(r#"{"N":"1"}"#, 2_000));
        let names = |names: &[&str]| {
            IndexContent::Names(names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (content, before, after, units) in [
            (IndexContent::All, None, Some(&cat), 2.0),
            (IndexContent::All, Some(&cat), None, 2.0),
            (IndexContent::All, Some(&cat), Some(&small), 2.0),
            (IndexContent::All, Some(&cat), Some(&dog), 4.0),
            (IndexContent::All, Some(&cat), Some(&cat), 0.0),
            (IndexContent::All, Some(&cat), Some(&odd), 2.0),
            (IndexContent::All, Some(&odd), Some(&odd), 0.0),
            (names(&[]), None, Some(&cat), 1.0),
            (names(&[]), Some(&cat), Some(&small), 0.0),
            (names(&[]), Some(&cat), Some(&dog), 2.0),
            (names(&["a"]), Some(&cat), Some(&small), 0.0),
            (names(&["o"]), Some(&cat), Some(&small), 2.0),
        ] {
            let found = index(content.clone()).write_units(&["p"], before, after);
            assert!((found - units).abs() < 1e-9, "{content:?} {units}: {found}");
        }
    }

    #[test]
    fn partitions_follow_throughput_and_size() {
        for (reads, writes, gigabytes, expected) in [
            (1_000.0, 500.0, 50.0, 5.0),
            (1_000.0, 500.0, 500.0, 50.0),
            (1_000.0, 500.0, 1.0, 1.0),
            (3_000.0, 1_000.0, 0.0, 2.0),
            (3_001.0, 1_000.0, 0.0, 3.0),
            (0.0, 0.0, 0.0, 1.0),
            (0.0, 0.0, 10.1, 2.0),
        ] {
            let found = partitions(reads, writes, gigabytes);
            assert!((found - expected).abs() < 1e-9, "{reads} {writes} {gigabytes}: {found}");
        }
    }
}
