//! The API's tests as text: `testdata/api/<operation>.txt`, one file for each operation.
//!
//! Goal: every response and every error text of the API can be proofread. Method: the requests of each file
//! are sent to a new store. Each block is a request and, below `----`, the expected status and JSON.
//! `UPDATE=1 cargo test -p server api` records the responses again.
//!
//! A request is an operation's name and its JSON, or one of `raw <target> <body>`, `freeze`, `advance
//! <milliseconds>`, `enforce` (throughput), `limit-collections <bytes>` and `tick`. In a request, `${a*5}`
//! stands for `aaaaa`, and `${Name}` for the first string of a member with that name in the last response
//! that has one. In a response, values that differ between runs are numbered in the order of their appearance
//! (`SHARD-1`), times are 0, and 40 or more equal characters are written as in a request.

mod limits;
mod statements;
mod table_limits;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::describe_endpoints::describe_endpoints;
use super::{Response, handle};
use crate::store::ticks;
use crate::store::{Config, Store};

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

/// Opens a store that ticks only when a test calls a tick.
async fn open_store_without_ticks(directory: &Path) -> Store {
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    Store::open_without_ticks(config(directory), on_fatal).await.unwrap()
}

async fn call(store: &Store, operation: &str, body: &str) -> Response {
    let streams = ["ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"];
    let api = if streams.contains(&operation) { "DynamoDBStreams" } else { "DynamoDB" };
    handle(store, &format!("{api}_20120810.{operation}"), body.as_bytes()).await
}

/// Plays the requests of one file and returns the file's text with the actual responses.
struct Player {
    store: Store,
    captured: BTreeMap<String, String>,
    /// The values that differ between runs, by kind. Their position is their number.
    numbered: BTreeMap<&'static str, Vec<String>>,
}

impl Player {
    async fn play(&mut self, text: &str) -> String {
        let mut out = Vec::new();
        for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
            let request = block.split("\n----").next().unwrap();
            let command: Vec<&str> =
                request.lines().filter(|line| !line.starts_with('#')).collect();
            if command.is_empty() {
                out.push(request.to_owned());
                continue;
            }
            let answer = self.answer(&command.join("\n")).await;
            out.push(format!("{request}\n----\n{answer}"));
        }
        out.join("\n\n") + "\n"
    }

    async fn answer(&mut self, command: &str) -> String {
        let expanded = self.expand(command);
        let (name, rest) = expanded.split_once(char::is_whitespace).unwrap_or((&expanded, ""));
        let response = match name {
            "freeze" => {
                return format!("frozen {}", self.store.clock().freeze() > Default::default());
            }
            "advance" => {
                self.store.clock().advance(rest.trim().parse().unwrap());
                return "advanced".to_owned();
            }
            "enforce" => {
                self.store.traffic().set_throughput(crate::traffic::Throughput::Enforce);
                return "enforced".to_owned();
            }
            "limit-collections" => {
                let bytes_max = rest.trim().parse().unwrap();
                let limit = partition::Command::LimitItemCollections { bytes_max };
                self.store.submit(vec![limit]).await.unwrap();
                return "limited".to_owned();
            }
            "tick" => {
                ticks::tick(&self.store).await.unwrap();
                return "ticked".to_owned();
            }
            "raw" => {
                let (target, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                handle(&self.store, target, body.as_bytes()).await
            }
            "DescribeEndpoints" => describe_endpoints("localhost:8000", rest.as_bytes()),
            operation => call(&self.store, operation, rest).await,
        };
        // A few operations have responses without a body.
        let mut body = match response.body.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        };
        let mut seen = BTreeMap::new();
        self.normalise("", &mut body, &mut seen);
        self.captured.extend(seen);
        compress(&format!("{} {body}", response.status))
    }

    fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').unwrap();
            out.push_str(before);
            match name.split_once('*') {
                Some((unit, count)) => out.push_str(&unit.repeat(count.parse().unwrap())),
                None => out.push_str(&self.captured[name]),
            }
            rest = after;
        }
        out + rest
    }

    /// Numbers the values that differ between runs, and keeps strings by their member's name.
    fn normalise(&mut self, name: &str, value: &mut Value, seen: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.normalise(name, member, seen);
                }
            }
            Value::Array(members) => {
                members.iter_mut().for_each(|member| self.normalise(name, member, seen));
            }
            Value::String(text) => {
                seen.entry(name.to_owned()).or_insert_with(|| text.clone());
                *text = self.normalise_text(name, text);
            }
            Value::Number(_) if name.ends_with("DateTime") => *value = 0.into(),
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    fn normalise_text(&mut self, name: &str, text: &str) -> String {
        if name.ends_with("ShardIterator") {
            return "ITERATOR".to_owned();
        }
        if name == "NextToken" {
            return "TOKEN".to_owned();
        }
        if name == "eventID" {
            assert_eq!(text.len(), 32);
            return "EVENT".to_owned();
        }
        if name.ends_with("SequenceNumber") {
            return self.number("SEQUENCE", text);
        }
        if name == "RevisionId" {
            return self.number("REVISION", text);
        }
        let mut text = text.to_owned();
        for (position, known) in self.numbered.get("REVISION").into_iter().flatten().enumerate() {
            text = text.replace(known, &format!("REVISION-{}", position + 1));
        }
        for (kind, start, length) in [("LABEL", "20", 23), ("SHARD", "shardId-", 37)] {
            while let Some(at) = text.match_indices(start).map(|(at, _)| at).find(|at| {
                text.get(*at..at + length).is_some_and(|found| {
                    kind == "SHARD"
                        || found.ends_with(|c: char| c.is_ascii_digit())
                            && found.contains('T')
                            && found.contains(':')
                })
            }) {
                let found = text[at..at + length].to_owned();
                text = text.replace(&found, &self.number(kind, &found));
            }
        }
        text
    }

    fn number(&mut self, kind: &'static str, text: &str) -> String {
        let known = self.numbered.entry(kind).or_default();
        let position = known.iter().position(|k| k == text).unwrap_or_else(|| {
            known.push(text.to_owned());
            known.len() - 1
        });
        format!("{kind}-{}", position + 1)
    }
}

