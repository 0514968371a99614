//! What the verbs of a migration do when the store fails for a moment, or its answer does not come, and
//! where a comparison meets a switch, on a store in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use bytes::Bytes;
use clap::{Args as _, FromArgMatches as _};
use futures::FutureExt as _;
use http::{Method, Response};
use http_body_util::Full;
use rules::migration::{Phase, note_of};
use serde_json::json;
use tokio::sync::Barrier;

use super::beginning::begin;
use super::control::{Entry, Expect, Move, flag, n, phase_of, s, text};
use super::cutover::{CutoverArguments, RevertArguments, SwitchArguments, cutover, revert};
use super::held::{CUTOVER, Hold};
use super::switching_tests::{
    NAME, Served, plan, plan_in_place, plan_with_way_back, serve, write_down,
};
use super::tasks::{Work, make_tasks};
use super::{Context, comparing, in_place, problems, report, start, sweep, verify, waiting};
use client::endpoint;
use client::exit::Exit;
use client::output::Output;
use testing::proxy::{self, Fails, cancelled, refusal};

/// A context whose store fails: so many of the next requests of an operation as are set are answered
/// like this.
async fn failing(
    served: &Served,
    operation: &'static str,
    answer: Fails,
) -> (Context, Arc<AtomicU32>) {
    let left = Arc::new(AtomicU32::new(0));
    let of_script = Arc::clone(&left);
    let script = move |asked: &str, _: &str| {
        let take = |left: u32| left.checked_sub(1);
        let order = Ordering::SeqCst;
        let fails = asked == operation && of_script.fetch_update(order, order, take).is_ok();
        futures::future::ready(fails.then(answer).flatten()).boxed()
    };
    let url = proxy::before(&served.context.endpoint, script).await;
    (Context::new(&url, "weir-migrations", Output::Table), left)
}

/// Brings a migration to a phase.
async fn is_in(context: &Context, phase: Phase) {
    let expect = Expect::phases(&Phase::ALL);
    let step = Move { expect, to: Some(phase), why: "", now: 1 };
    context.control.to_phase(NAME, step, |_| ()).await.unwrap();
}

async fn phase(served: &Served) -> Phase {
    phase_of(&served.context.state(NAME).await.unwrap())
}

#[tokio::test]
async fn what_is_throttled_or_meets_a_transaction_is_written_again() {
    let served = serve().await;
    let cases: [(&str, Fails); 4] = [
        ("TransactWriteItems", || cancelled(&["None", "ThrottlingError"])),
        ("TransactWriteItems", || cancelled(&["ProvisionedThroughputExceeded", "None"])),
        ("TransactWriteItems", || cancelled(&["TransactionConflict", "None"])),
        ("PutItem", || refusal(400, "TransactionConflictException")),
    ];
    for (operation, answer) in cases {
        let (context, left) = failing(&served, operation, answer).await;
        left.store(3, Ordering::SeqCst);
        is_in(&context, Phase::Tailing).await;
        let expect = Expect::phases(&[Phase::Tailing]);
        context.control.route(NAME, expect, "source", "source").await.unwrap();
        let touched = |entry: &mut Entry| entry.insert("v".to_owned(), s("1")).is_none();
        context.control.change(NAME, operation, touched).await.unwrap();
        assert_eq!(left.load(Ordering::SeqCst), 0, "{operation}");
    }
    let (context, left) = failing(&served, "TransactWriteItems", || cancelled(&["Other"])).await;
    left.store(1, Ordering::SeqCst);
    let step =
        Move { expect: Expect::phases(&[Phase::Tailing]), to: Some(Phase::Ready), why: "", now: 1 };
    let problem = context.control.to_phase(NAME, step, |_| ()).await.unwrap_err();
    assert!(problem.contains("cannot be written: Other"), "{problem}");
}

