//! Formats the status of a migration as one line for people.
//!
//! `status` collects the facts.

use std::time::Duration;

use indicatif::HumanDuration;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::migrate::report::pointer::at;
use crate::migrate::start::workers;
use crate::migrate::switch::inverse_check;
use client::output::counted;

/// Seconds in a phase of a switch after which the line suggests the command that resumes the
/// switch. Most of these phases are shorter.
const SWITCHING_SECONDS: i64 = 60;

/// Formats a status as one line.
pub(crate) fn line(status: &Value) -> String {
    let counts = at(status, "/backfill/counts");
    let count = |name: &str| at(counts, &format!("/{name}")).as_u64().unwrap_or(0);
    let of_all = match at(status, "/source_items").as_u64() {
        // The count may be hours old, so the table may have more items than counted.
        Some(items) if items >= count("read") => format!("{} of about {items}", count("read")),
        _ => count("read").to_string(),
    };
    let name = at(status, "/migration").as_str().unwrap_or_default();
    let phase = at(status, "/phase").as_str().unwrap_or_default();
    let mut line = format!(
        "{name}: {phase}{}  copied {} % ({of_all} items read, {} of {} segments, {} written by the backfill, {} refused)",
        unswept(status, phase),
        at(status, "/copied_percent"),
        at(status, "/backfill/done"),
        at(status, "/backfill/tasks"),
        count("written"),
        count("refused"),
    );
    if let Some(seconds) = at(status, "/copying_seconds_left").as_u64() {
        line.push_str(&format!(", about {} left", HumanDuration(Duration::from_secs(seconds))));
    }
    line.push_str(&read_anew(status));
    if at(status, "/writers_blocked") == &json!(true) {
        let since = at(status, "/writers_blocked_since").as_i64();
        let since = since.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        line.push_str(&format!("  writers are blocked{since}"));
    }
    line.push_str(&left_half_way(status, phase));
    if at(status, "/stream").is_object() {
        line.push_str(&stream_line(status, name));
    }
    line.push_str(&in_the_way(status, name));
    if let Some(reason) = at(status, "/throttled").as_str() {
        line.push_str(&format!("  throttled: {reason}"));
    }
    if let Some(failing) = workers::line_of(status) {
        line.push_str(&format!("  failing: {failing}"));
    }
    for (kind, number) in at(status, "/problems").as_object().into_iter().flatten() {
        line.push_str(&format!("  {kind}: {number}"));
    }
    for (kind, number) in at(status, "/problems_solved").as_object().into_iter().flatten() {
        line.push_str(&format!("  {kind}, solved: {number}"));
    }
    if let Some(known) = inverse_check::line(at(status, "/way_back")) {
        line.push_str(&format!("  for a revert: {known}"));
    }
    if let Some((differences, what)) = last_comparison(status) {
        let differences = counted(differences, "difference", "differences");
        line.push_str(&format!("  last verified: {differences}{what}"));
        if at(status, "/comparison_not_recorded") == &json!(true) {
            line.push_str(", but a later comparison did not finish");
        }
        let age = at(status, "/stale_seconds").as_i64().filter(|_| phase != "cut-over");
        if let Some(seconds) = age {
            let but = match at(status, "/stale") == &json!(true) {
                true => "too old for a cut-over",
                false => "`complete` compares again",
            };
            line.push_str(&format!(", {} h ago: {but}", seconds / 3600));
        }
    }
    line
}

/// Returns the number of differences of the last comparison, and whether the comparison was before
/// or after the cut-over.
fn last_comparison(status: &Value) -> Option<(u64, &'static str)> {
    if let Some(differences) = at(status, "/back_differences").as_u64() {
        return Some((differences, ", after the cut-over"));
    }
    // A comparison from before the cut-over proves nothing about later writes to the targets.
    let what = if at(status, "/way_back").is_object() { ", before the cut-over" } else { "" };
    Some((at(status, "/verified/differences").as_u64()?, what))
}

/// Describes the progress of the second read of segments, which removes marks; empty if this read
/// is complete or not required.
fn read_anew(status: &Value) -> String {
    let of =
        |name: &str| at(status, &format!("/backfill/second_read/{name}")).as_u64().unwrap_or(0);
    match (of("done"), of("segments")) {
        (done, segments) if done < segments => format!(
            "  reading again to remove marks: {done} of {}",
            counted(segments, "segment", "segments")
        ),
        _ => String::new(),
    }
}

