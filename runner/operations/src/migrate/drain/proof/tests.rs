//! Tests of the comparison of effects with targets, and of streams that lack some writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use model::json::item_from_str;
use model::{KeyAttribute, KeyAttributeType, KeySchema};
use rules::migration::plan::{Direction, Kind, Output, Plan, Source};

use super::*;
use crate::migrate::context::Context;
use crate::migrate::drain::open::{InverseUse, drain};
use crate::migrate::switch::switching_tests::{Served, is_in, plan_with_way_back, serve};
use testing::proxy::{self, refusal};

fn migration() -> Migration {
    let output = Output { to: "pets".into(), transform: ".".into(), key: BTreeMap::new() };
    let plan = Plan {
        migration: "m".into(),
        kind: Kind::Restructure,
        from: vec![Source {
            table: "cats".into(),
            items: vec![output],
            split: None,
            archive: false,
        }],
        inverse: Vec::new(),
        backfill: rules::migration::plan::Backfill::Scan,
        segments: 1,
        gate_seconds: 1,
        settle_seconds: 5,
        function_seconds: 60,
        route: None,
    };
    let attribute_type = KeyAttributeType::S;
    let partition = KeyAttribute { name: "p".into(), attribute_type };
    let schema = KeySchema { partition, sort: None };
    let schemas = [("cats".into(), schema.clone()), ("pets".into(), schema)].into();
    Migration::compile(&plan, Direction::Forward, &schemas).unwrap()
}

