//! An endpoint that gives the answers that a test says, one after the other, and keeps the requests.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Gives one answer after the other; returns the requests.
pub(crate) async fn serve(listener: TcpListener, answers: &[(&str, &str)]) -> Vec<String> {
    let mut requests = Vec::new();
    for (status, body) in answers {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (mut request, mut buffer) = (String::new(), [0; 4096]);
        let has_all = |request: &str| {
            let (head, body) = request.split_once("\r\n\r\n")?;
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?;
            Some(body.len() == length.parse::<usize>().unwrap())
        };
        while has_all(&request) != Some(true) {
            let read = socket.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{request}");
            request.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        let head = format!("content-length: {}\r\nconnection: close", body.len());
        let answer = format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}");
        socket.write_all(answer.as_bytes()).await.unwrap();
        requests.push(request);
    }
    requests
}

/// A listener, and a client that talks to it.
pub(crate) async fn endpoint() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let retries = RetryConfig::standard().with_initial_backoff(Duration::from_millis(1));
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(format!("http://{}", listener.local_addr().unwrap()))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .retry_config(retries)
        .build();
    (listener, Client::from_conf(config))
}
