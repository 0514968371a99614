//! The key schema of a table, from `DescribeTable`.
//!
//! The module ignores all other properties of a table.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{KeyType, TableDescription};
use model::{KeyAttribute, KeyAttributeType, KeySchema};

use super::PLAN_TABLE;
use crate::failure::Failure;
use crate::tables::dynamodb::request_failure;

/// Requests the key schema of a table.
pub(super) async fn key_schema(client: &Client, table: &str) -> Result<KeySchema, Failure> {
    let answer = client
        .describe_table()
        .table_name(table)
        .send()
        .await
        .map_err(|error| request_failure("DescribeTable", table, PLAN_TABLE, &error))?;
    answer
        .table
        .as_ref()
        .and_then(schema_of)
        .ok_or_else(|| Failure::Fatal(format!("table=`{table}` has an invalid key schema")))
}

fn schema_of(table: &TableDescription) -> Option<KeySchema> {
    let attribute = |wanted: &KeyType| {
        let element = table.key_schema().iter().find(|element| element.key_type() == wanted)?;
        let name = element.attribute_name();
        let mut definitions = table.attribute_definitions().iter();
        let definition = definitions.find(|definition| definition.attribute_name() == name)?;
        let attribute_type =
            KeyAttributeType::from_descriptor(definition.attribute_type().as_str())?;
        Some(KeyAttribute { name: name.to_owned(), attribute_type })
    };
    Some(KeySchema { partition: attribute(&KeyType::Hash)?, sort: attribute(&KeyType::Range) })
}