fn item(value: &str) -> Item {
    item_from_str(&format!(r#"{{"p":{{"S":"k"}},"v":{{"S":"{value}"}}}}"#)).unwrap()
}

/// Returns the effect of the backfill of an item, optionally from another source.
fn said(migration: &Migration, value: &str, source: Option<&str>) -> (Target, Registers) {
    let effects = migration.backfill("cats", &item(value)).unwrap();
    let Some(Effect::Registers { target, registers }) = effects.into_iter().next() else {
        panic!()
    };
    let (known, register) = registers.only().unwrap();
    let source = source.unwrap_or(known).to_owned();
    (target, Registers::of(source, register.clone()))
}

#[test]
fn a_target_shows_its_effects_or_never_will() {
    let migration = migration();
    let key = item_from_str(r#"{"p":{"S":"k"}}"#).unwrap();
    let (target, first) = said(&migration, "a", None);
    let of = |stands: Option<&Item>| of_target(&migration, &target, &first, stands);
    let is_never = |lack: Option<UnprovedReason>| matches!(lack, Some(UnprovedReason::Never(_)));
    assert!(matches!(of(None), Some(UnprovedReason::NotYet(_))));
    assert_eq!(of(Some(&first.to_item(&key))), None);
    // The migration never changes a foreign item, so the target is correct only if it already
    // equals the expected item.
    assert_eq!(of(Some(&item("a"))), None);
    assert!(is_never(of(Some(&item("b")))));
    // Items of two sources have the same target. The target contains only one of the two results,
    // unless the results are equal.
    let with = |value| {
        let (_, other) = said(&migration, value, Some("another"));
        first.joined(&other).unwrap().to_item(&key)
    };
    assert!(is_never(of(Some(&with("b")))));
    assert_eq!(of(Some(&with("a"))), None);
}

/// Returns a plan that parses strings of the source items as numbers.
fn of_numbers() -> Plan {
    let mut plan = plan_with_way_back();
    for (source, transform) in [(&mut plan.from, "tonumber"), (&mut plan.inverse, "tostring")] {
        source[0].items[0].transform = format!(".v |= {transform}");
    }
    plan
}

async fn put(served: &Served, key: &str, value: &str) {
    let item = format!(r#"{{"p":{{"S":"{key}"}},"v":{{"S":"{value}"}}}}"#);
    let item = client::attribute::to_sdk_item(&item_from_str(&item).unwrap());
    let client = &served.context.control.client;
    client.put_item().table_name("cats").set_item(Some(item)).send().await.unwrap();
}

/// Returns a store, and a selection that covers all writes of the test. The streams are older than
/// these writes, so they have no gap.
async fn serve_older() -> (Served, RecordSelection) {
    let served = serve().await;
    let since = served.context.now().await;
    let moved = serde_json::json!({ "advance_ms": 60_000 });
    client::endpoint::admin(http::Method::POST, &served.context.endpoint, "clock", &moved)
        .await
        .unwrap();
    (served, RecordSelection { since, compared: since })
}

/// Goal: an item that cannot be transformed is reported until it is corrected, even while other
/// records wait.
#[tokio::test]
async fn refused_items_are_reported_whatever_else_waits() {
    let ((served, all), plan) = (serve_older().await, of_numbers());
    let kept = drain(&served.context, &plan, Direction::Forward, all, InverseUse::Required).await;
    let mut drain = kept.unwrap();
    put(&served, "waits", "1").await;
    for (value, told) in [("bad", true), ("worse", true), ("2", false), ("bad", true)] {
        put(&served, "hot", value).await;
        let looked = drain.look().await.unwrap();
        assert!(looked.missing.is_some(), "no function applies changes");
        let hopeless = looked.hopeless.as_deref().unwrap_or_default();
        assert_eq!(hopeless.contains("that cannot be transformed"), told, "{value}: {hopeless}");
    }
}

/// Goal: if record times are rounded down, a record that may be newer than the comparison counts as
/// newer.
#[tokio::test]
async fn a_record_that_may_be_newer_than_the_comparison_counts_as_newer() {
    let ((served, all), plan) = (serve_older().await, of_numbers());
    let now = served.context.now().await;
    put(&served, "k", "bad").await;
    let counted = RecordSelection { compared: now + 30, ..all };
    for (behind, told) in [(0, false), (59, true)] {
        let kept =
            drain(&served.context, &plan, Direction::Forward, counted, InverseUse::Required).await;
        let looked = kept.unwrap().with_times_behind(behind).look().await.unwrap();
        assert_eq!(looked.hopeless.is_some(), told, "{behind}: {looked:?}");
    }
}

/// Goal: no record is missed if a store refuses an old iterator of a closed shard.
#[tokio::test]
async fn an_older_iterator_that_is_refused_hides_no_record() {
    let ((served, all), plan) = (serve_older().await, of_numbers());
    let refuses = Arc::new(AtomicBool::new(false));
    let of_script = Arc::clone(&refuses);
    let script = move |operation: &str, _: &str| {
        let is_refused = operation == "GetRecords" && of_script.swap(false, Ordering::SeqCst);
        let answer = is_refused.then(|| refusal(400, "TrimmedDataAccessException")).flatten();
        async move { answer }.boxed()
    };
    let url = proxy::before(&served.context.endpoint, script).await;
    let context = Context::new(&url, "weir-migrations", client::output::Output::Table);
    let kept = drain(&context, &plan, Direction::Forward, all, InverseUse::Required).await;
    let mut drain = kept.unwrap();
    assert_eq!(drain.look().await.unwrap().records, 0);
    for (key, records) in [("a", 1), ("b", 2)] {
        put(&served, key, "1").await;
        refuses.store(true, Ordering::SeqCst);
        assert_eq!(drain.look().await.unwrap().records, records, "{key}");
        assert!(!refuses.load(Ordering::SeqCst), "no iterator was refused");
    }
}

/// Goal: an item that does not convert back blocks a drain only while a revert must stay possible.
#[tokio::test]
async fn lost_changes_are_reported_while_the_reverse_direction_is_kept() {
    let (served, all) = serve_older().await;
    let (context, plan) = (&served.context, of_numbers());
    is_in(context, rules::migration::Phase::Tailing).await;
    put(&served, "k", "1").await;
    put(&served, "k", "1.0").await;
    let expect = Expect::phases(&[rules::migration::Phase::Tailing]);
    for (way_back, told) in [(InverseUse::Unused, false), (InverseUse::Required, true)] {
        let mut drain = drain(context, &plan, Direction::Forward, all, way_back).await.unwrap();
        drain.look().await.unwrap();
        drain.say_again(&context.control, expect, None, i64::MAX).await.unwrap();
        let looked = drain.look().await.unwrap();
        assert_eq!(looked.missing, None);
        let hopeless = looked.hopeless.unwrap_or_default();
        assert_eq!(
            hopeless.contains("that does not convert back to the same item"),
            told,
            "{hopeless}"
        );
        if told {
            put(&served, "k", "3").await;
            drain.look().await.unwrap();
            drain.say_again(&context.control, expect, None, i64::MAX).await.unwrap();
            assert_eq!(drain.look().await.unwrap().hopeless, None);
        }
    }
}
