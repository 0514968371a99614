//! `weir invoke`: one invocation of a function of the running `weir up`.
//!
//! The answer goes to standard output as it came; what is known about the invocation to standard
//! error. `weir streams redrive` uses the same way.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use http::Method;

use crate::endpoint;
use crate::exit::Exit;
use crate::output;
use crate::running::Running;
use crate::sdk_error::IS_UP_RUNNING;

/// Lambda's longest time-out, and as long again until an instance is free and has started.
const LIMIT: Duration = Duration::from_secs(1800);

/// What to invoke.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir invoke CountersFunction\n  weir invoke archive --event event.json\n  weir invoke archive --payload '{\"Records\":[]}'\n  echo '{\"Records\":[]}' | weir invoke counters --event -\n\nExit codes: 0 the function answered, 1 it failed"
)]
pub struct InvokeArguments {
    /// The function's logical id or name; `Function` at its end may be left out
    pub function: String,
    /// The event: a file with JSON, or - for standard input [default: {}]
    #[arg(long, value_name = "FILE")]
    pub event: Option<PathBuf>,
    /// The event itself, or file://FILE, as `aws lambda invoke` takes it
    #[arg(long, value_name = "JSON", conflicts_with = "event")]
    pub payload: Option<String>,
}

/// What came of an invocation.
pub(crate) struct Invoked {
    /// The answer, or the error that the function reported.
    pub(crate) body: Bytes,
    /// Whether the function failed.
    pub(crate) failed: bool,
    /// Its request id.
    pub(crate) request_id: String,
    /// The end of its log.
    pub(crate) log: String,
    /// How long the caller waited.
    pub(crate) took: Duration,
}

/// Invokes a function and shows what came of it.
///
/// # Errors
/// When nothing is running, there is no such function, or the event cannot be read.
pub async fn run(arguments: &InvokeArguments) -> Result<Exit, String> {
    let running = Running::read()?;
    let function = running.function(&arguments.function)?;
    let event = match (&arguments.event, &arguments.payload) {
        (Some(path), _) => Bytes::from(read_event(path)?),
        (None, Some(payload)) => Bytes::from(read_payload(payload)?),
        (None, None) => Bytes::from_static(b"{}"),
    };
    let invoked = invoke(&running, function, event).await?;
    for line in invoked.log.lines() {
        output::say(line);
    }
    let end = if invoked.failed { "failed" } else { "answered" };
    output::say(&format!("{function} {end} after {} ms", invoked.took.as_millis()));
    output::show(&format!("{}\n", String::from_utf8_lossy(&invoked.body)));
    let logs = format!("weir logs {function} --request {}", invoked.request_id);
    output::next(&[(&logs, "everything that it wrote")]);
    Ok(if invoked.failed { Exit::Failed } else { Exit::Done })
}

/// Invokes a function through the running system.
///
/// # Errors
/// When it could not be invoked; a function that fails is no error here.
pub(crate) async fn invoke(
    running: &Running,
    function: &str,
    event: Bytes,
) -> Result<Invoked, String> {
    if running.lambda.is_empty() {
        return Err("the running `weir up` is of another version: start it anew".to_owned());
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
        return Err(format!("`{function}` was not invoked: {message}"));
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

/// Reads `--payload`: JSON, or the file behind `file://` or `fileb://`.
fn read_payload(payload: &str) -> Result<Vec<u8>, String> {
    let file = payload.strip_prefix("file://").or_else(|| payload.strip_prefix("fileb://"));
    if let Some(file) = file {
        return read_event(Path::new(file));
    }
    check_json("--payload", payload.as_bytes())?;
    Ok(payload.as_bytes().to_vec())
}

fn check_json(place: &str, bytes: &[u8]) -> Result<(), String> {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes);
    is_json.map(drop).map_err(|error| format!("{place} is not JSON: {error}"))
}

fn read_event(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut bytes).map_err(|e| format!("standard input: {e}"))?;
    } else {
        bytes =
            std::fs::read(path).map_err(|e| format!("cannot read `{}`: {e}", path.display()))?;
    }
    let place = match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => format!("`{}`", path.display()),
    };
    check_json(&place, &bytes)?;
    Ok(bytes)
}
