//! `weir status`: shows the progress of each mapping, shard by shard.
//!
//! `weir up` writes the status to a small file, and this module reads the file. The command therefore adds no
//! load to the system.

mod counts;
pub(crate) mod hindrance;
mod settled;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::{Value, json};

use crate::streams::redrives::{self, Redriven};
use client::exit::Exit;
use client::output::{self, Output};
use client::running::Running;
use local::poller::tick_ms;
use local::system::System;
use mapping::{Phase, ShardStatus};
use template::Absent;

use self::settled::{SettledCheck, SettledSearch};

/// The interval at which `weir up` writes the file.
const PERIOD: Duration = Duration::from_millis(500);
/// The time in milliseconds for which a shard counts as caught up after a read reached its end. If the
/// next read takes longer, the shard counts as unreachable. On AWS, an idle shard is read twenty times
/// in this period; on this machine, more often.
const TIP_MS_MAX: u64 = 5_000;
/// The maximum time that `--exit-code` waits for a status that is newer than the command. An idle shard
/// is read several times a second, an unreachable shard every 10 s.
const SETTLE_MAX: Duration = Duration::from_secs(15);

/// The file below the data folder.
const FILE: &str = "status.json";

/// Arguments of `weir status`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir status\n  weir status --output ndjson\n  weir status --exit-code    # exit code 3 while records wait\n\n--exit-code: 3 when records wait, a shard is blocked, a mapping has ended or does not run here, or records were lost, or were discarded since `weir up` started and have not been redriven. Functions that accept `not-run-here` and mappings with `Enabled: false` are ignored\n\nThe second table counts the records of each mapping since `weir up` started. In JSON, the first row of a mapping has these counts and its other rows have null, so that sums are correct"
)]
pub struct StatusArguments {
    /// Exit with 3 when records wait or were discarded, or a shard is blocked; first waits about a
    /// second until all earlier writes are accounted for
    #[arg(long)]
    pub exit_code: bool,
}

/// Deletes the status file of an earlier run.
pub(crate) fn forget(directory: &Path) {
    // If the file cannot be removed, `keep` overwrites it at once.
    let _ = std::fs::remove_file(directory.join(FILE));
}

/// Writes the file regularly. Never returns.
pub(crate) async fn keep(system: &System, directory: &Path) {
    let path = directory.join(FILE);
    let part = path.with_extension("json.part");
    let mut is_told = false;
    loop {
        let text = format!("{}\n", describe(system));
        // Renaming replaces the file atomically. A failed write is retried in the next period.
        let written = match tokio::fs::write(&part, &text).await {
            Ok(()) => tokio::fs::rename(&part, &path).await,
            failed => failed,
        };
        if let Err(error) = &written
            && !is_told
        {
            tracing::warn!(
                "cannot write `{}`: {error}; until a write succeeds, `weir status` and `weir streams explain` show an old state",
                path.display()
            );
        }
        is_told = written.is_err();
        tokio::time::sleep(PERIOD).await;
    }
}

/// Returns milliseconds since 1970 by the machine's clock.
fn machine_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn describe(system: &System) -> Value {
    // The values of the status are not older than this time.
    let taken_ms = machine_ms();
    let (statuses, tick_ms) = (system.statuses(), tick_ms());
    let mappings = statuses.into_iter().map(|(name, function, end, status)| {
        let totals = &status.totals;
        // A mapping that has ended reads no shard, so its tick has no meaning.
        let tick_ms = if end.is_some() { 0 } else { tick_ms };
        json!({
            "mapping": name,
            "function": function,
            "stream": status.stream_arn,
            "described": status.described,
            "unavailable": status.unavailable,
            "unsaved": status.unsaved,
            "ended": end.is_some(),
            "end": end,
            "totals": {
                "read": totals.read, "filtered": totals.filtered, "done": totals.done,
                "invocations": totals.invocations, "failures": totals.failures,
                "discarded": totals.discarded, "gaps": totals.gaps,
            },
            "shards": status.shards.iter().map(|it| shard(it, tick_ms)).collect::<Vec<_>>(),
        })
    });
    let stack = system.stack();
    let disabled = stack.mappings.iter().filter(|mapping| !mapping.enabled).map(|mapping| {
        json!({
            "mapping": mapping.logical_id, "function": mapping.function,
            "table": stack.table_of(&mapping.stream),
        })
    });
    let not_run = stack.not_run.iter().filter(|absent| absent.what == Absent::Mapping);
    let not_run = not_run.map(|absent| {
        json!({
            "mapping": absent.resource, "function": absent.function, "reason": absent.reason,
            "accepted": absent.accepted,
            "table": absent.stream.as_ref().and_then(|stream| stack.table_of(stream)),
        })
    });
    json!({
        "schema": "weir.status/v1",
        "taken_ms": taken_ms,
        "tick_ms": tick_ms,
        "journal_fault": system.journal_fault(),
        "mappings": mappings.collect::<Vec<_>>(),
        "disabled": disabled.collect::<Vec<_>>(),
        "not_run": not_run.collect::<Vec<_>>(),
    })
}