#[tokio::test]
async fn a_switch_that_is_not_decided_in_time_is_put_back() {
    let served = serve().await;
    let context = &served.context;
    is_in(context, Phase::Ready).await;
    let hold = Hold::take(context, NAME, CUTOVER, "f", 7).await.unwrap();
    let never = std::future::pending::<Result<Result<(), Exit>, String>>();
    assert_eq!(hold.decide(Duration::ZERO, never).await, Ok(Err(Exit::TimedOut)));
    assert_eq!(phase(&served).await, Phase::Ready);
    let route = context.control.get(NAME, "ROUTE").await.unwrap().unwrap();
    assert_eq!(text(&route, "write"), Some("source"));
    let attempt = context.control.client.config().timeout_config();
    assert!(attempt.and_then(|limits| limits.operation_attempt_timeout()).is_some());
}

#[tokio::test]
async fn a_switch_whose_decision_was_written_goes_on_although_nobody_was_told() {
    let served = serve().await;
    let context = &served.context;
    is_in(context, Phase::Ready).await;
    let hold = Hold::take(context, NAME, CUTOVER, "f", 7).await.unwrap();
    let ended = hold.decide(Duration::from_secs(600), async {
        let decide = Move { expect: hold.expect(), to: Some(CUTOVER.decided), why: "", now: 1 };
        context.control.to_phase(NAME, decide, |_| ()).await?;
        Err::<Result<(), Exit>, _>("the answer did not come".to_owned())
    });
    assert_eq!(ended.await, Ok(Ok(None)));
    assert_eq!(phase(&served).await, Phase::Turning);
}

#[tokio::test]
async fn writers_are_let_go_although_the_store_fails_meanwhile() {
    let served = serve().await;
    let refuses = || refusal(400, "AccessDeniedException");
    let (context, left) = failing(&served, "TransactWriteItems", refuses).await;
    is_in(&context, Phase::Ready).await;
    let hold = Hold::take(&context, NAME, CUTOVER, "f", 7).await.unwrap();
    let ended = hold.decide(Duration::from_secs(600), async {
        hold.close(0).await?;
        left.store(2, Ordering::SeqCst);
        Err::<Result<(), Exit>, _>("no".to_owned())
    });
    let problem = ended.await.unwrap_err();
    assert_eq!(problem, "no; everything is as it was: readers and writers use the sources");
    assert_eq!(phase(&served).await, Phase::Ready);
}

#[tokio::test]
async fn a_switch_that_was_taken_goes_on_although_nobody_was_told() {
    let served = serve().await;
    is_in(&served.context, Phase::Ready).await;
    for is_written in [true, false] {
        // The first request is lost on its way here or back, and so are those after it for a while.
        let control = served.context.control.clone();
        let (lost, other) = (Arc::new(AtomicU32::new(0)), !is_written);
        let script = move |operation: &str, body: &str| {
            let is_claim = operation == "TransactWriteItems" && body.contains("cutting-over");
            let is_first = is_claim && lost.fetch_add(1, Ordering::SeqCst) == 0;
            let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
            let holder = body["TransactItems"][0]["Put"]["Item"]["holder"]["S"].clone();
            let control = control.clone();
            async move {
                if is_first {
                    let holder = if other { "other" } else { holder.as_str().unwrap() };
                    let to = Some(Phase::CuttingOver);
                    let expect = Expect::phases(&[Phase::Ready]);
                    let claim = Move { expect, to, why: "", now: 1 };
                    let also = |state: &mut Entry| {
                        state.insert("holder".to_owned(), s(holder));
                    };
                    control.to_phase(NAME, claim, also).await.unwrap();
                }
                is_claim.then(proxy::hang_up).flatten()
            }
            .boxed()
        };
        let url = proxy::before(&served.context.endpoint, script).await;
        let context = Context::new(&url, "weir-migrations", Output::Table);
        let taken = Hold::take(&context, NAME, CUTOVER, "f", 7).await;
        let state = served.context.state(NAME).await.unwrap();
        assert_eq!(phase_of(&state), Phase::CuttingOver);
        match taken {
            Ok(hold) => {
                assert!(is_written);
                assert_eq!(hold.expect().broken_by(NAME, &state), None, "it is held by this one");
            }
            Err(problem) => assert!(!is_written && problem.contains("took over"), "{problem}"),
        }
        is_in(&served.context, Phase::Ready).await;
        let free = |state: &mut Entry| state.remove("holder").is_some();
        served.context.control.change(NAME, "STATE", free).await.unwrap();
    }
}

