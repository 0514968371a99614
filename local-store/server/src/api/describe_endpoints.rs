//! `DescribeEndpoints`: returns the endpoint for clients with endpoint discovery. The endpoint is
//! this store, under the host name of the request.

use model::json;

use super::answer::{begin_member, number_member, text_member};
use super::error::ApiError;
use super::parameters::Parameters;
use super::response::Response;

/// The target of the operation.
pub(crate) const TARGET: &str = "DynamoDB_20120810.DescribeEndpoints";
/// The time in minutes for which a client may cache the endpoint, as in DynamoDB.
const CACHE_MINUTES: u64 = 1440;

/// Handles a request. `host` is the value of its `Host` header. The body must be a JSON object, whose
/// members are ignored.
pub(crate) fn describe_endpoints(host: &str, body: &[u8]) -> Response {
    if let Err(error) = check_body(body) {
        return error.to_response();
    }
    let mut out = String::from("{");
    begin_member(&mut out, "Endpoints");
    out.push_str("[{");
    text_member(&mut out, "Address", host);
    number_member(&mut out, "CachePeriodInMinutes", CACHE_MINUTES);
    out.push_str("}]}");
    Response { status: 200, body: out }
}

fn check_body(body: &[u8]) -> Result<(), ApiError> {
    if body.is_empty() {
        return Err(ApiError::serialization("The request has no body"));
    }
    let json = json::parse_request(body);
    let json = json.map_err(|error| ApiError::serialization(error.to_string()))?;
    Parameters::of_body(&json).map(drop)
}
