//! `UpdateTable`: billing mode, throughput, stream, deletion protection and global indexes of a
//! table.
//!
//! The change is made when the answer is sent; a new index is then built step by step. Whatever else the service can change is an error.

use partition::{Billing, Command, IndexStatus, Reply, Table, UpdateTable, read_statistics};

use super::constraints::Constraints;
use super::error::ApiError;
use super::index_updates::IndexUpdates;
use super::parameters::Parameters;
use super::table_description::description_member;
use super::table_settings::{
    TableSettings, check_supported, stream_label, throughput_missing, throughput_not_allowed,
};
use super::tables;
use crate::store::Store;

/// Settings that are taken and have no effect here.
const WITHOUT_EFFECT: [&str; 4] =
    ["SSESpecification", "TableClass", "OnDemandThroughput", "WarmThroughput"];

pub(super) async fn update_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let settings = TableSettings::read(parameters)?;
    let indexes = IndexUpdates::read(parameters)?;
    let mut constraints = Constraints::new();
    constraints.table_name(name);
    settings.constrain(&mut constraints);
    indexes.constrain(&mut constraints);
    constraints.finish()?;

    check_supported(parameters)?;
    check_not_empty(parameters, &settings, &indexes)?;
    indexes.check_shape()?;
    if settings.billing_mode == Some("PAY_PER_REQUEST") && settings.has_throughput() {
        return Err(throughput_not_allowed());
    }
    let provisioned = settings.provisioned()?;
    let stream = settings.stream()?;

    let name = name.unwrap_or_default();
    let table = tables::find_for_settings(store, name)?;
    let billing = billing(&table, settings.billing_mode, provisioned)?;
    let indexes = indexes.check(&table, billing.unwrap_or(table.billing))?;
    let stream = match stream {
        None => None,
        Some(None) => Some(None),
        Some(Some(view_type)) => Some(Some((view_type, stream_label(store.now())?))),
    };
    let update = UpdateTable {
        table: table.id,
        billing,
        deletion_protection: settings.deletion_protection,
        stream,
        indexes,
    };
    let replies = store.submit(vec![Command::UpdateTable(update)]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => {
            let statistics = read_statistics(&*store.view(), &table)?;
            let mut out = String::from("{");
            let is_working = table.indexes.iter().any(|i| i.status != IndexStatus::Active);
            let status = if is_working { "UPDATING" } else { "ACTIVE" };
            description_member(&mut out, "TableDescription", store, &table, statistics, status)?;
            out.push('}');
            Ok(out)
        }
        Some(Reply::TableNotFound) => Err(ApiError::table_not_found(name)),
        Some(Reply::Invalid(text)) => Err(ApiError::validation(text)),
        _ => Err(ApiError::defect("UpdateTable was not answered with a table")),
    }
}

fn check_not_empty(
    parameters: Parameters<'_>,
    settings: &TableSettings<'_>,
    indexes: &IndexUpdates<'_>,
) -> Result<(), ApiError> {
    let has_change = !indexes.is_empty()
        || settings.has_throughput()
        || settings.has_stream()
        || settings.billing_mode.is_some()
        || settings.deletion_protection.is_some()
        || WITHOUT_EFFECT.iter().any(|name| parameters.has(name));
    if has_change {
        return Ok(());
    }
    Err(ApiError::validation(
        "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates or SSESpecification or ReplicaUpdates is required",
    ))
}

/// The billing mode that the table gets; `None` leaves it.
fn billing(
    table: &Table,
    mode: Option<&str>,
    provisioned: Option<Billing>,
) -> Result<Option<Billing>, ApiError> {
    match (mode, provisioned, table.billing) {
        (Some("PAY_PER_REQUEST"), _, _) => Ok(Some(Billing::OnDemand)),
        (Some(_), None, Billing::OnDemand) => Err(throughput_missing()),
        (_, None, _) => Ok(None),
        (None, Some(_), Billing::OnDemand) => Err(throughput_not_allowed()),
        (_, Some(Billing::Provisioned { read_units, write_units }), current)
            if current == (Billing::Provisioned { read_units, write_units }) =>
        {
            Err(ApiError::validation(format!(
                "The provisioned throughput for the table will not change. The requested value equals the current value. Current ReadCapacityUnits provisioned for the table: {read_units}. Requested ReadCapacityUnits: {read_units}. Current WriteCapacityUnits provisioned for the table: {write_units}. Requested WriteCapacityUnits: {write_units}. Refer to the Amazon DynamoDB Developer Guide for current limits and how to request higher limits."
            )))
        }
        (_, Some(provisioned), _) => Ok(Some(provisioned)),
    }
}