/// Goal: a way back in place whose claim was written and not answered is carried out by whoever made it.
#[tokio::test]
async fn items_are_changed_back_although_nobody_was_told_that_it_was_taken() {
    let served = serve().await;
    let plan = plan_in_place(NAME);
    begin(&served.context, &plan, 0).await.unwrap();
    is_in(&served.context, Phase::CutOver).await;
    let (control, claims) = (served.context.control.clone(), Arc::new(AtomicU32::new(0)));
    let script = move |operation: &str, body: &str| {
        let is_claim = operation == "TransactWriteItems" && body.contains("reverting");
        let is_first = is_claim && claims.fetch_add(1, Ordering::SeqCst) == 0;
        let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let holder = body["TransactItems"][0]["Put"]["Item"]["holder"]["S"].clone();
        let control = control.clone();
        async move {
            if is_first {
                let expect = Expect::phases(&[Phase::CutOver]);
                let claim = Move { expect, to: Some(Phase::Reverting), why: "", now: 1 };
                let also = |state: &mut Entry| {
                    state.insert("holder".to_owned(), s(holder.as_str().unwrap()));
                };
                control.to_phase(NAME, claim, also).await.unwrap();
            }
            is_claim.then(proxy::hang_up).flatten()
        }
        .boxed()
    };
    let url = proxy::before(&served.context.endpoint, script).await;
    let context = Context::new(&url, "weir-migrations", Output::Table);
    let arguments = SwitchArguments { name: NAME.to_owned(), timeout: 0, dry_run: false };
    let (_, fingerprint) = context.plan(NAME).await.unwrap();
    let ended = in_place::revert(&context, NAME, &plan, &fingerprint, &arguments).await;
    assert_eq!(ended, Ok(Exit::TimedOut), "no worker is there");
    let tasks = context.control.entries(NAME, "TASK#1#backfill#cats#").await.unwrap();
    assert_eq!((phase(&served).await, tasks.len()), (Phase::Reverting, 1));
}

#[tokio::test]
async fn no_task_of_a_comparison_is_made_once_somebody_cuts_over() {
    let served = serve().await;
    let context = &served.context;
    let mut plan = plan();
    plan.segments = 120;
    let work = Work { run: 1, work: "check-source", repairs: true, direction: "forward" };
    let expect = Expect::phases(&verify::COMPARED);
    is_in(context, Phase::CuttingOver).await;
    let problem = make_tasks(context, &plan, "f", work, "cats", expect).await.unwrap_err();
    assert!(problem.contains("it is cutting-over now"), "{problem}");
    assert!(context.control.entries(NAME, "TASK#").await.unwrap().is_empty());

    is_in(context, Phase::Ready).await;
    let some = "TASK#1#check-source#cats#0007";
    let done = |task: &mut Entry| task.insert("done".to_owned(), Sdk::Bool(true)).is_none();
    context.control.change(NAME, some, done).await.unwrap();
    make_tasks(context, &plan, "f", work, "cats", expect).await.unwrap();
    let tasks = context.control.entries(NAME, "TASK#1#check-source#cats#").await.unwrap();
    assert_eq!(tasks.len(), 120);
    let left: Vec<_> = tasks.iter().filter(|task| flag(task, "done")).collect();
    assert_eq!(left.iter().filter_map(|task| text(task, "entry")).collect::<Vec<_>>(), [some]);
}

