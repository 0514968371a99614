//! The store on which a template runs: the local store in this process, or DynamoDB.
//!
//! On AWS, `weir up` itself creates and changes no resource, so a missing table is an error. On
//! AWS, the time is taken from DynamoDB's responses.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::provider::{ProvideCredentials as _, SharedCredentialsProvider};
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use server::gate::BoundListener;
use server::http::Access;
use server::store::{Config, Store};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Options;
use super::address::ObservedAddress;
use crate::function::Credentials;
use client::aws_host;
use client::endpoint;
use client::failure::{Failure, Result};
use client::keys;
use client::server_date::{self, ServerClock};
use mapping::Pace;
use template::Stack;

/// The timeout of DynamoDB's first response, from which `weir up` takes the time.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The minimum clock difference in milliseconds that is logged. Responses have whole seconds and take some
/// time.
const SKEW_MS_TOLD: i64 = 2_000;
/// The assumed maximum error of this machine's clock in milliseconds, if no response has shown the time.
/// A clock that is never synchronized is wrong by minutes after some months.
const CLOCK_MARGIN_MS: i64 = 5 * 60 * 1_000;

/// A clock that returns milliseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A store that is ready for requests, with its clients, keys and clock.
pub(crate) struct Backing {
    pub(crate) dynamodb: aws_sdk_dynamodb::Client,
    pub(crate) streams: aws_sdk_dynamodbstreams::Client,
    /// The keys with which functions sign requests.
    pub(crate) credentials: Credentials,
    /// The source of newer keys, on AWS.
    pub(crate) credentials_source: Option<SharedCredentialsProvider>,
    pub(crate) clock: Clock,
    /// The maximum time in milliseconds by which this clock may be ahead of the streams' clock.
    pub(crate) clock_margin_ms: i64,
    /// The pace at which the store's streams are read.
    pub(crate) pace: Pace,
    /// The store in this process; `None` on AWS.
    pub(crate) local: Option<Local>,
    /// The endpoint that is passed to functions; `None` if their SDK finds AWS itself.
    pub(crate) url: Option<String>,
    /// The endpoint of DynamoDB, if DynamoDB is the store.
    pub(crate) aws_url: Option<String>,
}

/// The store in this process.
pub(crate) struct Local {
    pub(crate) store: Store,
    server: (oneshot::Sender<()>, JoinHandle<()>),
}

impl Local {
    pub(crate) async fn shutdown(self) {
        let (stop, serving) = self.server;
        drop(stop);
        if serving.await.is_err() {
            tracing::warn!("the store's listener did not shut down cleanly");
        }
        drop(self.store);
    }
}

/// Opens the store in this process on a port that is already bound.
pub(crate) async fn local(
    bound: BoundListener,
    stack: &Stack,
    options: &Options,
) -> Result<Backing> {
    let (address, directory) = (bound.address(), &options.directory);
    let config = Config {
        directory: directory.join("state"),
        region: stack.region.clone(),
        account: stack.account_id.clone(),
        replicas: node::ring::REPLICAS as u64,
        arcs: 1,
    };
    let on_fatal = Box::new(server::fatal::end_process);
    let store = Store::open(config, on_fatal).await.map_err(Failure::fatal)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let access = Access { allowed: options.allow_list.clone(), ..Access::default() };
    let serving = server::http::serve_with(bound, store.clone(), access, async {
        // Dropping the sender also stops the server.
        let _ = stopped.await;
    });
    let server = (stop, tokio::spawn(serving));
    let url = format!("http://{address}");
    tracing::info!("store      {url}   data in {}", directory.display());
    let clocked = store.clone();
    Ok(Backing {
        dynamodb: endpoint::client(&url),
        streams: endpoint::streams_client(&url),
        credentials: Credentials::local(),
        credentials_source: None,
        clock: Arc::new(move || i64::try_from(clocked.now().0).unwrap_or(i64::MAX)),
        clock_margin_ms: 0,
        pace: Pace::of_told_store(),
        local: Some(Local { store, server }),
        url: Some(url),
        aws_url: None,
    })
}

/// Uses AWS as every SDK does: with credentials, profile and endpoints from the environment.
pub(crate) async fn aws(region: &str) -> Result<Backing> {
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(client::https::client())
        .region(Region::new(region.to_owned()))
        .timeout_config(endpoint::attempt_limit(endpoint::ATTEMPT_MAX))
        .load()
        .await;
    let provider = config.credentials_provider().ok_or_else(|| Failure::fatal(keys::NOT_FOUND))?;
    let found = provider.provide_credentials().await;
    let found = found.map_err(|error| Failure::Fatal(keys::not_found(&error)))?;
    tracing::warn!(
        "store      DynamoDB in {region}, with the key {}: the functions write to real tables",
        found.access_key_id()
    );
    let (told, address) = (ServerClock::default(), ObservedAddress::default());
    let dynamodb = aws_sdk_dynamodb::config::Builder::from(&config).interceptor(told.clone());
    let dynamodb = dynamodb.interceptor(address.clone());
    let dynamodb = aws_sdk_dynamodb::Client::from_conf(dynamodb.build());
    let streams = aws_sdk_dynamodbstreams::config::Builder::from(&config).interceptor(told.clone());
    // The client records the time and the endpoint of this request.
    let _ = tokio::time::timeout(CLOCK_TIMEOUT, server_date::seconds(&dynamodb)).await;
    let clock_margin_ms = tell_skew(told.now_ms(), wall_clock_ms());
    Ok(Backing {
        dynamodb,
        streams: aws_sdk_dynamodbstreams::Client::from_conf(streams.build()),
        credentials: (&found).into(),
        credentials_source: Some(provider),
        clock: Arc::new(move || told.now_ms().unwrap_or_else(wall_clock_ms)),
        clock_margin_ms,
        pace: Pace::of_dynamodb(),
        local: None,
        // Functions do not inherit the environment or the profile of this process.
        url: std::env::var("AWS_ENDPOINT_URL_DYNAMODB").ok().or_else(|| elsewhere(&address)),
        aws_url: address.url(),
    })
}

/// Returns the endpoint if it is not on AWS.
fn elsewhere(address: &ObservedAddress) -> Option<String> {
    address.url().filter(|url| !aws_host::is_on_aws(url))
}

fn wall_clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Logs the difference between this machine's clock and the reported time. Returns the margin for the
/// mappings' clock, in milliseconds.
fn tell_skew(told_ms: Option<i64>, machine_ms: i64) -> i64 {
    let Some(told_ms) = told_ms else {
        tracing::warn!(
            "time       DynamoDB's time is unknown: the mappings use this machine's clock"
        );
        return CLOCK_MARGIN_MS;
    };
    // The reported time is rounded down to a second, so half a second is added on average.
    let skew_ms = machine_ms.saturating_sub(told_ms.saturating_add(500));
    if skew_ms.abs() > SKEW_MS_TOLD {
        let way = if skew_ms > 0 { "ahead of" } else { "behind" };
        tracing::warn!(
            "time       this machine's clock is {} s {way} DynamoDB's clock; the mappings use DynamoDB's time, the functions use this machine's",
            skew_ms.abs() / 1_000
        );
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_nobody_told_needs_a_margin() {
        assert_eq!(tell_skew(Some(1_000_000), 4_600_000), 0);
        assert_eq!(tell_skew(Some(1_000_000), 1_000_400), 0);
        assert_eq!(tell_skew(None, 1_000_000), CLOCK_MARGIN_MS);
    }
}
