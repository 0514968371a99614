//! Tests of concurrent commands, and of commands after a command that was killed, on a store in
//! this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue as Sdk, StreamSpecification};
use control::{
    Comparing, Expect, Followed, Move, PlanEntry, Receipt, Side, State, Switch, Task, Verified,
};
use futures::FutureExt as _;
use http::Method;
use model::json::item_from_str;
use rules::migration::plan::{Backfill, Direction, Kind, Output as Made, Plan, Source};
use rules::migration::{Effect, Phase};
use serde_json::{Value, json};

use crate::migrate::adjust::abort;
use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::drain::lost;
use crate::migrate::plan::check::{PlanErrors, check};
use crate::migrate::plan::compile::compile;
use crate::migrate::plan::{estimate, neighbours, tables};
use crate::migrate::report::status;
use crate::migrate::start::begin::begin;
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::claim::{Claim, RollbackResult};
use crate::migrate::switch::in_place::ArchiveEnd;
use crate::migrate::switch::{in_place, verify};
use client::endpoint;
use client::exit::Exit;
use client::output::Output;
use testing::proxy;
use testing::store::TestStore;

pub(crate) const NAME: &str = "move";

/// A store with the tables of the plan.
pub(crate) struct Served {
    pub(crate) context: Context,
    pub(crate) store: TestStore,
}

impl Served {
    async fn clock(&self, change: Value) {
        endpoint::admin(Method::POST, &self.context.endpoint, "clock", &change).await.unwrap();
    }

    /// Returns the fence of the active migration.
    async fn fence(&self) -> Option<i64> {
        let active = self.context.control.active().await.unwrap();
        active.active.get(NAME).map(|followed| followed.since)
    }

