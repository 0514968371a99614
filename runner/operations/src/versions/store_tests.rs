//! Tests of histories in a store in this process, mainly of bases: first versions that a backfill
//! writes.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use bytes::Bytes;
use futures::FutureExt as _;
use http::Response;
use http_body_util::Full;
use model::Number;
use rules::versions::Head;

use super::*;
use client::attribute::to_sdk_item;
use client::failure::{Failure, Result};
use testing::proxy;
use testing::store::TestStore;

const KEY: &str = r#"{"p":"Rush"}"#;

/// Returns the tables of films and of their histories, with one film.
async fn films(store: &TestStore) -> Place {
    store.table("films").await;
    store.table_of("films-history", "item", "version").await;
    let put = store.client.put_item().table_name("films");
    let put = put.item("p", SdkValue::S("Rush".to_owned()));
    put.item("year", SdkValue::N("2013".to_owned())).send().await.unwrap();
    films_of(store)
}

fn films_of(store: &TestStore) -> Place {
    Place {
        client: store.client.clone(),
        endpoint: store.url.clone(),
        table: "films".to_owned(),
        history: "films-history".to_owned(),
    }
}

async fn versions(place: &Place) -> Vec<Version> {
    kept(place, &item_key::parse(KEY).unwrap()).await.unwrap()
}

fn as_of_seconds(seconds: u64) -> Which {
    Which { number: None, as_of: Some(seconds.to_string()) }
}

/// Returns the result of `restore` for the film.
async fn restored(place: &Place, which: Which) -> Result<Exit> {
    let arguments = VersionsArguments {
        verb: VersionsVerb::Restore { key: KEY.to_owned(), which, without: vec![], dry_run: false },
        table: Some(place.table.clone()),
        history: None,
        endpoint: Some(place.endpoint.clone()),
    };
    run(arguments, Output::Json).await
}

#[tokio::test]
async fn a_history_begins_when_a_back_fill_saw_the_item() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    let before = u64::try_from(endpoint::store_seconds(&store.url, &store.client).await).unwrap();
    assert!(backfill::run(&place, false).await.unwrap().is_whole());
    let versions = versions(&place).await;
    let at = versions[0].at_seconds.unwrap();
    assert!(at >= before, "{at}");
    let film = choose(&versions, &as_of_seconds(at)).unwrap();
    assert_eq!(film.image.as_ref().unwrap()["year"], Number::from(2013u64).into());
    assert_eq!(restored(&place, as_of_seconds(at)).await, Ok(Exit::Done), "it is so");
    for which in [as_of_seconds(at - 1), as_of_seconds(0)] {
        let said = choose(&versions, &which).unwrap_err();
        assert!(said.to_string().starts_with("the history begins after"), "{said}");
        assert_eq!(restored(&place, which).await, Err(said));
    }
}

/// A base has no time if an earlier release wrote it, or if it comes from the first change.
#[tokio::test]
async fn a_base_without_a_time_is_restored_by_its_number_only() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    backfill::run(&place, false).await.unwrap();
    let base = Version { at_seconds: None, ..versions(&place).await.remove(0) };
    let base = base.to_item(&history_key(&item_key::parse(KEY).unwrap()));
    let put = place.client.put_item().table_name(&place.history);
    put.set_item(Some(to_sdk_item(&base))).send().await.unwrap();
    let doubtful = restored(&place, as_of_seconds(1_700_000_000)).await;
    assert!(matches!(doubtful, Err(Failure::Refused(_))), "{doubtful:?}");
    let first = Which { number: Some(1), as_of: None };
    assert_eq!(restored(&place, first).await, Ok(Exit::Done));
}

#[tokio::test]
async fn a_history_without_its_beginning_is_wrong() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    backfill::run(&place, false).await.unwrap();
    let item = history_key(&item_key::parse(KEY).unwrap());
    let write = async |entry: Item| {
        let put = place.client.put_item().table_name(&place.history);
        put.set_item(Some(to_sdk_item(&entry))).send().await.unwrap();
    };
    let base = versions(&place).await.remove(0);
    write(Version { number: 2, ..base.clone() }.to_item(&item)).await;
    write(Head { latest: 2, ..Head::of_base() }.to_item(&item)).await;
    assert!(check::run(&place, 0).await.unwrap().is_clean());
    let delete = place.client.delete_item().table_name(&place.history);
    let delete = delete.key("item", SdkValue::S(item.clone()));
    delete.key("version", SdkValue::S("v0000000001".to_owned())).send().await.unwrap();
    let wrong = check::run(&place, 0).await.unwrap().wrong;
    assert_eq!(wrong, [(item.clone(), "has no versions at its beginning")].into());
    // This head belongs to a history whose base was pruned because of newer versions.
    write(Head { latest: 2, first: 2, ..Head::of_base() }.to_item(&item)).await;
    assert!(check::run(&place, 0).await.unwrap().is_clean());
}

