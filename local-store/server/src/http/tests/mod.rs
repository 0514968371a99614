//! Tests of the HTTP service over real sockets.
//!
//! Goal: a request that is not an API request, is too large, or arrives in pieces gets a response and
//! does not disturb other clients. Method: the tests write raw bytes to a socket and read the response.

mod access;
mod clock;
mod handover;
mod newest_records;
mod owners;
mod partitions;
mod slow_clients;

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Access, serve_with};
use crate::gate::BoundListener;
use crate::store::{Config, Store};

struct Server {
    address: std::net::SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    store: Store,
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        Self::start_with(Access::default()).await
    }

    async fn start_with(access: Access) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            directory: directory.path().to_path_buf(),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 1,
            arcs: 1,
        };
        let store = Store::open(config, Box::new(|reason| panic!("{reason}"))).await.unwrap();
        let bound = BoundListener::new("store", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = bound.address();
        let (shutdown, asked) = oneshot::channel();
        let task = tokio::spawn(serve_with(bound, store.clone(), access, async {
            let _ = asked.await;
        }));
        Self { address, shutdown: Some(shutdown), task, store, _directory: directory }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request on its own connection.
    async fn send(&self, head: &str, body: impl AsRef<[u8]>) -> Answer {
        let (mut stream, body) = (self.connect().await, body.as_ref());
        let length = body.len();
        let head = format!("{head}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        Answer::read(&mut stream).await
    }

    async fn call(&self, operation: &str, body: &str) -> Answer {
        self.send(&format!("POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.{operation}"), body)
            .await
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the connection ended: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&buffer[..count]);
        };
        let headers = String::from_utf8(bytes[..head].to_vec()).unwrap().to_ascii_lowercase();
        let header = |name: &str| headers.split(&format!("\r\n{name}: ")).nth(1).unwrap();
        let length: usize = header("content-length").split("\r\n").next().unwrap().parse().unwrap();
        let mut body = bytes.split_off(head + 4);
        while body.len() < length {
            let mut buffer = vec![0; length - body.len()];
            let count = stream.read(&mut buffer).await.unwrap();
            body.extend_from_slice(&buffer[..count]);
        }
        Self {
            status: headers.split(' ').nth(1).unwrap().parse().unwrap(),
            headers: headers.clone(),
            body,
        }
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.split(&format!("\r\n{name}: ")).nth(1).unwrap_or("");
        value.split("\r\n").next().unwrap()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

const TABLE: &str = r#"{"TableName":"votes","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],"BillingMode":"PAY_PER_REQUEST","StreamSpecification":{"StreamEnabled":true,"StreamViewType":"KEYS_ONLY"}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_carry_id_checksum_and_type() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = server.call("ListTables", "{}").await;
        assert_eq!((answer.status, answer.text()), (200, r#"{"TableNames":[]}"#));
        assert_eq!(answer.header("content-type"), "application/x-amz-json-1.0");
        assert_eq!(answer.header("x-amz-crc32"), crc32fast::hash(&answer.body).to_string());
        ids.push(answer.header("x-amzn-requestid").to_owned());
    }
    assert_eq!(ids[0].len(), 52);
    assert_ne!(ids[0], ids[1]);
    let error = server.call("DescribeTable", r#"{"TableName":"nothing"}"#).await;
    assert_eq!(error.status, 400);
    assert_eq!(
        error.json()["__type"],
        "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"
    );
    assert!(
        error.header("x-amzn-requestid").len() == 52 && !error.header("x-amz-crc32").is_empty()
    );
}

/// Goal: a client with endpoint discovery continues to use the same store, with the same host name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoint_discovery_finds_the_store_itself() {
    let server = Server::start().await;
    let answer = server.call("DescribeEndpoints", "{}").await;
    assert_eq!(answer.status, 200);
    let endpoint = &answer.json()["Endpoints"][0];
    assert_eq!(endpoint["Address"], "localhost");
    assert_eq!(endpoint["CachePeriodInMinutes"], 1440);
    assert_eq!(answer.header("server"), "server");
    for body in ["", "x", "null", "[]"] {
        let answer = server.call("DescribeEndpoints", body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.text().contains("SerializationException"), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_requests_get_a_response_too() {
    let server = Server::start().await;
    let health = server.send("GET / HTTP/1.1", "").await;
    assert_eq!((health.status, health.text()), (200, "healthy: localhost"));
    for (head, status) in [
        ("GET /shell HTTP/1.1", 404),
        ("PUT / HTTP/1.1", 404),
        ("DELETE / HTTP/1.1", 404),
        ("POST / HTTP/1.1", 400),
        ("POST / HTTP/1.1\r\nX-Amz-Target: \u{e9}", 400),
    ] {
        let answer = server.send(head, "{}").await;
        assert_eq!(answer.status, status, "{head}: {answer:?}");
        assert!(answer.text().contains("UnknownOperationException"), "{head}: {answer:?}");
        assert!(answer.header("access-control-allow-origin").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_serves_many_requests_and_pieces() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let request = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2\r\n\r\n{}";
    // Sends two requests in one write, and then a request in pieces.
    stream.write_all(request.repeat(2).as_bytes()).await.unwrap();
    stream.write_all(&request.as_bytes()[..60]).await.unwrap();
    let mut answered = 0;
    for _ in 0..2 {
        // Both responses may arrive in one read, so the test counts status lines.
        let mut buffer = [0; 4096];
        if answered < 2 {
            let count = stream.read(&mut buffer).await.unwrap();
            answered += String::from_utf8_lossy(&buffer[..count]).matches("200 OK").count();
        }
    }
    assert_eq!(answered, 2);
    tokio::time::sleep(Duration::from_millis(20)).await;
    stream.write_all(&request.as_bytes()[60..]).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 200);
    let chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
    stream.write_all(chunked.as_bytes()).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_bodies_are_refused() {
    let server = Server::start().await;
    // The store refuses the body because of its length, so the test sends no body.
    let mut stream = server.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\nContent-Length: 99999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = Answer::read(&mut stream).await;
    assert_eq!(answer.status, 413);
    assert!(answer.text().contains("larger than 17825792 bytes"), "{}", answer.text());
    // If the length is unknown, the store counts the bytes of the body while they arrive.
    let mut stream = server.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x10_0000));
    let (mut reader, mut writer) = stream.split();
    let send = async {
        for _ in 0..20 {
            if writer.write_all(chunk.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let mut first = [0; 12];
    let (_, status) = tokio::join!(send, reader.read_exact(&mut first));
    status.unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
    // The store can serve other requests.
    assert_eq!(server.call("ListTables", "{}").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_endpoint_moves_the_clock() {
    let server = Server::start().await;
    let clock = |head: &'static str, body: &'static str| server.send(head, body);
    let frozen = clock("POST /_weir/clock HTTP/1.1", r#"{"freeze":true}"#).await.json();
    assert_eq!(frozen["frozen"], true);
    let advanced = clock("POST /_weir/clock HTTP/1.1", r#"{"advance_ms":60000}"#).await.json();
    assert_eq!(advanced["now_ms"].as_u64().unwrap(), frozen["now_ms"].as_u64().unwrap() + 60_000);
    assert_eq!(clock("GET /_weir/clock HTTP/1.1", "").await.json(), advanced);
    // Every response has the store's time, with which clients compute the age of a record.
    let listed = server.call("ListTables", "{}").await;
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    let date = parser.parse_timestamp(listed.header("date")).unwrap();
    assert_eq!(date.as_second(), advanced["now_ms"].as_i64().unwrap() / 1000);
    let resumed = clock("POST /_weir/clock HTTP/1.1", r#"{"resume":true}"#).await.json();
    assert_eq!(resumed["frozen"], false);
    for (head, body, status, part) in [
        ("POST /_weir/clock HTTP/1.1", "", 400, "not JSON"),
        ("POST /_weir/clock HTTP/1.1", "{}", 400, "with exactly one change"),
        ("POST /_weir/clock HTTP/1.1", r#"{"freeze":false}"#, 400, "`freeze`"),
        ("POST /_weir/clock HTTP/1.1", r#"{"rewind":true}"#, 400, "`rewind`"),
        ("POST /_weir/clock HTTP/1.1", r#"{"advance_ms":-1}"#, 400, "cannot be set back"),
        ("POST /_weir/clock HTTP/1.1", r#"{"advance_ms":253402300800000}"#, 400, "year 9999"),
        ("POST /_weir/clock HTTP/1.1", r#"{"freeze":true,"resume":true}"#, 400, "one change"),
        ("POST /_weir/nothing HTTP/1.1", "", 404, "GET /_weir/clock"),
        ("DELETE /_weir/clock HTTP/1.1", "", 404, "GET /_weir/clock"),
    ] {
        let answer = clock(head, body).await;
        assert_eq!(answer.status, status, "{head} {body}: {answer:?}");
        assert!(answer.text().contains(part), "{head} {body}: {answer:?}");
        let error = answer.json();
        assert!(["what", "where", "instead"].iter().all(|name| error[*name].is_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_endpoint_sweeps_and_shows_the_last_records_of_shards() {
    let server = Server::start().await;
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200);
    let stream = || server.send("GET /_weir/streams/votes HTTP/1.1", "");
    let before = stream().await.json();
    let shards = before["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 4);
    assert!(shards.iter().all(|s| s["last_sequence"].is_null() && s["open"] == true));
    let expires = server.store.now().seconds() - 10;
    let item = format!(
        r#"{{"TableName":"votes","Item":{{"pk":{{"S":"a"}},"expires":{{"N":"{expires}"}}}}}}"#
    );
    assert_eq!(server.call("PutItem", &item).await.status, 200);
    let after = stream().await.json();
    let told: Vec<&Value> = after["shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| &shard["last_sequence"])
        .filter(|last| !last.is_null())
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].as_str().unwrap().len(), 22);

    let swept = server.send("POST /_weir/ttl/sweep HTTP/1.1", "").await;
    assert_eq!((swept.status, swept.text()), (200, r#"{"expired":0}"#));
    for (path, part) in [("nothing", "votes"), ("", "votes")] {
        let answer = server.send(&format!("GET /_weir/streams/{path} HTTP/1.1"), "").await;
        assert_eq!(answer.status, 404);
        assert!(answer.json()["instead"].as_str().unwrap().contains(part), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_endpoint_deletes_all_tables_but_protected_ones() {
    let server = Server::start().await;
    let delete = || server.send("DELETE /_weir/tables HTTP/1.1", "");
    assert_eq!(delete().await.text(), r#"{"deleted":0}"#);
    for name in ["votes", "totals", "films"] {
        let table = TABLE.replace("votes", name);
        assert_eq!(server.call("CreateTable", &table).await.status, 200);
    }
    let protect = |on: bool| format!(r#"{{"TableName":"films","DeletionProtectionEnabled":{on}}}"#);
    assert_eq!(server.call("UpdateTable", &protect(true)).await.status, 200);
    let refused = delete().await;
    assert_eq!(refused.status, 409);
    assert!(refused.json()["what"].as_str().unwrap().contains("deletion of films"), "{refused:?}");
    assert_eq!(server.call("ListTables", "{}").await.text(), r#"{"TableNames":["films"]}"#);
    assert_eq!(server.call("UpdateTable", &protect(false)).await.status, 200);
    assert_eq!(delete().await.text(), r#"{"deleted":1}"#);
    assert_eq!(server.call("CreateTable", TABLE).await.status, 200, "a name is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutting_down_ends_idle_connections_and_answers_the_others() {
    let mut server = Server::start().await;
    let mut idle = server.connect().await;
    let mut busy = server.connect().await;
    // This request is in progress: its body has not arrived yet.
    busy.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.shutdown.take().unwrap().send(()).unwrap();
    assert_eq!(idle.read(&mut [0; 10]).await.unwrap(), 0);
    busy.write_all(b"{}").await.unwrap();
    assert_eq!(Answer::read(&mut busy).await.status, 200);
    server.task.await.unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}
