//! `weir status`: shows the progress of each mapping, shard by shard.
//!
//! `weir up` writes the status to a small file, and this module reads the file. The command therefore adds no
//! load to the system.

mod counts;
mod discarded;
mod settled;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use client::exit::Exit;
use client::failure::Result;
use client::output::{self, Output};
use client::running::Running;
use local::status::{PERIOD, hindrance, last, list, machine_ms};

use self::settled::{SettledCheck, SettledSearch};

/// The maximum time that `--exit-code` waits for a status that is newer than the command. An idle shard is
/// read several times a second, an unreachable shard every 10 s.
const SETTLE_MAX: Duration = Duration::from_secs(15);

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

/// Shows the status.
///
/// # Errors
/// No system is running.
pub fn run(arguments: &StatusArguments, output: Output) -> Result<Exit> {
    let running = Running::read()?;
    let shown = match arguments.exit_code {
        true => settled(&running.directory, output)?,
        false => {
            let mut status = last(&running.directory)?;
            discarded::name_left(&mut status, &running.directory);
            show(&status, output)
        }
    };
    shown.write(output);
    let hindrance = hindrance::now(&running.directory);
    for line in shown.remarks.iter().chain(&hindrance) {
        output::say(line);
    }
    Ok(if arguments.exit_code && !shown.is_well { Exit::Differences } else { Exit::Done })
}

/// Polls the status until all earlier writes, and all writes of functions in response to them, are
/// certainly processed. Returns immediately if a record waits or a mapping or shard has failed.
fn settled(directory: &Path, output: Output) -> Result<StatusView> {
    let began = Instant::now();
    let mut settling = SettledSearch::asked_at(machine_ms());
    loop {
        let is_over = began.elapsed() > SETTLE_MAX;
        let mut status = match last(directory) {
            // `weir up` repeats a write that failed.
            Err(_) if !is_over => {
                std::thread::sleep(PERIOD / 10);
                continue;
            }
            status => status?,
        };
        discarded::name_left(&mut status, directory);
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

/// The rows and remarks of a status, and whether everything is well: no failure and no waiting record.
struct StatusView {
    /// One row for each shard. The row ends with the counts of the shard's mapping.
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

    /// Adds the remarks about a mapping, not about one of its shards.
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
            let text = discarded::remark(mapping, discarded, redriven);
            self.remarks.push(format!("{name}: {text}"));
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
