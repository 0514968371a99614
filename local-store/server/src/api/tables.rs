//! Finds the table that a request names, by name or ARN.
//!
//! Operations on items and operations on tables have different error messages for a table that does
//! not exist.

use std::sync::Arc;

use model::arn::TableArn;
use partition::Table;

use super::constraints::is_name;
use super::error::ApiError;
use crate::store::Store;

/// Returns the name in a `TableName` parameter, which may be the ARN of a table of this Region and account.
/// The error messages for other ARNs are those of `DescribeTable` in DynamoDB.
pub(crate) fn name_of<'n>(store: &Store, given: &'n str) -> Result<&'n str, ApiError> {
    if !given.starts_with("arn:") {
        return Ok(given);
    }
    let wrong = |what: &str| {
        ApiError::validation(format!("1 validation error detected: Invalid {what} in '{given}'"))
    };
    let neither = || {
        ApiError::invalid_parameter(format!(
            "TableName is neither a table name nor a table ARN: {given}"
        ))
    };
    let mut parts = given.splitn(6, ':').skip(1);
    let [Some(partition), Some("dynamodb"), Some(region), Some(account), Some(resource)] =
        std::array::from_fn(|_| parts.next())
    else {
        return Err(neither());
    };
    if partition != "aws" {
        return Err(wrong("AWS partition"));
    }
    if region != store.region() {
        return Err(wrong("AWS region"));
    }
    let name = resource.strip_prefix("table/").filter(|name| !name.contains('/'));
    let name = name.ok_or_else(|| wrong("resource type"))?;
    if !is_name(name) {
        return Err(neither());
    }
    if account != store.account() {
        return Err(ApiError::access_denied());
    }
    Ok(name)
}

/// Returns the `TableName` of an operation on a table's settings, or an error if it is missing.
pub(crate) fn required(name: Option<&str>) -> Result<&str, ApiError> {
    name.ok_or_else(|| {
        ApiError::validation(
            "The parameter 'TableName' is required but was not present in the request",
        )
    })
}

/// Finds the table for an operation on items. If the table does not exist, returns the error of
/// operations on items.
pub(crate) fn find_for_items(store: &Store, given: &str) -> Result<Arc<Table>, ApiError> {
    store.find_table(name_of(store, given)?).ok_or_else(ApiError::resource_not_found)
}

/// Finds the table for an operation on a table's settings. If the table does not exist, returns the
/// error of operations on settings.
pub(crate) fn find_for_settings(store: &Store, given: &str) -> Result<Arc<Table>, ApiError> {
    let name = name_of(store, given)?;
    store.find_table(name).ok_or_else(|| ApiError::table_not_found(name))
}

/// Returns the ARN of a table of this store.
pub(crate) fn table_arn(store: &Store, name: &str) -> TableArn {
    TableArn {
        region: store.region().to_owned(),
        account: store.account().to_owned(),
        table: name.to_owned(),
    }
}
