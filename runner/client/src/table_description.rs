//! Reads the key attributes and the TTL attribute of a table.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{KeyType, TableDescription, TimeToLiveStatus};
use model::{KeyAttribute, KeyAttributeType, KeySchema};

use crate::failure::{Context, Result, fatal};

/// Returns the key attributes of a table and their types, partition key first.
///
/// # Errors
/// When the table cannot be described.
pub async fn key_attributes(
    client: &Client,
    table: &str,
) -> Result<Vec<(String, KeyAttributeType)>> {
    let described = client
        .describe_table()
        .table_name(table)
        .send()
        .await
        .context(|| format!("cannot describe table `{table}`"))?;
    let description = described
        .table
        .ok_or_else(|| fatal!("DescribeTable returned no description of table `{table}`"))?;
    let definitions: BTreeMap<_, _> = description
        .attribute_definitions()
        .iter()
        .filter_map(|definition| {
            let key_type = KeyAttributeType::from_descriptor(definition.attribute_type().as_str())?;
            Some((definition.attribute_name().to_owned(), key_type))
        })
        .collect();
    let key = |element: &aws_sdk_dynamodb::types::KeySchemaElement| {
        let name = element.attribute_name().to_owned();
        definitions.get(&name).map(|key_type| (name, *key_type))
    };
    Ok(description.key_schema().iter().filter_map(key).collect())
}

/// Returns the key schema in the description of a table; `None` if the description is incomplete.
#[must_use]
pub fn schema_of(table: &TableDescription) -> Option<KeySchema> {
    let attribute = |wanted: &KeyType| {
        let element = table.key_schema().iter().find(|element| element.key_type() == wanted)?;
        let name = element.attribute_name();
        let definition =
            table.attribute_definitions().iter().find(|found| found.attribute_name() == name)?;
        let attribute_type =
            KeyAttributeType::from_descriptor(definition.attribute_type().as_str())?;
        Some(KeyAttribute { name: name.to_owned(), attribute_type })
    };
    Some(KeySchema { partition: attribute(&KeyType::Hash)?, sort: attribute(&KeyType::Range) })
}

/// Returns the TTL attribute of a table; `None` if TTL is off.
///
/// # Errors
/// When the TTL of the table cannot be read.
pub async fn ttl_attribute(client: &Client, table: &str) -> Result<Option<String>> {
    let asked = client.describe_time_to_live().table_name(table).send().await;
    let asked = asked.context(|| format!("cannot read the TTL of table `{table}`"))?;
    let is_on = |status: &TimeToLiveStatus| {
        matches!(status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
    };
    let ttl = asked.time_to_live_description();
    let ttl = ttl.filter(|ttl| ttl.time_to_live_status().is_some_and(is_on));
    Ok(ttl.and_then(|ttl| ttl.attribute_name()).map(str::to_owned))
}
