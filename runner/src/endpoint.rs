//! Which store a command talks to, and clients for it.
//!
//! A flag wins over AWS_ENDPOINT_URL_DYNAMODB, and that over the `weir up` that runs in this folder.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;

/// Where a running `weir up` says how to reach it.
pub(crate) const RUNNING_FILE: &str = ".weir/running.json";
/// Any credentials are accepted by a local store; these say so.
pub(crate) const ACCESS_KEY: &str = "local";
pub(crate) const SECRET_KEY: &str = "local";
/// How long the store may take to tell the time.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Finds the endpoint of the store.
///
/// # Errors
/// When none is named and none is running.
pub(crate) fn find(flag: Option<&str>) -> Result<String, String> {
    if let Some(url) = flag {
        return Ok(url.to_owned());
    }
    if let Ok(url) = std::env::var("AWS_ENDPOINT_URL_DYNAMODB") {
        return Ok(url);
    }
    let running = std::fs::read_to_string(Path::new(RUNNING_FILE)).ok();
    let endpoint = running
        .and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok())
        .and_then(|json| json.get("dynamodb").and_then(|url| url.as_str().map(str::to_owned)));
    endpoint.ok_or_else(|| {
        "no store is known: start `weir up` in this folder, or name one with --endpoint URL"
            .to_owned()
    })
}

/// A client for an endpoint. Credentials from the environment are not used: none are needed here,
/// and real ones must not be sent to a local endpoint by accident.
pub(crate) fn client(endpoint: &str) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region()))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::from_keys(ACCESS_KEY, SECRET_KEY, None))
        .build();
    aws_sdk_dynamodb::Client::from_conf(config)
}

/// A client for the streams of an endpoint.
pub(crate) fn streams_client(endpoint: &str) -> aws_sdk_dynamodbstreams::Client {
    let config = aws_sdk_dynamodbstreams::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region()))
        .endpoint_url(endpoint)
        .credentials_provider(Credentials::from_keys(ACCESS_KEY, SECRET_KEY, None))
        .build();
    aws_sdk_dynamodbstreams::Client::from_conf(config)
}

fn region() -> String {
    std::env::var("AWS_REGION").unwrap_or_else(|_| "us-east-1".to_owned())
}

/// The time of the store in epoch seconds; this machine's time when the store has no clock of its own.
pub(crate) async fn store_seconds(endpoint: &str) -> i64 {
    let asked = tokio::time::timeout(CLOCK_TIMEOUT, ask_clock(endpoint)).await.ok().flatten();
    asked.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

async fn ask_clock(endpoint: &str) -> Option<i64> {
    let client = HttpClient::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let url = format!("{}/_weir/clock", endpoint.trim_end_matches('/')).parse().ok()?;
    let answer = client.get(url).await.ok()?;
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&body).ok()?;
    json.get("now_ms")?.as_i64().map(|millis| millis / 1000)
}

/// A client for an S3 endpoint. Its address has no name to put a bucket before, so path style.
pub(crate) fn s3_client(endpoint: &str) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region()))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .credentials_provider(Credentials::from_keys(ACCESS_KEY, SECRET_KEY, None))
        .build();
    aws_sdk_s3::Client::from_conf(config)
}
