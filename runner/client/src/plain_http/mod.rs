//! Requests to a store on this machine that cost next to nothing: plain HTTP, without a pool, and
//! with a signature that a local store takes and the service does not.
//!
//! For load that is measured together with the store that bears it. Everything else goes through
//! the SDK. What is in a body is not known here.

mod connection;
mod response;

pub use self::connection::{Connection, Endpoint};

/// The head of a request to DynamoDB's JSON protocol; `target` is API and operation, such as
/// `DynamoDB_20120810.PutItem`. What is still missing is the body's length, an empty line and the
/// body.
pub fn head(authority: &str, target: &str) -> String {
    let day = jiff::Timestamp::now().strftime("%Y%m%d").to_string();
    format!(
        "POST / HTTP/1.1\r\nhost: {authority}\r\n\
         content-type: application/x-amz-json-1.0\r\n\
         x-amz-target: {target}\r\n\
         x-amz-date: {day}T000000Z\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=local/{day}/us-east-1/dynamodb/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature={:064}\r\n\
         content-length: ",
        0,
    )
}
