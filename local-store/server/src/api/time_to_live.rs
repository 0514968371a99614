//! `UpdateTimeToLive` and `DescribeTimeToLive`: set and show the attribute with the expiry time of a
//! table's items.
//!
//! The periodic work of the module `ticks` deletes expired items.

use model::limits::KEY_ATTRIBUTE_NAME_BYTES_MAX;
use partition::{Command, Reply, TimeToLive, TimeToLiveChange};

use super::answer::{begin_member, boolean_member, text_member};
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::tables;
use crate::store::Store;

pub(super) async fn update_time_to_live(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = parameters.string("TableName")?;
    let specification = parameters.structure("TimeToLiveSpecification")?;
    let is_enabled = specification.map(|s| s.boolean("Enabled")).transpose()?.flatten();
    let attribute = specification.map(|s| s.string("AttributeName")).transpose()?.flatten();

    let name = tables::required(name)?;
    let mut constraints = Constraints::new();
    constraints.name_of_settings(name);
    constraints.required("timeToLiveSpecification", specification.is_some());
    if specification.is_some() {
        let at = "timeToLiveSpecification.attributeName";
        constraints.required(at, attribute.is_some());
        if let Some(attribute) = attribute {
            constraints.length(at, attribute, 1, KEY_ATTRIBUTE_NAME_BYTES_MAX);
        }
        constraints.required("timeToLiveSpecification.enabled", is_enabled.is_some());
    }
    constraints.finish()?;
    let attribute = attribute.unwrap_or_default();
    let is_enabled = is_enabled.unwrap_or(false);

    let table = tables::find_for_settings(store, name)?;
    let change = if is_enabled {
        TimeToLiveChange::Enable(attribute.to_owned())
    } else {
        TimeToLiveChange::Disable(attribute.to_owned())
    };
    let command = Command::UpdateTimeToLive { table: table.id, change };
    let replies = store.submit(vec![command]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(_)) => {
            let mut out = String::from("{");
            begin_member(&mut out, "TimeToLiveSpecification");
            out.push('{');
            boolean_member(&mut out, "Enabled", is_enabled);
            text_member(&mut out, "AttributeName", attribute);
            out.push_str("}}");
            Ok(out)
        }
        Some(Reply::TableNotFound) => Err(ApiError::table_not_found(&table.name)),
        Some(Reply::Invalid(text)) => Err(ApiError::validation(text)),
        _ => Err(ApiError::defect("UpdateTimeToLive returned an unexpected reply")),
    }
}

pub(super) fn describe_time_to_live(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = tables::required(parameters.string("TableName")?)?;
    let mut constraints = Constraints::new();
    constraints.name_of_settings(name);
    constraints.finish()?;
    let table = tables::find_for_settings(store, name)?;
    let mut out = String::from("{");
    begin_member(&mut out, "TimeToLiveDescription");
    out.push('{');
    text_member(&mut out, "TimeToLiveStatus", table.time_to_live.status());
    match &table.time_to_live {
        TimeToLive::Enabling { attribute, .. }
        | TimeToLive::Enabled { attribute }
        | TimeToLive::Disabling { attribute } => {
            text_member(&mut out, "AttributeName", attribute);
        }
        TimeToLive::Disabled => {}
    }
    out.push_str("}}");
    Ok(out)
}
