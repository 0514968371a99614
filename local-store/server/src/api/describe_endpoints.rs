//! `DescribeEndpoints`: where a client with endpoint discovery goes on: to this store, by the name
//! that it was asked under.

use super::Response;
use super::answer::{begin_member, number_member, text_member};

/// The target of the operation.
pub(crate) const TARGET: &str = "DynamoDB_20120810.DescribeEndpoints";
/// How long a client may remember it, as the service says.
const CACHE_MINUTES: u64 = 1440;

/// `host` is the request's own `Host`.
pub(crate) fn describe_endpoints(host: &str) -> Response {
    let mut out = String::from("{");
    begin_member(&mut out, "Endpoints");
    out.push_str("[{");
    text_member(&mut out, "Address", host);
    number_member(&mut out, "CachePeriodInMinutes", CACHE_MINUTES);
    out.push_str("}]}");
    Response { status: 200, body: out }
}
