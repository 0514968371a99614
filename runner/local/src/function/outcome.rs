//! Builds the outcomes of invocations, with Lambda's error texts.
//!
//! The functions are pure.

use std::{process::ExitStatus, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use mapping::InvokeOutcome;

fn error(kind: &str, message: &str) -> InvokeOutcome {
    let payload = json!({ "errorType": kind, "errorMessage": message }).to_string();
    failed(message.to_owned(), payload.into())
}

/// Returns a function error. Its type is `Unhandled`, as for every custom runtime, such as Rust's.
fn failed(message: String, payload: Bytes) -> InvokeOutcome {
    InvokeOutcome::FunctionError { kind: "Unhandled".to_owned(), message, payload }
}

/// Returns the outcome of a function that timed out.
pub(super) fn timed_out(request_id: &str, timeout: Duration) -> InvokeOutcome {
    let seconds = timeout.as_secs_f64();
    let message =
        format!("RequestId: {request_id} Error: Task timed out after {seconds:.2} seconds");
    error("Sandbox.Timedout", &message)
}

/// Returns the outcome if the process exited before it responded.
pub(super) fn exited(request_id: &str, exit: &str) -> InvokeOutcome {
    error("Runtime.ExitError", &format!("RequestId: {request_id} Error: {exit}"))
}

/// Returns the outcome if the function's program can never be started. Source: AWS Lambda developer guide,
/// "Troubleshoot execution issues in Lambda" (`Runtime.InvalidEntrypoint`).
pub(super) fn invalid_entrypoint(request_id: &str, why: &str) -> InvokeOutcome {
    error("Runtime.InvalidEntrypoint", &format!("RequestId: {request_id} Error: {why}"))
}

/// Returns the outcome if the response is larger than Lambda's maximum.
pub(super) fn response_too_large() -> InvokeOutcome {
    let limit = super::RESPONSE_BYTES_MAX;
    let message =
        format!("Response payload size exceeded maximum allowed payload size ({limit} bytes).");
    error("Function.ResponseSizeTooLarge", &message)
}

/// Returns the failure that the function reported. `kind` is the error type in the header, which is used
/// if the body is not JSON.
pub(super) fn reported(kind: Option<&str>, body: Bytes) -> InvokeOutcome {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Report {
        #[serde(default)]
        error_message: String,
    }
    match serde_json::from_slice::<Report>(&body) {
        Ok(report) => failed(report.error_message, body),
        Err(_) => error(kind.unwrap_or("Runtime.Unknown"), &String::from_utf8_lossy(&body)),
    }
}

/// Returns the outcome if the function failed and its report did not arrive. `what` completes the
/// sentence "the function's error report …".
pub(super) fn report_lost(kind: Option<&str>, what: &str) -> InvokeOutcome {
    let message = format!("the function's error report {what}");
    error(kind.unwrap_or("Runtime.Unknown"), &message)
}

/// Returns the outcome with `note` added to its message.
pub(super) fn with_note(outcome: InvokeOutcome, note: &str) -> InvokeOutcome {
    match outcome {
        InvokeOutcome::FunctionError { kind, message, payload } if !note.is_empty() => {
            InvokeOutcome::FunctionError { kind, message: format!("{message}: {note}"), payload }
        }
        other => other,
    }
}

/// Returns how a process ended, as Lambda's supervisor words it.
pub(super) fn exit_text(status: ExitStatus) -> String {
    let signal = signal_of(status);
    match (status.code(), signal) {
        (Some(0), _) => "Runtime exited without providing a reason".to_owned(),
        (Some(code), _) => format!("Runtime exited with error: exit status {code}"),
        (None, Some(signal)) => {
            let name = match signal {
                4 => "illegal instruction",
                6 => "aborted",
                7 => "bus error",
                8 => "floating point exception",
                9 => "killed",
                11 => "segmentation fault",
                15 => "terminated",
                _ => return format!("Runtime exited with error: signal {signal}"),
            };
            format!("Runtime exited with error: signal: {name}")
        }
        (None, None) => "Runtime exited with error".to_owned(),
    }
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_as_lambda_tells_them() {
        let cases = [
            (
                timed_out("r-1", Duration::from_millis(2_500)),
                r#"{"errorMessage":"RequestId: r-1 Error: Task timed out after 2.50 seconds","errorType":"Sandbox.Timedout"}"#,
            ),
            (
                exited("r-1", "Runtime exited with error: exit status 3"),
                r#"{"errorMessage":"RequestId: r-1 Error: Runtime exited with error: exit status 3","errorType":"Runtime.ExitError"}"#,
            ),
            (
                reported(Some("unhandled"), Bytes::from_static(b"not json")),
                r#"{"errorMessage":"not json","errorType":"unhandled"}"#,
            ),
            (
                reported(
                    Some("unhandled"),
                    Bytes::from_static(br#"{"errorType":"T","errorMessage":"m","stackTrace":[]}"#),
                ),
                r#"{"errorType":"T","errorMessage":"m","stackTrace":[]}"#,
            ),
        ];
        for (outcome, expected) in cases {
            let InvokeOutcome::FunctionError { payload, .. } = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(payload, expected);
        }
    }

    #[cfg(unix)]
    #[test]
    fn ends_of_processes_have_their_words() {
        use std::os::unix::process::ExitStatusExt;
        let cases = [
            (0x0000, "Runtime exited without providing a reason"),
            (0x0100, "Runtime exited with error: exit status 1"),
            (9, "Runtime exited with error: signal: killed"),
            (11, "Runtime exited with error: signal: segmentation fault"),
            (31, "Runtime exited with error: signal 31"),
        ];
        for (status, expected) in cases {
            assert_eq!(exit_text(ExitStatus::from_raw(status)), expected);
        }
    }
}
