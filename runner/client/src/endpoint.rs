//! Finds the store of a command, and creates clients for it.
//!
//! The order is: the flag, then AWS_ENDPOINT_URL_DYNAMODB, then the `weir up` of this folder.

use std::sync::Once;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;

use crate::aws_host::{region, streams_endpoint};
use crate::failure::{Failure, Result, fatal};
use crate::https;
use crate::keys;
use crate::output;
use crate::retries::{self, Absence};
use crate::running::RunningState;
use crate::sdk_error::{IS_UP_RUNNING, NamesEndpoint, NoAnswer};
use crate::server_date;

/// The environment variable with the store's endpoint, which every AWS SDK and `weir` read.
const VARIABLE: &str = "AWS_ENDPOINT_URL_DYNAMODB";
/// Timeout of reading the store's clock.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of one attempt of a Streams API request, before the SDK retries. A page of 1 MB takes less
/// than a second. The timeout ends attempts on a broken connection, on which no response arrives.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Timeout of the admin endpoint. Its slowest request deletes all expired items.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the endpoint from the flag, otherwise from the environment variable.
pub fn named(flag: Option<&str>) -> Option<String> {
    flag.map(str::to_owned).or_else(|| std::env::var(VARIABLE).ok())
}

/// Returns the endpoint of the store for a command.
///
/// # Errors
/// When no store is named and no `weir up` is running, or the address is invalid.
pub fn find(flag: Option<&str>) -> Result<String> {
    if let Some(url) = flag {
        return checked(url, "--endpoint");
    }
    let look = RunningState::here();
    if let Ok(url) = std::env::var(VARIABLE) {
        if let RunningState::Running(running) = &look
            && let Some(other) = running.store()
            && !running.is_at(&url)
        {
            // The message is printed once, although a command may call this function several times.
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                output::say(&format!(
                    "using the store `{url}` from {VARIABLE}, not the `weir up` of this folder at {other}"
                ));
            });
        }
        return checked(&url, VARIABLE);
    }
    match look {
        RunningState::Running(running) if running.dynamodb.is_empty() => Err(fatal!(
            "the running `weir up` uses DynamoDB on AWS: to use it too, add --endpoint {}",
            running.store().unwrap_or("https://dynamodb.REGION.amazonaws.com")
        )),
        RunningState::Running(running) => Ok(running.dynamodb),
        RunningState::Ended(ended) => {
            Err(fatal!("{}, or name a store with --endpoint URL", ended.has_ended()))
        }
        RunningState::NotStarted => Err(fatal!(
            "no store found: start `weir up` in this folder, or name a store with --endpoint URL"
        )),
    }
}

/// Returns the endpoint of the store for a command that only reads. Unlike [`find`], it also returns the
/// endpoint of a `weir up` on AWS. A command that writes to AWS must get the endpoint from a flag or the
/// environment variable.
///
/// # Errors
/// The errors of [`find`].
pub fn find_to_read(flag: Option<&str>) -> Result<String> {
    match RunningState::here() {
        RunningState::Running(running) if named(flag).is_none() => {
            running.store().map_or_else(|| find(flag), |url| Ok(url.to_owned()))
        }
        _ => find(flag),
    }
}

/// Validates an address; `from` names the flag or variable that contains it.
///
/// # Errors
/// When the address lacks its scheme or its host.
pub fn checked(url: &str, from: &str) -> Result<String> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest {
        Some(rest) if !rest.trim_matches('/').is_empty() => Ok(url.to_owned()),
        Some(_) => {
            Err(fatal!("{from}: `{url}` has no host: write, for example, http://127.0.0.1:8000"))
        }
        None if url.is_empty() || url.contains("://") => Err(fatal!(
            "{from}: `{url}` is not a valid URL: write, for example, http://127.0.0.1:8000"
        )),
        None => Err(fatal!("{from}: `{url}` has no scheme: write http://{url}")),
    }
}

/// An HTTP response.
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// Returns the value of a header; `None` if the header is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Sends one request to an endpoint on this machine. Without a response, the error message ends with
/// `advice`.
///
/// # Errors
/// When there is no response within `limit`.
pub async fn request(
    (method, url): (Method, &str),
    headers: &[(&str, &str)],
    body: Bytes,
    limit: Duration,
    advice: &'static str,
) -> Result<Answer> {
    let client = HttpClient::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body)).map_err(|error| fatal!("`{url}`: {error}"))?;
    let exchange = async {
        let answer = client
            .request(request)
            .await
            .map_err(|error| NoAnswer::with_advice(address_of(url), &error, advice))?;
        let (head, body) = answer.into_parts();
        let body =
            body.collect().await.map_err(|error| Failure::Unknown(format!("`{url}`: {error}")))?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    };
    tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
        Err(Failure::Unknown(format!("`{url}` did not answer within {} s", limit.as_secs())))
    })
}

