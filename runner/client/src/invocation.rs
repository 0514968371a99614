//! Invokes a function of the running `weir up` once, through the Invoke API.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;

use crate::endpoint;
use crate::failure::{Result, fatal};
use crate::running::Running;
use crate::sdk_error::IS_UP_RUNNING;

/// Timeout of an invocation: twice Lambda's longest timeout, so that half of it remains for the wait for
/// an instance and its start.
const LIMIT: Duration = Duration::from_secs(1800);

/// The result of an invocation.
pub struct Invoked {
    /// The response, or the error that the function reported.
    pub body: Bytes,
    /// Whether the function failed.
    pub failed: bool,
    /// The request id of the invocation.
    pub request_id: String,
    /// The end of the invocation's log.
    pub log: String,
    /// Time for which the caller waited.
    pub took: Duration,
}

/// Invokes a function through the running `weir up`.
///
/// # Errors
/// When the function could not be invoked. An error that the function reports is a result, not an error.
pub async fn invoke(running: &Running, function: &str, event: Bytes) -> Result<Invoked> {
    if running.lambda.is_empty() {
        return Err(fatal!("the running `weir up` has a different version; restart `weir up`"));
    }
    let url = format!("{}/2015-03-31/functions/{function}/invocations", running.lambda);
    let headers = [("x-amz-log-type", "Tail"), ("content-type", "application/json")];
    let started = Instant::now();
    let answer =
        endpoint::request((Method::POST, &url), &headers, event, LIMIT, IS_UP_RUNNING).await?;
    let took = started.elapsed();
    if !answer.status.is_success() {
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let message = json.get("message").and_then(|text| text.as_str()).unwrap_or("no reason");
        return Err(fatal!("`{function}` was not invoked: {message}"));
    }
    let log = answer.header("x-amz-log-result").and_then(|text| STANDARD.decode(text).ok());
    Ok(Invoked {
        failed: answer.header("x-amz-function-error").is_some(),
        request_id: answer.header("x-amzn-requestid").unwrap_or_default().to_owned(),
        log: String::from_utf8_lossy(&log.unwrap_or_default()).into_owned(),
        body: answer.body,
        took,
    })
}
