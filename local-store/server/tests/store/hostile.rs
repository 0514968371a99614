//! Tests of invalid input: randomly damaged requests, and malicious requests.
//!
//! Goal: every invalid request gets a client error; no request causes a panic or an internal error. Method:
//! the test damages the requests of `testdata/api` randomly and executes them. A table adds requests that are
//! deeply nested, very long, or not JSON.
//!
//! `MUTATIONS=5000000 cargo test -p server --test store damaged` executes more requests.

use std::fs;
use std::path::Path;

use serde_json::Value;
use server::api::{Response, handle};
use server::store::{Config, Store};

/// The default number of damaged requests that the test executes.
const MUTATIONS: usize = 30_000;
/// The maximum length in bytes of a request that is damaged. Longer recorded requests exist only to test the
/// limits of length.
const REQUEST_BYTES_MAX: usize = 4096;

/// The strings that are inserted into requests. Each string has a meaning for one of the parsers.
const TOKENS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "\\",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "1E-140",
    "NaN",
    "\\ud800",
    "\\u0000",
    "\u{feff}",
    "é",
    "{\"S\":\"\"}",
    "{\"N\":\"\"}",
    "{\"SS\":[]}",
    "{\"B\":\"=\"}",
    "{\"M\":{}}",
    "(",
    ")",
    " AND ",
    " OR ",
    "NOT ",
    " BETWEEN ",
    " IN (",
    "size(",
    "SET ",
    "REMOVE ",
    "ADD ",
    ":v",
    "#n",
    "[0]",
    "[99999999999]",
    "99999999999999999999999999",
];

/// A random number generator (SplitMix64), whose sequence is the same on every machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let limit = u64::try_from(limit.max(1)).unwrap();
        usize::try_from((word ^ (word >> 31)) % limit).unwrap()
    }

    fn damage(&mut self, body: &[u8], other: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        for _ in 0..=self.below(3) {
            let (from, length) = (self.below(body.len() + 1), self.below(12));
            let to = (from + length).min(body.len());
            match self.below(6) {
                0 if from < body.len() => body[from] ^= 1 << self.below(8),
                1 => drop(body.drain(from..to)),
                2 => {
                    let copy = body[from..to].to_vec();
                    body.splice(from..from, copy);
                }
                3 => {
                    let start = self.below(other.len() + 1);
                    let end = (start + self.below(60)).min(other.len());
                    body.splice(from..to, other[start..end].iter().copied());
                }
                _ => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    body.splice(from..from, token.bytes());
                }
            }
        }
        body
    }
}

async fn open(directory: &Path) -> Store {
    let config = Config {
        directory: directory.to_path_buf(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas: 1,
        arcs: 1,
    };
    Store::open(config, Box::new(|reason| panic!("{reason}"))).await.unwrap()
}

fn target(operation: &str) -> String {
    let streams = ["ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"];
    let api = if streams.contains(&operation) { "DynamoDBStreams" } else { "DynamoDB" };
    format!("{api}_20120810.{operation}")
}

/// Returns the operation and the body of each recorded request.
fn recorded() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/api");
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut requests = Vec::new();
    for file in files {
        for line in fs::read_to_string(file).unwrap().lines() {
            if let Some((operation, body)) = line.split_once(' ')
                && operation.starts_with(|c: char| c.is_ascii_uppercase())
                && body.starts_with('{')
                && body.len() <= REQUEST_BYTES_MAX
            {
                requests.push((operation.to_owned(), body.as_bytes().to_vec()));
            }
        }
    }
    requests
}

/// Executes a request in its own task, so that a panic can be attributed to the request.
async fn answer(store: &Store, operation: &str, body: Vec<u8>) -> Response {
    let (store, target) = (store.clone(), target(operation));
    let shown = String::from_utf8_lossy(&body[..body.len().min(2000)]).into_owned();
    let task = tokio::spawn(async move { handle(&store, &target, &body).await });
    task.await.unwrap_or_else(|error| panic!("{operation} {shown}: {error}"))
}

