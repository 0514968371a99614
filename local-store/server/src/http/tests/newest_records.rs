//! Tests of the newest records of a stream over HTTP.
//!
//! Goal: the response has the newest records of all shards, or the newest records of one item. Method: the
//! test writes items of several shards, one after the other.

use serde_json::{Value, json};

use super::{Server, TABLE};

impl Server {
    /// Returns the response, and the keys in the order of its shards.
    async fn newest(&self, body: &Value) -> (Value, Vec<String>) {
        let answer =
            self.send("POST /_weir/streams/votes/newest HTTP/1.1", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        let shards = answer["shards"].as_array().unwrap();
        let records = shards.iter().flat_map(|shard| shard["Records"].as_array().unwrap());
        let key = |record: &Value| record["dynamodb"]["Keys"]["pk"]["S"].as_str().unwrap().into();
        let mut keys: Vec<String> = records.map(key).collect();
        keys.sort_unstable();
        (answer, keys)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_records_of_all_shards_are_found() {
    let server = Server::start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    let empty = server.newest(&json!({"limit": 5})).await.0;
    assert_eq!((&empty["shards"], &empty["complete"]), (&json!([]), &json!(true)));
    // With a frozen clock, all records have the same time, so their order is the order of the log.
    server.send("POST /_weir/clock HTTP/1.1", r#"{"freeze":true}"#).await;
    for number in 10..50 {
        let item = json!({"TableName": "votes", "Item": {"pk": {"S": number.to_string()}}});
        assert_eq!(server.call("PutItem", &item.to_string()).await.status, 200);
    }
    let (answer, keys) = server.newest(&json!({"limit": 5})).await;
    assert_eq!(keys, ["45", "46", "47", "48", "49"]);
    // Without the bound by the oldest found record, this would be 5 of each of the 4 shards.
    assert!(answer["read"].as_u64().unwrap() < 20, "{answer}");
    assert_eq!(answer["complete"], false);
    assert!(answer["arn"].as_str().unwrap().contains(":table/votes/stream/"));
    let (answer, keys) = server.newest(&json!({"limit": 1000})).await;
    assert_eq!((keys.len(), &answer["complete"], &answer["read"]), (40, &json!(true), &json!(40)));
    let (_, keys) = server.newest(&json!({"limit": 5, "key": {"pk": {"S": "11"}}})).await;
    assert_eq!(keys, ["11"]);
    for (path, body, status) in [
        ("votes/newest", "{}", 400),
        ("nothing/newest", r#"{"limit":1}"#, 404),
        ("votes", r#"{"limit":1}"#, 404),
    ] {
        let answer = server.send(&format!("POST /_weir/streams/{path} HTTP/1.1"), body).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}