    /// Waits until the migration is active with a fence other than `known`.
    async fn other_fence(&self, known: Option<i64>) -> Option<i64> {
        loop {
            let fence = self.fence().await;
            if fence != known {
                return fence;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) async fn serve() -> Served {
    let store = TestStore::open().await;
    for table in ["cats", "pets"] {
        store.table(table).await;
    }
    let context = Context::new(&store.url, "weir-migrations", Output::Table);
    context.control.ensure().await.unwrap();
    Served { context, store }
}

pub(crate) fn plan() -> Plan {
    let output = Made { to: "pets".into(), transform: ".".into(), key: [].into() };
    Plan {
        migration: NAME.into(),
        kind: Kind::Restructure,
        from: vec![Source {
            table: "cats".into(),
            items: vec![output],
            split: None,
            archive: false,
        }],
        inverse: Vec::new(),
        backfill: Backfill::Scan,
        segments: 1,
        gate_seconds: 0,
        settle_seconds: 0,
        function_seconds: 1,
        route: None,
    }
}

/// Returns the plan with an `inverse`.
pub(crate) fn plan_with_way_back() -> Plan {
    let output = Made { to: "cats".into(), transform: ".".into(), key: [].into() };
    let source = Source { table: "pets".into(), items: vec![output], split: None, archive: false };
    Plan { inverse: vec![source], ..plan() }
}

/// Writes a plan to the control table, as `start` does.
pub(crate) async fn write_down(served: &Served, plan: &Plan) {
    let json = serde_json::to_string(plan).unwrap();
    let entry = PlanEntry { migration: NAME.to_owned(), revision: 0, plan: json };
    served.context.control.put(&entry).await.unwrap();
}

/// Changes the state of the migration unconditionally.
pub(crate) async fn set_state(context: &Context, change: impl Fn(&mut State)) {
    let set = |state: &mut State| {
        change(state);
        true
    };
    context.control.change(State::new(NAME), set).await.unwrap();
}

/// Brings the migration to a phase.
pub(crate) async fn is_in(context: &Context, phase: Phase) {
    set_state(context, |state| state.phase = phase).await;
}

/// Returns the entry of an active migration whose plan has the given fingerprint.
pub(crate) fn followed(direction: Direction, fingerprint: &str, since: i64) -> Followed {
    Followed { direction, fingerprint: fingerprint.to_owned(), since }
}

/// Claims the migration for a cut-over.
pub(crate) async fn claimed(context: &Context) -> Claim<'_> {
    let followed = followed(Direction::Forward, "f", 7);
    Claim::acquire(context, NAME, Switch::CUTOVER, followed).await.unwrap()
}

#[tokio::test]
async fn two_concurrent_starts_have_one_fence() {
    let served = serve().await;
    let (context, plan) = (&served.context, plan());
    // The clock is frozen, so the first command waits for its fence.
    served.clock(json!({"freeze": true})).await;
    let first = begin(context, &plan, 0);
    let holder = async || context.state(NAME).await.unwrap().holder;
    let meanwhile = async {
        let fence = served.other_fence(None).await;
        let first = holder().await;
        let clock = async {
            while holder().await == first {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            served.clock(json!({"resume": true})).await;
        };
        (fence, tokio::join!(begin(context, &plan, 0), clock).0)
    };
    let (first, (fence, second)) = tokio::join!(first, meanwhile);
    let state = context.state(NAME).await.unwrap();
    assert_eq!(state.phase, Phase::Copying, "{first:?} {second:?}");
    // The tasks were created after the fence was set.
    let since = state.since;
    assert_eq!(served.fence().await, Some(since), "{first:?} {second:?}");
    // The first fence must not be replaced, because effects after this fence take precedence over
    // the backfill.
    assert_eq!(fence, Some(since));
    assert!(first.unwrap_err().to_string().contains("another command"));
    second.unwrap();
    assert_eq!(state.holder, None);
}

#[tokio::test]
async fn a_command_that_takes_over_a_switch_follows_the_sources_again() {
    let served = serve().await;
    let (context, control) = (&served.context, &served.context.control);
    // The command was killed after it had reversed the direction of the migration.
    let dead = |state: &mut State| {
        state.phase = Phase::CuttingOver;
        (state.holder, state.held_at) = (Some("dead".to_owned()), Some(5));
    };
    set_state(context, dead).await;
    let expect = Expect::phases(&[Phase::CuttingOver]);
    let turned = followed(Direction::Reverse, "f", 9);
    control.set_active(NAME, expect, Some(turned)).await.unwrap();
    control.set_route(NAME, expect, (Side::Source, Side::None)).await.unwrap();

    let hold = claimed(context).await;
    hold.follow().await.unwrap();
    let active = control.active().await.unwrap();
    assert_eq!(active.active.get(NAME), Some(&followed(Direction::Forward, "f", 7)));
    // The killed command has closed the route and never opened it, so writers are blocked.
    hold.block_writers(0).await.unwrap();
    assert_eq!(context.state(NAME).await.unwrap().held_at, Some(5));
    assert!(matches!(hold.release().await, Ok(RollbackResult::RolledBack)));
    let route = control.route(NAME).await.unwrap().unwrap();
    assert_eq!((route.read, route.write), (Side::Source, Side::Source));
    let state = context.state(NAME).await.unwrap();
    assert_eq!((state.phase, state.holder, state.held_at), (Phase::Ready, None, None));
    // The next command closes the open route and records a new time.
    claimed(context).await.block_writers(0).await.unwrap();
    assert!(context.state(NAME).await.unwrap().held_at > Some(5));
}

/// Returns a plan with an `inverse` that changes the items of `cats` in place.
pub(crate) fn plan_in_place(name: &str) -> Plan {
    let source = |transform: &str| {
        let made = Made { to: "cats".into(), transform: transform.into(), key: [].into() };
        Source { table: "cats".into(), items: vec![made], split: None, archive: false }
    };
    let (from, inverse) = (vec![source(".a = 1")], vec![source("del(.a)")]);
    Plan { migration: name.into(), kind: Kind::InPlace, from, inverse, ..plan() }
}

#[tokio::test]
async fn two_that_begin_at_the_same_time_do_not_move_the_same_items() {
    for of in [|name: &str| Plan { migration: name.into(), ..plan() }, plan_in_place] {
        let served = serve().await;
        let (one, other) = (of("one"), of("other"));
        let begins = (begin(&served.context, &one, 0), begin(&served.context, &other, 0));
        let (first, second) = tokio::join!(begins.0, begins.1);
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let why = first.and(second).unwrap_err();
        assert!(why.to_string().contains("the running migration"), "{why}");
        // The refused migration was not started, so it conflicts with no other migration.
        let states = served.context.control.states().await.unwrap();
        assert_eq!(states.len(), 1);
        let begun = states[0].migration.as_str();
        let third = Plan { migration: "third".into(), ..of("third") };
        let why = neighbours::in_the_way(&served.context, &third).await.unwrap().unwrap();
        assert!(why.starts_with(&format!("the running migration `{begun}`")), "{why}");
        assert_eq!(abort(&served.context, begun, false).await, Ok(Exit::Done));
        assert_eq!(neighbours::in_the_way(&served.context, &third).await, Ok(None));
        begin(&served.context, &third, 0).await.unwrap();
    }
}

#[tokio::test]
async fn an_ended_migration_is_not_followed() {
    let served = serve().await;
    let (context, control) = (&served.context, &served.context.control);
    begin(context, &plan(), 0).await.unwrap();
    assert!(served.fence().await.is_some());
    // An `abort` was killed after its first write.
    let end = Move::Abort { kind: Kind::Restructure, touches: false };
    context.make(NAME, Guard::default(), &end).await.unwrap();
    assert_eq!(served.fence().await, None);

    // An older version of `weir` could leave an ended migration active. The status reports that
    // functions still follow the migration, and suggests the command that stops this.
    let expect = Expect::phases(&[Phase::Aborted]);
    let still = followed(Direction::Forward, "f", 1);
    control.set_active(NAME, expect, Some(still)).await.unwrap();
    let status = status::describe(context, NAME, None).await.unwrap();
    assert_eq!(status["still_followed"], true);
    assert_eq!(status["next_steps"][0]["command"], "weir migrate abort move");
    assert_eq!(status::exit_of(&status), Exit::Differences);
    let again = Plan { migration: "again".into(), ..plan() };
    let why = neighbours::in_the_way(context, &again).await.unwrap().unwrap();
    assert!(why.contains("`move` has ended, but functions still follow it"), "{why}");
    assert_eq!(abort(context, NAME, false).await, Ok(Exit::Done));
    assert_eq!(served.fence().await, None);
    assert_eq!(neighbours::in_the_way(context, &again).await, Ok(None));
}

#[tokio::test]
async fn of_two_that_change_items_back_the_second_one_does() {
    let served = serve().await;
    let (context, plan) = (&served.context, plan_in_place(NAME));
    begin(context, &plan, 0).await.unwrap();
    is_in(context, Phase::CutOver).await;
    let fence = served.fence().await;
    // The first command waits until the store's clock reaches the time of its fence, and the clock is
    // frozen. When the clock runs again, both commands wait for workers.
    served.clock(json!({"freeze": true})).await;
    let arguments = SwitchArguments { name: NAME.to_owned(), timeout: 1, dry_run: false };
    let (_, fingerprint) = context.plan(NAME).await.unwrap();
    let revert = || in_place::revert(context, NAME, &plan, &fingerprint, &arguments);
    let holder = async || context.state(NAME).await.unwrap().holder;
    let meanwhile = async {
        served.other_fence(fence).await;
        let first = holder().await;
        let clock = async {
            while holder().await == first {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            served.clock(json!({"resume": true})).await;
        };
        tokio::join!(revert(), clock).0
    };
    let (first, second) = tokio::join!(revert(), meanwhile);
    assert!(
        first.clone().unwrap_err().to_string().contains("another command is already carrying out"),
        "{first:?}"
    );
    // There are no workers, so the command times out.
    assert_eq!(second, Ok(Exit::TimedOut));
    assert!(holder().await.is_some());
}

#[tokio::test]
async fn an_interrupted_change_back_resumes() {
    let served = serve().await;
    let (context, plan) = (&served.context, plan_in_place(NAME));
    begin(context, &plan, 0).await.unwrap();
    is_in(context, Phase::CutOver).await;
    let arguments = SwitchArguments { name: NAME.to_owned(), timeout: 0, dry_run: false };
    let (_, fingerprint) = context.plan(NAME).await.unwrap();
    // Returns the run that the command waits for, and the fence of its direction.
    let reverted = async || {
        let ended = in_place::revert(context, NAME, &plan, &fingerprint, &arguments).await;
        assert_eq!(ended, Ok(Exit::TimedOut), "no worker runs");
        (context.state(NAME).await.unwrap().run, served.fence().await)
    };
    let first = reverted().await;
    assert_eq!((first.0, context.tasks_of(NAME, 1).await.unwrap().len()), (1, 1));
    assert_eq!(reverted().await, first);
    // After a later run, such as a comparison, the revert begins a new run.
    set_state(context, |state| state.run = 2).await;
    let anew = reverted().await;
    assert!(anew.0 == 3 && anew.1 > first.1, "{anew:?} {first:?}");
    // A complete run is not resumed, because its fence may be too old.
    let task = context.tasks_of(NAME, 3).await.unwrap().remove(0);
    let is_done = |task: &mut Task| !std::mem::replace(&mut task.done, true);
    context.control.change(task, is_done).await.unwrap();
    let last = reverted().await;
    assert!(last.0 == 4 && last.1 > anew.1, "{last:?} {anew:?}");
}

/// Moves a migration to a phase, with a recent comparison of `compared` items.
async fn compared_in(served: &Served, phase: Phase, run: u64, compared: u64) {
    // The time must be later than the creation of the stream.
    let at = served.context.now().await + 30;
    let verified = Verified { at, compared, ..Verified::default() };
    set_state(&served.context, |state| {
        (state.phase, state.run, state.verified) = (phase, run, Some(verified));
    })
    .await;
}

#[tokio::test]
async fn a_completion_in_place_resumes_its_comparison() {
    let served = serve().await;
    let (context, control) = (&served.context, &served.context.control);
    let plan = Plan { segments: 2, ..plan_in_place(NAME) };
    begin(context, &plan, 0).await.unwrap();
    // `complete` does not resume a comparison that `verify` started.
    compared_in(&served, Phase::CutOver, 1, 0).await;
    set_state(context, |state| state.begin_comparison(1, None)).await;
    let arguments = SwitchArguments { name: NAME.to_owned(), timeout: 600, dry_run: false };
    let (_, fingerprint) = context.plan(NAME).await.unwrap();
    let complete = async || {
        let state = context.state(NAME).await.unwrap();
        in_place::complete(context, &plan, &fingerprint, &state, &arguments, ArchiveEnd::Erase(&[]))
            .await
    };
    let is_made = async |run: u64| {
        while context.tasks_of(NAME, run).await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let left_with = async |run: u64| {
        tokio::select! {
            ended = complete() => panic!("{ended:?}"),
            () = is_made(run) => {}
        }
    };
    let done = async |run: u64, segment: usize, different: u64| {
        let task = context.tasks_of(NAME, run).await.unwrap().remove(segment);
        let done = |task: &mut Task| {
            task.counts = [("different".to_owned(), different)].into();
            task.done = true;
            true
        };
        control.change(task, done).await.unwrap();
    };
    // Returns the suggested commands.
    let offered = async || {
        let status = status::describe(context, NAME, None).await.unwrap();
        status["next_steps"][0]["command"].as_str().unwrap().to_owned()
    };
    left_with(2).await;
    assert_eq!(offered().await, "weir migrate complete move");
    // The comparison has found a difference, and the item may have been corrected later, so the
    // comparison is not resumed.
    done(2, 0, 1).await;
    assert_eq!(offered().await, "weir migrate resume move");
    left_with(3).await;
    done(3, 0, 0).await;
    assert_eq!(offered().await, "weir migrate complete move");
    let rest = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        done(3, 1, 0).await;
    };
    let ended = async { tokio::join!(complete(), rest).0 };
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    assert_eq!(ended.expect("`complete` waits for another run"), Ok(Exit::Done));
    let state = context.state(NAME).await.unwrap();
    assert_eq!((state.phase, state.run), (Phase::Completed, 3));
    assert_eq!((state.verified.unwrap().run, state.comparing), (3, None));
}

/// Goal: if two concurrent commands end an in-place migration, one of them starts the comparison
/// and the other resumes it.
#[tokio::test]
async fn two_concurrent_completions_wait_for_one_comparison() {
    let served = serve().await;
    let (context, control) = (&served.context, &served.context.control);
    begin(context, &plan_in_place(NAME), 0).await.unwrap();
    compared_in(&served, Phase::CutOver, 1, 0).await;
    // The other command starts a comparison just before the slower command would start one.
    let (of_script, is_first) = (control.clone(), AtomicBool::new(true));
    let now = context.now().await;
    let script = move |operation: &str, body: &str| {
        let is_meant = operation == "PutItem" && body.contains("\"comparing\"");
        let is_now = is_meant && is_first.swap(false, Ordering::SeqCst);
        let control = of_script.clone();
        async move {
            if is_now {
                let others = |state: &mut State| {
                    state.run = 2;
                    state.begin_comparison(2, Some(now));
                    true
                };
                control.change(State::new(NAME), others).await.unwrap();
            }
            None
        }
        .boxed()
    };
    let url = proxy::before(&context.endpoint, script).await;
    let slower = Context::new(&url, "weir-migrations", Output::Table);
    let expect = Expect::phases(&[Phase::CutOver]);
    // There are no workers, so the comparison does not end.
    let looked = verify::look_on(&slower, NAME, expect, Duration::ZERO).await.unwrap();
    assert!(looked.is_none());
    let state = context.state(NAME).await.unwrap();
    assert_eq!(state.run, 2);
    assert_eq!(state.comparing, Some(Comparing { run: 2, since: Some(now) }));
    assert_eq!(context.tasks_of(NAME, 2).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_purge_that_is_closed_is_not_compared_again() {
    let served = serve().await;
    let context = &served.context;
    let mut plan = Plan { kind: Kind::Purge, inverse: Vec::new(), ..plan_in_place(NAME) };
    plan.from[0].items[0].transform = ".tenant == \"7\"".into();
    begin(context, &plan, 0).await.unwrap();
    plan.from[0].archive = true;
    // An earlier `complete` has failed to erase from the archive, because the table has no archive.
    compared_in(&served, Phase::Completing, 4, 7).await;
    let arguments = SwitchArguments { name: NAME.to_owned(), timeout: 600, dry_run: false };
    let (_, fingerprint) = context.plan(NAME).await.unwrap();
    let state = context.state(NAME).await.unwrap();
    let complete = async |archive| {
        let ended = in_place::complete(context, &plan, &fingerprint, &state, &arguments, archive);
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.expect("`complete` waits for workers")
    };
    let refused = complete(ArchiveEnd::Erase(&[])).await.unwrap_err().to_string();
    assert!(refused.contains("weir migrate complete move --without-archive"), "{refused}");
    assert_eq!(complete(ArchiveEnd::Skip).await, Ok(Exit::Done));
    let state = context.state(NAME).await.unwrap();
    assert_eq!((state.phase, state.run), (Phase::Completed, 4));
    let receipt: Receipt = context.control.get(NAME, Receipt::NAME).await.unwrap().unwrap();
    assert!(receipt.receipt.contains("\"compared\":7"), "{receipt:?}");
    assert!(receipt.receipt.contains("\"cats\":{\"skipped\":true}"), "{receipt:?}");
}

#[tokio::test]
async fn lost_changes_are_replayed_until_a_cut_over() {
    let served = serve().await;
    let (context, control) = (&served.context, &served.context.control);
    let migration = compile(context, &plan(), Direction::Forward).await.unwrap();
    let item = |value: &str| {
        item_from_str(&format!(r#"{{"p":{{"S":"{value}"}},"v":{{"S":"a"}}}}"#)).unwrap()
    };
    let stated = |value: &str| {
        let effect = migration.backfill("cats", &item(value)).unwrap().remove(0);
        let Effect::Registers { target, registers } = effect else { panic!("{effect:?}") };
        (target, registers)
    };
    let stands = async |key: &str| {
        let key = item_from_str(&format!(r#"{{"p":{{"S":"{key}"}}}}"#)).unwrap();
        tables::get(&control.client, "pets", &key).await.unwrap().is_some()
    };
    for (to, is_said) in
        [(Phase::Tailing, true), (Phase::CuttingOver, false), (Phase::CutOver, false)]
    {
        is_in(context, to).await;
        let (target, registers) = stated(to.as_str());
        let compared = Expect::phases(&verify::COMPARED);
        let said = (&target, &registers);
        let again = lost::say_again(control, compared, (&migration, None), said).await;
        assert_eq!(stands(to.as_str()).await, is_said, "{to:?}");
        match is_said {
            true => {
                assert_eq!(again, Ok(true));
                let once_more = lost::say_again(control, compared, (&migration, None), said).await;
                assert_eq!(once_more, Ok(false));
            }
            false => {
                let why = again.unwrap_err().to_string();
                assert!(why.contains("another command moved"), "{to:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_plan_that_can_do_nothing_with_any_item_is_known_before_it_begins() {
    let served = serve().await;
    let refused = async |transform: &str| {
        let mut plan = plan();
        plan.from[0].items[0].transform = transform.into();
        let migration = compile(&served.context, &plan, Direction::Forward).await.unwrap();
        estimate::all_refused(&served.context, &plan, &migration).await.unwrap()
    };
    let fails = ".v = (.v | tonumber)";
    assert_eq!(refused(fails).await, None, "there are no samples");
    let put = async |p: &str, v: &str| {
        let put = served.context.control.client.put_item().table_name("cats");
        put.item("p", Sdk::S(p.to_owned())).item("v", Sdk::S(v.to_owned())).send().await.unwrap();
    };
    put("k", "a").await;
    let why = refused(fails).await.unwrap();
    assert!(why.contains("\"k\""), "{why}");
    assert_eq!(refused(".").await, None);
    put("l", "7").await;
    assert_eq!(refused(fails).await, None, "one of two samples can be transformed");
}

#[tokio::test]
async fn an_inverse_that_reads_unwritten_attributes_is_reported_in_place() {
    let served = serve().await;
    let mut plan = plan();
    let output = Made { to: "cats".into(), transform: ".".into(), key: [].into() };
    let source = Source {
        table: "weir-migrations".into(),
        items: vec![output],
        split: None,
        archive: false,
    };
    plan.inverse = vec![source];
    let Err(PlanErrors::Plan(errors)) = check(&served.context, &plan).await else {
        panic!("an inverse that reads a table without targets was accepted")
    };
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].place, "inverse[0].table");
    assert!(errors[0].reason.ends_with("`inverse` can read pets"), "{errors:?}");
}

#[tokio::test]
async fn a_table_without_a_stream_is_reported_with_the_command_for_one() {
    let served = serve().await;
    let off = StreamSpecification::builder().stream_enabled(false).build().unwrap();
    let update = served.context.control.client.update_table().table_name("cats");
    update.stream_specification(off).send().await.unwrap();
    let Err(PlanErrors::Other(why)) = check(&served.context, &plan()).await else {
        panic!("a table without a stream was accepted")
    };
    let why = why.to_string();
    let command = "--table-name cats --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES`";
    assert!(
        why.contains("but it has none; enable the stream with `aws dynamodb update-table"),
        "{why}"
    );
    assert!(why.ends_with(command), "{why}");
}

#[tokio::test]
async fn a_missing_table_is_reported_with_existing_ones() {
    let served = serve().await;
    let mut plan = plan();
    plan.from[0].table = "cat".into();
    let Err(PlanErrors::Plan(errors)) = check(&served.context, &plan).await else {
        panic!("a plan with a missing table was accepted")
    };
    let known = "there is no table `cat`; existing tables are cats, pets, weir-migrations";
    assert!(errors.iter().any(|error| error.reason == known), "{errors:?}");
}
