//! The status of a migration on one line, for people.
//!
//! What it says, `report` has found out.

use std::time::Duration;

use indicatif::HumanDuration;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::report::at;
use super::{way_back, workers};

/// A status for people.
pub(super) fn line(status: &Value) -> String {
    let counts = at(status, "/backfill/counts");
    let count = |name: &str| at(counts, &format!("/{name}")).as_u64().unwrap_or(0);
    let of_all = match at(status, "/source_items").as_u64() {
        Some(items) => format!("{} of about {items}", count("read")),
        None => count("read").to_string(),
    };
    let name = at(status, "/migration").as_str().unwrap_or_default();
    let phase = at(status, "/phase").as_str().unwrap_or_default();
    let mut line = format!(
        "{name}: {phase}{}  copied {} % ({of_all} items read, {} of {} segments, {} written, {} refused)",
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
    if at(status, "/writers_held_up") == &json!(true) {
        let since = at(status, "/writers_held_up_since").as_i64();
        let since = since.and_then(|seconds| Timestamp::from_second(seconds).ok());
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        line.push_str(&format!("  writers are held up{since}"));
    }
    if at(status, "/stream").is_object() {
        line.push_str(&stream_line(status, name));
    }
    if let Some(reason) = at(status, "/throttled").as_str() {
        line.push_str(&format!("  throttled: {reason}"));
    }
    if let Some(failing) = workers::line_of(status) {
        line.push_str(&format!("  failing: {failing}"));
    }
    for (kind, number) in at(status, "/problems").as_object().into_iter().flatten() {
        line.push_str(&format!("  {kind}: {number}"));
    }
    if let Some(known) = way_back::line(at(status, "/way_back")) {
        line.push_str(&format!("  way back: {known}"));
    }
    if let Some(differences) = at(status, "/verified/differences").as_u64() {
        // What was compared for a cut-over says nothing of the way back.
        let what = if at(status, "/way_back").is_object() { ", before the cut-over" } else { "" };
        line.push_str(&format!("  last verified: {differences} differences{what}"));
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

/// What an end has left undone.
fn unswept(status: &Value, phase: &str) -> &'static str {
    match phase {
        _ if at(status, "/still_followed") == &json!(true) => ", but changes are still followed",
        "reverted" if at(status, "/unswept") == &json!(true) => {
            ", but tombstones and marks still stand in the sources"
        }
        "aborted" if at(status, "/unswept") == &json!(true) => {
            ", but marks still stand in the sources"
        }
        _ => "",
    }
}

/// How far the streams are that a migration follows.
fn stream_line(status: &Value, name: &str) -> String {
    let of = |name: &str| at(status, &format!("/stream/{name}")).as_u64().unwrap_or(0);
    let converged = match at(status, "/stream/converged_percent").as_u64() {
        Some(percent) => format!("converged {percent} %"),
        None => "how much has converged is not known".to_owned(),
    };
    let mut line = format!(
        "  {converged} ({} of {} changes wait, {} s behind",
        of("waiting"),
        of("records"),
        of("lag_seconds"),
    );
    // Nothing can be lost of a stream that was followed to its end.
    if of("waiting") > 0 {
        let hours = Duration::from_secs(of("horizon_seconds")).as_secs_f64() / 3600.0;
        line.push_str(&format!(", the oldest would be lost in {hours:.1} h"));
    }
    line.push(')');
    if let Some(table) = at(status, "/stream/unfollowed").as_str() {
        let seconds = of("lag_seconds");
        // What a function has refused waits as well.
        let has_problems =
            at(status, "/problems").as_object().is_some_and(|kinds| !kinds.is_empty());
        line.push_str(&match has_problems {
            true => format!(
                "  a change of `{table}` waits for {seconds} s: it is of one of the problems, or no function follows its stream"
            ),
            false => format!(
                "  no change of `{table}` has been applied for {seconds} s: does a function follow its stream? `weir migrate work {name}` does"
            ),
        });
    }
    if let Some(hopeless) = at(status, "/stream/hopeless").as_str() {
        line.push_str(&format!("  it would not be drained however long it takes: {hopeless}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_say_of_a_time_that_they_may_have_forgotten_is_not_claimed() {
        let mut status = json!({
            "migration": "shop", "phase": "ready", "stale": false,
            "stream": { "waiting": 0, "records": 9, "lag_seconds": 0, "converged_percent": 100 },
            "verified": { "differences": 0 },
        });
        let said = line(&status);
        assert!(said.contains("converged 100 %") && said.ends_with("0 differences"), "{said}");
        status["stream"]["converged_percent"] = Value::Null;
        status["stream"]["unfollowed"] = json!("parts");
        assert!(line(&status).contains("does a function follow its stream?"));
        status["problems"] = json!({ "unassembled": 4 });
        assert!(line(&status).contains("it is of one of the problems"));
        status["stream"]["hopeless"] = json!("x cannot be transformed");
        let said = line(&status);
        assert!(said.contains("however long it takes: x cannot be transformed"), "{said}");
        status["stale_seconds"] = json!(25 * 3600 + 7);
        let said = line(&status);
        assert!(said.contains("is not known (0 of 9 changes wait"), "{said}");
        assert!(said.ends_with("25 h ago: `complete` compares again"), "{said}");
        status["stale"] = json!(true);
        let said = line(&status);
        assert!(said.ends_with("0 differences, 25 h ago: too old for a cut-over"), "{said}");
    }
}
