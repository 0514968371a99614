//! Tests of splits over HTTP, while clients write and read the stream.
//!
//! Goal: the only effect of a split for clients is two more shards. No record is lost or duplicated, and the
//! records of an item remain in order. Method: the tests increment counters while partitions are split.
//! Readers follow the shards from parent to child and count the records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{Server, TABLE};
use crate::traffic::SplitLimits;

impl Server {
    async fn streams(&self, operation: &str, body: &Value) -> Value {
        let head = format!("POST / HTTP/1.1\r\nX-Amz-Target: DynamoDBStreams_20120810.{operation}");
        let answer = self.send(&head, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{operation} {body}: {answer:?}");
        answer.json()
    }

    async fn partitions(&self) -> Vec<Value> {
        let answer = self.send("GET /_weir/partitions/votes HTTP/1.1", "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["partitions"].as_array().unwrap().clone()
    }

    async fn split(&self, body: &Value) -> super::Answer {
        self.send("POST /_weir/partitions/votes/split HTTP/1.1", &body.to_string()).await
    }

    /// Increments a counter and returns its new value.
    async fn count_up(&self, counter: usize) -> u64 {
        let body = json!({"TableName": "votes", "Key": {"pk": {"S": format!("c{counter}")}},
            "UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValues": "ALL_NEW"});
        let answer = self.call("UpdateItem", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["Attributes"]["n"]["N"].as_str().unwrap().parse().unwrap()
    }
}

/// A reader that follows a stream from its beginning. It reads each shard after its parent.
struct Reader {
    arn: String,
    /// The next iterator of each shard; `None` if the shard was read to its end.
    shards: BTreeMap<String, Option<String>>,
    /// The last value of each counter.
    counters: BTreeMap<String, u64>,
    sequences: BTreeSet<String>,
}

impl Reader {
    async fn start(server: &Server) -> Self {
        let streams = server.streams("ListStreams", &json!({"TableName": "votes"})).await;
        let arn = streams["Streams"][0]["StreamArn"].as_str().unwrap().to_owned();
        Self { arn, shards: BTreeMap::new(), counters: BTreeMap::new(), sequences: BTreeSet::new() }
    }

    /// Reads all available records of every shard whose parent was read to its end.
    async fn read(&mut self, server: &Server) {
        let mut start = Value::Null;
        loop {
            let mut body = json!({"StreamArn": self.arn, "Limit": 5});
            if !start.is_null() {
                body["ExclusiveStartShardId"] = start.clone();
            }
            let page = server.streams("DescribeStream", &body).await;
            let description = &page["StreamDescription"];
            for shard in description["Shards"].as_array().unwrap() {
                let id = shard["ShardId"].as_str().unwrap();
                let parent = shard["ParentShardId"].as_str();
                if parent.is_none_or(|parent| self.shards.get(parent) == Some(&None)) {
                    self.read_shard(server, id).await;
                }
            }
            start = description["LastEvaluatedShardId"].clone();
            if start.is_null() {
                return;
            }
        }
    }

    async fn read_shard(&mut self, server: &Server, id: &str) {
        let mut iterator = match self.shards.get(id) {
            Some(None) => return,
            Some(Some(iterator)) => iterator.clone(),
            None => {
                let body = json!({"StreamArn": self.arn, "ShardId": id,
                    "ShardIteratorType": "TRIM_HORIZON"});
                let answer = server.streams("GetShardIterator", &body).await;
                answer["ShardIterator"].as_str().unwrap().to_owned()
            }
        };
        loop {
            let body = json!({"ShardIterator": iterator, "Limit": 7});
            let page = server.streams("GetRecords", &body).await;
            let records = page["Records"].as_array().unwrap();
            records.iter().for_each(|record| self.take(&record["dynamodb"]));
            let next = page["NextShardIterator"].as_str().map(str::to_owned);
            self.shards.insert(id.to_owned(), next.clone());
            match next {
                Some(next) if !records.is_empty() => iterator = next,
                _ => return,
            }
        }
    }

    fn take(&mut self, record: &Value) {
        let sequence = record["SequenceNumber"].as_str().unwrap().to_owned();
        assert!(self.sequences.insert(sequence), "a record came twice");
        let counter = record["Keys"]["pk"]["S"].as_str().unwrap().to_owned();
        let value: u64 = record["NewImage"]["n"]["N"].as_str().unwrap().parse().unwrap();
        let before = self.counters.insert(counter, value).unwrap_or(0);
        assert_eq!(value, before + 1, "a record is missing or out of order");
    }
}

const COUNTERS: usize = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_under_load_neither_lose_nor_repeat_records() {
    let server = Arc::new(Server::start().await);
    let table = TABLE.replace("KEYS_ONLY", "NEW_AND_OLD_IMAGES");
    assert_eq!(server.call("CreateTable", &table).await.status, 200);
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (server, done) = (Arc::clone(&server), Arc::clone(&done));
            tokio::spawn(async move {
                let mut counts = vec![0; COUNTERS];
                while !done.load(Ordering::Relaxed) {
                    for counter in (writer..COUNTERS).step_by(4) {
                        counts[counter] = server.count_up(counter).await;
                    }
                }
                counts
            })
        })
        .collect();
    let reader = {
        let (server, done) = (Arc::clone(&server), Arc::clone(&done));
        tokio::spawn(async move {
            let mut reader = Reader::start(&server).await;
            while !done.load(Ordering::Relaxed) {
                reader.read(&server).await;
            }
            reader
        })
    };
    for _ in 0..12 {
        server.count_up(COUNTERS).await;
        let answer = server.split(&json!({})).await;
        // If the largest partition has only one counter, it cannot be split. The test then splits another
        // partition in its middle.
        if answer.status == 409 {
            let partitions = server.partitions().await;
            let widest = partitions.iter().max_by_key(|p| width(p)).unwrap();
            let at = token(widest, "first_token") + width(widest) / 2;
            let body = json!({"partition": widest["number"], "at": at.to_string()});
            let answer = server.split(&body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    done.store(true, Ordering::Relaxed);
    let mut expected = [0; COUNTERS];
    for writer in writers {
        let counts = writer.await.unwrap();
        expected.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let mut early = reader.await.unwrap();
    let mut late = Reader::start(&server).await;
    // A child shard may be listed before its parent was read, but the reader reads the parent first.
    for _ in 0..20 {
        early.read(&server).await;
        late.read(&server).await;
    }
    for reader in [&early, &late] {
        for (counter, expected) in expected.iter().enumerate() {
            assert_eq!(reader.counters[&format!("c{counter}")], *expected);
        }
    }
    check_ring(&server.partitions().await);
    assert_eq!(server.partitions().await.len(), 16);
    let marks = server.send("GET /_weir/streams/votes HTTP/1.1", "").await.json();
    for shard in marks["shards"].as_array().unwrap() {
        if let Some(last) = shard["last_sequence"].as_str() {
            assert!(late.sequences.contains(last));
        }
    }
}

fn token(partition: &Value, name: &str) -> u64 {
    partition[name].as_str().unwrap().parse().unwrap()
}

fn width(partition: &Value) -> u64 {
    token(partition, "last_token") - token(partition, "first_token")
}

/// Checks that the partitions cover the ring exactly once, and that each has its own open shard.
fn check_ring(partitions: &[Value]) {
    let mut next = Some(0);
    let mut shards = BTreeSet::new();
    for partition in partitions {
        assert_eq!(Some(token(partition, "first_token")), next);
        next = token(partition, "last_token").checked_add(1);
        assert!(shards.insert(partition["shard"].as_str().unwrap().to_owned()));
    }
    assert_eq!(next, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_partitions_are_split_where_their_traffic_halves() {
    let server = Server::start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    server.send("POST /_weir/clock HTTP/1.1", r#"{"freeze":true}"#).await;
    let limits = SplitLimits { write_units: 2, sustained_ms: 6000, ..SplitLimits::default() };
    server.store.traffic().set_limits(limits);
    let before = server.partitions().await;
    // Only the test advances the store's clock, so rates are exact.
    for _ in 0..7 {
        for counter in 0..40 {
            server.count_up(counter % 5).await;
        }
        server.send("POST /_weir/clock HTTP/1.1", r#"{"advance_ms":1000}"#).await;
    }
    let hot = server.send("GET /_weir/partitions/votes HTTP/1.1", "").await.json();
    let writes = hot["hot_keys"]["writes"].as_array().unwrap();
    assert_eq!(writes.len(), 5, "{hot}");
    assert!(writes.iter().all(|key| key["error_per_second"] == 0.0), "{hot}");
    let tokens: Vec<u64> = writes.iter().map(|key| token(key, "token")).collect();
    for _ in 0..20 {
        crate::store::ticks::tick(&server.store).await.unwrap();
    }
    let within = |partition: &Value, of: &[u64]| {
        let range = token(partition, "first_token")..=token(partition, "last_token");
        of.iter().filter(|token| range.contains(token)).count()
    };
    let after = server.partitions().await;
    check_ring(&after);
    // Each counter was written 8 times a second. A partition with several counters is split between them; a
    // partition with one counter is not split.
    let several: Vec<usize> =
        before.iter().map(|p| within(p, &tokens)).filter(|count| *count > 1).collect();
    assert_eq!(after.len(), before.len() + several.len(), "{tokens:?}");
    let most = several.iter().max().map_or(1, |most| most.div_ceil(2));
    assert!(after.iter().all(|p| within(p, &tokens) <= most), "{after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_partitions_are_split_by_size() {
    let server = Server::start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    server.store.traffic().set_limits(SplitLimits { bytes: 5000, ..SplitLimits::default() });
    let text = "x".repeat(500);
    for number in 0..100 {
        let body = json!({"TableName": "votes",
            "Item": {"pk": {"S": format!("k{number}")}, "text": {"S": text}}});
        assert_eq!(server.call("PutItem", &body.to_string()).await.status, 200);
    }
    for _ in 0..20 {
        crate::store::ticks::tick(&server.store).await.unwrap();
    }
    let partitions = server.partitions().await;
    check_ring(&partitions);
    let bytes: Vec<u64> = partitions.iter().map(|p| p["bytes"].as_u64().unwrap()).collect();
    assert!(bytes.iter().all(|bytes| *bytes <= 5000), "{bytes:?}");
    assert_eq!(partitions.iter().map(|p| p["items"].as_u64().unwrap()).sum::<u64>(), 100);
    let described = server.call("DescribeTable", r#"{"TableName":"votes"}"#).await.json();
    assert_eq!(described["Table"]["ItemCount"], 100);
    assert_eq!(described["Table"]["TableSizeBytes"], bytes.iter().sum::<u64>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impossible_split_is_refused_with_advice() {
    let server = Server::start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    server.count_up(1).await;
    let holds = |p: &&Value| p["items"] == 1;
    let partitions = server.partitions().await;
    let number = partitions.iter().find(holds).unwrap()["number"].clone();
    for (body, status, part) in [
        (json!({"partition": 99}), 409, "does not exist"),
        (json!({"partition": 4_000_000_000_u32}), 409, "does not exist"),
        (json!({"partition": number}), 409, "the same partition key"),
        (json!({"partition": 0, "at": "0"}), 409, "outside the partition"),
        (json!({"partition": 0, "at": "x"}), 400, "not a token"),
        (json!({"at": "7"}), 400, "requires `partition`"),
        (json!({"partition": -1}), 400, "does not exist"),
        (json!({"everything": true}), 400, "`everything`"),
        (json!([]), 400, "object"),
    ] {
        let answer = server.split(&body).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.json()["what"].as_str().unwrap().contains(part), "{body}: {answer:?}");
    }
    let unknown = server.send("POST /_weir/partitions/nothing/split HTTP/1.1", "").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("votes"), "{unknown:?}");
    assert_eq!(server.partitions().await.len(), 4, "nothing has changed");
}
