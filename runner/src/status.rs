//! `weir status`: how far each mapping has got, shard by shard.
//!
//! `weir up` keeps a small file with it; this reads that file, so it costs a running system nothing.

mod counts;
pub(crate) mod hindrance;
mod settled;

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

use self::settled::{Look, Settling};

/// How often the file is written.
const PERIOD: Duration = Duration::from_millis(500);
/// A shard whose end was last seen so long ago, in milliseconds, is not caught up: that is twenty reads
/// of an idle shard on AWS, and more here, so its next read waits for an answer.
const TIP_MS_MAX: u64 = 5_000;
/// How long `--exit-code` waits for a look that tells of the time after it was said. A shard that
/// has nothing is read some times in a second, and one that cannot be read every 10 s.
const SETTLE_MAX: Duration = Duration::from_secs(15);

/// The file below the data folder.
const FILE: &str = "status.json";

/// What to show.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir status\n  weir status --output ndjson\n  weir status --exit-code    # 3 while records wait\n\n--exit-code: 3 when records wait, a shard stands still, or a mapping does not run here or runs no more; when records were given up since `weir up` began and not redriven, or were lost. A function that accepts `not-run-here` is passed over, and so is a mapping with `Enabled: false`\n\nThe second table counts the records of each mapping since `weir up` began. In JSON these counts are on the first row of a mapping and null on its others, so that a sum is right"
)]
pub struct StatusArguments {
    /// End with 3 when a shard has records that wait, or stands still, or records were given up;
    /// looks until all that was written before is told of, for a second or so
    #[arg(long)]
    pub exit_code: bool,
}

/// Forgets what an earlier run wrote: it says nothing of this one.
pub(crate) fn forget(directory: &Path) {
    // What is not there is forgotten; what cannot be removed is overwritten at once.
    let _ = std::fs::remove_file(directory.join(FILE));
}

/// Keeps the file up to date; never ends by itself.
pub(crate) async fn keep(system: &System, directory: &Path) {
    let path = directory.join(FILE);
    let part = path.with_extension("json.part");
    let mut is_told = false;
    loop {
        let text = format!("{}\n", describe(system));
        // A reader sees the old file or the new one. What cannot be written now is tried again.
        let written = match tokio::fs::write(&part, &text).await {
            Ok(()) => tokio::fs::rename(&part, &path).await,
            failed => failed,
        };
        if let Err(error) = &written
            && !is_told
        {
            tracing::warn!(
                "cannot write `{}`: {error}; `weir status` and `weir streams explain` do not know what happens meanwhile",
                path.display()
            );
        }
        is_told = written.is_err();
        tokio::time::sleep(PERIOD).await;
    }
}

