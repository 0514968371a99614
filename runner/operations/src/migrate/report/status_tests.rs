//! Tests of the status for different states and store times, on a store in this process.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use control::{
    Comparing, FollowedTable, JournalLine, Lag, Problem, ProblemKind, Route, Side, State, Task,
    Verified, Work,
};
use rules::migration::Phase;
use serde_json::{Value, json};

use crate::migrate::drain::stream_lag::{Watcher, look_limit};
use crate::migrate::plan::plan_file::PlanFile;
use crate::migrate::report::{safety, status, status_line};
use crate::migrate::start::tasks::tests::task;
use crate::migrate::switch::switching_tests::{
    NAME, Served, is_in, plan_with_way_back, serve, set_state, write_down,
};
use client::exit::Exit;

/// A state, and its expected status.
struct Case {
    state: State,
    /// The subcommands that the status suggests.
    offers: &'static [&'static str],
    says: &'static str,
    never_says: &'static str,
    exit: Exit,
}

/// Returns a store with a started migration whose plan has an `inverse`. One of its two segments is
/// read.
async fn begun() -> Served {
    let served = serve().await;
    let control = &served.context.control;
    write_down(&served, &plan_with_way_back()).await;
    for (segment, done) in [(0, true), (1, false)] {
        control.put(&Task { segment, done, ..task(0, Work::Touch) }).await.unwrap();
    }
    served
}

/// Returns the subcommands that a status suggests, the status text, and the exit code.
async fn status_of(served: &Served, case: &Case) -> (Vec<String>, String, Exit) {
    let control = &served.context.control;
    control.put(&case.state).await.unwrap();
    let write = if case.state.held_at.is_some() { Side::None } else { Side::Source };
    control.put(&Route { write, ..Route::new(NAME) }).await.unwrap();
    let limit = look_limit(&served.context.endpoint, None);
    let mut watcher = Watcher::with_limit(limit);
    let status = status::describe(&served.context, NAME, Some(&mut watcher)).await.unwrap();
    let commands = status["next_steps"].as_array().unwrap().iter();
    let commands = commands.map(|step| step["command"].as_str().unwrap());
    let verbs = commands.map(|command| command.strip_prefix("weir migrate ").unwrap().to_owned());
    let (verbs, exit): (Vec<String>, _) = (verbs.collect(), status::exit_of(&status));
    // A cut-over is safe if and only if the status suggests it and reports no obstacle.
    let safety = safety::of_cutover(&plan_with_way_back(), &status);
    let is_suggested =
        case.state.phase == Phase::Ready && verbs.contains(&"cutover move".to_owned());
    let expected = is_suggested && exit == Exit::Done;
    assert_eq!(safety.answer == safety::Safety::Yes, expected, "{safety:?} {status}");
    (verbs, status_line::line(&status), exit)
}

async fn check(cases: &[Case]) {
    let served = begun().await;
    for case in cases {
        let (offers, said, exit) = status_of(&served, case).await;
        assert_eq!(offers, case.offers, "{said}");
        assert!(said.contains(case.says), "{said}");
        assert!(!said.contains(case.never_says), "{said}");
        assert_eq!(exit, case.exit, "{said}");
    }
}

/// Returns two times: a time after the creation of every stream of a test, and a time that is more
/// than a day earlier.
async fn times() -> (i64, i64) {
    let now = serve().await.context.now().await + 30;
    (now, now - 25 * 3600 - 60)
}

fn state(phase: Phase) -> State {
    State { phase, ..State::new(NAME) }
}

/// Returns a state whose last comparison found `differences`.
fn compared(phase: Phase, at: i64, differences: u64) -> State {
    let verified = Some(Verified { run: 1, differences, at, ..Verified::default() });
    State { verified, ..state(phase) }
}

const NOT_NOTED: Option<Comparing> = Some(Comparing { run: 2, since: None });

