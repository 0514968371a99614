//! Tests of migrations on a store in this process: requests that fail or get no response, and
//! comparisons that run at the same time as a switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use bytes::Bytes;
use clap::{Args as _, FromArgMatches as _};
use control::{
    Entry as _, Expect, JournalLine, Move, Problem, ProblemKind, Side, State, Switch, Task,
    Tombstone, Verified, Work,
};
use futures::FutureExt as _;
use http::{Method, Response};
use http_body_util::Full;
use rules::migration::Phase;
use rules::migration::plan::Direction;
use serde_json::json;
use tokio::sync::Barrier;

use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::failure::Failure;
use crate::migrate::report::{problems, status, wait};
use crate::migrate::start::begin::begin;
use crate::migrate::start::tasks;
use crate::migrate::start::tasks::tests::task;
use crate::migrate::start::tasks::{Run, make_tasks};
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::claim::{Claim, RollbackResult};
use crate::migrate::switch::cutover::{CutoverArguments, cutover};
use crate::migrate::switch::revert::{RevertArguments, revert};
use crate::migrate::switch::switching_tests::{
    NAME, Served, claimed, followed, is_in, plan, plan_in_place, plan_with_way_back, serve,
    set_state, write_down,
};
use crate::migrate::switch::{comparison, in_place, sweep, verify};
use client::endpoint;
use client::exit::Exit;
use client::output::Output;
use testing::proxy::{self, Fails, cancelled, refusal};

/// Returns a context whose store responds to the next requests of `operation` with `answer`, and
/// the number of such requests, which is 0 at first.
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

async fn phase(served: &Served) -> Phase {
    served.context.state(NAME).await.unwrap().phase
}

/// Returns the lines of the journal.
async fn journal(context: &Context) -> Vec<JournalLine> {
    context.control.list(NAME, JournalLine::PREFIX).await.unwrap()
}

fn is_refused<T: std::fmt::Debug>(ended: &crate::migrate::failure::Result<T>) -> bool {
    matches!(ended, Err(Failure::Refused(_)))
}

#[tokio::test]
async fn throttled_and_conflicting_writes_are_retried() {
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
        is_in(&served.context, Phase::Copying).await;
        context.make(NAME, Guard::default(), &Move::Tail { at: 1 }).await.unwrap();
        let expect = Expect::phases(&[Phase::Tailing]);
        let sides = (Side::Source, Side::Source);
        context.control.set_route(NAME, expect, sides).await.unwrap();
        set_state(&context, |state| state.rate += 1).await;
        assert_eq!(left.load(Ordering::SeqCst), 0, "{operation}");
    }
    let (context, left) = failing(&served, "TransactWriteItems", || cancelled(&["Other"])).await;
    left.store(1, Ordering::SeqCst);
    let verified = Move::Verified(Verified::default());
    let problem = context.make(NAME, Guard::default(), &verified).await.unwrap_err();
    assert!(
        problem.to_string().contains("cannot write table `weir-migrations`: Other"),
        "{problem}"
    );
}

#[tokio::test]
async fn a_switch_that_is_not_decided_in_time_is_put_back() {
    let served = serve().await;
    let context = &served.context;
    is_in(context, Phase::Ready).await;
    let hold = claimed(context).await;
    hold.block_writers(0).await.unwrap();
    assert!(context.control.route(NAME).await.unwrap().unwrap().blocks_writers());
    assert!(matches!(hold.release().await, Ok(RollbackResult::RolledBack)));
    assert_eq!(phase(&served).await, Phase::Ready);
    assert!(!context.control.route(NAME).await.unwrap().unwrap().blocks_writers());
    let attempt = context.control.client.config().timeout_config();
    assert!(attempt.and_then(|limits| limits.operation_attempt_timeout()).is_some());
}

#[tokio::test]
async fn a_committed_switch_continues_after_a_lost_answer() {
    let served = serve().await;
    let context = &served.context;
    is_in(context, Phase::Ready).await;
    let hold = claimed(context).await;
    let switch = Switch::CUTOVER;
    let commit = Move::Commit { switch, shards: 1, back_since: None, switched_at: 1 };
    hold.make(&commit).await.unwrap();
    // The commit got no response, so the command tries to roll back, and finds that the switch is
    // committed.
    assert!(matches!(hold.release().await, Ok(RollbackResult::Committed)));
    assert_eq!(phase(&served).await, Phase::Turning);
}