/// Writes long runs of one character as `${a*100}`.
fn compress(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| c != first).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let count = run.chars().count();
        if count < 40 {
            out.push_str(run);
        } else {
            let _ = write!(out, "${{{first}*{count}}}");
        }
        rest = after;
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_as_recorded() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/api");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    let mut different = String::new();
    for file in files {
        let recorded = fs::read_to_string(&file).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = open_store_without_ticks(directory.path()).await;
        let mut player = Player { store, captured: BTreeMap::new(), numbered: BTreeMap::new() };
        let played = player.play(&recorded).await;
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, played).unwrap();
            continue;
        }
        for (expected, got) in recorded.lines().zip(played.lines()) {
            if expected != got {
                let _ = writeln!(different, "{}\n- {expected}\n+ {got}", file.display());
            }
        }
        assert_eq!(recorded.lines().count(), played.lines().count(), "{}", file.display());
    }
    assert!(different.is_empty(), "{different}");
}

/// Goal: every operation has a file, so that its responses can be proofread.
#[test]
fn each_operation_has_a_file_that_asks_for_it() {
    let source = include_str!("../operation.rs");
    let (_, names) = source.split_once("enum Operation {").unwrap();
    let (names, _) = names.split_once('}').unwrap();
    let names = names.split([',', '\n', ' ']).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.chain(["DescribeEndpoints"]).collect();
    assert_eq!(names.len(), 34, "{names:?}");
    for name in names {
        let mut file = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !file.is_empty() {
                file.push('_');
            }
            file.extend(letter.to_lowercase());
        }
        let path = format!("{}/testdata/api/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let recorded = fs::read_to_string(&path).unwrap_or_default();
        let answers = recorded.split("\n\n").filter(|block| {
            let mut lines = block.lines().filter(|line| !line.starts_with('#'));
            lines.next().is_some_and(|line| line.split(' ').next() == Some(name))
        });
        let answers: Vec<&str> = answers
            .filter_map(|block| block.split_once("----\n"))
            .map(|(_, answer)| answer)
            .collect();
        for status in ["200 ", "400 "] {
            assert!(answers.iter().any(|answer| answer.starts_with(status)), "{path}: {status}");
        }
    }
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

/// Follows `LastEvaluatedKey` to the end. Returns each page's sort keys.
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

/// Goal: a page ends at 1 MB of items read, filtered or not, and no item is lost or returned twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_end_at_one_megabyte() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_with_parts(directory.path(), "").await;
    for sk in 0..25 {
        put(&store, "a", sk, 100_000).await;
    }
    let query = r#""TableName":"parts","KeyConditionExpression":"pk = :p","ExpressionAttributeValues":{":p":{"S":"a"}}"#;
    let found = pages(&store, "Query", query).await;
    // The item that reaches 1 MB is the last one of the page.
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [11, 11, 3]);
    let forward: Vec<String> = found.concat();
    assert_eq!(forward, (0..25).map(|n| n.to_string()).collect::<Vec<_>>());

    let backward = pages(&store, "Query", &format!(r#"{query},"ScanIndexForward":false"#)).await;
    assert_eq!(backward.concat(), (0..25).rev().map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(pages(&store, "Scan", r#""TableName":"parts""#).await.concat(), forward);
    let filtered = r#""TableName":"parts","FilterExpression":"sk = :n","ExpressionAttributeValues":{":n":{"N":"24"}}"#;
    assert_eq!(pages(&store, "Scan", filtered).await, [vec![], vec![], vec!["24".to_owned()]]);
    // 11 items of 100,000 bytes and a little: 269 units of 4 KB, halved.
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

/// Goal: pages and segments of an index return every entry once, even if many entries have one key. A page of
/// fetched items ends at 1 MB of items.
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

/// Goal: batches respect their limits. Requests beyond 16 MB are returned as unprocessed, in a form that can
/// be sent again.
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

/// Goal: an expired item is deleted once, and the stream record names TTL as the origin.
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