#[tokio::test]
async fn possibly_trimmed_changes_require_a_comparison() {
    let (now, old) = times().await;
    let back = |back_since| State { back_since, ..state(Phase::CutOver) };
    check(&[
        Case {
            state: compared(Phase::Ready, now, 0),
            offers: &["cutover move"],
            says: "converged 100 %",
            never_says: "too old",
            exit: Exit::Done,
        },
        Case {
            state: compared(Phase::Ready, old, 0),
            offers: &["verify move"],
            says: "last verified: 0 differences, 25 h ago: too old for a cut-over",
            never_says: "converged 100 %",
            exit: Exit::Differences,
        },
        // The result of a later comparison is unknown.
        Case {
            state: State { comparing: NOT_NOTED, ..compared(Phase::Ready, now, 0) },
            offers: &["verify move"],
            says: "0 differences, but a later comparison did not finish",
            never_says: "too old",
            exit: Exit::Differences,
        },
        Case {
            state: State { comparing: NOT_NOTED, ..back(now) },
            offers: &["verify move", "complete move"],
            says: "check again by",
            never_says: "forgotten",
            exit: Exit::Differences,
        },
        Case {
            state: back(now),
            offers: &["revert move", "complete move"],
            says: "check again by",
            never_says: "forgotten",
            exit: Exit::Done,
        },
        // A change has not been copied back.
        Case {
            state: State { back_differences: Some(2), ..back(now) },
            offers: &["verify --repair move", "revert --with-differences move", "complete move"],
            says: "the last comparison found 2 differences",
            never_says: "check again by",
            exit: Exit::Differences,
        },
        Case {
            state: back(old),
            offers: &["verify move", "complete move"],
            says: "streams may have trimmed the records of later writes",
            never_says: "check again by",
            exit: Exit::Done,
        },
    ])
    .await;
}

#[tokio::test]
async fn an_end_that_left_something_undone_is_no_end() {
    let unswept = |phase| State { needs_cleaning: true, ..state(phase) };
    check(&[
        Case {
            state: unswept(Phase::Reverted),
            offers: &["revert move"],
            says: "reverted, but tombstones and marks remain in the sources",
            never_says: "throttled",
            exit: Exit::Differences,
        },
        Case {
            state: state(Phase::Reverted),
            offers: &[],
            says: "reverted  copied",
            never_says: "remain",
            exit: Exit::Done,
        },
        Case {
            state: unswept(Phase::Aborted),
            offers: &["work move"],
            says: "aborted, but marks remain in the sources",
            never_says: "throttled",
            exit: Exit::Differences,
        },
        Case {
            state: state(Phase::Aborted),
            offers: &[],
            says: "aborted  copied",
            never_says: "remain",
            exit: Exit::Failed,
        },
    ])
    .await;
}

#[tokio::test]
async fn no_repair_is_offered_for_what_cannot_be_transformed() {
    let (now, _) = times().await;
    let verified = Verified { run: 1, differences: 2, refused: 2, at: now, ..Verified::default() };
    check(&[Case {
        state: State { verified: Some(verified), ..state(Phase::Tailing) },
        offers: &["verify move", "abort move"],
        says: "last verified: 2 differences",
        never_says: "too old",
        exit: Exit::Differences,
    }])
    .await;
}

#[tokio::test]
async fn offered_steps_fit_the_phase() {
    let (now, _) = times().await;
    let paused = |state| State { paused: true, ..state };
    check(&[
        Case {
            state: state(Phase::Preparing),
            offers: &["start PLAN"],
            says: "preparing",
            never_says: "writers are blocked",
            exit: Exit::Differences,
        },
        Case {
            state: paused(state(Phase::Copying)),
            offers: &["resume move"],
            says: "throttled: paused by the operator",
            never_says: " left",
            exit: Exit::Differences,
        },
        // A pause has no effect, because the backfill is over.
        Case {
            state: paused(compared(Phase::Ready, now, 0)),
            offers: &["cutover move"],
            says: "ready",
            never_says: "paused",
            exit: Exit::Done,
        },
        Case {
            state: paused(state(Phase::Completed)),
            offers: &[],
            says: "completed",
            never_says: "paused",
            exit: Exit::Done,
        },
        Case {
            state: compared(Phase::Tailing, now, 2),
            offers: &["verify --repair move", "abort move"],
            says: "last verified: 2 differences",
            never_says: "too old",
            exit: Exit::Differences,
        },
        Case {
            state: State { held_at: Some(1_000), ..state(Phase::CuttingOver) },
            offers: &["cutover move", "abort move"],
            says: "writers are blocked since 1970-01-01T00:16:40Z",
            never_says: "ready",
            exit: Exit::Differences,
        },
    ])
    .await;
}

