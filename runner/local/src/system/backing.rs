//! The store that a template runs on: the one in this process, or DynamoDB itself.
//!
//! On AWS nothing is made or changed but what the functions write: a table that is missing is an
//! error, and time is that of DynamoDB's answers.

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
use super::address::AddressHeard;
use crate::function::Credentials;
use client::endpoint;
use client::server_date::{self, ServerClock};
use mapping::Pace;
use template::Stack;

/// How long DynamoDB may take to tell the time when `weir up` begins.
const CLOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// A difference of clocks that is told, in milliseconds. Answers tell whole seconds, and take a moment.
const SKEW_MS_TOLD: i64 = 2_000;
/// How far a machine's clock is taken to be ahead when no answer has told the time, in milliseconds: one
/// that nobody sets is wrong by minutes after some months.
const CLOCK_MARGIN_MS: i64 = 5 * 60 * 1_000;

/// The time that everything goes by, in milliseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A store that is ready, and how it is reached.
pub(crate) struct Backing {
    pub(crate) dynamodb: aws_sdk_dynamodb::Client,
    pub(crate) streams: aws_sdk_dynamodbstreams::Client,
    /// What functions sign with.
    pub(crate) credentials: Credentials,
    /// Where newer ones come from, on AWS.
    pub(crate) credentials_source: Option<SharedCredentialsProvider>,
    pub(crate) clock: Clock,
    /// How far the clock may be ahead of that of the streams, in milliseconds.
    pub(crate) clock_margin_ms: i64,
    /// How fast its streams are followed.
    pub(crate) pace: Pace,
    /// The store in this process; `None` on AWS.
    pub(crate) local: Option<Local>,
    /// The endpoint that functions are told; `None` when their SDK finds AWS by itself.
    pub(crate) url: Option<String>,
    /// Where DynamoDB is, when it is the store.
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
            tracing::warn!("the store's listener did not end in order");
        }
        drop(self.store);
    }
}

/// Opens the store in this process behind a port that is taken already.
pub(crate) async fn local(
    bound: BoundListener,
    stack: &Stack,
    options: &Options,
) -> Result<Backing, String> {
    let (address, directory) = (bound.address(), &options.directory);
    let config = Config {
        directory: directory.join("state"),
        region: stack.region.clone(),
        account: stack.account_id.clone(),
        replicas: node::ring::REPLICAS as u64,
        arcs: 1,
    };
    let on_fatal = Box::new(server::command_line::end_process);
    let store = Store::open(config, on_fatal).await.map_err(|error| error.to_string())?;
    let (stop, stopped) = oneshot::channel::<()>();
    let access = Access { allowed: options.allowed.clone(), ..Access::default() };
    let serving = server::http::serve_with(bound, store.clone(), access, async {
        // Dropping the sender ends the server as well.
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

/// Finds AWS as every SDK does: credentials, profile and endpoints from the environment.
pub(crate) async fn aws(region: &str) -> Result<Backing, String> {
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(client::https::client())
        .region(Region::new(region.to_owned()))
        .timeout_config(endpoint::attempt_limit(endpoint::ATTEMPT_MAX))
        .load()
        .await;
    let provider = config.credentials_provider().ok_or_else(no_credentials)?;
    let found = provider.provide_credentials().await.map_err(|error| {
        format!("{}: {}", no_credentials(), client::sdk_error::innermost(&error))
    })?;
    tracing::warn!(
        "store      DynamoDB in {region}, with the key {}: the functions write to real tables",
        found.access_key_id()
    );
    let (told, address) = (ServerClock::default(), AddressHeard::default());
    let dynamodb = aws_sdk_dynamodb::config::Builder::from(&config).interceptor(told.clone());
    let dynamodb = dynamodb.interceptor(address.clone());
    let dynamodb = aws_sdk_dynamodb::Client::from_conf(dynamodb.build());
    let streams = aws_sdk_dynamodbstreams::config::Builder::from(&config).interceptor(told.clone());
    // It is heard by the client, and so is where this request goes.
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
        // Their environment has nothing of this process's, nor its profile.
        url: std::env::var("AWS_ENDPOINT_URL_DYNAMODB").ok().or_else(|| elsewhere(&address)),
        aws_url: address.url(),
    })
}

/// The endpoint that took DynamoDB's place, if one did.
fn elsewhere(address: &AddressHeard) -> Option<String> {
    address.url().filter(|url| !endpoint::is_on_aws(url))
}

fn wall_clock_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Says how far this machine's clock is from what was told. Gives the margin that the mappings' clock
/// needs.
fn tell_skew(told_ms: Option<i64>, machine_ms: i64) -> i64 {
    let Some(told_ms) = told_ms else {
        tracing::warn!(
            "time       DynamoDB does not tell the time: the mappings go by this machine's clock"
        );
        return CLOCK_MARGIN_MS;
    };
    // What is told is cut to a second, so half of one is right in the middle.
    let skew_ms = machine_ms.saturating_sub(told_ms.saturating_add(500));
    if skew_ms.abs() > SKEW_MS_TOLD {
        let way = if skew_ms > 0 { "ahead of" } else { "behind" };
        tracing::warn!(
            "time       this machine's clock is {} s {way} DynamoDB's, by which the mappings go; the functions see this machine's",
            skew_ms.abs() / 1_000
        );
    }
    0
}

fn no_credentials() -> String {
    "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        .to_owned()
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
