//! The types of a data model: tables, example items, access patterns, and the expected workload.
//!
//! Tables have the same fields as `CreateTable`. So serde can serialize a table as a request, as
//! part of a model file, and as a resource of a template. `reader` parses a model file and records
//! the positions of its parts.

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
    /// The expected workload of each table in production.
    pub workload: BTreeMap<String, TableWorkload>,
    /// The positions in the file of the parts that findings name.
    pub places: BTreeMap<Place, Span>,
}

/// A part of a model that has a position in the file. Tables and patterns are identified by their
/// index in the model.
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
    /// Returns the table with this name, and its index in the model.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<(usize, &Table)> {
        self.tables.iter().enumerate().find(|(_, table)| table.table_name == name)
    }

    /// Returns the example items of a table.
    #[must_use]
    pub fn items_of(&self, table: &str) -> &[Item] {
        self.items.get(table).map_or(&[], Vec::as_slice)
    }

    /// Returns the position of a part in the file; the first line if it is unknown.
    #[must_use]
    pub fn place(&self, place: &Place) -> Span {
        self.places.get(place).copied().unwrap_or(Span { line: 1, column: 1, width: 1 })
    }

    /// Returns the model as the JSON of a model file, without positions.
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

/// A table, with the fields of `CreateTable`.
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
    /// The billing mode of capacity.
    #[serde(default)]
    pub billing_mode: BillingMode,
    /// The capacity of a table in provisioned mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned_throughput: Option<Throughput>,
    /// The stream of the table; `None` if the table has no stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_specification: Option<StreamSpecification>,
    /// Other parameters, which are copied to requests and templates unchanged.
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
    /// Returns the type descriptor in DynamoDB JSON.
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
    /// The role of the attribute in the key.
    pub key_type: KeyType,
}

/// The role of an attribute in a key.
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
    /// The attributes that its entries contain.
    pub projection: Projection,
    /// The capacity of a global index in provisioned mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned_throughput: Option<Throughput>,
}

/// The attributes in the entries of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Projection {
    /// The kind of projection.
    pub projection_type: ProjectionType,
    /// The names of non-key attributes, for `INCLUDE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub non_key_attributes: Vec<String>,
}

/// The kind of an index's projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProjectionType {
    /// All attributes.
    All,
    /// Only the key attributes.
    KeysOnly,
    /// The key attributes and the listed attributes.
    Include,
}

/// The billing mode of capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BillingMode {
    /// Billed by the hour, for the provisioned capacity.
    #[default]
    Provisioned,
    /// Billed by the request (on demand).
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
    /// The item images that its records contain.
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

    /// Returns all indexes, global indexes first.
    pub fn indexes(&self) -> impl Iterator<Item = &Index> {
        self.global_secondary_indexes.iter().chain(&self.local_secondary_indexes)
    }

    /// Returns the index with this name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&Index> {
        self.indexes().find(|index| index.index_name == name)
    }

    /// Returns the properties of an index that determine its entries.
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

/// Returns the attributes of a key, partition key first.
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
    /// The name, usually a number.
    pub pattern: String,
    /// The purpose of the access pattern.
    pub description: String,
    /// The request that answers the pattern; `None` if DynamoDB does not answer it.
    pub command: Option<Command>,
    /// The text of the command; empty if there is no command.
    pub implementation: String,
    /// The table and the index that the file names. A pattern without a command may also have them.
    pub index: Option<(String, String)>,
    /// The reason why DynamoDB does not answer the pattern.
    pub reason: Option<String>,
    /// The average number of requests per second.
    pub average: Option<f64>,
    /// The number of requests per second at the peak.
    pub peak: Option<f64>,
    /// The number of items that a request reads or writes in production.
    pub items: Option<f64>,
    /// The fraction of the requests that go to the busiest partition key, from 0 to 1.
    pub busiest_share: Option<f64>,
    /// The names of accepted findings, which are not reported.
    pub accept: Vec<String>,
}

impl AccessPattern {
    /// Returns the average and peak rates; `None` if the model states neither.
    #[must_use]
    pub fn rates(&self) -> Option<(f64, f64)> {
        let average = self.average.or(self.peak)?;
        Some((average, self.peak.unwrap_or(average).max(average)))
    }
}

/// The expected workload of a table in production.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableWorkload {
    /// The number of items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// The average size of an item in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_bytes: Option<u64>,
    /// The number of days after which items are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<f64>,
    /// The TTL attribute, which contains the time at which an item expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_live: Option<String>,
    /// The number of distinct values of the partition key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_keys: Option<u64>,
    /// The expected workload of each index.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub indexes: BTreeMap<String, IndexWorkload>,
    /// The names of accepted findings, which are not reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accept: Vec<String>,
}

/// The expected workload of an index in production.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexWorkload {
    /// The number of entries. If `None`, it is the number of the table's items, multiplied by the
    /// fraction of example items that are in the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// The number of distinct values of the partition key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_keys: Option<u64>,
}