fn shard(shard: &ShardStatus, tick_ms: u64) -> Value {
    json!({
        "id": shard.id.as_str(),
        "state": state(shard, tick_ms),
        "waiting": shard.waiting,
        "in_flight": shard.in_flight,
        "lag_ms": shard.lag_ms,
        "failed_attempts": shard.failed_attempts,
        "tip_tick_ms": shard.tip_tick_ms,
        "lacks_child": shard.lacks_child,
        "last_read": shard.last_read.as_ref().map(|sequence| sequence.as_str()),
        "checkpoint": shard.checkpoint.as_ref().map(|sequence| sequence.as_str()),
    })
}

fn state(shard: &ShardStatus, tick_ms: u64) -> &'static str {
    let is_read = shard.tip_tick_ms.is_none_or(|tip| tick_ms.saturating_sub(tip) <= TIP_MS_MAX);
    match shard.phase {
        Phase::Waiting => "waits for its parent",
        Phase::Done { .. } => "done",
        Phase::Gap => "gap",
        Phase::Reading if shard.unreachable => "unreachable",
        Phase::Reading if shard.failed_attempts > 0 => "retrying",
        Phase::Reading if shard.waiting == 0 && shard.at_tip && !is_read => "waits for an answer",
        Phase::Reading if shard.waiting == 0 && shard.at_tip => "caught up",
        Phase::Reading => "working",
    }
}

/// Returns the number of waiting records in the file, for each mapping that has waiting records.
pub(crate) fn waiting(directory: &Path) -> Vec<(String, u64)> {
    let status = read(directory).unwrap_or_default();
    let of_shard = |shard: &Value| {
        let count = |name: &str| shard.get(name).and_then(Value::as_u64).unwrap_or(0);
        count("waiting") + count("in_flight")
    };
    let of_mapping = |mapping: &Value| {
        let name = mapping.get("mapping").and_then(Value::as_str).unwrap_or_default();
        (name.to_owned(), list(mapping, "shards").iter().map(of_shard).sum::<u64>())
    };
    list(&status, "mappings").iter().map(of_mapping).filter(|(_, count)| *count > 0).collect()
}

