//! Tests of the API: a test against recorded responses, and tests that need several requests.

mod limits;
mod recorded;
mod statements;
mod table_limits;

use std::path::Path;

use partition::ReadError;
use serde_json::Value;

use super::error::ApiError;
use super::{Response, handle, metering};
use crate::store::{Config, Store, ticks};
use crate::traffic::{Access, Excess};

fn config(directory: &Path) -> Config {
    Config {
        directory: directory.to_path_buf(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas: 1,
        arcs: 1,
    }
}

pub(super) async fn open_store(directory: &Path) -> Store {
    Store::open(config(directory), Box::new(|reason| panic!("{reason}"))).await.unwrap()
}

/// Opens a store that does its periodic work only when a test calls `tick`.
async fn open_store_without_ticks(directory: &Path) -> Store {
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    Store::open_without_ticks(config(directory), on_fatal).await.unwrap()
}

async fn call(store: &Store, operation: &str, body: &str) -> Response {
    let streams = ["ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"];
    let api = if streams.contains(&operation) { "DynamoDBStreams" } else { "DynamoDB" };
    handle(store, &format!("{api}_20120810.{operation}"), body.as_bytes()).await
}

/// Returns a store with a table whose items have a partition key `pk` and a numeric sort key `sk`.
async fn store_with_parts(directory: &Path, stream: &str) -> Store {
    let store = open_store(directory).await;
    let create = format!(
        r#"{{"TableName":"parts","BillingMode":"PAY_PER_REQUEST",{stream}"AttributeDefinitions":[{{"AttributeName":"pk","AttributeType":"S"}},{{"AttributeName":"sk","AttributeType":"N"}}],"KeySchema":[{{"AttributeName":"pk","KeyType":"HASH"}},{{"AttributeName":"sk","KeyType":"RANGE"}}]}}"#
    );
    succeed(&store, "CreateTable", &create).await;
    store
}

async fn succeed(store: &Store, operation: &str, body: &str) -> Value {
    let response = call(store, operation, body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    serde_json::from_str(&response.body).unwrap()
}

async fn put(store: &Store, pk: &str, sk: usize, bytes: usize) {
    let filler = "x".repeat(bytes);
    let item = format!(
        r#"{{"TableName":"parts","Item":{{"pk":{{"S":"{pk}"}},"sk":{{"N":"{sk}"}},"v":{{"S":"{filler}"}}}}}}"#
    );
    succeed(store, "PutItem", &item).await;
}

/// Reads all pages of a Query or Scan. Returns the sort keys of each page.
async fn pages(store: &Store, operation: &str, parameters: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut start = String::new();
    loop {
        let page = succeed(store, operation, &format!("{{{parameters}{start}}}")).await;
        let items = page["Items"].as_array().unwrap();
        pages.push(items.iter().map(|item| item["sk"]["N"].as_str().unwrap().to_owned()).collect());
        if page["LastEvaluatedKey"].is_null() {
            return pages;
        }
        start = format!(r#","ExclusiveStartKey":{}"#, page["LastEvaluatedKey"]);
    }
}

/// Goal: a page ends when the items that were read have 1 MB, before the filter is applied. No item is
/// lost or returned twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_end_at_one_megabyte() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    for sk in 0..25 {
        put(&store, "a", sk, 100_000).await;
    }
    let query = r#""TableName":"parts","KeyConditionExpression":"pk = :p","ExpressionAttributeValues":{":p":{"S":"a"}}"#;
    let found = pages(&store, "Query", query).await;
    // The item that reaches 1 MB is the last item of the page.
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [11, 11, 3]);
    let forward: Vec<String> = found.concat();
    assert_eq!(forward, (0..25).map(|n| n.to_string()).collect::<Vec<_>>());

    let backward = pages(&store, "Query", &format!(r#"{query},"ScanIndexForward":false"#)).await;
    assert_eq!(backward.concat(), (0..25).rev().map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(pages(&store, "Scan", r#""TableName":"parts""#).await.concat(), forward);
    let filtered = r#""TableName":"parts","FilterExpression":"sk = :n","ExpressionAttributeValues":{":n":{"N":"24"}}"#;
    assert_eq!(pages(&store, "Scan", filtered).await, [vec![], vec![], vec!["24".to_owned()]]);
    // 11 items of slightly more than 100,000 bytes have 269 units of 4 KB. An eventually consistent read
    // costs half of that.
    let page = succeed(
        &store,
        "Scan",
        r#"{"TableName":"parts","Select":"COUNT","ReturnConsumedCapacity":"TOTAL"}"#,
    )
    .await;
    assert_eq!(page["ConsumedCapacity"]["CapacityUnits"], 134.5);
}

/// Goal: any page size and any number of segments return every item exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_segments_cover_the_table_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    for sk in 0..60 {
        put(&store, &format!("p{}", sk % 13), sk, 10).await;
    }
    let mut all: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    all.sort();
    for limit in [1, 7, 59, 60, 61] {
        let mut found = pages(&store, "Scan", &format!(r#""TableName":"parts","Limit":{limit}"#))
            .await
            .concat();
        found.sort();
        assert_eq!(found, all, "limit {limit}");
    }
    for total in [1, 2, 3, 16, 1_000_000] {
        let mut found = Vec::new();
        for segment in 0..total.min(40) {
            let part = format!(
                r#""TableName":"parts","Limit":3,"Segment":{segment},"TotalSegments":{total}"#
            );
            found.extend(pages(&store, "Scan", &part).await.concat());
        }
        found.sort();
        if total <= 40 {
            assert_eq!(found, all, "{total} segments");
        }
    }
}

/// Goal: pages and segments of an index return every entry once, even if many entries have the same
/// key. A page of items that are fetched from the table ends at 1 MB of items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_an_index_cover_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let index = |name: &str, hash: &str, range: &str, projection: &str| {
        format!(
            r#"[{{"IndexName":"{name}","KeySchema":[{{"AttributeName":"{hash}","KeyType":"HASH"}},{{"AttributeName":"{range}","KeyType":"RANGE"}}],"Projection":{{"ProjectionType":"{projection}"}}}}]"#
        )
    };
    let store = open_store(directory.path()).await;
    let create = format!(
        r#"{{"TableName":"parts","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{{"AttributeName":"pk","AttributeType":"S"}},{{"AttributeName":"sk","AttributeType":"N"}},{{"AttributeName":"i","AttributeType":"S"}}],"KeySchema":[{{"AttributeName":"pk","KeyType":"HASH"}},{{"AttributeName":"sk","KeyType":"RANGE"}}],"LocalSecondaryIndexes":{},"GlobalSecondaryIndexes":{}}}"#,
        index("local", "pk", "i", "KEYS_ONLY"),
        index("global", "i", "pk", "ALL"),
    );
    succeed(&store, "CreateTable", &create).await;
    let filler = "x".repeat(40_000);
    for sk in 0..60 {
        let item = format!(
            r#"{{"TableName":"parts","Item":{{"pk":{{"S":"p{}"}},"sk":{{"N":"{sk}"}},"i":{{"S":"i{}"}},"v":{{"S":"{filler}"}}}}}}"#,
            sk % 2,
            sk % 3
        );
        succeed(&store, "PutItem", &item).await;
    }
    let sorted = |mut found: Vec<String>| {
        found.sort();
        found
    };
    let all = sorted((0..60).map(|n| n.to_string()).collect());
    for (name, total) in [("local", 1), ("local", 3), ("global", 1), ("global", 7)] {
        for limit in [1, 7, 60] {
            let mut found = Vec::new();
            for segment in 0..total {
                let part = format!(
                    r#""TableName":"parts","IndexName":"{name}","Limit":{limit},"Segment":{segment},"TotalSegments":{total}"#
                );
                found.extend(pages(&store, "Scan", &part).await.concat());
            }
            assert_eq!(sorted(found), all, "{name} {total} {limit}");
        }
    }
    let query = |forward: bool| {
        format!(
            r#""TableName":"parts","IndexName":"local","Select":"ALL_ATTRIBUTES","ScanIndexForward":{forward},"KeyConditionExpression":"pk = :p","ExpressionAttributeValues":{{":p":{{"S":"p1"}}}}"#
        )
    };
    let forward = pages(&store, "Query", &query(true)).await;
    assert_eq!(forward.iter().map(Vec::len).collect::<Vec<_>>(), [27, 3]);
    let mut backward = pages(&store, "Query", &query(false)).await.concat();
    backward.reverse();
    assert_eq!(backward, forward.concat());
}

/// Goal: batches respect their limits. Requests beyond 16 MB are returned as unprocessed, and a client
/// can resend them unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_keep_to_their_limits() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    let writes = |count: usize| {
        let puts: Vec<String> = (0..count)
            .map(|n| {
                format!(r#"{{"PutRequest":{{"Item":{{"pk":{{"S":"b"}},"sk":{{"N":"{n}"}}}}}}}}"#)
            })
            .collect();
        format!(r#"{{"RequestItems":{{"parts":[{}]}}}}"#, puts.join(","))
    };
    succeed(&store, "BatchWriteItem", &writes(25)).await;
    let refused = call(&store, "BatchWriteItem", &writes(26)).await;
    assert!(refused.body.contains("Map value must satisfy constraint: [Member must have length less than or equal to 25, Member must have length greater than or equal to 1]"), "{}", refused.body);

    for sk in 0..45 {
        put(&store, "large", sk, 400_000).await;
    }
    let keys = |count: usize| {
        let keys: Vec<String> =
            (0..count).map(|n| format!(r#"{{"pk":{{"S":"large"}},"sk":{{"N":"{n}"}}}}"#)).collect();
        format!(
            r##"{{"RequestItems":{{"parts":{{"Keys":[{}],"ProjectionExpression":"#s","ExpressionAttributeNames":{{"#s":"sk"}},"ConsistentRead":true}}}}}}"##,
            keys.join(",")
        )
    };
    let refused = call(&store, "BatchGetItem", &keys(101)).await;
    assert!(refused.body.contains("Member must have length less than or equal to 100"));
    let first = succeed(&store, "BatchGetItem", &keys(45)).await;
    assert_eq!(first["Responses"]["parts"].as_array().unwrap().len(), 41);
    let rest = first["UnprocessedKeys"].clone();
    assert_eq!(rest["parts"]["Keys"].as_array().unwrap().len(), 4);
    let second = succeed(&store, "BatchGetItem", &format!(r#"{{"RequestItems":{rest}}}"#)).await;
    assert_eq!(second["Responses"]["parts"][3]["sk"]["N"], "44");
    assert_eq!(second["UnprocessedKeys"], serde_json::json!({}));
}

/// Goal: an expired item is deleted once, and its stream record identifies time to live (TTL) as the
/// cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_record_of_an_expiry_names_time_to_live() {
    let directory = tempfile::tempdir().unwrap();
    let stream = r#""StreamSpecification":{"StreamEnabled":true,"StreamViewType":"OLD_IMAGE"},"#;
    let store = store_with_parts(directory.path(), stream).await;
    let setting = r#"{"TableName":"parts","TimeToLiveSpecification":{"Enabled":true,"AttributeName":"expires"}}"#;
    succeed(&store, "UpdateTimeToLive", setting).await;
    ticks::tick(&store).await.unwrap();
    let now = store.clock().freeze().seconds();
    for (sk, expires) in [(1, now - 1), (2, now), (3, now + 3600)] {
        let item = format!(
            r#"{{"TableName":"parts","Item":{{"pk":{{"S":"a"}},"sk":{{"N":"{sk}"}},"expires":{{"N":"{expires}"}}}}}}"#
        );
        succeed(&store, "PutItem", &item).await;
    }
    store.sweep_time_to_live().await.unwrap();
    let left = pages(&store, "Scan", r#""TableName":"parts""#).await.concat();
    assert_eq!(left, ["2", "3"]);
    let key = r#"{"TableName":"parts","Key":{"pk":{"S":"a"},"sk":{"N":"2"}}}"#;
    succeed(&store, "DeleteItem", key).await;
    store.clock().advance(3_601_000);
    store.sweep_time_to_live().await.unwrap();

    let mut removed = Vec::new();
    let streams = succeed(&store, "ListStreams", r#"{"TableName":"parts"}"#).await;
    let arn = streams["Streams"][0]["StreamArn"].as_str().unwrap().to_owned();
    let described = succeed(&store, "DescribeStream", &format!(r#"{{"StreamArn":"{arn}"}}"#)).await;
    for shard in described["StreamDescription"]["Shards"].as_array().unwrap() {
        let iterator = succeed(
            &store,
            "GetShardIterator",
            &format!(
                r#"{{"StreamArn":"{arn}","ShardId":{},"ShardIteratorType":"TRIM_HORIZON"}}"#,
                shard["ShardId"]
            ),
        )
        .await;
        let page = succeed(&store, "GetRecords", &iterator.to_string()).await;
        for record in page["Records"].as_array().unwrap() {
            if record["eventName"] == "REMOVE" {
                removed.push((
                    record["dynamodb"]["Keys"]["sk"]["N"].as_str().unwrap().to_owned(),
                    record["userIdentity"].clone(),
                ));
            }
        }
    }
    let service = serde_json::json!({"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"});
    assert_eq!(
        removed,
        [
            ("1".to_owned(), service.clone()),
            ("2".to_owned(), Value::Null),
            ("3".to_owned(), service)
        ]
    );
}

/// Goal: if the store fails while it admits a transaction, it returns a server error. The client would
/// not retry a client error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_the_store_cannot_admit_has_an_error_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    let table = store.find_table("parts").unwrap();
    let excess =
        Excess { index: None, access: Access::Write, is_key_range: true, is_provisioned: true };
    let throttled = ApiError::throttled(&excess, "parts");
    let unreadable = ApiError::from(ReadError("the block is damaged".to_owned()));
    for (error, status) in [(throttled, 400), (unreadable.clone(), 500)] {
        let operations = [(&*table, Ok(Vec::new())), (&*table, Err(error))];
        let refused = metering::admit_transaction(&store, operations.into_iter()).unwrap_err();
        let response = refused.to_response();
        assert_eq!(response.status, status, "{}", response.body);
        assert_eq!(refused == unreadable, status == 500, "{}", response.body);
    }
}