#[tokio::test]
async fn writers_are_let_go_although_the_store_fails_meanwhile() {
    let served = serve().await;
    let refuses = || refusal(400, "AccessDeniedException");
    let (context, left) = failing(&served, "TransactWriteItems", refuses).await;
    is_in(&context, Phase::Ready).await;
    let hold = claimed(&context).await;
    hold.block_writers(0).await.unwrap();
    left.store(2, Ordering::SeqCst);
    assert!(matches!(hold.release().await, Ok(RollbackResult::RolledBack)));
    assert_eq!((phase(&served).await, left.load(Ordering::SeqCst)), (Phase::Ready, 0));
}

#[tokio::test]
async fn a_claimed_switch_continues_after_a_lost_answer() {
    let served = serve().await;
    is_in(&served.context, Phase::Ready).await;
    for is_written in [true, false] {
        // The first request or its response is lost. Then several further requests get no response.
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
                    let (switch, holder) = (Switch::CUTOVER, holder.to_owned());
                    let claim = Move::Claim { switch, holder, is_first: true };
                    control.make(NAME, Guard::default(), &claim, 1).await.unwrap();
                }
                is_claim.then(proxy::hang_up).flatten()
            }
            .boxed()
        };
        let url = proxy::before(&served.context.endpoint, script).await;
        let context = Context::new(&url, "weir-migrations", Output::Table);
        let of_sources = followed(Direction::Forward, "f", 7);
        let taken = Claim::acquire(&context, NAME, Switch::CUTOVER, of_sources).await;
        let state = served.context.state(NAME).await.unwrap();
        assert_eq!(state.phase, Phase::CuttingOver);
        match taken {
            Ok(hold) => {
                assert!(is_written);
                assert_eq!(hold.expect().check(&state), Ok(()), "this command holds the claim");
            }
            Err(problem) => {
                assert!(
                    !is_written && problem.to_string().contains("is already carrying out"),
                    "{problem}"
                );
            }
        }
        set_state(&served.context, |state| {
            (state.phase, state.holder) = (Phase::Ready, None);
        })
        .await;
    }
}

/// Goal: a command whose claim got no response still performs the revert of an in-place change.
#[tokio::test]
async fn items_are_changed_back_after_a_lost_answer_to_the_claim() {
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
                let (switch, holder) = (Switch::REVERT, holder.as_str().unwrap().to_owned());
                let claim = Move::Claim { switch, holder, is_first: true };
                control.make(NAME, Guard::default(), &claim, 1).await.unwrap();
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
    assert_eq!(ended, Ok(Exit::TimedOut), "no worker runs");
    let tasks = context.tasks_of(NAME, 1).await.unwrap();
    assert_eq!((phase(&served).await, tasks.len()), (Phase::Reverting, 1));
}

#[tokio::test]
async fn no_comparison_task_is_created_once_a_cut_over_began() {
    let served = serve().await;
    let context = &served.context;
    let mut plan = plan();
    plan.segments = 120;
    let run = check_run();
    let expect = Expect::phases(&verify::COMPARED);
    is_in(context, Phase::CuttingOver).await;
    let problem = make_tasks(context, &plan, "f", run, "cats", expect).await.unwrap_err();
    assert!(problem.to_string().contains("moved `move` to cutting-over"), "{problem}");
    assert!(context.tasks(NAME).await.unwrap().is_empty());

    is_in(context, Phase::Ready).await;
    let some = Task { segment: 7, done: true, ..task(1, Work::CheckSource) };
    context.control.put(&some).await.unwrap();
    make_tasks(context, &plan, "f", run, "cats", expect).await.unwrap();
    let tasks = context.tasks_of(NAME, 1).await.unwrap();
    assert_eq!(tasks.len(), 120);
    let left: Vec<_> = tasks.iter().filter(|task| task.done).map(|task| task.name()).collect();
    assert_eq!(left, [some.name()]);
}

fn check_run() -> Run {
    Run { number: 1, work: Work::CheckSource, repairs: true, direction: Direction::Forward }
}

/// Marks every task of a run as done.
async fn done(context: &Context, run: u64) {
    for task in context.tasks_of(NAME, run).await.unwrap() {
        let done = |task: &mut Task| !std::mem::replace(&mut task.done, true);
        context.control.change(task, done).await.unwrap();
    }
}

