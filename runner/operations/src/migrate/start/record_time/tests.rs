//! Tests of fences on stores with coarse record times, and on stores whose record times are
//! unsuitable.

use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use clap::{Args as _, FromArgMatches as _};
use control::{Expect, JournalLine, Verified};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Plan};

use super::*;
use crate::migrate::drain::open::{InverseUse, drain};
use crate::migrate::drain::proof::RecordSelection;
use crate::migrate::failure::Failure;
use crate::migrate::local_workers::{LocalWorkers, StartWorkers, WorkerOptions};
use crate::migrate::plan::compile::compile;
use crate::migrate::start::begin::begin;
use crate::migrate::start::command::{StartArguments, run};
use crate::migrate::start::fence::{Fence, FenceUse, activate};
use crate::migrate::switch::cutover::{CutoverArguments, cutover};
use crate::migrate::switch::switching_tests::{
    NAME, Served, is_in, plan_with_way_back, serve, set_state, write_down,
};
use client::output::Output;
use testing::proxy::with_record_times;

/// Unit in seconds to which record times are rounded down. The unit is longer than the time for
/// which a fence waits for the clock.
const UNIT: i64 = 12;

/// Returns a context for the store of `served`, through an endpoint that applies `time` to record
/// times.
async fn shown_as(served: &Served, time: fn(i64) -> Option<i64>) -> Context {
    let url = with_record_times(&served.context.endpoint, time).await;
    Context::new(&url, "weir-migrations", Output::Table)
}

/// Returns a store whose record times are rounded down to `UNIT`. The current time is at the
/// beginning of a unit, so the clock passes a fence long before record times do.
async fn rounded() -> (Served, Context) {
    let served = serve().await;
    let context = shown_as(&served, |made| Some(made - made % UNIT)).await;
    while context.now().await % UNIT > 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (served, context)
}

async fn put(context: &Context, table: &str, key: &str) {
    let put = context.control.client.put_item().table_name(table);
    put.item("p", Sdk::S(key.to_owned())).send().await.unwrap();
}

/// Returns the number of a table's records that a migration has to apply: first by the rule of the
/// function, then by the rule of the drain proof.
async fn counts(context: &Context, plan: &Plan, direction: Direction, since: i64) -> [u64; 2] {
    let fence = u64::try_from(since).ok();
    let migration = compile(context, plan, direction).await.unwrap().fenced(fence);
    let table = plan.source_tables(direction)[0];
    let stream = shards::stream_of(&context.endpoint, table).await.unwrap();
    let mut followed = 0;
    for id in shard_ids(&stream) {
        let mut place = Place::new(Start::TrimHorizon);
        for record in stream.next_page(&id, &mut place).await.unwrap().unwrap() {
            let made = record.creation_s.and_then(|made| u64::try_from(made).ok());
            followed += u64::from(migration.follows(table, made));
        }
    }
    let counted = RecordSelection::new(since, since);
    let mut drain = drain(context, plan, direction, counted, InverseUse::Unused).await.unwrap();
    let looked = drain.look().await.unwrap();
    assert_eq!(looked.missing.is_some(), looked.records > 0, "no function applies changes");
    [followed, looked.records]
}

#[tokio::test]
async fn writes_after_a_switch_count_despite_rounded_record_times() {
    let (_served, context) = rounded().await;
    let plan = plan_with_way_back();
    is_in(&context, Phase::CuttingOver).await;
    put(&context, "pets", "before").await;
    let expect = Expect::phases(&[Phase::CuttingOver]);
    let (direction, after) = (Direction::Reverse, FenceUse::Writers);
    let fence = Fence { direction, fingerprint: "f", expect, after };
    let since = activate(&context, NAME, fence).await.unwrap();
    for key in ["a", "b", "c"] {
        put(&context, "pets", key).await;
    }
    assert_eq!(counts(&context, &plan, Direction::Reverse, since).await, [3, 3]);
    // Code that compares a record's time with another time adds the measured lag.
    let behind = behind(&context).await.unwrap();
    assert!((UNIT - 3..=UNIT).contains(&behind), "{behind}");
    assert_eq!(coarseness(&context).await, Ok(PASS_LIMIT));
}

