//! Decides from a status whether a cut-over is safe now, and lists the reasons against it.
//!
//! `control::verbs` decides whether the phase allows a cut-over. In a phase that allows it, the
//! answer is "yes" only if `status --exit-code` exits with 0.

use control::verbs::{Verb, VerbDecision, decide_verb};
use rules::migration::Phase;
use rules::migration::plan::Plan;
use serde::Serialize;
use serde_json::{Value, json};

use crate::migrate::report::pointer::at;
use crate::migrate::start::workers;
use crate::migrate::switch::arguments::TIMEOUT_SECONDS;
use crate::migrate::switch::claim::RELEASE_LIMIT;
use crate::migrate::switch::cutover;
use client::output::counted;

/// The possible answers to the question whether a cut-over is safe now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Safety {
    /// A cut-over is safe.
    Yes,
    /// A cut-over would be refused, or could not succeed.
    No,
    /// The streams were not read, so it is unknown whether a cut-over is safe.
    Unknown,
    /// A cut-over has begun and is not finished.
    Begun,
    /// Readers and writers use the targets already.
    Done,
}

/// The answer to the question whether a cut-over is safe now, with the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CutoverSafety {
    /// The answer.
    pub answer: Safety,
    /// The answer in one sentence.
    pub sentence: String,
    /// The reasons against a cut-over. The sentence contains the first reason.
    pub reasons: Vec<String>,
    /// The expected maximum time for which the cut-over blocks writers; `None` if it is not safe.
    pub writers_blocked: Option<WritersBlocked>,
}

/// The expected maximum time for which a cut-over blocks writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WritersBlocked {
    /// The maximum number of seconds until the cut-over is committed or rolled back.
    pub seconds_max: u64,
    /// The default of `--timeout` in seconds, which is a part of `seconds_max`.
    pub timeout_seconds: u64,
    /// The maximum number of further seconds for a rollback.
    pub rollback_seconds_max: u64,
}

impl WritersBlocked {
    fn of(plan: &Plan) -> Self {
        Self {
            seconds_max: cutover::blocked_seconds_max(plan),
            timeout_seconds: TIMEOUT_SECONDS,
            rollback_seconds_max: RELEASE_LIMIT.as_secs(),
        }
    }
}

impl CutoverSafety {
    fn against(answer: Safety, reasons: Vec<String>) -> Self {
        let head = if answer == Safety::No { "No" } else { "Unknown" };
        let first = reasons.first().map(String::as_str).unwrap_or_default();
        let sentence = format!("{head}: {first}");
        Self { answer, sentence, reasons, writers_blocked: None }
    }
}

/// Returns whether a cut-over is safe for the migration with this plan and status.
pub(crate) fn of_cutover(plan: &Plan, status: &Value) -> CutoverSafety {
    let name = plan.migration.as_str();
    let phase = at(status, "/phase").as_str().and_then(Phase::from_name).unwrap_or_default();
    let only = |answer, sentence| {
        let (reasons, writers_blocked) = (Vec::new(), None);
        CutoverSafety { answer, sentence, reasons, writers_blocked }
    };
    match decide_verb(name, plan.kind, Verb::Cutover, phase) {
        VerbDecision::AlreadyDone => {
            only(Safety::Done, format!("Done: the cut-over of `{name}` is complete"))
        }
        VerbDecision::TakeOver => only(
            Safety::Begun,
            format!(
                "Begun: the cut-over is not finished; if no command runs it, `weir migrate cutover {name}` resumes it"
            ),
        ),
        VerbDecision::Refused(why) => {
            let mut reasons = vec![why];
            if !phase.has_ended() {
                reasons.extend(progress(phase, status));
                reasons.extend(obstacles(status));
            }
            CutoverSafety::against(Safety::No, reasons)
        }
        VerbDecision::CarryOut => {
            let (obstacles, unread) = (obstacles(status), unread(status));
            match (obstacles.is_empty(), unread.is_empty()) {
                (false, _) => CutoverSafety::against(Safety::No, obstacles),
                (true, false) => CutoverSafety::against(Safety::Unknown, unread),
                (true, true) => {
                    let lasting = match at(status, "/has_way_back") == &json!(false) {
                        true => ", permanently",
                        false => "",
                    };
                    let what = cutover::consequence(plan);
                    let writers_blocked = Some(WritersBlocked::of(plan));
                    let yes = only(Safety::Yes, format!("Yes{lasting}: {what}"));
                    CutoverSafety { writers_blocked, ..yes }
                }
            }
        }
    }
}

/// Describes the progress of the backfill; `None` if the backfill is complete or its progress is
/// unknown.
fn progress(phase: Phase, status: &Value) -> Option<String> {
    let percent = at(status, "/copied_percent").as_u64()?;
    matches!(phase, Phase::Preparing | Phase::Copying)
        .then(|| format!("the backfill has read {percent} % of the items"))
}