/// Returns a ready migration whose plan has an `inverse`, and whose comparison has just ended. One
/// task of a comparison is open.
async fn compared() -> Served {
    let served = serve().await;
    let plan = plan_with_way_back();
    write_down(&served, &plan).await;
    let at = served.context.now().await;
    set_state(&served.context, |state| {
        (state.phase, state.run, state.since) = (Phase::Ready, 1, at);
        state.verified = Some(Verified { run: 1, at, ..Verified::default() });
    })
    .await;
    let expect = Expect::phases(&[Phase::Ready]);
    make_tasks(&served.context, &plan, "f", check_run(), "cats", expect).await.unwrap();
    served
}

#[tokio::test]
async fn a_cutover_during_a_comparison_does_not_block_writers() {
    let served = compared().await;
    let context = &served.context;
    let command = CutoverArguments::augment_args(clap::Command::new("cutover"));
    let matches = command.try_get_matches_from(["cutover", NAME]).unwrap();
    let arguments = CutoverArguments::from_arg_matches(&matches).unwrap();
    assert!(is_refused(&cutover(context, &arguments).await));
    assert_eq!(journal(context).await, [], "no command claimed the migration");

    let status = status::describe(context, NAME, None).await.unwrap();
    assert_eq!(status["next_steps"][0]["command"], "weir migrate resume move", "{status}");
    assert_eq!(status["next_steps"].as_array().unwrap().len(), 1, "{status}");
}

/// Goal: a command that takes over a revert repeats the checks if the earlier command has not yet
/// blocked writers.
#[tokio::test]
async fn a_way_back_that_waited_for_leave_is_asked_again() {
    let served = serve().await;
    let context = &served.context;
    write_down(&served, &plan_with_way_back()).await;
    let now = context.now().await;
    set_state(context, |state| {
        (state.phase, state.holder) = (Phase::Reverting, Some("dead".to_owned()));
        (state.back_since, state.back_differences) = (now, Some(2));
    })
    .await;
    let command = RevertArguments::augment_args(clap::Command::new("revert"));
    let matches = command.try_get_matches_from(["revert", NAME]).unwrap();
    let arguments = RevertArguments::from_arg_matches(&matches).unwrap();
    assert!(is_refused(&revert(context, &arguments).await));
    assert_eq!(phase(&served).await, Phase::CutOver);
}

/// Goal: if the result of the last comparison was not recorded, a switch does not use the result of
/// an earlier comparison.
#[tokio::test]
async fn a_comparison_whose_verb_died_is_made_again_before_a_switch() {
    let served = compared().await;
    let context = &served.context;
    let expect = Expect::phases(&[Phase::Ready]);
    let begin = |state: &mut State, run| state.begin_comparison(run, None);
    let run = tasks::begin_run(context, NAME, expect, begin).await.unwrap();
    // Workers have finished the comparison, but its command did not record the result.
    done(context, 1).await;
    let check = |may_differ| comparison::check(context, NAME, Phase::Ready, may_differ);
    assert!(is_refused(&check(false).await));
    assert_eq!(check(true).await, Ok(()));
    set_state(context, |state| state.end_comparison(run)).await;
    assert_eq!(check(false).await, Ok(()));
}

#[tokio::test]
async fn a_way_back_with_differences_is_refused_unless_that_is_meant() {
    let served = serve().await;
    let context = &served.context;
    write_down(&served, &plan_with_way_back()).await;
    let now = context.now().await;
    set_state(context, |state| {
        state.phase = Phase::CutOver;
        (state.back_since, state.back_differences) = (now, Some(2));
    })
    .await;
    for (flags, is_taken) in
        [(&["--dry-run"][..], false), (&[], false), (&["--dry-run", "--with-differences"], true)]
    {
        let command = RevertArguments::augment_args(clap::Command::new("revert"));
        let words = ["revert", NAME].iter().chain(flags);
        let matches = command.try_get_matches_from(words).unwrap();
        let arguments = RevertArguments::from_arg_matches(&matches).unwrap();
        let ended = revert(context, &arguments).await;
        assert_eq!((ended == Ok(Exit::Done), is_refused(&ended)), (is_taken, !is_taken));
    }
    assert_eq!(phase(&served).await, Phase::CutOver);
}

