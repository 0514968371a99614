//! A DynamoDB endpoint for tests. The endpoint returns given responses in order, or answers each
//! request as the test decides. It does not store items, and does not validate the answers.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time in the header of every answer, in seconds since 1970. The next constant is the same
/// time as text.
pub(crate) const SECOND: u64 = 1_795_723_200;
const DATE: &str = "Thu, 26 Nov 2026 20:00:00 GMT";

/// Sends the given responses in order. Returns the requests.
pub(crate) async fn serve(listener: TcpListener, answers: &[(&str, &str)]) -> Vec<String> {
    let mut requests = Vec::new();
    for (status, body) in answers {
        let (mut socket, _) = listener.accept().await.unwrap();
        let request = request_of(&mut socket).await.expect("a whole request");
        answer(&mut socket, status, body).await.unwrap();
        requests.push(request);
    }
    requests
}

/// Answers each request with the result of `decide` for the operation and the body. The returned
/// future runs until it is dropped.
pub(crate) async fn serve_as(
    listener: TcpListener,
    mut decide: impl FnMut(&str, Value) -> (&'static str, Value),
) {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        // The request is incomplete: a client that ran out of time closed the connection.
        let Some(request) = request_of(&mut socket).await else { continue };
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        let operation = head.split("x-amz-target: dynamodb_20120810.").nth(1).unwrap();
        let operation = operation.split("\r\n").next().unwrap();
        let (status, body) = decide(operation, serde_json::from_str(body).unwrap());
        let _ = answer(&mut socket, status, &body.to_string()).await;
    }
}

/// Reads a request; `None` if it is incomplete.
async fn request_of(socket: &mut TcpStream) -> Option<String> {
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    let has_all = |request: &str| {
        let (head, body) = request.split_once("\r\n\r\n")?;
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?;
        Some(body.len() == length.parse::<usize>().unwrap())
    };
    while has_all(&request) != Some(true) {
        let read = socket.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        request.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    Some(request)
}

async fn answer(socket: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let head = format!("content-length: {}\r\nconnection: close\r\ndate: {DATE}", body.len());
    socket.write_all(format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}").as_bytes()).await
}

/// Returns a listener, and a client that connects to it.
pub(crate) async fn endpoint() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let retries = RetryConfig::standard().with_initial_backoff(Duration::from_millis(1));
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(crate::sdk::client())
        .region(Region::new("eu-west-1"))
        .endpoint_url(format!("http://{}", listener.local_addr().unwrap()))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .retry_config(retries)
        .build();
    (listener, Client::from_conf(config))
}
