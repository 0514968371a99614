//! Tests of the example that applications copy, `examples/migrations/route.rs`, against a store.
//! They cover each case of `tests/clients/route_cases.json`, a switch, and reads of the route that
//! fail or are slow.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use client::attribute::to_sdk_item;
use client::endpoint;
use futures::FutureExt as _;
use http::Response;
use http_body_util::Full;
use model::json::item_from_str;
use serde_json::{Value, json};
use testing::proxy;
use testing::store::TestStore;

use self::route::{Item, KEEP, Route, insert, visible};

#[expect(unreachable_pub, reason = "an application has it as its own")]
#[path = "../../../../examples/migrations/route.rs"]
mod route;

fn cases() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/route_cases.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns an item whose key attributes have the strings `texts`, with the optional `attributes` of
/// a test case.
fn with_keys(keys: &[&str], texts: [&str; 2], attributes: &Value) -> Item {
    let attributes = if attributes.is_null() { json!({}) } else { attributes.clone() };
    let mut item: Item = to_sdk_item(&item_from_str(&attributes.to_string()).unwrap());
    for (key, text) in keys.iter().zip(texts) {
        item.insert((*key).to_owned(), AttributeValue::S(text.to_owned()));
    }
    item
}

async fn put(client: &Client, table: &str, item: Item) {
    client.put_item().table_name(table).set_item(Some(item)).send().await.unwrap();
}

async fn set_route(client: &Client, entry: &Value) {
    put(client, "control", with_keys(&["migration", "entry"], ["move", "ROUTE"], entry)).await;
}

fn sides(read: &str, write: &str) -> Value {
    json!({"read": {"S": read}, "write": {"S": write}})
}

#[tokio::test]
async fn what_an_application_must_do_is_right_in_each_case() {
    let (store, cases) = (TestStore::open().await, cases());
    let client = &store.client;
    store.table_of("control", "migration", "entry").await;
    let keys: Vec<&str> =
        cases["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    let always = cases["always"].as_str().unwrap();
    store.table_of("parts", keys[0], keys[1]).await;
    for (number, case) in cases["inserts"].as_array().unwrap().iter().enumerate() {
        let texts = [format!("case-{number}"), "a".to_owned()];
        let whole = |attributes: &Value| with_keys(&keys, [&texts[0], &texts[1]], attributes);
        if !case["there"].is_null() {
            put(client, "parts", whole(&case["there"])).await;
        }
        let put = insert(client, "parts", whole(&case["item"]), &keys, always).unwrap();
        let inserted = put.send().await;
        if let Err(error) = &inserted {
            let error = error.as_service_error().unwrap();
            assert!(error.is_conditional_check_failed_exception(), "{case}: {error:?}");
        }
        assert_eq!(inserted.is_ok(), case["inserted"] == true, "{case}");
        let get = client.get_item().table_name("parts").consistent_read(true);
        let key = Some(whole(&Value::Null));
        let there = get.set_key(key).send().await.unwrap().item.unwrap();
        let expected = if inserted.is_ok() { &case["item"] } else { &case["there"] };
        assert_eq!(there, whole(expected), "{case}");
    }
    let refused = cases["refused"].as_array().unwrap().iter().map(|case| (&case["item"], always));
    for (item, always) in refused.chain([(&Value::Null, keys[0])]) {
        let item = with_keys(&keys, ["p", "s"], item);
        let error = insert(client, "parts", item, &keys, always).unwrap_err();
        assert_eq!(error, format!("`{always}` must be an attribute of the item beside its key"));
    }
    // With the keys of another table, the insert would overwrite an existing item.
    let order = with_keys(&["orderID"], ["1", ""], &json!({ always: {"N": "1"} }));
    let error = insert(client, "orders", order, &keys, always).unwrap_err();
    assert!(error.contains("`pk` must be") && error.contains("of `orders`"), "{error}");
    for case in cases["visible"].as_array().unwrap() {
        let whole = |attributes: &Value| with_keys(&keys, ["p", "s"], attributes);
        let seen = visible(whole(&case["item"]), &keys);
        assert_eq!(seen, case.get("seen").map(whole), "{case}");
    }
    for case in cases["routes"].as_array().unwrap() {
        if !case["entry"].is_null() {
            set_route(client, &case["entry"]).await;
        }
        let route = Route::new(client, "control", "move", KEEP);
        let found = json!([route.read().await.unwrap(), route.write().await.unwrap()]);
        assert_eq!(found, json!([case["read"], case["write"]]), "{case}");
    }
}

#[tokio::test]
async fn a_writer_waits_for_the_end_of_a_switch() {
    let store = TestStore::open().await;
    store.table_of("control", "migration", "entry").await;
    set_route(&store.client, &sides("source", "source")).await;
    let route = Route::new(&store.client, "control", "move", Duration::from_millis(500));
    assert_eq!(route.write().await.unwrap(), "source");
    set_route(&store.client, &sides("source", "none")).await;
    assert_eq!(route.write().await.unwrap(), "source", "the route is read again later");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let began = Instant::now();
    let opened = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        set_route(&store.client, &sides("target", "target")).await;
    };
    let (side, ()) = tokio::join!(route.write(), opened);
    assert_eq!(side.unwrap(), "target");
    assert!(began.elapsed() > Duration::from_millis(900), "the write waits for the switch");
}

#[tokio::test]
async fn an_old_route_is_not_used_while_reads_of_it_fail_or_are_slow() {
    let store = TestStore::open().await;
    store.table_of("control", "migration", "entry").await;
    set_route(&store.client, &sides("source", "source")).await;
    let reads = AtomicUsize::new(0);
    let script = move |_: &str, _: &str| {
        let read = reads.fetch_add(1, Ordering::Relaxed);
        async move {
            match read {
                1 | 2 => proxy::refusal(400, "ResourceNotFoundException"),
                // The response arrives so late that the route in the response is already out of
                // date.
                3 => {
                    tokio::time::sleep(Duration::from_millis(800)).await;
                    let answer = json!({ "Item": sides("source", "source") });
                    Some(Response::new(Full::new(Bytes::from(answer.to_string()))))
                }
                _ => None,
            }
        }
        .boxed()
    };
    let client = endpoint::client(&proxy::before(&store.url, script).await);
    let route = Route::new(&client, "control", "move", Duration::from_millis(400));
    assert_eq!(route.write().await.unwrap(), "source");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(route.write().await.is_err());
    assert!(route.write().await.is_err(), "an expired route stays expired");
    set_route(&store.client, &sides("target", "target")).await;
    let (one, other) = tokio::join!(route.write(), route.write());
    assert_eq!((one.unwrap(), other.unwrap()), ("target".to_owned(), "target".to_owned()));
}
