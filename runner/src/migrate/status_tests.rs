//! What a status says of a migration by its state and the store's time, on a store in this process.

use aws_sdk_dynamodb::types::AttributeValue as Sdk;

use super::control::{n, s};
use super::following::Watcher;
use super::held::HELD_AT;
use super::switching_tests::{NAME, Served, plan_with_way_back, serve, write_down};
use super::{report, status_line, true_value};
use crate::exit::Exit;

/// A state, and what is said of it.
struct Case {
    phase: &'static str,
    members: Vec<(&'static str, Sdk)>,
    /// The verbs that are offered.
    offers: &'static [&'static str],
    says: &'static str,
    never_says: &'static str,
    exit: Exit,
}

/// A store with a plan that has a way back; one of two segments is read.
async fn begun() -> Served {
    let served = serve().await;
    let control = &served.context.control;
    write_down(&served, &plan_with_way_back()).await;
    for (task, is_done) in [("TASK#0#touch#cats#0000", true), ("TASK#0#touch#cats#0001", false)] {
        let with_task = |entry: &mut super::Entry| {
            entry.insert("done".to_owned(), Sdk::Bool(is_done));
            true
        };
        control.change(NAME, task, with_task).await.unwrap();
    }
    served
}

/// The verbs that a status offers, what it says, and its exit code.
async fn status_of(served: &Served, case: &Case) -> (Vec<String>, String, Exit) {
    let control = &served.context.control;
    let change = |state: &mut super::Entry| {
        state.retain(|name, _| ["migration", "entry", "revision"].contains(&name.as_str()));
        state.insert("phase".to_owned(), s(case.phase));
        for (name, value) in &case.members {
            state.insert((*name).to_owned(), value.clone());
        }
        true
    };
    control.change(NAME, "STATE", change).await.unwrap();
    let is_held = case.members.iter().any(|(name, _)| *name == HELD_AT);
    let route = |route: &mut super::Entry| {
        route.insert("write".to_owned(), s(if is_held { "none" } else { "source" }));
        true
    };
    control.change(NAME, "ROUTE", route).await.unwrap();
    let mut watcher = Watcher::default();
    let status = report::describe(&served.context, NAME, Some(&mut watcher)).await.unwrap();
    let commands = status["next_steps"].as_array().unwrap().iter();
    let commands = commands.map(|step| step["command"].as_str().unwrap());
    let verbs = commands.map(|command| command.strip_prefix("weir migrate ").unwrap().to_owned());
    (verbs.collect(), status_line::line(&status), report::exit_of(&status))
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

/// Behind the making of every stream of a test, and more than a day ago.
async fn times() -> (u64, u64) {
    let served = serve().await;
    let now = u64::try_from(served.context.now().await).unwrap() + 30;
    (now, now - 25 * 3600 - 60)
}

#[tokio::test]
async fn what_may_be_forgotten_is_to_be_compared_before_anything_rests_on_it() {
    let (now, old) = times().await;
    let compared = |at| vec![("verified_run", n(1)), ("verified_at", n(at))];
    check(&[
        Case {
            phase: "ready",
            members: compared(now),
            offers: &["cutover move"],
            says: "converged 100 %",
            never_says: "too old",
            exit: Exit::Done,
        },
        Case {
            phase: "ready",
            members: compared(old),
            offers: &["verify move"],
            says: "last verified: 0 differences, 25 h ago: too old for a cut-over",
            never_says: "converged 100 %",
            exit: Exit::Differences,
        },
        Case {
            phase: "cut-over",
            members: vec![("back_since", n(now))],
            offers: &["revert move", "complete move"],
            says: "look again by",
            never_says: "forgotten",
            exit: Exit::Done,
        },
        Case {
            phase: "cut-over",
            members: vec![("back_since", n(old))],
            offers: &["verify move", "complete move"],
            says: "streams may have forgotten some",
            never_says: "look again by",
            exit: Exit::Done,
        },
    ])
    .await;
}

#[tokio::test]
async fn an_end_that_left_something_undone_is_no_end() {
    let unswept = || vec![("unswept", true_value())];
    check(&[
        Case {
            phase: "reverted",
            members: unswept(),
            offers: &["revert move"],
            says: "reverted, but tombstones and marks still stand in the sources",
            never_says: "throttled",
            exit: Exit::Differences,
        },
        Case {
            phase: "reverted",
            members: Vec::new(),
            offers: &[],
            says: "reverted  copied",
            never_says: "still stand",
            exit: Exit::Done,
        },
        Case {
            phase: "aborted",
            members: unswept(),
            offers: &["work move"],
            says: "aborted, but marks still stand in the sources",
            never_says: "throttled",
            exit: Exit::Differences,
        },
        Case {
            phase: "aborted",
            members: Vec::new(),
            offers: &[],
            says: "aborted  copied",
            never_says: "still stand",
            exit: Exit::Failed,
        },
    ])
    .await;
}

#[tokio::test]
async fn what_is_offered_fits_the_phase() {
    let (now, _) = times().await;
    let paused = || ("paused", true_value());
    check(&[
        Case {
            phase: "preparing",
            members: Vec::new(),
            offers: &["start PLAN"],
            says: "preparing",
            never_says: "held up",
            exit: Exit::Differences,
        },
        Case {
            phase: "copying",
            members: vec![paused()],
            offers: &["resume move"],
            says: "throttled: paused by a person",
            never_says: " left",
            exit: Exit::Differences,
        },
        // A pause is of the backfill, which is over.
        Case {
            phase: "ready",
            members: vec![paused(), ("verified_run", n(1)), ("verified_at", n(now))],
            offers: &["cutover move"],
            says: "ready",
            never_says: "paused",
            exit: Exit::Done,
        },
        Case {
            phase: "completed",
            members: vec![paused()],
            offers: &[],
            says: "completed",
            never_says: "paused",
            exit: Exit::Done,
        },
        Case {
            phase: "tailing",
            members: vec![
                ("verified_run", n(1)),
                ("verified_at", n(now)),
                ("verified_differences", n(2)),
            ],
            offers: &["verify --repair move", "abort move"],
            says: "last verified: 2 differences",
            never_says: "too old",
            exit: Exit::Differences,
        },
        Case {
            phase: "cutting-over",
            members: vec![(HELD_AT, n(1_000))],
            offers: &["cutover move", "abort move"],
            says: "writers are held up since 1970-01-01T00:16:40Z",
            never_says: "ready",
            exit: Exit::Differences,
        },
    ])
    .await;
}
