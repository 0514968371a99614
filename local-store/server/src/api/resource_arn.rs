//! `ResourceArn`: which table of this store a request on tags or policies means.
//!
//! Texts: as the service answers. What is done with the table is decided by the operation.

use super::constraints::is_name;
use super::error::ApiError;
use crate::store::Store;

/// What an ARN names.
pub(crate) enum ResourceArn<'a> {
    /// A table of this Region and account, by its name. It need not be there.
    Table(&'a str),
    /// Something of another Region.
    Elsewhere,
    /// Something of another account.
    Foreign,
}

/// Reads the ARN of a table.
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
        return Err(ApiError::unsupported("A stream in ResourceArn", "name its table"));
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
