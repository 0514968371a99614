//! Sets the billing mode of a table as in the template: on-demand, or with provisioned units.
//!
//! An index of an on-demand table is also on-demand. An index of a provisioned table has its own
//! units.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    BillingMode, BillingModeSummary, GlobalSecondaryIndexDescription, GlobalSecondaryIndexUpdate,
    ProvisionedThroughputDescription, TableDescription, UpdateGlobalSecondaryIndexAction,
};

use super::indexes;
use client::failure::{Failure, Result, fatal};
use template::{Billing, Index, IndexKind, Table};

/// Changes the billing mode and the throughput of an existing table and its indexes, where they differ from
/// the template. Returns whether the table was changed.
///
/// # Errors
/// A change is not possible. The error names the change and the correction.
pub(super) async fn carry_out(
    client: &Client,
    table: &Table,
    description: &TableDescription,
) -> Result<bool> {
    let current = of_table(description);
    let updates = index_updates(table, description, current)?;
    if current == table.billing && updates.is_empty() {
        return Ok(false);
    }
    let mut request = client.update_table().table_name(&table.name);
    if current != table.billing {
        request = match indexes::throughput(table.billing)? {
            None => request.billing_mode(BillingMode::PayPerRequest),
            Some(throughput) => {
                request.billing_mode(BillingMode::Provisioned).provisioned_throughput(throughput)
            }
        };
    }
    if !updates.is_empty() {
        request = request.set_global_secondary_index_updates(Some(updates));
    }
    request.send().await.map_err(Failure::from)?;
    tracing::info!(
        "table `{}`: changed the table and its indexes from {} to {}, as in the template",
        table.name,
        words(current),
        words(table.billing)
    );
    Ok(true)
}

fn words(billing: Billing) -> String {
    match billing {
        Billing::OnDemand => "on demand".to_owned(),
        Billing::Provisioned { read_units, write_units } => {
            format!("provisioned with {read_units} read and {write_units} write units")
        }
    }
}

fn of_table(description: &TableDescription) -> Billing {
    // A table that was never on-demand has no summary.
    let mode = description.billing_mode_summary().and_then(BillingModeSummary::billing_mode);
    if mode == Some(&BillingMode::PayPerRequest) {
        return Billing::OnDemand;
    }
    provisioned(description.provisioned_throughput())
}

fn provisioned(throughput: Option<&ProvisionedThroughputDescription>) -> Billing {
    let units = |units: Option<i64>| units.and_then(|units| u64::try_from(units).ok()).unwrap_or(0);
    Billing::Provisioned {
        read_units: units(throughput.and_then(|found| found.read_capacity_units())),
        write_units: units(throughput.and_then(|found| found.write_capacity_units())),
    }
}

/// Returns the throughput of the indexes of a provisioned table. An on-demand table needs none.
fn index_updates(
    table: &Table,
    description: &TableDescription,
    current: Billing,
) -> Result<Vec<GlobalSecondaryIndexUpdate>> {
    let mut updates = Vec::new();
    if table.billing == Billing::OnDemand {
        return Ok(updates);
    }
    for found in description.global_secondary_indexes() {
        let name = found.index_name().unwrap_or_default();
        let is_it = |index: &&Index| index.kind == IndexKind::Global && index.name == name;
        let wanted = table.indexes.iter().find(is_it).and_then(|index| index.billing);
        match wanted {
            Some(wanted) if current == Billing::OnDemand || of_index(found) != wanted => {
                updates.push(update(name, wanted)?);
            }
            None if current == Billing::OnDemand => {
                return Err(fatal!(
                    "the template sets provisioned throughput for the table, but not for the table's index `{name}`; add the index to GlobalSecondaryIndexes, or delete the index first"
                ));
            }
            _ => {}
        }
    }
    Ok(updates)
}

fn of_index(found: &GlobalSecondaryIndexDescription) -> Billing {
    provisioned(found.provisioned_throughput())
}

fn update(name: &str, wanted: Billing) -> Result<GlobalSecondaryIndexUpdate> {
    let action = UpdateGlobalSecondaryIndexAction::builder()
        .index_name(name)
        .set_provisioned_throughput(indexes::throughput(wanted)?)
        .build()
        .map_err(Failure::fatal)?;
    Ok(GlobalSecondaryIndexUpdate::builder().update(action).build())
}