/// Checks that a response is a success, or an error that the request caused.
fn check(response: &Response, operation: &str, body: &[u8]) {
    let shown = String::from_utf8_lossy(&body[..body.len().min(2000)]);
    // As in the service, two operations have an empty response.
    if response.status == 200 && matches!(operation, "TagResource" | "UntagResource") {
        assert!(response.body.is_empty(), "{operation} {shown}: {}", response.body);
        return;
    }
    let tree: Value = serde_json::from_str(&response.body)
        .unwrap_or_else(|error| panic!("{operation} {shown}: {error}: {}", response.body));
    let error = tree["__type"].as_str().unwrap_or_default();
    let is_proper = match response.status {
        200 => tree.is_object(),
        400 => error.ends_with("Exception"),
        _ => false,
    };
    assert!(is_proper, "{operation} {shown}: {} {}", response.status, response.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_requests_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let requests = recorded();
    assert!(requests.len() > 200, "{}", requests.len());
    let count = std::env::var("MUTATIONS").map_or(MUTATIONS, |text| text.parse().unwrap());
    let mut chance = Chance(7);
    for (operation, body) in requests.iter().filter(|(operation, _)| operation == "CreateTable") {
        check(&answer(&store, operation, body.clone()).await, operation, body);
    }
    let mut refused = 0;
    for number in 0..count {
        let (operation, body) = &requests[number % requests.len()];
        let (_, other) = &requests[chance.below(requests.len())];
        let damaged = chance.damage(body, other);
        let response = answer(&store, operation, damaged.clone()).await;
        check(&response, operation, &damaged);
        refused += usize::from(response.status == 400);
    }
    // Some damaged requests are still valid, but many must be refused.
    assert!(refused > count / 4 && refused < count, "{refused} of {count}");
    // The store can execute other requests.
    check(&answer(&store, "ListTables", b"{}".to_vec()).await, "ListTables", b"{}");
}

/// Returns malicious requests, each with its expected error.
fn harmful() -> Vec<(&'static str, String, &'static str)> {
    let table = r#""TableName":"votes""#;
    let put = |value: &str| format!(r#"{{{table},"Item":{{"pk":{{"S":"a"}},"v":{value}}}}}"#);
    let filter = |text: &str| {
        format!(
            r#"{{{table},"FilterExpression":"{text}","ExpressionAttributeValues":{{":v":{{"N":"1"}}}}}}"#
        )
    };
    let (malformed, invalid) = ("SerializationException", "ValidationException");
    vec![
        ("PutItem", "[".repeat(1_000_000), malformed),
        ("PutItem", "{\"a\":".repeat(1_000_000), malformed),
        ("PutItem", put(&format!("{}{}", "{\"L\":[".repeat(40), "]}".repeat(40))), invalid),
        ("PutItem", put(&format!("{}{}", "{\"L\":[".repeat(100), "]}".repeat(100))), invalid),
        (
            "PutItem",
            put(&format!("{}{}", "{\"L\":[".repeat(999_999), "]}".repeat(999_999))),
            invalid,
        ),
        ("PutItem", put(&"{\"L\":[".repeat(1_000_000)), malformed),
        ("PutItem", put(&format!(r#"{{"N":"{}"}}"#, "9".repeat(1_000_000))), invalid),
        ("PutItem", put(r#"{"N":"1e99999999999999999999"}"#), invalid),
        ("PutItem", put(r#"{"N":"Infinity"}"#), invalid),
        ("PutItem", put(r#"{"N":NaN}"#), malformed),
        ("PutItem", put(r#"{"S":"\ud800"}"#), malformed),
        ("PutItem", put(r#"{"S":"a","N":"1"}"#), invalid),
        ("PutItem", put(r#"{"s":"a"}"#), invalid),
        ("PutItem", put(r#"{"SS":[]}"#), invalid),
        ("PutItem", put(r#"{"NS":["1","1.0"]}"#), invalid),
        ("PutItem", put(r#"{"B":"***"}"#), malformed),
        ("PutItem", put(&format!(r#"{{"S":"{}"}}"#, "x".repeat(410_000))), invalid),
        ("PutItem", format!("\u{feff}{}", put(r#"{"S":"a"}"#)), malformed),
        ("PutItem", format!("{} x", put(r#"{"S":"a"}"#)), malformed),
        ("PutItem", put(r#"{"S":"a"}"#)[..20].to_owned(), malformed),
        ("PutItem", " ".repeat(16 * 1024 * 1024), malformed),
        // As many values as fit into a request. Each parsed value needs much more memory than its JSON.
        ("PutItem", put(&format!("[{}0]", "{},".repeat(5_000_000))), malformed),
        ("PutItem", put(&format!("[{}0]", "0,".repeat(8_000_000))), malformed),
        ("Scan", filter(&"(".repeat(4096)), invalid),
        ("Scan", filter(&"NOT ".repeat(1000)), invalid),
        ("Scan", filter(&format!("a = :v{}", " OR a = :v".repeat(400))), invalid),
        ("Scan", filter(&format!("a{} = :v", "[0]".repeat(1000))), invalid),
        ("Scan", filter(&format!("{} = :v", "a".repeat(100_000))), invalid),
        ("Scan", format!(r#"{{"TableName":"{}"}}"#, "../".repeat(100)), invalid),
        ("DescribeTable", r#"{"TableName":"'; DROP TABLE votes; --"}"#.to_owned(), invalid),
        ("GetRecords", r#"{"ShardIterator":"../../etc/passwd"}"#.to_owned(), invalid),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harmful_requests_get_the_errors_of_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let create = r#"{"TableName":"votes","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}"#;
    assert_eq!(answer(&store, "CreateTable", create.into()).await.status, 200);
    let mut wrong = Vec::new();
    for (operation, body, error) in harmful() {
        let response = answer(&store, operation, body.clone().into_bytes()).await;
        check(&response, operation, body.as_bytes());
        if !response.body.contains(error) {
            let shown: String = body.chars().take(100).collect();
            let told: String = response.body.chars().take(300).collect();
            wrong.push(format!("{operation} {shown}: not {error} but {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let scan = answer(&store, "Scan", br#"{"TableName":"votes"}"#.to_vec()).await;
    assert_eq!(scan.body, r#"{"Items":[],"Count":0,"ScannedCount":0}"#);
}
