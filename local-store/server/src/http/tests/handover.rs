//! Tests of the handover over HTTP: which requests a store refuses afterwards, and for how long.

use std::path::Path;

use super::*;

const TO: &str = r#"{"to":"http://127.0.0.1:9"}"#;
const ITEM: &str = r#"{"TableName":"votes","Item":{"pk":{"S":"1"}}}"#;

/// Opens a store. An earlier store on the directory may still be ending.
async fn open(directory: &Path) -> Store {
    for _ in 0..500 {
        let config = Config {
            directory: directory.to_path_buf(),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 1,
            arcs: 1,
        };
        match Store::open(config, Box::new(|reason| panic!("{reason}"))).await {
            Ok(store) => return store,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("the directory stays in use");
}

async fn put(store: &Store) -> crate::api::Response {
    crate::api::handle(store, "DynamoDB_20120810.PutItem", ITEM.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_handed_over_answers_only_reads() {
    let server = Server::start().await;
    server.call("CreateTable", TABLE).await;
    assert_eq!(server.call("PutItem", ITEM).await.status, 200);
    let shown = server.send("GET /_weir/handover HTTP/1.1", "").await;
    assert_eq!((shown.status, shown.text()), (200, r#"{"to":null}"#));
    for body in ["", "{}", r#"{"to":"127.0.0.1:9"}"#, r#"{"to":"http://a","more":1}"#] {
        let refused = server.send("POST /_weir/handover HTTP/1.1", body).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.text());
    }
    // The second request has no further effect.
    for _ in 0..2 {
        let done = server.send("POST /_weir/handover HTTP/1.1", TO).await;
        assert_eq!((done.status, done.text()), (200, TO));
    }
    let other = r#"{"to":"http://127.0.0.1:10"}"#;
    let refused = server.send("POST /_weir/handover HTTP/1.1", other).await;
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("http://127.0.0.1:9"), "{}", refused.text());
    let shown = server.send("GET /_weir/handover HTTP/1.1", "").await;
    assert_eq!(shown.text(), TO);

    let key = r#"{"TableName":"votes","Key":{"pk":{"S":"1"}}}"#;
    for (operation, body) in [
        ("PutItem", ITEM),
        ("DeleteItem", key),
        ("UpdateItem", key),
        (
            "BatchWriteItem",
            r#"{"RequestItems":{"votes":[{"PutRequest":{"Item":{"pk":{"S":"2"}}}}]}}"#,
        ),
        (
            "TransactWriteItems",
            r#"{"TransactItems":[{"Delete":{"TableName":"votes","Key":{"pk":{"S":"1"}}}}]}"#,
        ),
        ("ExecuteStatement", r#"{"Statement":"DELETE FROM votes WHERE pk='1'"}"#),
        ("CreateTable", TABLE),
        ("DeleteTable", r#"{"TableName":"votes"}"#),
        ("UpdateTable", r#"{"TableName":"votes","StreamSpecification":{"StreamEnabled":false}}"#),
        (
            "UpdateTimeToLive",
            r#"{"TableName":"votes","TimeToLiveSpecification":{"AttributeName":"t","Enabled":true}}"#,
        ),
        ("TagResource", r#"{"ResourceArn":"a","Tags":[]}"#),
    ] {
        let refused = server.call(operation, body).await;
        assert_eq!(refused.status, 400, "{operation}: {}", refused.text());
        assert!(refused.text().contains("copied to `http://127.0.0.1:9`"), "{}", refused.text());
    }
    for (operation, body) in [
        ("GetItem", key),
        ("Scan", r#"{"TableName":"votes"}"#),
        ("ExecuteStatement", r#"{"Statement":"SELECT * FROM votes"}"#),
        ("DescribeTable", r#"{"TableName":"votes"}"#),
        ("DescribeTimeToLive", r#"{"TableName":"votes"}"#),
        ("ListTables", "{}"),
    ] {
        let answer = server.call(operation, body).await;
        assert_eq!(answer.status, 200, "{operation}: {}", answer.text());
    }
    assert_eq!(server.send("DELETE /_weir/tables HTTP/1.1", "").await.status, 409);
    assert!(server.call("GetItem", key).await.text().contains("Item"), "nothing was deleted");
}

/// Goal: expired items stay as they were copied. Method: an item expires after the handover, and the
/// store sweeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_expires_after_a_handover() {
    let server = Server::start().await;
    server.call("CreateTable", TABLE).await;
    let ttl =
        r#"{"TableName":"votes","TimeToLiveSpecification":{"AttributeName":"t","Enabled":true}}"#;
    assert_eq!(server.call("UpdateTimeToLive", ttl).await.status, 200);
    let expires = server.store.now().0 / 1000 + 3600;
    let item =
        format!(r#"{{"TableName":"votes","Item":{{"pk":{{"S":"1"}},"t":{{"N":"{expires}"}}}}}}"#);
    assert_eq!(server.call("PutItem", &item).await.status, 200);
    server.send("POST /_weir/handover HTTP/1.1", TO).await;
    server.send("POST /_weir/clock HTTP/1.1", r#"{"advance_ms":36000000}"#).await;
    let swept = server.send("POST /_weir/ttl/sweep HTTP/1.1", "").await;
    assert_eq!((swept.status, swept.text()), (200, r#"{"expired":0}"#));
    assert_eq!(server.call("Scan", r#"{"TableName":"votes"}"#).await.json()["Count"], 1);
}

/// Goal: a write is either acknowledged before the answer to the handover, or refused. Method: writers
/// put new items until one is refused. The items after the answer are those that were acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_is_acknowledged_after_the_answer() {
    let server = Server::start().await;
    server.call("CreateTable", TABLE).await;
    let writer = |writer: u32, store: Store| async move {
        for number in 0_u32.. {
            let item =
                format!(r#"{{"TableName":"votes","Item":{{"pk":{{"S":"{writer}-{number}"}}}}}}"#);
            let put = crate::api::handle(&store, "DynamoDB_20120810.PutItem", item.as_bytes());
            if put.await.status != 200 {
                return number;
            }
        }
        0
    };
    let writers: Vec<_> =
        (0..8).map(|number| tokio::spawn(writer(number, server.store.clone()))).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.send("POST /_weir/handover HTTP/1.1", TO).await.status, 200);
    let count = r#"{"TableName":"votes","Select":"COUNT","ConsistentRead":true}"#;
    let counted = server.call("Scan", count).await.json()["Count"].as_u64().unwrap();
    let mut acknowledged = 0;
    for writer in writers {
        acknowledged += u64::from(writer.await.unwrap());
    }
    assert!(acknowledged > 0);
    assert_eq!(counted, acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_lasts_until_its_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let target = "DynamoDB_20120810.CreateTable";
    assert_eq!(crate::api::handle(&store, target, TABLE.as_bytes()).await.status, 200);
    store.hand_over("http://127.0.0.1:9").await.unwrap();
    drop(store);
    let again = open(folder.path()).await;
    let refused = put(&again).await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("copied to `http://127.0.0.1:9`"), "{}", refused.body);
    drop(again);
    std::fs::remove_file(folder.path().join("handover")).unwrap();
    assert_eq!(put(&open(folder.path()).await).await.status, 200);
}