/// Returns the reasons why a cut-over would fail.
fn obstacles(status: &Value) -> Vec<String> {
    let is = |place: &str| at(status, place) == &json!(true);
    let text = |place: &str| at(status, place).as_str();
    let number = |place: &str| at(status, place).as_u64().unwrap_or(0);
    let mut reasons = Vec::new();
    if is("/stale") {
        let hours = at(status, "/stale_seconds").as_i64().unwrap_or(0) / 3600;
        reasons.push(format!(
            "the last comparison is {hours} h old, and streams keep records for 24 h: run `weir migrate verify` again"
        ));
    }
    if is("/compared_now") {
        let (done, all) = (number("/comparison/done"), number("/comparison/segments"));
        reasons.push(format!("a comparison is running: {done} of {all} segments are done"));
    }
    if is("/comparison_not_recorded") {
        reasons
            .push("the last comparison did not finish: run `weir migrate verify` again".to_owned());
    }
    if number("/verified/differences") > 0 {
        let found = counted(number("/verified/differences"), "difference", "differences");
        reasons.push(format!("the last comparison found {found}"));
    }
    reasons.extend(text("/hopeless").map(str::to_owned));
    reasons.extend(text("/stream_problem").map(|why| format!("the streams cannot be read: {why}")));
    reasons.extend(
        text("/stream/unfollowed")
            .map(|table| format!("no function applies the waiting changes of `{table}`")),
    );
    reasons.extend(workers::line_of(status).map(|line| format!("segments fail: {line}")));
    reasons
}

/// Returns the reasons why the safety of a cut-over is unknown, such as unread streams.
fn unread(status: &Value) -> Vec<String> {
    let mut reasons = Vec::new();
    for (place, what) in
        [("/stream_unread_seconds", "streams"), ("/documents_unread_seconds", "documents")]
    {
        if let Some(seconds) = at(status, place).as_u64() {
            reasons.push(format!("the {what} could not be read completely in {seconds} s"));
        }
    }
    if reasons.is_empty() && !at(status, "/stream").is_object() {
        reasons.push("the streams have not been read yet".to_owned());
    }
    reasons
}

#[cfg(test)]
mod tests {
    use rules::migration::plan::Kind;

    use super::*;
    use crate::migrate::report::next_steps::tests::plan;
    use crate::migrate::report::status::exit_of;
    use client::exit::Exit;

    /// Returns a status that allows a cut-over, but with one JSON member replaced by `member`.
    fn status(phase: &str, member: Option<(&str, Value)>) -> Value {
        let mut status = json!({
            "migration": "shop", "phase": phase, "copied_percent": 100, "stream": {"waiting": 0},
            "verified": {"differences": 0}, "has_way_back": true,
        });
        if let Some((name, value)) = member {
            status[name] = value;
        }
        status
    }

    #[test]
    fn the_answer_is_one_sentence_with_its_reason() {
        let cases = [
            ("ready", None, Safety::Yes, "Yes: writers of  would be blocked for 0 s and until"),
            ("ready", Some(("has_way_back", json!(false))), Safety::Yes, "Yes, permanently: writ"),
            ("ready", Some(("stream", Value::Null)), Safety::Unknown, "Unknown: the streams have"),
            (
                "ready",
                Some(("stream_unread_seconds", json!(10))),
                Safety::Unknown,
                "Unknown: the streams could not be read completely in 10 s",
            ),
            (
                "ready",
                Some(("hopeless", json!("cats `1` cannot be transformed"))),
                Safety::No,
                "No: cats `1` cannot be transformed",
            ),
            (
                "ready",
                Some(("comparison_not_recorded", json!(true))),
                Safety::No,
                "No: the last comparison did not finish: run `weir migrate verify` again",
            ),
            (
                "ready",
                Some(("stream", json!({"unfollowed": "cats"}))),
                Safety::No,
                "No: no function applies the waiting changes of `cats`",
            ),
            (
                "tailing",
                Some(("verified", json!({"differences": 2}))),
                Safety::No,
                "No: `shop` is tailing; `weir migrate verify shop` must find no difference first",
            ),
            ("turning", None, Safety::Begun, "Begun: the cut-over is not finished;"),
            ("cut-over", None, Safety::Done, "Done: the cut-over of `shop` is complete"),
            ("aborted", None, Safety::No, "No: `shop` is aborted; the migration has ended"),
        ];
        let plan = plan(Kind::Restructure, true);
        for (phase, member, expected, sentence) in cases {
            let found = of_cutover(&plan, &status(phase, member));
            assert_eq!(found.answer, expected, "{phase}: {}", found.sentence);
            assert!(found.sentence.starts_with(sentence), "{phase}: {}", found.sentence);
            let is_against = matches!(expected, Safety::No | Safety::Unknown);
            assert_eq!(!found.reasons.is_empty(), is_against, "{phase}");
            let blocked = found.writers_blocked.map(|it| it.seconds_max);
            let most = 70 + u64::from(plan.gate_seconds) + u64::from(plan.settle_seconds);
            assert_eq!(blocked, (expected == Safety::Yes).then_some(most), "{phase}");
        }
        let stale = json!({
            "migration": "shop", "phase": "ready", "stale": true, "stale_seconds": 90_000,
            "compared_now": true, "comparison": {"segments": 8, "done": 3},
        });
        let found = of_cutover(&plan, &stale);
        assert_eq!(found.reasons.len(), 2, "{found:?}");
        assert!(found.sentence.contains("is 25 h old"), "{found:?}");
    }

    /// Goal: the answer is "yes" only if `status --exit-code` exits with 0.
    #[test]
    fn a_yes_is_a_success_of_status() {
        let members = [
            ("stale", json!(true)),
            ("stream_unread_seconds", json!(10)),
            ("documents_unread_seconds", json!(10)),
            ("comparison_not_recorded", json!(true)),
            ("hopeless", json!("x")),
            ("stream_problem", json!("x")),
            ("still_followed", json!(false)),
        ];
        let plan = plan(Kind::Restructure, true);
        for (name, value) in members {
            let status = status("ready", Some((name, value)));
            let is_yes = of_cutover(&plan, &status).answer == Safety::Yes;
            assert_eq!(is_yes, exit_of(&status) == Exit::Done, "{name}");
        }
    }
}
