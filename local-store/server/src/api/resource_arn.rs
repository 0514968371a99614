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
    /// Something of another Region or account.
    Elsewhere,
}

/// Reads the ARN of a table.
pub(crate) fn parse<'a>(store: &Store, arn: &'a str) -> Result<ResourceArn<'a>, ApiError> {
    if !arn.starts_with("arn:") {
        return Err(ApiError::invalid_parameter(format!("ARNs must start with 'arn:': {arn}")));
    }
    let mut parts = arn.splitn(6, ':').skip(2);
    let (Some("dynamodb"), Some(region), Some(account), Some(resource)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(ApiError::invalid_parameter(format!(
            "Provided Arn is not a DynamoDB resource arn: {arn}"
        )));
    };
    if resource.contains("/stream/") {
        return Err(ApiError::unsupported("A stream in ResourceArn", "name its table"));
    }
    let name = resource.strip_prefix("table/").filter(|name| !name.contains('/'));
    let Some(name) = name.filter(|name| is_name(name)) else {
        return Err(ApiError::invalid_parameter(format!(
            "Invalid resource arn provided, only table or stream is accepted. Provided resource arn: {arn}"
        )));
    };
    if region != store.region() || account != store.account() {
        return Ok(ResourceArn::Elsewhere);
    }
    Ok(ResourceArn::Table(name))
}
