//! Invokes a function that another program runs: `cargo lambda watch`, or any program that serves Lambda's
//! Invoke API without signatures. This module starts no process and measures no memory.
//!
//! cargo-lambda 1.9 returns 200 with the response, 500 with the error document of a failed function, and 404
//! if the project has no such binary. It compiles the function on the first invocation.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};

use super::{InvokeOutcome, Settings, outcome};
use client::endpoint;

/// The maximum time until the first response, which includes compiling the function.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(900);
/// The time that a later response may take in addition to the function's `Timeout`. The other program
/// enforces the timeout itself. It may recompile the function after a change, or start a container for
/// the function.
const ALLOWANCE: Duration = Duration::from_secs(120);
/// The advice if no program responds at the address.
const ABSENT: &str =
    "; at this address, start the program that runs the function, such as `cargo lambda watch`";

/// Another program that runs the function, and the function's name in that program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The address, such as `http://127.0.0.1:9000`, without a path.
    pub url: String,
    /// The function's name in the other program: the name of the cargo binary.
    pub name: String,
}

/// Invokes the function once. If `is_first`, the timeout includes the time for compiling the function.
pub(super) async fn invoke(
    remote: &Remote,
    settings: &Settings,
    request_id: &str,
    payload: Bytes,
    is_first: bool,
) -> (InvokeOutcome, Duration) {
    let Remote { url, name } = remote;
    let url = format!("{}/2015-03-31/functions/{name}/invocations", url.trim_end_matches('/'));
    let limit = if is_first { FIRST_ANSWER_MAX } else { settings.timeout + ALLOWANCE };
    let started = Instant::now();
    let headers = [("content-type", "application/json"), ("x-amzn-request-id", request_id)];
    let exchange =
        endpoint::request((Method::POST, &url), &headers, payload, limit + limit / 10, ABSENT);
    let outcome = match tokio::time::timeout(limit, exchange).await {
        Err(_) => outcome::timed_out(request_id, limit),
        Ok(Err(reason)) => InvokeOutcome::NotInvoked(reason.to_string()),
        Ok(Ok(answer)) => {
            let failed = answer.header("x-amz-function-error").is_some();
            judge(&url, answer.status, failed, answer.body)
        }
    };
    (outcome, started.elapsed())
}

fn judge(url: &str, status: StatusCode, failed: bool, body: Bytes) -> InvokeOutcome {
    let document: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_error = document.get("errorType").is_some() || document.get("errorMessage").is_some();
    if failed || (status.is_server_error() && is_error) {
        return outcome::reported(None, body);
    }
    if status.is_success() {
        return InvokeOutcome::Ok(body);
    }
    let said: String = String::from_utf8_lossy(&body).chars().take(500).collect();
    InvokeOutcome::NotInvoked(format!("`{url}` answered {status}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let error = r#"{"errorType":"T","errorMessage":"m"}"#;
        let cases = [
            (200, false, "{}", "Ok"),
            (200, true, error, "FunctionError"),
            (500, false, error, "FunctionError"),
            (500, false, "the emulator itself failed", "NotInvoked"),
            (404, false, r#"{"title":"Missing function"}"#, "NotInvoked"),
            (429, false, "", "NotInvoked"),
        ];
        for (status, failed, body, expected) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let outcome = judge("u", status, failed, Bytes::from(body));
            assert!(format!("{outcome:?}").starts_with(expected), "{status} {body}: {outcome:?}");
        }
    }
}