#[tokio::test]
async fn writes_after_a_start_count_despite_rounded_record_times() {
    let (_served, context) = rounded().await;
    let plan = plan_with_way_back();
    put(&context, "cats", "before").await;
    begin(&context, &plan, 0).await.unwrap();
    put(&context, "cats", "after").await;
    let since = context.control.active().await.unwrap().active[NAME].since;
    assert_eq!(counts(&context, &plan, Direction::Forward, since).await, [1, 1]);
}

#[tokio::test]
async fn a_store_with_times_to_the_second_waits_for_no_other() {
    let served = serve().await;
    let context = &served.context;
    assert_eq!(check(context).await, Ok(()));
    let begun = Instant::now();
    let mut records = RecordTime::open(context).await.unwrap();
    records.pass(context.now().await - 1).await.unwrap();
    assert!(begun.elapsed() < SAID_AFTER, "{:?}", begun.elapsed());
    assert!(behind(context).await.unwrap() <= 1);
    assert_eq!(coarseness(context).await, Ok(Duration::ZERO));
}

#[tokio::test]
async fn concurrent_markers_are_distinguished_and_leave_one_entry() {
    let served = serve().await;
    let context = &served.context;
    let mut one = RecordTime::open(context).await.unwrap();
    let mut other = RecordTime::open(context).await.unwrap();
    for _ in 0..5 {
        let (one, other) = tokio::join!(one.show(), other.show());
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    }
    let entries = context.control.list::<control::RecordTime>(control::SHARED, "RECORD_TIME");
    let entries = entries.await.unwrap();
    assert_eq!(entries.len(), 1);
}

/// Record times that cannot distinguish writes before a fence from writes after it: far too coarse
/// times, and no times.
const USELESS: [fn(i64) -> Option<i64>; 2] = [|made| Some(made - made % 1_000_000_000), |_| None];

/// A stub that cannot start workers.
struct NoWorkers;

#[async_trait::async_trait]
impl StartWorkers for NoWorkers {
    async fn start(&self, _: WorkerOptions<'_>) -> Result<Box<dyn LocalWorkers>, Failure> {
        Err(client::fatal!("no workers here"))
    }
}

#[tokio::test]
async fn a_start_on_a_store_without_usable_record_times_is_refused_before_anything_is_done() {
    let served = serve().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.yaml");
    std::fs::write(
        &file,
        "migration: move\nkind: restructure\nfrom:\n  - table: cats\n    items: [{to: pets}]\n",
    )
    .unwrap();
    let command = StartArguments::augment_args(clap::Command::new("start"));
    let matches = command.try_get_matches_from(["start".as_ref(), file.as_os_str()]).unwrap();
    let arguments = StartArguments::from_arg_matches(&matches).unwrap();
    for time in USELESS {
        let context = shown_as(&served, time).await;
        let ended = run(&context, &arguments, &NoWorkers).await;
        assert!(matches!(ended, Err(Failure::Refused(_))), "{ended:?}");
        assert!(context.control.states().await.unwrap().is_empty(), "the migration was started");
        assert!(context.control.active().await.unwrap().active.is_empty());
    }
}

#[tokio::test]
async fn a_cut_over_without_usable_record_times_does_not_block_writers() {
    let served = serve().await;
    write_down(&served, &plan_with_way_back()).await;
    let at = served.context.now().await;
    set_state(&served.context, |state| {
        (state.phase, state.since) = (Phase::Ready, at);
        state.verified = Some(Verified { at, ..Verified::default() });
    })
    .await;
    let command = CutoverArguments::augment_args(clap::Command::new("cutover"));
    let matches = command.try_get_matches_from(["cutover", NAME, "--without-followers"]).unwrap();
    let arguments = CutoverArguments::from_arg_matches(&matches).unwrap();
    for time in USELESS {
        let context = shown_as(&served, time).await;
        let ended = cutover(&context, &arguments).await;
        assert!(matches!(ended, Err(Failure::Refused(_))), "{ended:?}");
        let journal = context.control.list::<JournalLine>(NAME, JournalLine::PREFIX).await;
        assert_eq!(journal, Ok(Vec::new()), "no command claimed the migration");
    }
}