/// Suggests the command that resumes a switch, if the command that began it may have been killed.
fn left_half_way(status: &Value, phase: &str) -> String {
    let seconds = at(status, "/switching_seconds").as_i64();
    // Workers apply records, but only a command can continue a switch.
    let steps = at(status, "/next_steps").as_array().map_or(&[][..], Vec::as_slice);
    let commands = steps.iter().filter_map(|step| at(step, "/command").as_str());
    let mut commands = commands.filter(|command| !command.starts_with("weir migrate work "));
    let command = commands.next();
    match seconds.filter(|seconds| *seconds > SWITCHING_SECONDS).zip(command) {
        Some((seconds, command)) => {
            format!(
                "  {phase} for {seconds} s: if the command that began this phase has ended, run `{command}`"
            )
        }
        None => String::new(),
    }
}

/// Describes obstacles to the next switch, and running comparisons.
fn in_the_way(status: &Value, name: &str) -> String {
    let mut line = String::new();
    for (place, what) in [
        ("/stream_unread_seconds", "the streams could not be read completely"),
        ("/documents_unread_seconds", "some documents that wait for assembly could not be read"),
    ] {
        if let Some(seconds) = at(status, place).as_u64() {
            let more = seconds.max(1).saturating_mul(6);
            line.push_str(&format!(
                "  {what} in {seconds} s: run `weir migrate status {name} --look {more}`"
            ));
        }
    }
    if let Some(problem) = at(status, "/stream_problem").as_str() {
        line.push_str(&format!("  the streams cannot be read: {problem}"));
    }
    if let Some(hopeless) = at(status, "/hopeless").as_str() {
        line.push_str(&format!("  a switch cannot succeed: {hopeless}"));
    }
    if at(status, "/comparison").is_object() {
        let of = |name: &str| at(status, &format!("/comparison/{name}")).as_u64().unwrap_or(0);
        line.push_str(&format!(
            "  a comparison is running: {} of {} segments done, {} items read",
            of("done"),
            of("segments"),
            of("read"),
        ));
    }
    line
}

/// Describes the remaining work of an ended migration.
fn unswept(status: &Value, phase: &str) -> &'static str {
    match phase {
        _ if at(status, "/still_followed") == &json!(true) => ", but functions still follow it",
        "reverted" if at(status, "/unswept") == &json!(true) => {
            ", but tombstones and marks remain in the sources"
        }
        "aborted" if at(status, "/unswept") == &json!(true) => ", but marks remain in the sources",
        _ => "",
    }
}

/// Describes how far the migration lags behind its streams.
fn stream_line(status: &Value, name: &str) -> String {
    let of = |name: &str| at(status, &format!("/stream/{name}")).as_u64().unwrap_or(0);
    let converged = match at(status, "/stream/converged_percent").as_u64() {
        Some(percent) => format!("converged {percent} %"),
        None => "converged: unknown".to_owned(),
    };
    let mut line = format!(
        "  {converged} ({} of {} {}, {} s behind",
        of("waiting"),
        counted(of("records"), "change", "changes"),
        if of("waiting") == 1 { "waits" } else { "wait" },
        of("lag_seconds"),
    );
    // The time until a record is lost is not shown for changes that were just written.
    if of("waiting") > 0 && at(status, "/stream/late").is_string() {
        let hours = Duration::from_secs(of("horizon_seconds")).as_secs_f64() / 3600.0;
        line.push_str(&format!(", the oldest record expires in {hours:.1} h"));
    }
    line.push(')');
    if let Some(table) = at(status, "/stream/late").as_str() {
        line.push_str(&late(status, name, table));
    }
    line
}