/// Returns the status in the file. The system may have ended since.
pub(crate) fn read(directory: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(directory.join(FILE)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Shows the status.
///
/// # Errors
/// No system is running.
pub fn run(arguments: &StatusArguments, output: Output) -> Result<Exit, String> {
    let running = Running::read()?;
    let shown = match arguments.exit_code {
        true => settled(&running.directory, output)?,
        false => show(&last(&running.directory)?, output),
    };
    shown.write(output);
    let hindrance = hindrance::now(&running.directory);
    for line in shown.remarks.iter().chain(&hindrance) {
        output::say(line);
    }
    Ok(if arguments.exit_code && !shown.is_well { Exit::Differences } else { Exit::Done })
}

fn last(directory: &Path) -> Result<Value, String> {
    let mut status = read(directory).ok_or_else(|| {
        let why = hindrance::now(directory);
        why.unwrap_or_else(|| "`weir up` has not written its status yet".to_owned())
    })?;
    note_redrives(&mut status, || redrives::since_the_start(directory));
    Ok(status)
}

/// Adds to each mapping of the status the number of its discarded records that were redriven.
fn note_redrives(status: &mut Value, count: impl FnOnce() -> BTreeMap<String, Redriven>) {
    let given_up = |it: &Value| it.pointer("/totals/discarded").and_then(Value::as_u64);
    if list(status, "mappings").iter().all(|mapping| given_up(mapping).unwrap_or(0) == 0) {
        return;
    }
    let redriven = count();
    let mappings = status.get_mut("mappings").and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        let own = mapping.get("mapping").and_then(Value::as_str);
        let own = own.and_then(|name| redriven.get(name)).copied().unwrap_or_default();
        // If the journal lacks some of the discarded records, the number of redriven records is unknown
        // and counts as 0.
        let has_all = given_up(mapping) == Some(own.discarded);
        let done = if has_all { own.done } else { 0 };
        if let Some(Value::Object(totals)) = mapping.get_mut("totals") {
            totals.insert("redriven".to_owned(), json!(done));
        }
    }
}

/// Polls the status until it is certain that all earlier writes have been processed, including the
/// writes that functions made in response. Returns at once if a record waits or something failed.
fn settled(directory: &Path, output: Output) -> Result<StatusView, String> {
    let began = Instant::now();
    let mut settling = SettledSearch::asked_at(machine_ms());
    loop {
        let is_over = began.elapsed() > SETTLE_MAX;
        let status = match last(directory) {
            // `weir up` writes the file right after its start.
            Err(_) if !is_over => {
                std::thread::sleep(PERIOD / 10);
                continue;
            }
            status => status?,
        };
        let mut shown = show(&status, output);
        if !shown.is_early && (!shown.is_well || settling.check(&status) == SettledCheck::Settled) {
            return Ok(shown);
        }
        if is_over {
            shown.is_well = false;
            let why = match settling.unread(&status).as_slice() {
                [] => "new records keep arriving".to_owned(),
                unread => {
                    format!("these mappings have not yet reread every shard: {}", unread.join(", "))
                }
            };
            let seconds = SETTLE_MAX.as_secs();
            shown.remarks.push(format!("the system has not settled after {seconds} s: {why}"));
            return Ok(shown);
        }
        std::thread::sleep(PERIOD / 10);
    }
}

/// The columns of a shard. In JSON the counts of its mapping follow.
const HEADINGS: [&str; 7] =
    ["mapping", "shard", "state", "waiting", "lag ms", "failed attempts", "checkpoint"];

/// The state of an ended mapping and of its shards.
const ENDED: &str = "ended";

/// The state of a mapping with `Enabled: false`; AWS uses the same word.
const DISABLED: &str = "disabled";

/// Returns whether a mapping is disabled in the running system.
pub(crate) fn is_disabled(status: &Value, mapping: &str) -> bool {
    let is_it = |it: &Value| it.get("mapping").and_then(Value::as_str) == Some(mapping);
    list(status, "disabled").iter().any(is_it)
}

/// The rows and remarks of a status, and whether the system is healthy: no failure and no waiting
/// record.
struct StatusView {
    /// One row for each shard. It ends with the counts of the shard's mapping.
    rows: Vec<Vec<Value>>,
    /// The name and the counts of each mapping that has read records.
    counts: Vec<Vec<Value>>,
    remarks: Vec<String>,
    is_well: bool,
    /// Whether a mapping has not listed its shards yet, which is normal after its start.
    is_early: bool,
}

fn show(status: &Value, output: Output) -> StatusView {
    let mut shown = StatusView::new();
    for mapping in list(status, "mappings") {
        shown.add(mapping, output);
    }
    for disabled in list(status, "disabled") {
        let of = |name: &str| disabled.get(name).and_then(Value::as_str).unwrap_or_default();
        shown.rows.push(row_without_shards(of("mapping"), DISABLED));
        shown.remarks.push(format!(
            "{}: disabled in the template (`Enabled: false`), so no record is read for `{}`",
            of("mapping"),
            of("function")
        ));
    }
    for absent in list(status, "not_run") {
        let of = |name: &str| absent.get(name).cloned().unwrap_or_default();
        let name = of("mapping");
        let row = row_without_shards(name.as_str().unwrap_or_default(), "does not run here");
        shown.rows.push(row);
        shown.is_well &= of("accepted") == json!(true);
        let text = |name: &str| of(name).as_str().unwrap_or_default().to_owned();
        shown.remarks.push(format!(
            "{}: does not run on this machine, so no stream invokes `{}`: {}",
            text("mapping"),
            text("function"),
            text("reason")
        ));
    }
    shown
}

const KEPT: &str = "`weir streams explain RECORD` shows where discarded records are kept";

/// The records that a mapping has not delivered since it started.
struct UndeliveredRecords {
    /// The number of discarded records.
    discarded: u64,
    /// The number of discarded records that were redriven and processed.
    redriven: u64,
    /// The number of times that records were trimmed before they were read.
    gaps: u64,
}

/// Returns the row of a mapping without shards.
fn row_without_shards(mapping: &str, state: &str) -> Vec<Value> {
    let mut row = vec![json!(mapping), Value::Null, json!(state)];
    row.resize(HEADINGS.len() + counts::HEADINGS.len(), Value::Null);
    row
}

impl StatusView {
    fn new() -> Self {
        let (rows, counts, remarks) = Default::default();
        Self { rows, counts, remarks, is_well: true, is_early: false }
    }

    /// Writes a table of the shards and a table of the counts. In JSON, the rows have both.
    fn write(&self, output: Output) {
        let all: Vec<&str> = HEADINGS.iter().chain(&counts::HEADINGS).copied().collect();
        if output != Output::Table {
            return output::rows(output, &all, &self.rows);
        }
        // A row has more cells than this table has columns; the table omits the surplus cells.
        output::rows(output, &HEADINGS, &self.rows);
        if !self.counts.is_empty() {
            output::show("\n");
            let names: Vec<&str> =
                HEADINGS.iter().take(1).chain(&counts::HEADINGS).copied().collect();
            output::rows(output, &names, &self.counts);
        }
    }

    fn add(&mut self, mapping: &Value, output: Output) {
        let name = mapping.get("mapping").cloned().unwrap_or_default();
        let total = |what: &str| {
            let total = mapping.pointer(&format!("/totals/{what}"));
            total.and_then(Value::as_u64).unwrap_or(0)
        };
        let (discarded, gaps) = (total("discarded"), total("gaps"));
        let redriven = total("redriven").min(discarded);
        let counts = counts::of(mapping);
        // The counts belong to the mapping, so only the mapping's first row has them, which keeps sums
        // over all rows correct.
        let mut first = Some(counts.clone());
        let shards = list(mapping, "shards");
        let has_ended = mapping.get("ended") == Some(&json!(true));
        if shards.is_empty() {
            let state = if has_ended { ENDED } else { "no shard known yet" };
            self.rows.push(row_without_shards(name.as_str().unwrap_or_default(), state));
        }
        self.counts.push(std::iter::once(name.clone()).chain(counts).collect());
        self.remarks.extend(counts::remark(mapping));
        for shard in shards {
            let of = |name: &str| shard.get(name).cloned().unwrap_or_default();
            let mut state = of("state");
            self.is_well &= matches!(state.as_str(), Some("caught up" | "done"));
            // If the mapping has ended, the last state of a shard has no meaning.
            if has_ended && state != "done" {
                state = json!(ENDED);
            }
            // The table omits ended shards, because many accumulate in a day.
            if output == Output::Table && state == "done" {
                continue;
            }
            let shard = [of("id"), state, of("waiting"), of("lag_ms"), of("failed_attempts")];
            let counts = first.take().unwrap_or_else(|| vec![Value::Null; counts::HEADINGS.len()]);
            let mut row = vec![name.clone()];
            row.extend(shard.into_iter().chain([of("checkpoint")]).chain(counts));
            self.rows.push(row);
        }
        let lost = UndeliveredRecords { discarded, redriven, gaps };
        self.remark(mapping, name.as_str().unwrap_or_default(), &lost);
    }

    /// Adds the remarks about a mapping as a whole.
    fn remark(&mut self, mapping: &Value, name: &str, lost: &UndeliveredRecords) {
        let UndeliveredRecords { discarded, redriven, gaps } = *lost;
        let unavailable = mapping.get("unavailable").and_then(Value::as_str);
        let ended = mapping.get("ended") == Some(&json!(true));
        if let Some(why) = unavailable.filter(|_| !ended) {
            self.remarks
                .push(format!("{name}: cannot list the shards of the mapping's stream: {why}"));
        } else if mapping.get("described") == Some(&json!(false)) && !ended {
            self.is_early = true;
            self.remarks
                .push(format!("{name}: the shards of the mapping's stream are not known yet"));
        }
        if mapping.get("unsaved") == Some(&json!(true)) {
            self.remarks.push(format!(
                "{name}: reading starts once the starting positions are on disk; the log of `weir up` shows why the write fails"
            ));
        }
        if ended {
            let why = mapping.get("end").and_then(Value::as_str).unwrap_or("unknown reason");
            self.remarks.push(format!(
                "{name}: the mapping has ended: {why}; its checkpoint is kept, and a restarted `weir up` resumes from it"
            ));
        }
        if discarded > 0 {
            let were = output::counted(discarded, "record was", "records were");
            let rest = match discarded - redriven {
                0 => "all of them were redriven and processed".to_owned(),
                _ if redriven == 0 => KEPT.to_owned(),
                left => format!("{redriven} redriven and processed, {left} not; {KEPT}"),
            };
            self.remarks.push(format!("{name}: {were} discarded since `weir up` started; {rest}"));
        }
        if gaps > 0 {
            self.remarks.push(format!(
                "{name}: records were LOST {} since `weir up` started: the stream trimmed them before they were read",
                output::counted(gaps, "time", "times")
            ));
        }
        self.is_well &= !ended
            && unavailable.is_none()
            && mapping.get("described") != Some(&json!(false))
            && discarded == redriven
            && gaps == 0;
    }
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
