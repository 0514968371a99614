//! The store that a template runs on: the one in this process, or DynamoDB itself.
//!
//! On AWS nothing is made or changed but what the functions write: a table that is missing is an
//! error, and time is the wall clock's.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_credential_types::provider::ProvideCredentials as _;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region};
use server::store::{Config, Store};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::endpoint;
use crate::function::Credentials;
use crate::template::Stack;

/// The time that everything goes by, in milliseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A store that is ready, and how it is reached.
pub(crate) struct Backing {
    pub(crate) dynamodb: aws_sdk_dynamodb::Client,
    pub(crate) streams: aws_sdk_dynamodbstreams::Client,
    /// What functions sign with.
    pub(crate) credentials: Credentials,
    pub(crate) clock: Clock,
    /// The store in this process; `None` on AWS.
    pub(crate) local: Option<Local>,
    /// The endpoint that functions are told; `None` when their SDK finds AWS by itself.
    pub(crate) url: Option<String>,
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

/// Opens the store in this process behind a listener that is bound already.
pub(crate) async fn local(
    listener: TcpListener,
    address: SocketAddr,
    stack: &Stack,
    directory: &Path,
) -> Result<Backing, String> {
    let config = Config {
        directory: directory.join("state"),
        region: stack.region.clone(),
        account: stack.account_id.clone(),
        replicas: server::ring::REPLICAS as u64,
        arcs: 1,
    };
    let on_fatal = Box::new(server::command_line::end_process);
    let store = Store::open(config, on_fatal).await.map_err(|error| error.to_string())?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server::http::serve(listener, store.clone(), async {
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
        clock: Arc::new(move || i64::try_from(clocked.now().0).unwrap_or(i64::MAX)),
        local: Some(Local { store, server }),
        url: Some(url),
    })
}

/// Finds AWS as every SDK does: credentials, profile and endpoints from the environment.
pub(crate) async fn aws(region: &str) -> Result<Backing, String> {
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(Region::new(region.to_owned()))
        .load()
        .await;
    let provider = config.credentials_provider().ok_or_else(no_credentials)?;
    let found = provider.provide_credentials().await.map_err(|error| {
        format!("{}: {}", no_credentials(), crate::sdk_error::innermost(&error))
    })?;
    tracing::warn!(
        "store      DynamoDB in {region}, with the key {}: the functions write to real tables",
        found.access_key_id()
    );
    let wall_clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    };
    Ok(Backing {
        dynamodb: aws_sdk_dynamodb::Client::new(&config),
        streams: aws_sdk_dynamodbstreams::Client::new(&config),
        credentials: (&found).into(),
        clock: Arc::new(wall_clock),
        local: None,
        url: std::env::var("AWS_ENDPOINT_URL_DYNAMODB").ok(),
    })
}

fn no_credentials() -> String {
    "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        .to_owned()
}