/// Moves a migration to a phase, and returns its status; the streams are read for at most `limit`.
async fn looked(served: &Served, phase: &str, limit: Duration) -> Value {
    is_in(&served.context, Phase::from_name(phase).unwrap()).await;
    let mut watcher = Watcher::with_limit(limit);
    status::describe(&served.context, NAME, Some(&mut watcher)).await.unwrap()
}

fn text(text: &str) -> Sdk {
    Sdk::S(text.to_owned())
}

fn offers(status: &Value) -> Vec<&str> {
    let steps = status["next_steps"].as_array().unwrap().iter();
    steps.map(|step| step["command"].as_str().unwrap()).collect()
}

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_running_comparison_is_shown_before_the_first_result() {
    let served = begun().await;
    let control = &served.context.control;
    for (segment, done) in [(0, true), (1, false)] {
        control.put(&Task { segment, done, ..task(1, Work::CheckSource) }).await.unwrap();
    }
    let status = looked(&served, "tailing", LONG).await;
    assert_eq!(status["compared_now"], true, "{status}");
    assert_eq!(status["comparison"], json!({ "segments": 2, "done": 1, "read": 0 }));
    assert_eq!(offers(&status), ["weir migrate resume move"]);
}

#[tokio::test]
async fn an_incomplete_read_of_the_streams_is_reported() {
    let served = begun().await;
    let status = looked(&served, "tailing", Duration::ZERO).await;
    assert_eq!((&status["stream"], &status["stream_unread_seconds"]), (&Value::Null, &json!(0)));
    let said = status_line::line(&status);
    assert!(said.contains("could not be read completely in 0 s"), "{said}");
    let exit = async |limit| {
        let (now, _) = times().await;
        let verified = compared(Phase::Ready, now, 0).verified;
        set_state(&served.context, |state| state.verified = verified).await;
        status::exit_of(&looked(&served, "ready", limit).await)
    };
    // Unread records may block a cut-over.
    assert_eq!(exit(Duration::ZERO).await, Exit::Differences);
    assert_eq!(exit(LONG).await, Exit::Done);
    // Unread records or documents may block a revert too.
    for (limit, expected) in [(Duration::ZERO, Exit::Differences), (LONG, Exit::Done)] {
        let (now, _) = times().await;
        set_state(&served.context, |state| state.back_since = now).await;
        let status = looked(&served, "cut-over", limit).await;
        assert_eq!(status::exit_of(&status), expected, "{status}");
    }
    let status = looked(&served, "tailing", LONG).await;
    assert_eq!(status["stream_unread_seconds"], Value::Null);
    assert!(status["stream"].is_object(), "{status}");
}

#[tokio::test]
async fn long_waiting_changes_without_progress_are_not_followed() {
    let served = begun().await;
    let put = served.context.control.client.put_item().table_name("cats").item("p", text("k"));
    put.send().await.unwrap();
    let moved = json!({ "advance_ms": 60_000 });
    let clock = client::endpoint::admin(http::Method::POST, &served.store.url, "clock", &moved);
    clock.await.unwrap();
    let status = looked(&served, "tailing", LONG).await;
    let stream = &status["stream"];
    assert_eq!((&stream["late"], &stream["followed"]), (&json!("cats"), &json!(false)), "{status}");
    assert_eq!(
        (&stream["unfollowed"], offers(&status)[0]),
        (&json!("cats"), "weir migrate work move")
    );
    let noted = client::server_date::seconds(&served.context.control.client).await.unwrap();
    // The function receives records that are already applied, and reports that it reads the stream
    // and does not lag behind.
    let follow = async |at: i64| {
        let (table, at) = ("cats".to_owned(), u64::try_from(at).unwrap());
        served.context.control.put(&FollowedTable { table, at }).await.unwrap();
        let status = looked(&served, "tailing", LONG).await;
        (status["stream"]["followed"].clone(), status["stream"]["unfollowed"].clone())
    };
    assert_eq!(follow(noted).await, (json!(true), Value::Null));
    assert_eq!(follow(noted - 3_600).await, (json!(false), json!("cats")));
    // The function reports that it reads the stream and lags behind.
    let (table, at) = ("cats".to_owned(), u64::try_from(noted).unwrap());
    served.context.control.put(&Lag { table, seconds: 61, at }).await.unwrap();
    let status = looked(&served, "tailing", LONG).await;
    assert_eq!(status["stream"]["unfollowed"], Value::Null, "{status}");
    assert_eq!(offers(&status), ["weir migrate verify move"]);
    let said = status_line::line(&status);
    assert!(said.contains("s behind, but its changes are being applied"), "{said}");
}

