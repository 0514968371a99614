//! Parses `ResourceArn`, the ARN of the table whose tags or policy a request reads or changes.
//!
//! The error messages are those of DynamoDB.

use super::constraints::is_name;
use super::error::ApiError;
use crate::store::Store;

/// The resource of an ARN.
pub(crate) enum ResourceArn<'a> {
    /// The name of a table of this Region and account. The table may not exist.
    Table(&'a str),
    /// A resource of another Region.
    Elsewhere,
    /// A resource of another account.
    Foreign,
}

/// Parses `ResourceArn`, which must be the ARN of a table.
pub(crate) fn parse<'a>(store: &Store, arn: &'a str) -> Result<ResourceArn<'a>, ApiError> {
    if !arn.starts_with("arn:") {
        return Err(ApiError::invalid_parameter(format!("ARNs must start with 'arn:': {arn}")));
    }
    let not_ours = || {
        ApiError::invalid_parameter(format!("Provided Arn is not a DynamoDB resource arn: {arn}"))
    };
    let mut parts = arn.splitn(6, ':').skip(1);
    let [Some(partition), Some("dynamodb"), Some(region), Some(account), Some(resource)] =
        std::array::from_fn(|_| parts.next())
    else {
        return Err(not_ours());
    };
    if resource.contains("/backup/") {
        return Err(not_ours());
    }
    if resource.contains("/stream/") {
        return Err(ApiError::unsupported("A stream in ResourceArn", "use the ARN of its table"));
    }
    let name = resource.strip_prefix("table/").filter(|name| !name.contains('/'));
    let Some(name) = name.filter(|name| is_name(name)) else {
        return Err(ApiError::invalid_parameter(format!(
            "Invalid resource arn provided, only table or stream is accepted. Provided resource arn: {arn}"
        )));
    };
    if partition != "aws" || region != store.region() {
        return Ok(ResourceArn::Elsewhere);
    }
    if account != store.account() {
        return Ok(ResourceArn::Foreign);
    }
    Ok(ResourceArn::Table(name))
}