/// A ready migration with a way back, whose last comparison was just now; one task of another is open.
async fn compared() -> Served {
    let served = serve().await;
    let (control, plan) = (&served.context.control, plan_with_way_back());
    write_down(&served, &plan).await;
    let now = u64::try_from(served.context.now().await).unwrap();
    let ready =
        Move { expect: Expect::phases(&[Phase::None]), to: Some(Phase::Ready), why: "", now: 1 };
    let compared = |state: &mut Entry| {
        for (name, value) in [("verified_run", 1), ("run", 1), ("verified_at", now), ("since", now)]
        {
            state.insert(name.to_owned(), n(value));
        }
    };
    control.to_phase(NAME, ready, compared).await.unwrap();
    let work = Work { run: 1, work: "check-source", repairs: true, direction: "forward" };
    let expect = Expect::phases(&[Phase::Ready]);
    make_tasks(&served.context, &plan, "f", work, "cats", expect).await.unwrap();
    served
}

#[tokio::test]
async fn a_cutover_that_a_comparison_is_in_the_way_of_holds_nobody_up() {
    let served = compared().await;
    let context = &served.context;
    let command = CutoverArguments::augment_args(clap::Command::new("cutover"));
    let matches = command.try_get_matches_from(["cutover", NAME]).unwrap();
    let arguments = CutoverArguments::from_arg_matches(&matches).unwrap();
    assert_eq!(cutover(context, &arguments).await, Ok(Exit::Refused));
    let journal = context.control.entries(NAME, "JOURNAL#").await.unwrap();
    let phases: Vec<_> = journal.iter().filter_map(|line| text(line, "to")).collect();
    assert_eq!(phases, ["ready"], "nobody took it");

    let status = report::describe(context, NAME, None).await.unwrap();
    assert_eq!(status["next_steps"][0]["command"], "weir migrate resume move", "{status}");
    assert_eq!(status["next_steps"].as_array().unwrap().len(), 1, "{status}");
}

/// Goal: who takes a way back over asks again for what stands in its way, unless the one before had
/// been let through, and held writers up.
#[tokio::test]
async fn a_way_back_that_waited_for_leave_is_asked_again() {
    let served = serve().await;
    let context = &served.context;
    write_down(&served, &plan_with_way_back()).await;
    let now = u64::try_from(context.now().await).unwrap();
    let expect = Expect::phases(&[Phase::None]);
    let reverting = Move { expect, to: Some(Phase::Reverting), why: "", now: 1 };
    let differs = |state: &mut Entry| {
        state.insert("holder".to_owned(), s("dead"));
        state.extend(
            [("back_since", now), ("back_differences", 2)].map(|(m, v)| (m.to_owned(), n(v))),
        );
    };
    context.control.to_phase(NAME, reverting, differs).await.unwrap();
    let command = RevertArguments::augment_args(clap::Command::new("revert"));
    let matches = command.try_get_matches_from(["revert", NAME]).unwrap();
    let arguments = RevertArguments::from_arg_matches(&matches).unwrap();
    assert_eq!(revert(context, &arguments).await, Ok(Exit::Refused));
    assert_eq!(phase_of(&context.state(NAME).await.unwrap()), Phase::CutOver);
}

/// Goal: what a comparison found that nobody noted is not taken for what an earlier one found.
#[tokio::test]
async fn a_comparison_whose_verb_died_is_made_again_before_a_switch() {
    let served = compared().await;
    let context = &served.context;
    let expect = Expect::phases(&[Phase::Ready]);
    let run = start::begin_run(context, NAME, expect, comparing::begin).await.unwrap();
    // Workers came to the end of it; whoever asked for it did not hear that.
    for task in context.control.entries(NAME, "TASK#").await.unwrap() {
        let done = |task: &mut Entry| task.insert("done".to_owned(), Sdk::Bool(true)).is_none();
        let entry = text(&task, "entry").unwrap();
        context.control.change(NAME, entry, done).await.unwrap();
    }
    let refuses = |may_differ| comparing::compares(context, NAME, Phase::Ready, may_differ);
    assert_eq!((refuses(false).await, refuses(true).await), (Ok(true), Ok(false)));
    let noted = |state: &mut Entry| {
        comparing::end(state, run);
        true
    };
    context.control.change_state(NAME, expect, noted).await.unwrap();
    assert_eq!(refuses(false).await, Ok(false));
}

