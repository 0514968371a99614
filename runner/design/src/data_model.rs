//! The types of a data model: tables, example items, access patterns, and the expected workload.
//!
//! The names and the shape of tables are those of `CreateTable`, so that serde writes a table as a request, as
//! a part of a model file, and as a resource of a template. `reader` reads them with their places.

use std::collections::BTreeMap;

use model::Item;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use template::Span;

use crate::capacity::{IndexContent, IndexShape};
use crate::command::Command;

/// A data model.
#[derive(Clone, Debug, Default)]
pub struct DataModel {
    /// The tables, in the order of the file.
    pub tables: Vec<Table>,
    /// The example items of each table.
    pub items: BTreeMap<String, Vec<Item>>,
    /// The access patterns, in the order of the file.
    pub patterns: Vec<AccessPattern>,
    /// What is expected of each table in production.
    pub workload: BTreeMap<String, TableWorkload>,
    /// The places in the file of what findings name.
    pub places: BTreeMap<Place, Span>,
}

/// A part of a model that has a place in the file. Tables and patterns are named by their positions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A table.
    Table(usize),
    /// An index of a table, by its name.
    Index(usize, String),
    /// An example item of a table.
    Item(String, usize),
    /// An access pattern.
    Pattern(usize),
    /// The command of an access pattern.
    Command(usize),
}

impl DataModel {
    /// Returns the table with this name and its position.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<(usize, &Table)> {
        self.tables.iter().enumerate().find(|(_, table)| table.table_name == name)
    }

    /// Returns the example items of a table.
    #[must_use]
    pub fn items_of(&self, table: &str) -> &[Item] {
        self.items.get(table).map_or(&[], Vec::as_slice)
    }

    /// Returns the place of a part; the first line if it has none.
    #[must_use]
    pub fn place(&self, place: &Place) -> Span {
        self.places.get(place).copied().unwrap_or(Span { line: 1, column: 1, width: 1 })
    }

    /// Returns the model as the JSON of a model file, without the places.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let item = |item: &Item| json!({"PutRequest": {"Item": item_json(item)}});
        let items: Map<String, Value> = self
            .items
            .iter()
            .map(|(table, items)| (table.clone(), items.iter().map(item).collect::<Value>()))
            .collect();
        json!({
            "tables": self.tables,
            "items": items,
            "access_patterns": [],
            "workload": {"tables": self.workload},
        })
    }
}

/// Returns an item as DynamoDB JSON.
pub(crate) fn item_json(item: &Item) -> Value {
    serde_json::from_str(&model::json::item_to_string(item)).unwrap_or_default()
}

/// A table, as `CreateTable` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Table {
    /// The name.
    pub table_name: String,
    /// The types of the key attributes.
    pub attribute_definitions: Vec<AttributeDefinition>,
    /// The key.
    pub key_schema: Vec<KeyElement>,
    /// The global indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub global_secondary_indexes: Vec<Index>,
    /// The local indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_secondary_indexes: Vec<Index>,
    /// How capacity is billed.
    #[serde(default)]
    pub billing_mode: BillingMode,
    /// The capacity of a table that is not on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned_throughput: Option<Throughput>,
    /// The stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_specification: Option<StreamSpecification>,
    /// Other parameters, which go into requests and templates as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A key attribute and its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AttributeDefinition {
    /// The name.
    pub attribute_name: String,
    /// The type.
    pub attribute_type: KeyAttributeType,
}

/// The type of a key attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyAttributeType {
    /// String.
    S,
    /// Number.
    N,
    /// Binary.
    B,
}

impl KeyAttributeType {
    /// Returns the descriptor of DynamoDB JSON.
    #[must_use]
    pub fn descriptor(self) -> &'static str {
        match self {
            Self::S => "S",
            Self::N => "N",
            Self::B => "B",
        }
    }
}

/// An attribute of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct KeyElement {
    /// The name of the attribute.
    pub attribute_name: String,
    /// Its part in the key.
    pub key_type: KeyType,
}

/// The part of an attribute in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum KeyType {
    /// The partition key.
    Hash,
    /// The sort key.
    Range,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Index {
    /// The name.
    pub index_name: String,
    /// The key.
    pub key_schema: Vec<KeyElement>,
    /// What its entries contain.
    pub projection: Projection,
    /// The capacity of a global index that is not on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned_throughput: Option<Throughput>,
}

/// The attributes in the entries of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Projection {
    /// Which attributes.
    pub projection_type: ProjectionType,
    /// The names, for `INCLUDE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_key_attributes: Vec<String>,
}