/// An item that differed from its history in two scans counts as correct if both match once when
/// they are read in immediate succession.
#[tokio::test]
async fn suspicious_histories_are_checked_individually() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    let item = history_key(&item_key::parse(KEY).unwrap());
    let seemed = || [(item.clone(), "differs from its current version in the history")].into();
    let looked = async || recheck::retain_wrong(&place, seemed(), Duration::ZERO).await.unwrap();
    assert_eq!(looked().await, [(item.clone(), "has no history")].into());
    backfill::run(&place, false).await.unwrap();
    assert!(looked().await.is_empty());
    let delete = place.client.delete_item().table_name(&place.table);
    delete.key("p", SdkValue::S("Rush".to_owned())).send().await.unwrap();
    assert_eq!(
        looked().await,
        [(item.clone(), "was deleted, but its history has no deletion")].into()
    );
}

#[tokio::test]
async fn a_back_fill_leaves_the_histories_that_there_are() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    for _ in 0..2 {
        assert!(backfill::run(&place, false).await.unwrap().is_whole());
        assert_eq!(versions(&place).await.len(), 1);
    }
}

/// DynamoDB may count more bytes than this code. An item that it rejects is left out, like an item
/// that is known to be too large. The other items get their histories.
#[tokio::test]
async fn a_base_that_is_refused_for_its_size_is_named_and_left_out() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    let put = store.client.put_item().table_name("films");
    put.item("p", SdkValue::S("Large".to_owned())).send().await.unwrap();
    let script = |operation: &str, body: &str| {
        let is_meant = operation == "TransactWriteItems" && body.contains("Large");
        let refused = json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": "no", "CancellationReasons": [
                { "Code": "None" },
                { "Code": "ValidationError", "Message": "Item size has exceeded the maximum allowed size" },
            ],
        });
        let body = Full::new(Bytes::from(refused.to_string()));
        let answer = Response::builder().status(400).body(body);
        futures::future::ready(is_meant.then(|| answer.unwrap())).boxed()
    };
    let url = proxy::before(&store.url, script).await;
    let through = Place { client: endpoint::client(&url), endpoint: url, ..films_of(&store) };
    let report = backfill::run(&through, false).await.unwrap();
    assert!(!report.is_whole());
    let said = report.text(Output::Table, false);
    assert!(said.contains("2 items, 1 history begun, 0 existed already"), "{said}");
    assert!(said.contains("Item size has exceeded"), "{said}");
    let wrong = check::run(&place, 0).await.unwrap().wrong;
    let large = history_key(&Item::new().with("p", "Large"));
    assert_eq!(wrong, [(large, "has no history")].into());
}

/// An unreadable head and a too long key do not prevent the comparison of the other histories.
#[tokio::test]
async fn a_head_that_cannot_be_read_and_a_key_that_is_too_long_are_findings() {
    let store = TestStore::open().await;
    let place = films(&store).await;
    assert!(backfill::run(&place, false).await.unwrap().is_whole());
    let rush = history_key(&item_key::parse(KEY).unwrap());
    let head = Head { latest: 1, ..Head::of_base() }.to_item(&rush);
    let put = async |table: &str, item: Item| {
        let put = place.client.put_item().table_name(table);
        put.set_item(Some(to_sdk_item(&item))).send().await.unwrap();
    };
    put(&place.history, head.clone().with("latest", "one")).await;
    let long = Item::new().with("p", "x".repeat(2_040));
    put(&place.table, long.clone()).await;
    put(&place.table, Item::new().with("p", "Up")).await;
    let wrong = check::run(&place, 0).await.unwrap().wrong;
    let up = history_key(&Item::new().with("p", "Up"));
    let expected = [
        (rush, HEAD_DAMAGED),
        (up, "has no history"),
        (history_key(&long), "does not fit into a version"),
    ];
    assert_eq!(wrong, expected.into());
    assert_eq!(list_histories(&place, Output::Json).await, Ok(Exit::Differences));
    put(&place.history, head).await;
    assert_eq!(list_histories(&place, Output::Json).await, Ok(Exit::Done));
}