#[tokio::test]
async fn a_way_back_with_differences_is_refused_unless_that_is_meant() {
    let served = serve().await;
    let context = &served.context;
    write_down(&served, &plan_with_way_back()).await;
    let now = u64::try_from(context.now().await).unwrap();
    let expect = Expect::phases(&[Phase::None]);
    let cut_over = Move { expect, to: Some(Phase::CutOver), why: "", now: 1 };
    let differs = |state: &mut Entry| {
        state.extend(
            [("back_since", now), ("back_differences", 2)].map(|(m, v)| (m.to_owned(), n(v))),
        );
    };
    context.control.to_phase(NAME, cut_over, differs).await.unwrap();
    for (flags, expected) in [
        (&["--dry-run"][..], Exit::Refused),
        (&[], Exit::Refused),
        (&["--dry-run", "--with-differences"], Exit::Done),
    ] {
        let command = RevertArguments::augment_args(clap::Command::new("revert"));
        let words = ["revert", NAME].iter().chain(flags);
        let matches = command.try_get_matches_from(words).unwrap();
        let arguments = RevertArguments::from_arg_matches(&matches).unwrap();
        assert_eq!(revert(context, &arguments).await, Ok(expected), "{flags:?}");
    }
    assert_eq!(phase(&served).await, Phase::CutOver);
}

#[tokio::test]
async fn who_only_looks_goes_on_when_a_look_fails() {
    let served = compared().await;
    let done = |task: &mut Entry| task.insert("done".to_owned(), Sdk::Bool(true)).is_some();
    served.context.control.change(NAME, "TASK#1#check-source#cats#0000", done).await.unwrap();
    let refuses = || refusal(400, "AccessDeniedException");
    let (context, left) = failing(&served, "Query", refuses).await;
    left.store(2, Ordering::SeqCst);
    let found = verify::finished(&context, NAME, 1, Duration::from_secs(600)).await.unwrap();
    assert!(found.unwrap().is_done());
    left.store(1, Ordering::SeqCst);
    waiting::until(&context, NAME, &["ready"]).await.unwrap();
    left.store(1, Ordering::SeqCst);
    let problem = waiting::wait(&context, NAME, "ready", 600).await.unwrap_err();
    assert!(problem.contains("AccessDenied"), "there may be nothing to wait for: {problem}");
}