#[tokio::test]
async fn a_watching_command_continues_after_a_failed_read() {
    let served = compared().await;
    done(&served.context, 1).await;
    let refuses = || refusal(400, "AccessDeniedException");
    let (context, left) = failing(&served, "Query", refuses).await;
    left.store(2, Ordering::SeqCst);
    let found = verify::finished(&context, NAME, 1, Duration::from_secs(600)).await.unwrap();
    assert!(found.unwrap().is_done());
    left.store(1, Ordering::SeqCst);
    wait::until(&context, NAME, &["ready"]).await.unwrap();
    left.store(1, Ordering::SeqCst);
    let problem = wait::wait(&context, NAME, "ready", 600).await.unwrap_err();
    let problem = problem.to_string();
    assert!(problem.contains("AccessDenied"), "the migration may not exist: {problem}");
}

#[tokio::test]
async fn a_comparison_that_finds_nothing_removes_the_problems_from_before_it() {
    let served = compared().await;
    let (context, control) = (&served.context, &served.context.control);
    let later = u64::try_from(context.now().await).unwrap() + 3600;
    for (kind, at) in [
        (ProblemKind::Foreign, None),
        (ProblemKind::Refused, Some(7)),
        (ProblemKind::Collision, Some(later)),
        (ProblemKind::Unassembled, Some(7)),
    ] {
        let (migration, table) = (NAME.to_owned(), "pets".to_owned());
        let (key, reason) = (String::new(), String::new());
        let note = Problem { migration, kind, table, key, reason, at };
        control.put(&note).await.unwrap();
    }
    problems::forget(context, NAME, 9).await.unwrap();
    let left = async || {
        let notes: Vec<Problem> = control.list(NAME, Problem::PREFIX).await.unwrap();
        notes.iter().map(|note| note.kind).collect::<Vec<_>>()
    };
    assert_eq!(left().await.len(), 3, "the time of a note may be some seconds too early");

    let work = async {
        while context.tasks_of(NAME, 2).await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        done(context, 2).await;
    };
    let limit = Duration::from_secs(600);
    let (found, ()) = tokio::join!(verify::compare(context, NAME, limit), work);
    assert!(found.unwrap().is_some());
    assert_eq!(left().await, [ProblemKind::Collision, ProblemKind::Unassembled]);
}

#[tokio::test]
async fn tombstones_are_removed_many_at_the_same_time() {
    const TOGETHER: usize = 8;
    let served = serve().await;
    let client = &served.context.control.client;
    let key = |number: usize| format!(r#"{{"p":{{"S":"{number}"}}}}"#);
    let stamp = format!("/{}", "0".repeat(40));
    let note = |number: usize| Tombstone::new(NAME, "pets", &key(number), &stamp);
    let bucket = note(0).partition();
    let in_bucket = (0..).filter(|number| note(*number).partition() == bucket);
    let text = |text: &str| Sdk::S(text.to_owned());
    for number in in_bucket.take(TOGETHER) {
        served.context.control.put(&note(number)).await.unwrap();
        let mark = [("from", text("cats|x")), ("at", text(&stamp)), ("gone", Sdk::Bool(true))];
        let mark = Sdk::M(mark.map(|(name, value)| (name.to_owned(), value)).into());
        let put = client.put_item().table_name("pets").item("p", text(&number.to_string()));
        put.item("_weir", mark).send().await.unwrap();
    }
    // Each read of a tombstone waits for the other reads, so the test passes only if the reads are
    // concurrent.
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
    assert_eq!(sweep::sweep(&context, NAME, Duration::ZERO).await, Ok(None), "the limit is zero");
    let limit = Duration::from_secs(120);
    let swept = tokio::time::timeout(limit, sweep::sweep(&context, NAME, limit)).await;
    assert_eq!(swept.unwrap(), Ok(Some(8)));
    let left = context.control.list::<Tombstone>(&bucket, Tombstone::PREFIX).await;
    assert_eq!(left, Ok(Vec::new()));
}

#[tokio::test]
async fn the_time_of_a_switch_is_that_of_the_store() {
    let served = serve().await;
    let script = |operation: &str, _: &str| {
        let body = Full::new(Bytes::from(json!({}).to_string()));
        let answer = Response::builder().header("date", "Sat, 01 Jan 2022 00:00:00 GMT").body(body);
        // This endpoint hides the store's clock.
        let is_asked = operation == "ListTables" || operation.is_empty();
        futures::future::ready(is_asked.then(|| answer.unwrap())).boxed()
    };
    let url = proxy::before(&served.context.endpoint, script).await;
    let context = Context::new(&url, "weir-migrations", Output::Table);
    assert_eq!(sweep::real_seconds(&context).await, 1_640_995_200);
}

/// Goal: if a local store's clock is advanced, running invocations do not count as ended.
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
