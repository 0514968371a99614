//! Tests of the memory and threads of the real processes while many clients send requests
//! simultaneously.
//!
//! Goal: the limits in `docs/reference/network-access.md` hold, and every client gets an answer.
//! Method: bodies of 10 to 16 MB on a hundred connections, and two hundred requests whose bodies do
//! not end. The test reads the kernel's numbers in `/proc/PID/status`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{LocalStore, Process, Up, wait_for};
use crate::wire::Endpoint;

/// The number of connections that send large bodies simultaneously.
const CLIENTS: usize = 100;
/// The size of a body in bytes, DynamoDB's maximum.
const BODY_BYTES: usize = 16 * 1024 * 1024;
/// The number of items in a batch, DynamoDB's maximum.
const BATCH: usize = 25;
/// The maximum memory of the process in kB, as documented.
const MEMORY_KB_MAX: u64 = 1_600_000;
/// The number of requests to each port whose body does not end.
const SLOW: usize = 100;
/// The maximum number of threads of an idle process with three nodes, in addition to one thread per
/// processor. It is higher than documented.
const OWN_THREADS_MAX: usize = 40;
/// The maximum number of threads that slow requests may add to an idle process: half of the
/// requests to one port. A busy machine needs some threads for the files that the requests create.
const SLOW_THREADS_MAX: usize = SLOW / 2;

/// Returns the number under a name in a process's `/proc/PID/status`.
fn number_of(process: &Process, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Sends a request on a new connection, and returns the status and the answer.
fn send(address: &str, operation: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(900))).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nX-Amz-Target: DynamoDB_20120810.{operation}\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// A kind of request with a body of 10 to 16 MB, and its answer.
struct Kind {
    operation: &'static str,
    body: Vec<u8>,
    status: u16,
    part: &'static str,
}

/// Returns kinds of requests, some accepted and some rejected, with a few large values or with many
/// small values.
fn kinds() -> [Kind; 5] {
    let puts = |bytes: usize| -> Vec<Value> {
        let text = "x".repeat(bytes);
        let item = |number: usize| json!({"p": {"S": number.to_string()}, "text": {"S": text}});
        (0..BATCH).map(|number| json!({"PutRequest": {"Item": item(number)}})).collect()
    };
    let (too_large, large) = (puts(BODY_BYTES / BATCH - 1_000), puts(400_000));
    let item = json!({"p": {"S": "small"}});
    let many = vec![json!({"N": "1"}); BODY_BYTES / 10 - 100];
    let pairs = format!("[{}]", vec![r#"{"":0,"":0}"#; BODY_BYTES / 12 - 100].join(","));
    let get = json!({"TableName": "bodies", "Key": item, "ConsistentRead": true}).to_string();
    let get = |none: &str| format!("{},\"none\":{none}}}", get.strip_suffix('}').unwrap());
    let padded = "x".repeat(BODY_BYTES - 1_000);
    let kind = |operation, body: String, status, part| Kind {
        operation,
        body: body.into_bytes(),
        status,
        part,
    };
    let put = json!({"TableName": "bodies", "Item": item, "none": padded}).to_string();
    let write = |puts: Vec<Value>| json!({"RequestItems": {"bodies": puts}}).to_string();
    [
        kind("PutItem", put, 200, "{}"),
        kind("BatchWriteItem", write(too_large), 400, "Item size"),
        kind("BatchWriteItem", write(large), 200, "UnprocessedItems"),
        kind("GetItem", get(&json!(many).to_string()), 200, "small"),
        kind("GetItem", get(&pairs), 200, "small"),
    ]
}

#[test]
fn large_bodies_on_many_connections_stay_within_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    store.endpoint.create_table("bodies");
    store.endpoint.ok("PutItem", &json!({"TableName": "bodies", "Item": {"p": {"S": "small"}}}));
    let (address, kinds) = (store.endpoint.address(), kinds());
    thread::scope(|scope| {
        let started: Vec<_> = (0..CLIENTS)
            .map(|number| {
                // A few clients send many small values, which take the most time to parse.
                let kind = match number % 50 {
                    24 => &kinds[3],
                    49 => &kinds[4],
                    // A request of kind 2 waits for three disks, so only every fifth request is of
                    // kind 2.
                    place if place % 5 == 0 => &kinds[2],
                    _ => &kinds[number % 2],
                };
                (kind, scope.spawn(|| send(address, kind.operation, &kind.body)))
            })
            .collect();
        for (kind, answer) in started {
            let (status, text) = answer.join().unwrap();
            // The disk of a busy machine may not complete every write in time.
            if status == 500 && kind.status == 200 && kind.operation != "GetItem" {
                continue;
            }
            assert_eq!(status, kind.status, "{}: {text}", kind.operation);
            assert!(text.contains(kind.part), "{}: {text}", kind.operation);
        }
    });
    let peak = number_of(&store.process, "VmHWM");
    println!("the most memory: {peak} kB, now {} kB", number_of(&store.process, "VmRSS"));
    assert!(peak < MEMORY_KB_MAX, "{peak} kB");
    assert_eq!(store.endpoint.scan("bodies").len(), 1 + BATCH);
}

/// A table and a bucket, without functions to build.
const TEMPLATE: &str = "Resources:
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: bodies
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: p, AttributeType: S}]
      KeySchema: [{AttributeName: p, KeyType: HASH}]
  Bucket:
    Type: AWS::S3::Bucket
    Properties:
      BucketName: bucket
";

/// Begins requests whose bodies do not end.
fn begin_slow(address: &str, head: impl Fn(usize) -> String) -> Vec<TcpStream> {
    let begin = |number| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = head(number);
        let text = format!("{head}\r\nHost: {address}\r\nContent-Length: 100000\r\n\r\nbody");
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    (0..SLOW).map(begin).collect()
}

#[test]
fn slow_requests_hold_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("template.yaml"), TEMPLATE).unwrap();
    let up = Up::start_in(folder, &[]);
    let text = fs::read_to_string(up.folder.path().join(".weir/running.json")).unwrap();
    let running: Value = serde_json::from_str(&text).unwrap();
    let s3 = running["s3"].as_str().unwrap().strip_prefix("http://").unwrap();
    let threads = || usize::try_from(number_of(&up.process, "Threads")).unwrap();
    let processors = thread::available_parallelism().unwrap().get();
    let idle = wait_for("threads of the start to end", Duration::from_secs(60), || {
        let found = threads();
        (found <= processors + OWN_THREADS_MAX).then_some(found)
    });
    let to_s3 = begin_slow(s3, |number| format!("PUT /bucket/{number} HTTP/1.1"));
    let target = "X-Amz-Target: DynamoDB_20120810.PutItem";
    let to_store = begin_slow(up.store.address(), |_| format!("POST / HTTP/1.1\r\n{target}"));
    let most = threads();
    println!("threads: {idle} idle, {most} with slow requests");
    // A thread that created a file ends after it was idle for ten seconds.
    wait_for("threads to end", Duration::from_secs(25), || {
        (threads() <= idle + SLOW_THREADS_MAX).then_some(())
    });
    // While the slow requests are open, other clients get answers.
    answer_others(&up.store, s3);
    drop((to_s3, to_store));
}

fn answer_others(store: &Endpoint, s3: &str) {
    store.ok("PutItem", &json!({"TableName": "bodies", "Item": {"p": {"S": "other"}}}));
    assert_eq!(store.scan("bodies").len(), 1);
    let mut stream = TcpStream::connect(s3).unwrap();
    let put = format!(
        "PUT /bucket/other HTTP/1.1\r\nHost: {s3}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    );
    stream.write_all(put.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
