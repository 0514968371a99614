//! `weir status`: how far each mapping has got, shard by shard.
//!
//! `weir up` keeps a small file with it; this reads that file, so it costs a running system nothing.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::endpoint::Running;
use crate::exit::Exit;
use crate::mapping::{Phase, ShardStatus};
use crate::output::{self, Output};
use crate::system::System;

/// How often the file is written, if something has changed.
const PERIOD: Duration = Duration::from_millis(500);

/// The file below the data folder.
const FILE: &str = "status.json";

/// What to show.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir status\n  weir status --output ndjson\n  weir status --exit-code    # 3 while records wait"
)]
pub struct StatusArguments {
    /// End with 3 when a shard has records that wait, or stands still
    #[arg(long)]
    pub exit_code: bool,
}

/// Keeps the file up to date; never ends by itself.
pub(crate) async fn keep(system: &System, directory: &Path) {
    let path = directory.join(FILE);
    let mut written = String::new();
    loop {
        let text = format!("{}\n", describe(system));
        if text != written {
            let part = path.with_extension("json.part");
            // A reader sees the old file or the new one. What cannot be written now is tried again.
            let done = tokio::fs::write(&part, &text).await;
            if done.is_ok() && tokio::fs::rename(&part, &path).await.is_ok() {
                written = text;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn describe(system: &System) -> Value {
    let mappings = system.statuses().into_iter().map(|(name, function, status)| {
        let totals = &status.totals;
        json!({
            "mapping": name,
            "function": function,
            "stream": status.stream_arn,
            "unavailable": status.unavailable,
            "totals": {
                "read": totals.read, "filtered": totals.filtered, "done": totals.done,
                "invocations": totals.invocations, "failures": totals.failures,
                "given_up": totals.given_up, "gaps": totals.gaps,
            },
            "shards": status.shards.iter().map(shard).collect::<Vec<_>>(),
        })
    });
    json!({"schema": "weir.status/v1", "mappings": mappings.collect::<Vec<_>>()})
}

fn shard(shard: &ShardStatus) -> Value {
    json!({
        "id": shard.id.as_str(),
        "state": state(shard),
        "waiting": shard.waiting,
        "in_flight": shard.in_flight,
        "lag_ms": shard.lag_ms,
        "failed_attempts": shard.failed_attempts,
        "last_read": shard.last_read.as_ref().map(|sequence| sequence.as_str()),
        "checkpoint": shard.checkpoint.as_ref().map(|sequence| sequence.as_str()),
    })
}

fn state(shard: &ShardStatus) -> &'static str {
    match shard.phase {
        Phase::Waiting => "waits for its parent",
        Phase::Done { .. } => "done",
        Phase::Gap => "gap",
        Phase::Reading if shard.unreachable => "unreachable",
        Phase::Reading if shard.failed_attempts > 0 => "retrying",
        Phase::Reading if shard.waiting == 0 && shard.at_tip => "caught up",
        Phase::Reading => "working",
    }
}

/// The status of a running system, as its file says it.
pub(crate) fn read(directory: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(directory.join(FILE)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Shows the status.
///
/// # Errors
/// When nothing is running.
pub fn run(arguments: &StatusArguments, output: Output) -> Result<Exit, String> {
    let running = Running::read()?;
    let status = read(&running.directory).ok_or("`weir up` has not written its status yet")?;
    let mut rows = Vec::new();
    let mut behind = false;
    for mapping in list(&status, "mappings") {
        for shard in list(mapping, "shards") {
            let of = |name: &str| shard.get(name).cloned().unwrap_or_default();
            let state = of("state");
            behind |= !matches!(state.as_str(), Some("caught up" | "done"));
            // Shards that are over are history, and there are many after a day.
            if output == Output::Table && state == "done" {
                continue;
            }
            let name = mapping.get("mapping").cloned().unwrap_or_default();
            rows.push(vec![
                name,
                of("id"),
                state,
                of("waiting"),
                of("lag_ms"),
                of("failed_attempts"),
                of("checkpoint"),
            ]);
        }
    }
    for mapping in list(&status, "mappings") {
        let gaps = mapping.pointer("/totals/gaps").and_then(Value::as_u64).unwrap_or(0);
        if gaps > 0 {
            let name = mapping.get("mapping").and_then(Value::as_str).unwrap_or_default();
            output::say(&format!(
                "{name}: records were LOST {gaps} times since it began; the stream had trimmed them unread"
            ));
        }
    }
    let headings =
        ["mapping", "shard", "state", "waiting", "lag ms", "failed attempts", "checkpoint"];
    output::rows(output, &headings, &rows);
    Ok(if arguments.exit_code && behind { Exit::Differences } else { Exit::Done })
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
