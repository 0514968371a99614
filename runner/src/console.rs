//! `weir console`: serves the console for a store or an account that runs elsewhere.
//!
//! The console of a `weir up` is started by `up`.

use std::net::{Ipv4Addr, SocketAddr};

use ::console::Settings;
use ::console::context::{Context, Place};
use clap::Args;
use server::gate::{BindError, BoundListener};

use client::aws_host;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::output::show;
use client::running::{Running, RunningState};

/// The default port of the console.
pub(crate) const PORT: u16 = 9002;

/// Arguments of `weir console`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir console\n  weir console --endpoint http://127.0.0.1:8000\n  weir console --region eu-west-1\n  weir console --region eu-west-1 --allow-writes\n\n`weir up` serves the same console; this command is for another store. It ends with Ctrl-C"
)]
pub struct ConsoleArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Let pages change tables; without this flag, the console only reads
    #[arg(long)]
    pub allow_writes: bool,
    /// Port of the console; 0 for a free port [default: 9002, or a free port if 9002 is in use]
    #[arg(long)]
    pub port: Option<u16>,
}

/// The store that pages show.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArguments {
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, value_name = "URL", conflicts_with = "region")]
    endpoint: Option<String>,
    /// Show the tables of this Region on AWS, with the credentials of the environment
    #[arg(long)]
    region: Option<String>,
    /// The S3 endpoint of archives [default: AWS_ENDPOINT_URL_S3, or the S3 endpoint of the running
    /// `weir up` or of the Region]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
}

impl StoreArguments {
    /// Returns true if a flag or the environment names the store.
    pub(crate) fn is_named(&self) -> bool {
        self.region.is_some() || endpoint::named(self.endpoint.as_deref()).is_some()
    }

    /// Returns the endpoint of the store.
    ///
    /// # Errors
    /// No store was found, or its address is invalid.
    pub(crate) fn endpoint(&self) -> Result<String> {
        match &self.region {
            Some(region) => Ok(format!("https://dynamodb.{region}.amazonaws.com")),
            None => endpoint::find_to_read(self.endpoint.as_deref()),
        }
    }

    /// Returns the endpoint of S3 for a store; `None` if none is known.
    ///
    /// # Errors
    /// The address of the S3 endpoint is invalid.
    pub(crate) fn s3(&self, store: &str, running: Option<&Running>) -> Result<Option<String>> {
        let named = self.s3_endpoint.clone().or_else(|| std::env::var("AWS_ENDPOINT_URL_S3").ok());
        if let Some(url) = named {
            return endpoint::checked(&url, "--s3-endpoint").map(Some);
        }
        let of_region = || {
            let region = aws_host::region(store);
            aws_host::is_on_aws(store).then(|| format!("https://s3.{region}.amazonaws.com"))
        };
        Ok(running.map(|running| running.s3.clone()).or_else(of_region))
    }
}

/// Binds the console's port. If the user did not choose a port and the default port is in use,
/// binds a free port.
///
/// # Errors
/// The chosen port is in use, or the system refuses it.
pub(crate) async fn take_port(chosen: Option<u16>) -> Result<BoundListener, BindError> {
    let bind = |port| BoundListener::new("console", SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match (chosen, bind(chosen.unwrap_or(PORT)).await) {
        (None, Err(BindError::InUse { .. })) => bind(0).await,
        (_, bound) => bound,
    }
}

/// Serves the console until a signal ends the process.
///
/// # Errors
/// No store was found, or the port cannot be used.
pub async fn run(arguments: &ConsoleArguments) -> Result<Exit> {
    let endpoint = arguments.store.endpoint()?;
    let running = RunningState::here().running().filter(|running| running.is_at(&endpoint));
    let place = Place {
        s3: arguments.store.s3(&endpoint, running.as_ref())?,
        own: None,
        directory: None,
        chaos: None,
        allow_writes: arguments.allow_writes,
        endpoint,
    };
    let bound = take_port(arguments.port)
        .await
        .map_err(|error| fatal!("{error}; choose a port with --port"))?;
    let store = place.endpoint.clone();
    let context = Context::new(place).map_err(Failure::fatal)?;
    let settings = Settings { bound, hosts: Vec::new(), context };
    let console = ::console::serve(settings).map_err(Failure::fatal)?;
    show(&format!("{}   the console of {store}; Ctrl-C stops it\n", console.url()));
    std::future::pending().await
}
