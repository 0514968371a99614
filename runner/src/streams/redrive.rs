//! `weir streams redrive`: invokes a function again with the records of failure objects.
//!
//! `local::redrive` redrives one object.

use clap::Args;
use serde_json::{Value, json};

use super::since;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::interruption;
use client::output::{self, Output};
use client::running::Running;
use local::redrive::{RedriveError, Redriven, discarded, now_ms, redrive};

/// Arguments of `weir streams redrive`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams redrive aws/lambda/ArchiveFunctionExpired/shardId-…/2026/11/20/2026-11-20T15.02.11-…\n  weir streams redrive .weir/up/s3/failures-bucket/aws/lambda/… --dry-run\n  weir streams redrive --since 14:05        # every failure object since this time, oldest first\n\nExit codes: 0 the function processed all records, 1 it failed, 4 the stream no longer has the records"
)]
pub struct RedriveArguments {
    /// The key in a bucket, s3://BUCKET/KEY, or a file
    #[arg(conflicts_with = "since")]
    pub object: Option<String>,
    /// Redrive each failure object that this folder's `weir up` wrote since this time and that was not
    /// redriven: 14:05 (UTC), 10m, 2026-11-28T14:05:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Show the records without invoking the function
    #[arg(long)]
    pub dry_run: bool,
}

impl RedriveArguments {
    /// Refuses a command that names no object. Clap's own message would not name `--since`.
    ///
    /// # Errors
    /// Neither an object nor a time is given.
    pub(super) fn check_selection(&self) -> Result<()> {
        match (&self.object, &self.since) {
            (None, None) => Err(fatal!(
                "name a failure object, or a time, such as `weir streams redrive --since 10m`"
            )),
            _ => Ok(()),
        }
    }
}

const HEADINGS: [&str; 7] =
    ["function", "records", "first", "last", "outcome", "to retry", "object"];

pub(super) async fn run(arguments: &RedriveArguments, output: Output) -> Result<Exit> {
    let running = Running::read()?;
    let objects = match (&arguments.object, &arguments.since) {
        (Some(object), _) => vec![object.clone()],
        (None, since) => since_then(&running, since.as_deref().unwrap_or_default()).await?,
    };
    let (mut rows, mut exit) = (Vec::new(), Exit::Done);
    for object in &objects {
        let (row, ended) = match one(&running, object, arguments.dry_run).await {
            Ok(redriven) => redriven,
            // If there are several objects, the remaining objects are still redriven.
            Err(reason) if arguments.since.is_none() => return Err(reason),
            Err(reason) => {
                output::say(&format!("error: {reason}"));
                (None, Exit::Failed)
            }
        };
        rows.extend(row);
        // The exit code of a failed redrive takes precedence over the exit code for an object whose
        // records no longer exist.
        exit = if exit == Exit::Failed { exit } else { worse(exit, ended) };
        interruption::reached(format!("{} of {} objects redriven", rows.len(), objects.len()));
    }
    if !rows.is_empty() || arguments.since.is_some() {
        output::rows(output, &HEADINGS, &rows);
    }
    Ok(exit)
}

fn worse(before: Exit, now: Exit) -> Exit {
    if now == Exit::Done { before } else { now }
}

/// Returns the failure objects since a time, except those whose records were all redriven and processed.
async fn since_then(running: &Running, since: &str) -> Result<Vec<String>> {
    let seconds = since::read(since, now_ms(running).await.div_euclid(1_000));
    let seconds = seconds.map_err(Failure::fatal)?;
    let found = discarded::since(&running.directory, seconds.saturating_mul(1_000));
    let found = found.map_err(Failure::fatal)?;
    if found.done > 0 {
        let objects = output::counted(found.done, "object was", "objects were");
        output::say(&format!("{objects} already redriven and processed"));
    }
    if found.without_object > 0 {
        let batches = output::counted(found.without_object, "batch has", "batches have");
        output::say(&format!(
            "{batches} no failure object: the mapping has no `OnFailure` destination, or the destination was unreachable until the records expired"
        ));
    }
    if found.objects.is_empty() {
        output::say("no failure object is left to redrive");
    }
    Ok(found.objects)
}

/// Redrives one failure object. Returns its row of the output; `None` if the redrive was refused.
async fn one(running: &Running, object: &str, dry_run: bool) -> Result<(Option<Vec<Value>>, Exit)> {
    let redriven = match redrive(running, object, dry_run).await {
        Ok(redriven) => redriven,
        Err(refused @ RedriveError::Gone { .. }) => {
            output::say(&refused.to_string());
            return Ok((None, Exit::Refused));
        }
        Err(RedriveError::Failed(failure)) => return Err(failure),
    };
    if let Some(error) = &redriven.unrecorded {
        output::say(&format!("cannot record this redrive for `weir streams explain`: {error}"));
    }
    let exit = if dry_run || redriven.is_complete() { Exit::Done } else { Exit::Failed };
    if exit != Exit::Done {
        output::say(&String::from_utf8_lossy(&redriven.answer));
        let logs = format!("weir logs {} --request {}", redriven.function, redriven.request_id);
        output::next(&[(&logs, "the function's log")]);
    }
    Ok((Some(row(object, &redriven)), exit))
}

fn row(object: &str, redriven: &Redriven) -> Vec<Value> {
    let Redriven { function, records, first, last, retry, .. } = redriven;
    vec![
        json!(function),
        json!(records),
        json!(first),
        json!(last),
        json!(redriven.outcome()),
        json!(retry),
        json!(object),
    ]
}