/// Returns a URL without its path.
fn address_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let path = url.get(host..).and_then(|rest| rest.find('/'));
    path.and_then(|path| url.get(..host + path)).unwrap_or(url)
}

/// Sends a request to the admin endpoint of a store and returns the JSON of the response.
///
/// # Errors
/// When the endpoint does not respond, or refuses the request.
pub async fn admin(
    method: Method,
    endpoint: &str,
    path: &str,
    body: &serde_json::Value,
) -> Result<serde_json::Value> {
    let url = format!("{}/_weir/{path}", endpoint.trim_end_matches('/'));
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let signed = keys::headers(endpoint, method.as_str(), &url, &body).await?;
    let headers: Vec<(&str, &str)> =
        signed.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let answer = request((method, &url), &headers, body, ADMIN_TIMEOUT, IS_UP_RUNNING).await?;
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.status.is_success() {
        return Ok(json);
    }
    let text = |name: &str| json.get(name).and_then(|value| value.as_str());
    // The store checks the signature first. These errors have DynamoDB's form.
    let code = text("__type").and_then(|name| name.rsplit('#').next());
    Err(Failure::Fatal(match (text("what"), text("instead"), code.zip(text("message"))) {
        (Some(what), Some(instead), _) => format!("{what}; write instead: {instead}"),
        (Some(what), None, _) => what.to_owned(),
        (None, _, Some((code, message))) => format!("{code}: {message}{}", keys::advice(code)),
        // Only the local store has the paths below `/_weir`.
        (None, _, None) => format!(
            "`{endpoint}` is not a store of `weir`: it responds to /_weir/{path} with {}; use the address that `weir up` shows as `store`",
            answer.status.as_u16()
        ),
    }))
}

/// Returns a client for an endpoint.
pub fn client(endpoint: &str) -> aws_sdk_dynamodb::Client {
    aws_sdk_dynamodb::Client::from_conf(config(endpoint, Absence::default()).build())
}

/// Returns a client whose attempts time out after `limit`, and the record of its requests without a
/// response.
pub fn client_with_limit(endpoint: &str, limit: Duration) -> (aws_sdk_dynamodb::Client, Absence) {
    let absence = Absence::of(endpoint, limit);
    let config = config(endpoint, absence.clone()).timeout_config(attempt_limit(limit));
    (aws_sdk_dynamodb::Client::from_conf(config.build()), absence)
}

/// Returns a timeout configuration that limits each attempt to `limit`.
pub fn attempt_limit(limit: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().operation_attempt_timeout(limit).build()
}

fn config(endpoint: &str, absence: Absence) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(https::client())
        .region(Region::new(region(endpoint)))
        .endpoint_url(endpoint)
        .retry_config(retries::config())
        .retry_classifier(absence)
        .interceptor(NamesEndpoint(endpoint.to_owned()))
        .credentials_provider(keys::of_endpoint(endpoint))
}

/// Returns a client for the streams of an endpoint.
pub fn streams_client(endpoint: &str) -> aws_sdk_dynamodbstreams::Client {
    let config = aws_sdk_dynamodbstreams::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(https::client())
        .region(Region::new(region(endpoint)))
        .endpoint_url(streams_endpoint(endpoint))
        .timeout_config(attempt_limit(ATTEMPT_MAX))
        // Several readers of a shard share its throughput, so they are throttled together.
        .retry_config(retries::config())
        .retry_classifier(Absence::default())
        .interceptor(NamesEndpoint(streams_endpoint(endpoint)))
        .credentials_provider(keys::of_endpoint(endpoint))
        .build();
    aws_sdk_dynamodbstreams::Client::from_conf(config)
}

/// The minimum lead of a local store's clock over this machine's clock that counts as an advance, in
/// seconds (docs/reference/replication.md).
const CLOCK_AHEAD_SECONDS: i64 = 10;

