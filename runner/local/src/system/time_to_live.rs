//! Sets the TTL of a table as in the template: enabled with an attribute, or disabled.
//!
//! If TTL is enabled with a different attribute, this is an error, because DynamoDB cannot change the
//! attribute.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{TimeToLiveSpecification, TimeToLiveStatus};

use super::table_state::{LOOKS_MAX, PAUSE};
use client::failure::{Failure, Result, fatal};
use template::Table;

/// The current TTL of a table.
struct Found {
    status: TimeToLiveStatus,
    attribute: String,
}

impl Found {
    fn is_on(&self) -> bool {
        matches!(self.status, TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
    }

    /// Returns whether a change is in progress, during which DynamoDB accepts no further change.
    fn is_changing(&self) -> bool {
        matches!(self.status, TimeToLiveStatus::Disabling | TimeToLiveStatus::Enabling)
    }
}

/// Enables TTL, or disables it if the template has no TTL, as CloudFormation does.
///
/// # Errors
/// The TTL cannot be set as in the template, for this reason.
pub(super) async fn carry_out(client: &Client, table: &Table) -> Result<()> {
    let found = describe(client, table).await?;
    match &table.ttl_attribute {
        Some(wanted) if !found.is_on() => {
            settle(client, table, found).await?;
            change(client, table, wanted, true).await
        }
        Some(wanted) if *wanted != found.attribute => Err(fatal!(
            "the table's TTL attribute is `{}`, but the template has `{wanted}`; start `weir up` once without TimeToLiveSpecification, which disables TTL, then with the new attribute",
            found.attribute
        )),
        None if found.is_on() => {
            let found = settle(client, table, found).await?;
            change(client, table, &found.attribute, false).await?;
            tracing::info!(
                "table `{}`: disabled TTL on attribute `{}`, because the template has no TTL",
                table.name,
                found.attribute
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn describe(client: &Client, table: &Table) -> Result<Found> {
    let answer = client
        .describe_time_to_live()
        .table_name(&table.name)
        .send()
        .await
        .map_err(Failure::from)?;
    let found = answer.time_to_live_description();
    let status = found.and_then(|found| found.time_to_live_status());
    let attribute = found.and_then(|found| found.attribute_name());
    Ok(Found {
        status: status.cloned().unwrap_or(TimeToLiveStatus::Disabled),
        attribute: attribute.unwrap_or_default().to_owned(),
    })
}

/// Waits until a change in progress has ended.
async fn settle(client: &Client, table: &Table, mut found: Found) -> Result<Found> {
    for _ in 0..LOOKS_MAX {
        if !found.is_changing() {
            return Ok(found);
        }
        tokio::time::sleep(PAUSE).await;
        found = describe(client, table).await?;
    }
    Err(fatal!("the table's TTL has been {} for more than two minutes", found.status.as_str()))
}

async fn change(client: &Client, table: &Table, attribute: &str, enabled: bool) -> Result<()> {
    let specification = TimeToLiveSpecification::builder()
        .enabled(enabled)
        .attribute_name(attribute)
        .build()
        .map_err(Failure::fatal)?;
    client
        .update_time_to_live()
        .table_name(&table.name)
        .time_to_live_specification(specification)
        .send()
        .await
        .map(drop)
        .map_err(Failure::from)
}