/// Which attributes an index contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProjectionType {
    /// All attributes.
    All,
    /// Only key attributes.
    KeysOnly,
    /// Key attributes and those that are named.
    Include,
}

/// How capacity is billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BillingMode {
    /// By the hour, for the capacity that is provisioned.
    #[default]
    Provisioned,
    /// On demand, by the request.
    PayPerRequest,
}

/// Provisioned capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Throughput {
    /// Read units per second.
    pub read_capacity_units: u64,
    /// Write units per second.
    pub write_capacity_units: u64,
}

/// The stream of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StreamSpecification {
    /// Whether the table has a stream.
    pub stream_enabled: bool,
    /// What its records contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_view_type: Option<String>,
}

impl Table {
    /// Returns the names of the key attributes, partition key first.
    #[must_use]
    pub fn key(&self) -> Vec<&str> {
        key_names(&self.key_schema)
    }

    /// Returns the type of a key attribute.
    #[must_use]
    pub fn type_of(&self, attribute: &str) -> Option<KeyAttributeType> {
        let mut all = self.attribute_definitions.iter();
        all.find(|found| found.attribute_name == attribute).map(|found| found.attribute_type)
    }

    /// Returns all indexes, global ones first.
    pub fn indexes(&self) -> impl Iterator<Item = &Index> {
        self.global_secondary_indexes.iter().chain(&self.local_secondary_indexes)
    }

    /// Returns the index with this name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&Index> {
        self.indexes().find(|index| index.index_name == name)
    }

    /// Returns what decides the entries of an index.
    #[must_use]
    pub fn shape(&self, index: &Index) -> IndexShape {
        let keys = key_names(&index.key_schema).into_iter().map(|name| {
            let descriptor = self.type_of(name).map_or("", KeyAttributeType::descriptor);
            (name.to_owned(), descriptor.to_owned())
        });
        let content = match index.projection.projection_type {
            ProjectionType::All => IndexContent::All,
            _ => IndexContent::Names(index.projection.non_key_attributes.clone()),
        };
        IndexShape { name: index.index_name.clone(), keys: keys.collect(), content }
    }
}

/// Returns the attributes of a key, those of the partition key first.
#[must_use]
pub fn key_names(key: &[KeyElement]) -> Vec<&str> {
    let mut elements: Vec<&KeyElement> = key.iter().collect();
    elements.sort_by_key(|element| element.key_type);
    elements.into_iter().map(|element| element.attribute_name.as_str()).collect()
}

/// Returns the attributes of the partition key.
#[must_use]
pub fn partition_key(key: &[KeyElement]) -> Vec<&str> {
    let parts = key.iter().filter(|element| element.key_type == KeyType::Hash);
    parts.map(|element| element.attribute_name.as_str()).collect()
}

/// An access pattern.
#[derive(Clone, Debug, Default)]
pub struct AccessPattern {
    /// The name, mostly a number.
    pub pattern: String,
    /// What it is for.
    pub description: String,
    /// The request that answers it; `None` if DynamoDB does not answer it.
    pub command: Option<Command>,
    /// The text of the command; empty if there is none.
    pub implementation: String,
    /// The index that the file names, for a pattern without a command too.
    pub index: Option<(String, String)>,
    /// The reason why DynamoDB does not answer it.
    pub reason: Option<String>,
    /// Requests per second on average.
    pub average: Option<f64>,
    /// Requests per second at the peak.
    pub peak: Option<f64>,
    /// Items that one request reads or writes in production.
    pub items: Option<f64>,
    /// The share of the requests that meets the busiest partition key, from 0 to 1.
    pub busiest_share: Option<f64>,
    /// Findings that are accepted.
    pub accept: Vec<String>,
}

impl AccessPattern {
    /// Returns the rate on average and at the peak; `None` if the model states none.
    #[must_use]
    pub fn rates(&self) -> Option<(f64, f64)> {
        let average = self.average.or(self.peak)?;
        Some((average, self.peak.unwrap_or(average).max(average)))
    }
}

/// What is expected of a table in production.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableWorkload {
    /// The number of items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// The average size of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_bytes: Option<u64>,
    /// The days after which items are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<f64>,
    /// The attribute with the time at which an item expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_live: Option<String>,
    /// The number of distinct values of the partition key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_keys: Option<u64>,
    /// The same of each index.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub indexes: BTreeMap<String, IndexWorkload>,
    /// Findings that are accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
}

/// What is expected of an index in production.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexWorkload {
    /// The number of entries; as many as items, in the proportion of the examples, if none is stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// The number of distinct values of the partition key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_keys: Option<u64>,
}