/// Returns the store's time in seconds since 1970, which determines record times and expiry. It is the
/// clock of a local store, otherwise the time of DynamoDB's responses, otherwise this machine's clock.
/// `client` must belong to the same endpoint; its open connection is reused.
pub async fn store_seconds(endpoint: &str, client: &aws_sdk_dynamodb::Client) -> i64 {
    let ask = async {
        match ask_clock(endpoint).await {
            Some(seconds) => Some(seconds),
            None => server_date::seconds(client).await,
        }
    };
    let asked = tokio::time::timeout(CLOCK_TIMEOUT, ask).await.ok().flatten();
    asked.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// Returns the clock of a local store in seconds since 1970; `None` if the store has none.
pub async fn ask_clock(endpoint: &str) -> Option<i64> {
    read_clock(endpoint).await.map(|clock| clock.now_ms / 1000)
}

/// A reading of a local store's clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The store's time in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether the clock is frozen.
    pub is_frozen: bool,
    /// Whether the store consists of one process. Nodes in other processes have their own clocks.
    pub is_only_one: bool,
}

/// Reads the clock of a local store; `None` if the store has none.
pub async fn read_clock(endpoint: &str) -> Option<ClockReading> {
    let asked = admin(Method::GET, endpoint, "clock", &serde_json::Value::Null);
    let json = tokio::time::timeout(CLOCK_TIMEOUT, asked).await.ok()?.ok()?;
    let is = |name: &str| json.get(name).and_then(serde_json::Value::as_bool).unwrap_or(false);
    let now_ms = json.get("now_ms")?.as_i64()?;
    Some(ClockReading { now_ms, is_frozen: is("frozen"), is_only_one: is("only") })
}

/// The lead of a local store's clock over this machine's, and the store's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAdvance {
    /// The lead of the store's clock, in seconds.
    pub by: i64,
    /// The store's time in seconds since 1970.
    pub now: i64,
}

impl ClockAdvance {
    /// Formats the lead: in hours if it is two days or more, otherwise in hours and minutes, or in
    /// seconds.
    pub fn words(self) -> String {
        let (hours, minutes) = (self.by / 3600, self.by % 3600 / 60);
        match (hours, minutes) {
            (0, 0) => format!("{} s", self.by),
            (0, minutes) => format!("{minutes} min"),
            (1..48, 1..) => format!("{hours} h {minutes} min"),
            (hours, _) => format!("{hours} h"),
        }
    }
}

/// Returns the lead of a local store's clock; `None` if the clock was not advanced or the store has
/// none. A lead below [`CLOCK_AHEAD_SECONDS`] does not count, because a slow response can cause it.
pub async fn advanced(endpoint: &str) -> Option<ClockAdvance> {
    if endpoint.is_empty() {
        return None;
    }
    let now = ask_clock(endpoint).await?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let by = now.saturating_sub(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    (by >= CLOCK_AHEAD_SECONDS).then_some(ClockAdvance { by, now })
}

/// Returns a client for an S3 endpoint. It uses path-style URLs, because a bucket name cannot
/// precede a local address; AWS supports path style too.
pub fn s3_client(endpoint: &str) -> aws_sdk_s3::Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(https::client())
        .region(Region::new(region(endpoint)))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .interceptor(NamesEndpoint(endpoint.to_owned()))
        .credentials_provider(keys::of_endpoint(endpoint))
        .build();
    aws_sdk_s3::Client::from_conf(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_lead_is_formatted_for_people() {
        for (by, expected) in [
            (10, "10 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (3_600, "1 h"),
            (93_784, "26 h 3 min"),
            (48 * 3_600 + 59, "48 h"),
            (49 * 3_600 + 120, "49 h"),
        ] {
            assert_eq!(ClockAdvance { by, now: 0 }.words(), expected);
        }
    }

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        for (url, instead) in [
            ("http://127.0.0.1:8000", None),
            ("https://dynamodb.eu-west-1.amazonaws.com/", None),
            ("localhost:18100", Some("has no scheme: write http://localhost:18100")),
            ("127.0.0.1:8000", Some("has no scheme: write http://127.0.0.1:8000")),
            ("ftp://127.0.0.1", Some("is not a valid URL")),
            ("http://", Some("has no host")),
            ("", Some("is not a valid URL")),
        ] {
            match (checked(url, "--endpoint"), instead) {
                (Ok(found), None) => assert_eq!(found, url),
                (Err(said), Some(part)) => {
                    assert!(said.to_string().contains(part), "{url}: {said}");
                }
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
        assert_eq!(address_of("http://127.0.0.1:8000/_weir/clock"), "http://127.0.0.1:8000");
        assert_eq!(address_of("http://127.0.0.1:8000"), "http://127.0.0.1:8000");
    }
}