/// Describes a table whose oldest change has waited longer than a function normally needs.
fn late(status: &Value, name: &str, table: &str) -> String {
    let of = |name: &str| at(status, &format!("/stream/{name}")).as_u64().unwrap_or(0);
    let (seconds, idle) = (of("lag_seconds"), of("idle_seconds"));
    // Changes that a function has refused also count as waiting. So if there are problems, waiting
    // changes are no evidence that no function reads the stream.
    let has_problems = at(status, "/problems").as_object().is_some_and(|kinds| !kinds.is_empty());
    match (at(status, "/stream/followed").as_bool(), has_problems) {
        (Some(true), false) => {
            format!(
                "  the stream of `{table}` is {seconds} s behind, but its changes are being applied"
            )
        }
        (Some(true), true) => format!(
            "  a change of `{table}` has been waiting for {seconds} s while others are applied: one of the problems may explain the delay"
        ),
        (Some(false), true) => format!(
            "  a change of `{table}` has been waiting for {seconds} s: one of the problems delays it, or no function reads the stream of the table"
        ),
        (Some(false), false) => format!(
            "  a change of `{table}` has been waiting for {seconds} s, and no change was applied in the last {idle} s: check that a function reads the stream of the table, or run `weir migrate work {name}`"
        ),
        (None, _) => format!("  a change of `{table}` has been waiting for {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimmed_times_of_a_stream_are_not_claimed() {
        let mut status = json!({
            "migration": "shop", "phase": "ready", "stale": false,
            "stream": { "waiting": 0, "records": 9, "lag_seconds": 0, "converged_percent": 100 },
            "verified": { "differences": 0 },
        });
        let said = line(&status);
        assert!(said.contains("converged 100 %") && said.ends_with("0 differences"), "{said}");
        status["stream"]["converged_percent"] = Value::Null;
        status["hopeless"] = json!("x cannot be transformed");
        let said = line(&status);
        assert!(said.contains("a switch cannot succeed: x cannot be transformed"), "{said}");
        status["stale_seconds"] = json!(25 * 3600 + 7);
        let said = line(&status);
        assert!(said.contains("unknown (0 of 9 changes wait"), "{said}");
        assert!(said.ends_with("25 h ago: `complete` compares again"), "{said}");
        status["stale"] = json!(true);
        let said = line(&status);
        assert!(said.ends_with("0 differences, 25 h ago: too old for a cut-over"), "{said}");
    }

    #[test]
    fn the_last_comparison_is_before_or_after_the_cut_over() {
        let mut status = json!({
            "migration": "shop", "phase": "cut-over", "verified": { "differences": 0 },
            "way_back": { "known_at": 0, "next_check_by": 82_800 },
        });
        assert!(line(&status).ends_with("last verified: 0 differences, before the cut-over"));
        status["back_differences"] = json!(2);
        assert!(line(&status).ends_with("last verified: 2 differences, after the cut-over"));
        (status["phase"], status["way_back"]) = (json!("completed"), Value::Null);
        assert!(line(&status).ends_with("last verified: 2 differences, after the cut-over"));
    }

    #[test]
    fn long_waiting_changes_are_followed_or_not() {
        let mut status = json!({
            "migration": "shop", "phase": "ready",
            "stream": {
                "waiting": 4, "records": 9, "lag_seconds": 80, "late": "parts",
                "followed": false, "idle_seconds": 3,
            },
        });
        let waits = |status: &Value, words: &str| {
            let said = line(status);
            assert!(said.contains(words), "{said}");
            said.contains("run `weir migrate work shop`")
        };
        let words = "a change of `parts` has been waiting for 80 s, and no change was applied in the last 3 s:";
        assert!(waits(&status, words));
        status["stream"]["followed"] = json!(true);
        assert!(!waits(
            &status,
            "the stream of `parts` is 80 s behind, but its changes are being applied"
        ));
        status["stream"]["followed"] = Value::Null;
        assert!(!waits(&status, "a change of `parts` has been waiting for 80 s"));
        status["problems"] = json!({ "unassembled": 4 });
        status["stream"]["followed"] = json!(false);
        assert!(!waits(&status, "one of the problems delays it, or no function"));
        status["stream"]["followed"] = json!(true);
        assert!(!waits(&status, "one of the problems may explain the delay"));
    }

    #[test]
    fn unread_streams_are_reported() {
        let status = json!({
            "migration": "shop", "phase": "tailing", "source_items": 7,
            "backfill": {
                "counts": { "read": 9 }, "second_read": { "segments": 4, "done": 1, "read": 2 },
            },
            "stream_unread_seconds": 10, "stream_problem": "there is no table `b`",
            "documents_unread_seconds": 20,
            "comparison": { "segments": 16, "done": 3, "read": 120 },
            "problems_solved": { "collision": 9 },
            "switching_seconds": 90, "next_steps": [{ "command": "weir migrate cutover shop" }],
        });
        let said = line(&status);
        for words in [
            "(9 items read",
            "  reading again to remove marks: 1 of 4 segments",
            "not be read completely in 10 s: run `weir migrate status shop --look 60`",
            "could not be read in 20 s: run `weir migrate status shop --look 120`",
            "the streams cannot be read: there is no table `b`",
            "a comparison is running: 3 of 16 segments done, 120 items read",
            "collision, solved: 9",
            "for 90 s: if the command that began this phase has ended, run `weir migrate cutover shop`",
        ] {
            assert!(said.contains(words), "{said}");
        }
    }
}
