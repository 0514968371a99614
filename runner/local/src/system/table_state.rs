//! Reads the state of a table, and waits until the table is active. Changes nothing.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{TableDescription, TableStatus};

use client::failure::{Result, fatal};
use client::sdk_error::is_not_found;
use template::Table;

/// The maximum number of checks whether a table is active, and the pause between two checks. Together
/// they take two minutes, which is longer than DynamoDB needs for an empty table.
pub(super) const LOOKS_MAX: u32 = 240;
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Returns the description of a table; `None` if the table does not exist.
pub(super) async fn describe(client: &Client, table: &Table) -> Result<Option<TableDescription>> {
    match client.describe_table().table_name(&table.name).send().await {
        Ok(answer) => Ok(answer.table),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits until a table is active, and returns its description.
pub(super) async fn wait_until_active(client: &Client, table: &Table) -> Result<TableDescription> {
    for _ in 0..LOOKS_MAX {
        if let Some(description) = describe(client, table).await?
            && description.table_status() == Some(&TableStatus::Active)
        {
            return Ok(description);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(fatal!("the table did not become ACTIVE within two minutes"))
}
