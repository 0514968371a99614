//! `weir invoke`: invokes a function of the running `weir up` once.
//!
//! The function's response goes unchanged to standard output, and data about the invocation to standard
//! error. `weir streams redrive` uses this module, too.

use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;

use client::exit::Exit;
use client::failure::{Context, Result};
use client::invocation::invoke;
use client::output;
use client::running::Running;

/// Arguments of `weir invoke`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir invoke CountersFunction\n  weir invoke archive --event event.json\n  weir invoke archive --payload '{\"Records\":[]}'\n  echo '{\"Records\":[]}' | weir invoke counters --event -\n\nExit codes: 0 the function succeeded, 1 the function failed"
)]
pub struct InvokeArguments {
    /// The function's logical id or name; a trailing `Function` may be omitted
    pub function: String,
    /// The event: a JSON file, or - for standard input [default: {}]
    #[arg(long, value_name = "FILE")]
    pub event: Option<PathBuf>,
    /// The event as text, or file://FILE, as in `aws lambda invoke`
    #[arg(long, value_name = "JSON", conflicts_with = "event")]
    pub payload: Option<String>,
}

/// Invokes a function and shows its response.
///
/// # Errors
/// No system is running, the function does not exist, or the event cannot be read.
pub async fn run(arguments: &InvokeArguments) -> Result<Exit> {
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
    output::next(&[(&logs, "the function's log")]);
    Ok(if invoked.failed { Exit::Failed } else { Exit::Done })
}

/// Reads the value of `--payload`: JSON, or a file after `file://` or `fileb://`.
fn read_payload(payload: &str) -> Result<Vec<u8>> {
    let file = payload.strip_prefix("file://").or_else(|| payload.strip_prefix("fileb://"));
    if let Some(file) = file {
        return read_event(Path::new(file));
    }
    check_json("--payload", payload.as_bytes())?;
    Ok(payload.as_bytes().to_vec())
}

fn check_json(place: &str, bytes: &[u8]) -> Result<()> {
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(bytes);
    is_json.map(drop).context(|| format!("{place} is not JSON"))
}

fn read_event(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut bytes).context(|| "standard input")?;
    } else {
        bytes = std::fs::read(path).context(|| format!("cannot read `{}`", path.display()))?;
    }
    let place = match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => format!("`{}`", path.display()),
    };
    check_json(&place, &bytes)?;
    Ok(bytes)
}
