//! Tests that the page of a migration contains the right words for its data.

use operations::migrate::api::{CutoverSafety, EndedSwitch, PhaseStep, WritersBlocked};
use serde_json::json;

use super::super::view::{Line, Verified, Workers};
use super::*;
use crate::token::Token;

fn action(verb: &str, command: &str, button: bool) -> Action {
    let consequence = format!("{verb} does this");
    Action { verb: verb.to_owned(), command: command.to_owned(), consequence, button }
}

fn sample() -> Sample {
    Sample {
        table: "orders".to_owned(),
        before: json!({"id": {"S": "<i>"}}),
        after: vec![Made {
            table: "shop".to_owned(),
            item: Some(json!({"pk": {"S": "O#1"}})),
            stands: "different",
            found: Some(json!({"pk": {"S": "O#2"}})),
        }],
        refused: None,
    }
}

fn view() -> View {
    let step = |phase, place| PhaseStep { phase, place };
    View {
        schema: "weir.console.migration/v1",
        name: "shop<1>".to_owned(),
        kind: Some("restructure"),
        sources: vec!["orders".to_owned()],
        targets: vec!["shop".to_owned()],
        phase: "copying",
        phases: vec![
            step("preparing", PhasePlace::Passed),
            step("copying", PhasePlace::Current),
            step("tailing", PhasePlace::Ahead),
        ],
        paused: true,
        cutover: Some(CutoverSafety {
            answer: Safety::No,
            sentence: "No: it is copying".to_owned(),
            reasons: vec!["it is copying".to_owned(), "a second reason".to_owned()],
            writers_blocked: None,
        }),
        backfill: Backfill {
            copied_percent: 42,
            read: 420,
            source_items: Some(1000),
            items_per_second: vec![10, 20],
            items_per_second_on_average: 15,
            items_per_second_allowed: Some(40),
            throttled: Some("paused by the operator".to_owned()),
            refused: 2,
            ..Backfill::default()
        },
        workers: Workers { at_work: 2, open_segments: 5, set_aside: 1 },
        stream: Some(Stream {
            waiting: 3,
            records: 9,
            lag_seconds: 7,
            horizon_seconds: Some(86_393),
            ..Stream::default()
        }),
        stream_note: None,
        writers_blocked_since: Some(0),
        last_switch: Some(EndedSwitch {
            verb: "cutover",
            is_committed: false,
            at: 0,
            seconds_at_most: 4,
        }),
        verified: Some(Verified { differences: 3, refused: 1, compared: 90, at: 0 }),
        back_differences: None,
        problems: vec!["collision: <b>".to_owned()],
        actions: vec![
            action("resume", "weir migrate resume shop", true),
            action("throttle", "c", true),
            action("abort", "weir migrate abort shop", false),
        ],
        samples: vec![sample()],
        samples_problem: None,
        journal: vec![Line {
            at: 0,
            from: "preparing",
            to: "copying",
            why: "it begins".to_owned(),
            by: "ada@build".to_owned(),
        }],
        status: json!({}),
    }
}

#[test]
fn the_page_answers_what_an_operator_asks() {
    let token = Token::random().unwrap();
    let page = html(&view(), Writes::Allowed(&token)).into_string();
    for part in [
        "<li class=\"current\" aria-current=\"step\"><span aria-hidden=\"true\">● </span>copying (paused)</li>",
        "<strong class=\"bad\">No: it is copying.</strong>",
        "<li>a second reason</li>",
        "420 of about 1000 items read",
        "20 now, 15 on average; 40 allowed (throttled: paused by the operator)",
        "2 running; 5 segments open",
        "1 set aside until",
        "7 s behind; 3 of 9 changes wait, the stream deletes the oldest waiting change in 23 h",
        "rolled back at <time datetime=\"1970-01-01T00:00:00Z\">1970-01-01 00:00:00</time>: at most 4 s",
        "<span class=\"bad\">3</span> of 90 compared items differ (1 cannot be repaired); compared at ",
        "collision: &lt;b&gt;",
        "points=\"0,30 8,20\"",
        "action=\"/migrations/shop%3C1%3E/resume\"",
        "name=\"rate\" type=\"number\" min=\"0\" required value=\"40\"",
        "<code class=\"command\">weir migrate abort shop</code>",
        "After: shop – <span class=\"bad\">the table contains a different item</span>",
        "&lt;i&gt;",
        "ada@build",
        token.as_str(),
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<i>") && !page.contains("style=\""), "{page}");
}

#[test]
fn a_safe_cutover_has_the_time_for_which_writers_are_blocked() {
    let (seconds_max, timeout_seconds, rollback_seconds_max) = (77, 60, 50);
    let blocked = WritersBlocked { seconds_max, timeout_seconds, rollback_seconds_max };
    let cutover = CutoverSafety {
        answer: Safety::Yes,
        sentence: "Yes: writers would be blocked".to_owned(),
        reasons: Vec::new(),
        writers_blocked: Some(blocked),
    };
    let page = html(&View { cutover: Some(cutover), ..view() }, Writes::Refused).into_string();
    let bound = "at most about 77 s with the default <code>--timeout</code> of 60 s, then for up to 50 s more";
    assert!(page.contains(bound), "{page}");
    assert!(!html(&view(), Writes::Refused).into_string().contains("at most about"), "{page}");
}

#[test]
fn a_read_only_page_has_no_token_and_no_enabled_button() {
    let page = html(&view(), Writes::Refused).into_string();
    assert_eq!(page.matches("<button type=\"button\" disabled").count(), 2, "{page}");
    assert!(!page.contains("name=\"token\"") && !page.contains("method=\"post\""), "{page}");
}

#[test]
fn a_wide_item_leaves_the_page_small() {
    let wide: serde_json::Map<String, Value> =
        (0..1_000).map(|at| (format!("attribute{at}"), json!({"S": "\"".repeat(4_000)}))).collect();
    let made = Made { item: Some(json!(wide)), ..view().samples[0].after[0].clone() };
    let sample =
        Sample { before: json!(wide), after: vec![made; 100], ..view().samples[0].clone() };
    let view = View { samples: vec![sample; 12], ..view() };
    let page = html(&view, Writes::Refused).into_string();
    assert!(page.len() < 50 * 1024, "{} bytes", page.len());
    assert!(page.contains("more attributes are in the JSON of this page"), "{page}");
}

#[test]
fn what_is_unknown_is_said() {
    let view = View {
        cutover: None,
        stream: None,
        stream_note: Some("there is no table `x`".to_owned()),
        verified: None,
        last_switch: None,
        samples: Vec::new(),
        samples_problem: Some("gone".to_owned()),
        actions: Vec::new(),
        backfill: Backfill::default(),
        ..view()
    };
    let page = html(&view, Writes::Refused).into_string();
    for part in [
        "ended before it stored the plan",
        "there is no table `x`",
        "never compared",
        "no cut-over or revert has ended",
        "no samples: gone",
        "no command can change it",
        "0 on average; no limit",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(!page.contains("<svg"), "{page}");
}