/// Milliseconds since 1970 by the machine's clock.
fn machine_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn describe(system: &System) -> Value {
    // All that is told is from between these two moments.
    let taken_ms = machine_ms();
    let (statuses, tick_ms) = (system.statuses(), tick_ms());
    let mappings = statuses.into_iter().map(|(name, function, end, status)| {
        let totals = &status.totals;
        // Where a mapping has ended, nothing waits for an answer.
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
                "given_up": totals.given_up, "gaps": totals.gaps,
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

/// How many records wait for each mapping that has some, as the file says it.
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

/// Notes how many of the records that a mapping gave up were brought to its function since.
fn note_redrives(status: &mut Value, count: impl FnOnce() -> BTreeMap<String, Redriven>) {
    let given_up = |it: &Value| it.pointer("/totals/given_up").and_then(Value::as_u64);
    if list(status, "mappings").iter().all(|mapping| given_up(mapping).unwrap_or(0) == 0) {
        return;
    }
    let redriven = count();
    let mappings = status.get_mut("mappings").and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        let own = mapping.get("mapping").and_then(Value::as_str);
        let own = own.and_then(|name| redriven.get(name)).copied().unwrap_or_default();
        // Where the journal does not reach back to all of it, what is redriven of the rest is unknown.
        let has_all = given_up(mapping) == Some(own.given_up);
        let done = if has_all { own.done } else { 0 };
        if let Some(Value::Object(totals)) = mapping.get_mut("totals") {
            totals.insert("redriven".to_owned(), json!(done));
        }
    }
}

/// Looks until it is clear whether all that was written before now was worked off, with all that
/// functions made of it. What waits or went wrong is an answer at once.
fn settled(directory: &Path, output: Output) -> Result<Shown, String> {
    let began = Instant::now();
    let mut settling = Settling::asked_at(machine_ms());
    loop {
        let is_over = began.elapsed() > SETTLE_MAX;
        let status = match last(directory) {
            // `weir up` writes it when it has begun, which may be in this moment.
            Err(_) if !is_over => {
                std::thread::sleep(PERIOD / 10);
                continue;
            }
            status => status?,
        };
        let mut shown = show(&status, output);
        if !shown.is_early && (!shown.is_well || settling.look(&status) == Look::Settled) {
            return Ok(shown);
        }
        if is_over {
            shown.is_well = false;
            let why = match settling.unread(&status).as_slice() {
                [] => "records come all the time".to_owned(),
                unread => format!("not every shard was read again: {}", unread.join(", ")),
            };
            let seconds = SETTLE_MAX.as_secs();
            shown.remarks.push(format!("still not at rest after {seconds} s: {why}"));
            return Ok(shown);
        }
        std::thread::sleep(PERIOD / 10);
    }
}

/// What is shown of a shard. For programs, the counts of its mapping follow.
const HEADINGS: [&str; 7] =
    ["mapping", "shard", "state", "waiting", "lag ms", "failed attempts", "checkpoint"];

/// The state of a mapping that runs no more, and of its shards.
const ENDED: &str = "ended";

/// The state of a mapping with `Enabled: false`, as AWS calls it.
const DISABLED: &str = "disabled";

/// Whether a mapping is disabled in a running system.
pub(crate) fn is_disabled(status: &Value, mapping: &str) -> bool {
    let is_it = |it: &Value| it.get("mapping").and_then(Value::as_str) == Some(mapping);
    list(status, "disabled").iter().any(is_it)
}

/// What a status shows, and whether nothing is wrong and nothing waits.
struct Shown {
    /// One for each shard, with the counts of its mapping behind them.
    rows: Vec<Vec<Value>>,
    /// The name and the counts of each mapping that has read something.
    counts: Vec<Vec<Value>>,
    remarks: Vec<String>,
    is_well: bool,
    /// Whether a mapping has not listed its shards yet, as when it begins: nothing is known of it.
    is_early: bool,
}

fn show(status: &Value, output: Output) -> Shown {
    let mut shown = Shown::new();
    for mapping in list(status, "mappings") {
        shown.add(mapping, output);
    }
    for disabled in list(status, "disabled") {
        let of = |name: &str| disabled.get(name).and_then(Value::as_str).unwrap_or_default();
        shown.rows.push(row_without_shards(of("mapping"), DISABLED));
        shown.remarks.push(format!(
            "{}: it is disabled, as the template has it: nothing is read for `{}`",
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
            "{}: it does not run here, nothing invokes `{}`: {}",
            text("mapping"),
            text("function"),
            text("reason")
        ));
    }
    shown
}

const KEPT: &str = "`weir streams explain RECORD` says where they are kept";

/// What a mapping did not bring to its function, since it began.
struct Lost {
    /// Records.
    given_up: u64,
    /// Of those, the ones that were redriven, and done.
    redriven: u64,
    /// How often records were trimmed unread.
    gaps: u64,
}

/// What is shown of a mapping that reads nothing.
fn row_without_shards(mapping: &str, state: &str) -> Vec<Value> {
    let mut row = vec![json!(mapping), Value::Null, json!(state)];
    row.resize(HEADINGS.len() + counts::HEADINGS.len(), Value::Null);
    row
}

impl Shown {
    fn new() -> Self {
        let (rows, counts, remarks) = Default::default();
        Self { rows, counts, remarks, is_well: true, is_early: false }
    }

    /// Writes a table of the shards and one of the counts; for programs, rows that have both.
    fn write(&self, output: Output) {
        let all: Vec<&str> = HEADINGS.iter().chain(&counts::HEADINGS).copied().collect();
        if output != Output::Table {
            return output::rows(output, &all, &self.rows);
        }
        // A row has more cells than this table has columns.
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
        let (given_up, gaps) = (total("given_up"), total("gaps"));
        let redriven = total("redriven").min(given_up);
        let counts = counts::of(mapping);
        // They are counted for the mapping: on each of its rows, a sum over rows would be wrong.
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
            // Whatever is read no more is no state to rely on.
            if has_ended && state != "done" {
                state = json!(ENDED);
            }
            // Shards that are over are history, and there are many after a day.
            if output == Output::Table && state == "done" {
                continue;
            }
            let shard = [of("id"), state, of("waiting"), of("lag_ms"), of("failed_attempts")];
            let counts = first.take().unwrap_or_else(|| vec![Value::Null; counts::HEADINGS.len()]);
            let mut row = vec![name.clone()];
            row.extend(shard.into_iter().chain([of("checkpoint")]).chain(counts));
            self.rows.push(row);
        }
        let lost = Lost { given_up, redriven, gaps };
        self.remark(mapping, name.as_str().unwrap_or_default(), &lost);
    }

    /// What no single shard tells.
    fn remark(&mut self, mapping: &Value, name: &str, lost: &Lost) {
        let Lost { given_up, redriven, gaps } = *lost;
        let unavailable = mapping.get("unavailable").and_then(Value::as_str);
        let ended = mapping.get("ended") == Some(&json!(true));
        if let Some(why) = unavailable.filter(|_| !ended) {
            self.remarks.push(format!("{name}: its stream cannot be listed: {why}"));
        } else if mapping.get("described") == Some(&json!(false)) && !ended {
            self.is_early = true;
            self.remarks.push(format!("{name}: its shards are not known yet"));
        }
        if mapping.get("unsaved") == Some(&json!(true)) {
            self.remarks.push(format!(
                "{name}: it reads nothing before the positions at which it begins are on disk; the log says what keeps them from it"
            ));
        }
        if ended {
            let why = mapping.get("end").and_then(Value::as_str).unwrap_or("it has ended");
            self.remarks.push(format!(
                "{name}: it runs no more: {why}; what it did is kept, and `weir up`, started again, goes on behind that"
            ));
        }
        if given_up > 0 {
            let were = output::counted(given_up, "record was", "records were");
            let rest = match given_up - redriven {
                0 => "all of them were redriven, and done".to_owned(),
                _ if redriven == 0 => KEPT.to_owned(),
                left => format!("{redriven} redriven and done, {left} not; {KEPT}"),
            };
            self.remarks.push(format!("{name}: {were} given up since `weir up` began; {rest}"));
        }
        if gaps > 0 {
            self.remarks.push(format!(
                "{name}: records were LOST {} since it began; the stream had trimmed them unread",
                output::counted(gaps, "time", "times")
            ));
        }
        self.is_well &= !ended
            && unavailable.is_none()
            && mapping.get("described") != Some(&json!(false))
            && given_up == redriven
            && gaps == 0;
    }
}

pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping with one shard, with members changed.
    fn status(state: &str, totals: &Value, not_run: &Value) -> Value {
        json!({
            "mappings": [{
                "mapping": "M", "function": "F", "described": true, "unavailable": null,
                "totals": totals, "shards": [{"id": "s", "state": state, "waiting": 0}],
            }],
            "not_run": not_run,
        })
    }

    #[test]
    fn all_is_well_when_nothing_waits_and_nothing_is_lost() {
        let none = json!([]);
        let absent = |accepted: bool| json!([{"mapping": "H", "function": "Hello", "reason": "Node", "accepted": accepted}]);
        for (state, totals, not_run, is_well, said) in [
            ("caught up", json!({"given_up": 0, "gaps": 0}), &none, true, None),
            ("done", json!({}), &none, true, None),
            ("working", json!({}), &none, false, None),
            ("retrying", json!({}), &none, false, None),
            ("caught up", json!({"given_up": 2}), &none, false, Some("2 records were given up")),
            (
                "caught up",
                json!({"given_up": 1, "redriven": 0}),
                &none,
                false,
                Some("1 record was given up since `weir up` began; `weir streams"),
            ),
            (
                "caught up",
                json!({"given_up": 3, "redriven": 2}),
                &none,
                false,
                Some("2 redriven and done, 1 not"),
            ),
            (
                "caught up",
                json!({"given_up": 3, "redriven": 3}),
                &none,
                true,
                Some("all of them were redriven"),
            ),
            ("caught up", json!({"gaps": 1}), &none, false, Some("LOST 1 time since")),
            ("caught up", json!({}), &absent(false), false, Some("nothing invokes `Hello`: Node")),
            ("caught up", json!({}), &absent(true), true, Some("nothing invokes `Hello`: Node")),
        ] {
            let status = status(state, &totals, not_run);
            let shown = show(&status, Output::Json);
            assert_eq!(shown.is_well, is_well, "{status}");
            let columns = HEADINGS.len() + counts::HEADINGS.len();
            assert!(shown.rows.iter().all(|row| row.len() == columns), "{status}");
            let is_said = said.is_none_or(|said| shown.remarks.iter().any(|it| it.contains(said)));
            assert!(is_said && said.is_some() != shown.remarks.is_empty(), "{:?}", shown.remarks);
        }
    }

    #[test]
    fn a_shard_that_was_not_read_for_long_is_not_caught_up() {
        let shard = |tip: u64| ShardStatus {
            id: mapping::ShardId::new("s"),
            parent: None,
            phase: Phase::Reading,
            last_read: None,
            checkpoint: None,
            at_tip: true,
            tip_tick_ms: Some(tip),
            in_flight: 0,
            waiting: 0,
            failed_attempts: 0,
            unreachable: false,
            lag_ms: 0,
            lacks_child: false,
        };
        assert_eq!(state(&shard(1_000), 1_000 + TIP_MS_MAX), "caught up");
        assert_eq!(state(&shard(1_000), 1_001 + TIP_MS_MAX), "waits for an answer");
        assert_eq!(state(&shard(2_000), 1_000), "caught up");
    }

    #[test]
    fn redrives_are_counted_where_something_was_given_up() {
        let mut none = status("caught up", &json!({"given_up": 0}), &json!([]));
        note_redrives(&mut none, || unreachable!("nothing was given up"));
        let mut some = status("caught up", &json!({"given_up": 2}), &json!([]));
        for (given_up, is_well) in [(2, true), (1, false), (3, false)] {
            let own = Redriven { given_up, done: 2 };
            note_redrives(&mut some, || [("M".to_owned(), own)].into());
            let expected = if is_well { json!(2) } else { json!(0) };
            assert_eq!(some.pointer("/mappings/0/totals/redriven"), Some(&expected));
            assert_eq!(show(&some, Output::Json).is_well, is_well);
        }
    }

    #[test]
    fn a_disabled_mapping_is_shown_and_is_no_failure() {
        let status = json!({"mappings": [], "disabled": [{"mapping": "M", "function": "F"}]});
        let shown = show(&status, Output::Table);
        assert_eq!(shown.rows[0][..3], [json!("M"), Value::Null, json!("disabled")]);
        assert!(shown.is_well && shown.remarks[0].contains("`F`"), "{:?}", shown.remarks);
        assert!(is_disabled(&status, "M") && !is_disabled(&status, "N"));
    }

    #[test]
    fn the_counts_of_a_mapping_are_on_its_first_row() {
        let shard = |state: &str| json!({"id": "s", "state": state, "waiting": 0});
        let totals = json!({"read": 9, "filtered": 3, "done": 4, "failures": 1, "given_up": 2});
        let status = json!({"mappings": [
            {
                "mapping": "M", "described": true, "totals": totals,
                "shards": [shard("done"), shard("caught up"), shard("caught up")],
            },
            {"mapping": "N", "described": true, "totals": {}, "shards": [shard("caught up")]},
        ]});
        let counts = |output| {
            let rows = show(&status, output).rows;
            rows.into_iter().map(|row| json!(row[HEADINGS.len()..])).collect::<Vec<_>>()
        };
        let (first, none) = (json!([9, 3, 4, 1, 2]), json!([null, null, null, null, null]));
        let zero = json!([0, 0, 0, 0, 0]);
        let of_table = [first.clone(), none.clone(), zero.clone()];
        assert_eq!(counts(Output::Table), of_table, "the first that is shown");
        assert_eq!(counts(Output::Json), [first, none.clone(), none, zero]);
        let told = show(&status, Output::Table).counts;
        assert_eq!(
            told,
            [
                [json!("M"), json!(9), json!(3), json!(4), json!(1), json!(2)].to_vec(),
                [json!("N"), json!(0), json!(0), json!(0), json!(0), json!(0)].to_vec()
            ]
        );
    }

    #[test]
    fn a_mapping_that_has_ended_or_whose_shards_are_not_known_is_not_well() {
        for members in [
            json!({"described": false}),
            json!({"described": true, "unavailable": "x"}),
            json!({"described": true, "ended": true, "end": "its stream is disabled"}),
            json!({"described": true, "ended": true, "shards": [{"id": "s", "state": "caught up"}]}),
            json!({"described": true, "unavailable": "x", "ended": true, "end": "x"}),
            json!({"described": true, "unsaved": true, "shards": [{"id": "s", "state": "waits for its parent"}]}),
        ] {
            let shown = show(&json!({ "mappings": [members.clone()] }), Output::Table);
            assert!(!shown.is_well && shown.remarks.len() == 1, "{:?}", shown.remarks);
            let is_early = members.get("described") == Some(&json!(false));
            assert_eq!(shown.is_early, is_early, "{members}");
            let state = shown.rows[0][2].as_str().unwrap();
            let is_ended = members.get("ended").is_some();
            assert_eq!(state == ENDED, is_ended, "{members}: {state}");
        }
    }
}
