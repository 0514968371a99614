//! Finding the table that a request names, by name or ARN.
//!
//! Operations on items and operations on tables say differently that it is not there.

use std::sync::Arc;

use model::arn::TableArn;
use partition::Table;

use super::error::ApiError;
use crate::store::Store;

/// The name in a `TableName` parameter, which may be an ARN. An ARN of another Region or account
/// names no table of this store.
pub(crate) fn name_of<'n>(store: &Store, given: &'n str) -> Option<&'n str> {
    if !given.starts_with("arn:") {
        return Some(given);
    }
    let arn: TableArn = given.parse().ok()?;
    let is_ours = arn.region == store.region() && arn.account == store.account();
    given.rsplit_once('/').map(|(_, name)| name).filter(|_| is_ours)
}

/// The parameter `TableName` of an operation on the table itself.
pub(crate) fn required(name: Option<&str>) -> Result<&str, ApiError> {
    name.ok_or_else(|| {
        ApiError::validation(
            "The parameter 'TableName' is required but was not present in the request",
        )
    })
}

fn find(store: &Store, given: &str) -> Option<Arc<Table>> {
    name_of(store, given).and_then(|name| store.find_table(name))
}

/// The table of an operation on items.
pub(crate) fn find_for_items(store: &Store, given: &str) -> Result<Arc<Table>, ApiError> {
    if given.starts_with("arn:") && given.parse::<TableArn>().is_err() {
        return Err(ApiError::invalid_parameter(format!(
            "TableName is neither a name nor the ARN of a table: {given}"
        )));
    }
    find(store, given).ok_or_else(ApiError::resource_not_found)
}

/// The table of an operation on the table itself.
pub(crate) fn find_for_settings(store: &Store, given: &str) -> Result<Arc<Table>, ApiError> {
    find(store, given).ok_or_else(|| ApiError::table_not_found(given))
}

/// The ARN of a table of this store.
pub(crate) fn table_arn(store: &Store, name: &str) -> TableArn {
    TableArn {
        region: store.region().to_owned(),
        account: store.account().to_owned(),
        table: name.to_owned(),
    }
}
