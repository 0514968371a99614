//! The description of a table: its keys, indexes, size, stream and TTL, from DescribeTable and
//! DescribeTimeToLive.
//!
//! This module reads no items.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, Projection, ProjectionType, TableDescription,
};
use client::sdk_error::{error_text, is_not_found};
use client::table_description::ttl_attribute;
use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};
use model::{Item, KeyAttribute, KeyAttributeType};
use serde::Serialize;

use crate::error::PageError;

/// The keys of a table or an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Keys {
    /// The attributes of the partition key: one, or up to four in a global index.
    pub(crate) partition: Vec<KeyAttribute>,
    /// The attributes of the sort key: none, one, or up to four in a global index.
    pub(crate) sort: Vec<KeyAttribute>,
}

impl Keys {
    /// Returns all key attributes, partition key first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KeyAttribute> {
        self.partition.iter().chain(&self.sort)
    }
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct IndexShape {
    pub(crate) name: String,
    /// `global` or `local`.
    pub(crate) kind: &'static str,
    /// The status, such as `CREATING`. A local index has the status of its table.
    pub(crate) status: String,
    pub(crate) keys: Keys,
    /// `ALL`, `KEYS_ONLY`, or the names of the projected attributes.
    pub(crate) projection: String,
}

/// The description of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TableShape {
    pub(crate) name: String,
    /// The status, such as `ACTIVE`.
    pub(crate) status: String,
    pub(crate) keys: Keys,
    /// The indexes, ordered by name.
    pub(crate) indexes: Vec<IndexShape>,
    /// The approximate number of items.
    pub(crate) about_items: i64,
    /// The approximate size of all items in bytes.
    pub(crate) about_bytes: i64,
    /// The view type of the stream; `None` if the stream is disabled.
    pub(crate) stream: Option<String>,
    /// The TTL attribute; `None` if TTL is off or cannot be read.
    pub(crate) ttl: Option<String>,
    /// The provisioned throughput, as read and write units per second; `None` for a table on
    /// demand.
    pub(crate) provisioned: Option<(i64, i64)>,
}

impl TableShape {
    /// Reads the description of a table.
    ///
    /// # Errors
    /// The table does not exist, or cannot be described.
    pub(crate) async fn read(client: &Client, name: &str) -> Result<Self, PageError> {
        check_name(name)?;
        let described = client.describe_table().table_name(name).send();
        let (described, ttl) = tokio::join!(described, ttl_attribute(client, name));
        let described = described.map_err(|error| match is_not_found(&error) {
            true => no_table(name),
            false => PageError::Store(error_text(&error)),
        })?;
        let described = described.table.ok_or_else(|| no_table(name))?;
        // An IAM policy may allow DescribeTable but not DescribeTimeToLive. In this case the page
        // shows no TTL.
        Ok(Self { ttl: ttl.unwrap_or_default(), ..Self::of(&described) })
    }

    /// Converts the response of DescribeTable, without TTL.
    pub(crate) fn of(described: &TableDescription) -> Self {
        let types = types(described.attribute_definitions());
        let status = described.table_status().map(ToString::to_string).unwrap_or_default();
        let stream = described.stream_specification().filter(|stream| stream.stream_enabled());
        let provisioned = described.provisioned_throughput().map(|throughput| {
            let (read, write) = (throughput.read_capacity_units, throughput.write_capacity_units);
            (read.unwrap_or_default(), write.unwrap_or_default())
        });
        Self {
            name: described.table_name().unwrap_or_default().to_owned(),
            keys: keys(described.key_schema(), &types),
            indexes: indexes(described, &types, &status),
            about_items: described.item_count().unwrap_or_default(),
            about_bytes: described.table_size_bytes().unwrap_or_default(),
            stream: stream.and_then(|stream| stream.stream_view_type()).map(ToString::to_string),
            ttl: None,
            provisioned: provisioned.filter(|(read, write)| *read > 0 || *write > 0),
            status,
        }
    }

    /// Returns an index by its name.
    pub(crate) fn index(&self, name: &str) -> Option<&IndexShape> {
        self.indexes.iter().find(|index| index.name == name)
    }

    /// Returns the primary key of an item of this table; `None` if the item lacks a key attribute.
    pub(crate) fn key_of(&self, item: &Item) -> Option<Item> {
        let member = |key: &KeyAttribute| Some((key.name.clone(), item.get(&key.name)?.clone()));
        self.keys.all().map(member).collect()
    }
}

/// Checks that a name is a valid table name. Another name could change the path of an admin
/// request.
///
/// # Errors
/// The name is not a valid table name.
pub(crate) fn check_name(name: &str) -> Result<(), PageError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let length = TABLE_NAME_LENGTH_MIN..=TABLE_NAME_LENGTH_MAX;
    if length.contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let instead = "3 to 255 letters, digits, `_`, `-` or `.`";
    Err(PageError::bad_input("the table", format!("`{name}` is not a table name"), instead))
}

fn no_table(name: &str) -> PageError {
    PageError::NotFound { what: format!("table `{name}`") }
}

fn types(definitions: &[AttributeDefinition]) -> BTreeMap<&str, KeyAttributeType> {
    let typed = definitions.iter().filter_map(|definition| {
        let key_type = KeyAttributeType::from_descriptor(definition.attribute_type().as_str())?;
        Some((definition.attribute_name(), key_type))
    });
    typed.collect()
}

fn keys(schema: &[KeySchemaElement], types: &BTreeMap<&str, KeyAttributeType>) -> Keys {
    let of = |kind: KeyType| {
        let elements = schema.iter().filter(move |element| *element.key_type() == kind);
        let typed = elements.filter_map(|element| {
            let attribute_type = *types.get(element.attribute_name())?;
            Some(KeyAttribute { name: element.attribute_name().to_owned(), attribute_type })
        });
        typed.collect()
    };
    Keys { partition: of(KeyType::Hash), sort: of(KeyType::Range) }
}

fn indexes(
    described: &TableDescription,
    types: &BTreeMap<&str, KeyAttributeType>,
    status: &str,
) -> Vec<IndexShape> {
    let local = described.local_secondary_indexes().iter().map(|index| IndexShape {
        name: index.index_name().unwrap_or_default().to_owned(),
        kind: "local",
        status: status.to_owned(),
        keys: keys(index.key_schema(), types),
        projection: projection(index.projection()),
    });
    let global = described.global_secondary_indexes().iter().map(|index| IndexShape {
        name: index.index_name().unwrap_or_default().to_owned(),
        kind: "global",
        status: index.index_status().map(ToString::to_string).unwrap_or_default(),
        keys: keys(index.key_schema(), types),
        projection: projection(index.projection()),
    });
    let mut indexes: Vec<IndexShape> = local.chain(global).collect();
    indexes.sort_by(|left, right| left.name.cmp(&right.name));
    indexes
}

fn projection(projection: Option<&Projection>) -> String {
    let Some(projection) = projection else { return String::new() };
    match projection.projection_type() {
        Some(ProjectionType::Include) => projection.non_key_attributes().join(", "),
        Some(kind) => kind.to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_table_has_is_refused_before_a_request() {
        for name in ["movies", "a.b", "...", "Weir_1-x", &"x".repeat(255)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "ab", "../clock", "a/split", "a b c", "é-table", &"x".repeat(256)] {
            assert!(matches!(check_name(name), Err(PageError::BadInput { .. })), "{name}");
        }
    }
}