#[tokio::test]
async fn a_comparison_that_finds_nothing_removes_the_problems_from_before_it() {
    let served = compared().await;
    let (context, control) = (&served.context, &served.context.control);
    let later = u64::try_from(context.now().await).unwrap() + 3600;
    for (entry, at) in [("PROBLEM#foreign#pets#0", None), ("PROBLEM#refused#pets#1", Some(7))]
        .into_iter()
        .chain([("PROBLEM#collision#pets#2", Some(later)), ("PROBLEM#unassembled#pets#3", Some(7))])
    {
        let note = |entry: &mut Entry| {
            entry.extend(at.map(|at| ("at".to_owned(), n(at))));
            true
        };
        control.change(NAME, entry, note).await.unwrap();
    }
    problems::forget(context, NAME, 9).await.unwrap();
    let left = async || {
        let notes = control.entries(NAME, "PROBLEM#").await.unwrap();
        notes.iter().filter_map(|note| text(note, "entry").map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(left().await.len(), 3, "a note may be some seconds too early");

    let work = async {
        for task in ["TASK#2#check-source#cats#0000", "TASK#2#check-target#pets#0000"] {
            while control.get(NAME, task).await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let done = |task: &mut Entry| task.insert("done".to_owned(), Sdk::Bool(true)).is_some();
            control.change(NAME, task, done).await.unwrap();
        }
    };
    let limit = Duration::from_secs(600);
    let (found, ()) = tokio::join!(verify::compare(context, NAME, false, limit), work);
    assert!(found.unwrap().is_some());
    assert_eq!(left().await, ["PROBLEM#collision#pets#2", "PROBLEM#unassembled#pets#3"]);
}

#[tokio::test]
async fn tombstones_are_removed_many_at_the_same_time() {
    const TOGETHER: usize = 8;
    let served = serve().await;
    let client = &served.context.control.client;
    let key = |number: usize| format!(r#"{{"p":{{"S":"{number}"}}}}"#);
    let (bucket, _) = note_of(NAME, "pets", &key(0));
    let in_bucket = (0..).filter(|number| note_of(NAME, "pets", &key(*number)).0 == bucket);
    let stamp = format!("/{}", "0".repeat(40));
    for number in in_bucket.take(TOGETHER) {
        let (_, entry) = note_of(NAME, "pets", &key(number));
        let note = client.put_item().table_name("weir-migrations").item("migration", s(&bucket));
        let note = note.item("entry", s(&entry)).item("table", s("pets"));
        note.item("key", s(&key(number))).item("at", s(&stamp)).send().await.unwrap();
        let mark = [("from", s("cats|x")), ("at", s(&stamp)), ("gone", Sdk::Bool(true))];
        let mark = Sdk::M(mark.map(|(name, value)| (name.to_owned(), value)).into());
        let put = client.put_item().table_name("pets").item("p", s(&number.to_string()));
        put.item("_weir", mark).send().await.unwrap();
    }
    // No look at a tombstone ends before all of them are under way.
    let barrier = Arc::new(Barrier::new(TOGETHER));
    let script = move |operation: &str, body: &str| {
        let barrier = Arc::clone(&barrier);
        let waits = operation == "GetItem" && body.contains("\"pets\"");
        async move {
            if waits {
                barrier.wait().await;
            }
            None
        }
        .boxed()
    };
    let url = proxy::before(&served.context.endpoint, script).await;
    let context = Context::new(&url, "weir-migrations", Output::Table);
    assert_eq!(sweep::sweep(&context, NAME, Duration::ZERO).await, Ok(None), "there is no time");
    let limit = Duration::from_secs(120);
    let swept = tokio::time::timeout(limit, sweep::sweep(&context, NAME, limit)).await;
    assert_eq!(swept.unwrap(), Ok(Some(8)));
    assert!(context.control.entries(&bucket, "TOMBSTONE#").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_time_of_a_switch_is_that_of_the_store() {
    let served = serve().await;
    let script = |operation: &str, _: &str| {
        let body = Full::new(Bytes::from(json!({}).to_string()));
        let answer = Response::builder().header("date", "Sat, 01 Jan 2022 00:00:00 GMT").body(body);
        // It has no clock to ask.
        let is_asked = operation == "ListTables" || operation.is_empty();
        futures::future::ready(is_asked.then(|| answer.unwrap())).boxed()
    };
    let url = proxy::before(&served.context.endpoint, script).await;
    let context = Context::new(&url, "weir-migrations", Output::Table);
    assert_eq!(sweep::real_seconds(&context).await, 1_640_995_200);
}

/// Goal: whoever lets a day pass in a local store does not end invocations that still live.
#[tokio::test]
async fn invocations_live_by_the_time_of_this_machine_where_the_store_has_its_own() {
    let served = serve().await;
    let context = &served.context;
    let moved = json!({ "advance_ms": 3_600_000 });
    endpoint::admin(Method::POST, &context.endpoint, "clock", &moved).await.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(u64::try_from(context.now().await).unwrap() > now + 3_000);
    assert!(sweep::real_seconds(context).await < now + 1_000);
}