#[tokio::test]
async fn a_missing_table_hides_nothing_else() {
    let served = begun().await;
    served.context.control.client.delete_table().table_name("pets").send().await.unwrap();
    let status = looked(&served, "ready", LONG).await;
    assert_eq!((&status["phase"], &status["backfill"]["tasks"]), (&json!("ready"), &json!(2)));
    let said = status_line::line(&status);
    assert!(said.contains("the streams cannot be read: ") && said.contains("`pets`"), "{said}");
    assert_eq!(offers(&status), ["weir migrate abort move"]);
    assert_eq!(status::exit_of(&status), Exit::Differences);
}

#[tokio::test]
async fn a_running_start_is_left_alone() {
    let served = begun().await;
    let heard = |ago: i64| {
        let served = &served;
        async move {
            let (migration, at) = (NAME.to_owned(), served.context.now().await - ago);
            let (from, to) = (Phase::None, Phase::Preparing);
            let (why, by) = (String::new(), String::new());
            let line = JournalLine { migration, line: 1, from, to, why, at, by };
            served.context.control.put(&line).await.unwrap();
            looked(served, "preparing", LONG).await
        }
    };
    assert_eq!(offers(&heard(5).await), ["weir migrate wait move"]);
    let status = heard(500).await;
    assert_eq!(offers(&status), ["weir migrate start PLAN"]);
    assert!(status["preparing_seconds"].as_i64() >= Some(500), "{status}");
}

#[tokio::test]
async fn a_document_that_cannot_go_back_is_in_the_way_of_a_way_back() {
    let served = serve().await;
    served.store.table_of("parts", "pk", "sk").await;
    let plan = PlanFile::read(
        "plan.yaml",
        "migration: move\nkind: split\nfrom:\n  - table: cats\n    to: parts\n    key: {pk: 'CAT#{p}'}\n    parts: [{name: PLOT, path: plot}]\n",
    );
    write_down(&served, &plan.unwrap_or_else(|errors| panic!("{errors}")).plan).await;
    let put = |sk: &str, attribute: &str| {
        let put = served.context.control.client.put_item().table_name("parts");
        put.item("pk", text("CAT#1")).item("sk", text(sk)).item(attribute, text("1")).send()
    };
    put("PLOT", "plot").await.unwrap();
    let note = Problem {
        migration: NAME.to_owned(),
        kind: ProblemKind::Unassembled,
        table: "parts".to_owned(),
        key: r#"{"pk":{"S":"CAT#1"}}"#.to_owned(),
        reason: String::new(),
        at: None,
    };
    served.context.control.put(&note).await.unwrap();
    let now = served.context.now().await;
    set_state(&served.context, |state| state.back_since = now).await;

    // Without a read, it is unknown whether the document can be assembled.
    let status = looked(&served, "cut-over", Duration::ZERO).await;
    let unread = [&status["documents_unread_seconds"], &status["hopeless"]];
    assert_eq!(unread, [&json!(0), &Value::Null], "{status}");
    assert_eq!(status::exit_of(&status), Exit::Differences);
    let status = looked(&served, "cut-over", LONG).await;
    assert_eq!(status["documents_unread_seconds"], Value::Null);
    let hopeless = status["hopeless"].as_str().unwrap();
    assert!(
        hopeless.starts_with("a document cannot be reassembled for a revert: parts"),
        "{status}"
    );
    assert_eq!(offers(&status), ["weir migrate verify move", "weir migrate complete move"]);
    assert_eq!(status::exit_of(&status), Exit::Differences);
    assert_eq!(status["problems"], json!({ "unassembled": 1 }));
    // The operator corrects the part.
    put("PROFILE", "p").await.unwrap();
    let status = looked(&served, "cut-over", LONG).await;
    assert_eq!(status["hopeless"], Value::Null, "{status}");
    assert_eq!(offers(&status), ["weir migrate revert move", "weir migrate complete move"]);
    assert_eq!(status["problems"], json!({}));
    assert_eq!(status["problems_solved"], json!({ "unassembled": 1 }));
}
