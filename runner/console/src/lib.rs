//! The console: web pages about tables, streams, mappings and migrations, for a browser on this
//! machine.
//!
//! The server renders every page from a plain `View`, and serves the same data as JSON at its path
//! plus `.json`. Pages work without JavaScript. `service` routes a request, `pages` contains the
//! pages, and `actions` contains the actions of buttons. The console scans no table, stores
//! nothing, and sends requests only to its store.

mod actions;
mod apart;
mod assets;
mod body;
mod clock;
pub mod context;
mod error;
mod events;
mod frame;
mod item_json;
mod load_history;
pub mod mcp;
mod newest;
mod notices;
mod pages;
mod parts;
mod placeholders;
mod query;
mod rates;
mod response;
mod service;
mod table_shape;
mod tasks;
mod token;

use std::sync::Arc;
use std::time::Duration;

use server::gate::{AllowList, AllowListError, BoundListener, Listener, Settings as GateSettings};
use tokio::sync::watch;

use self::context::Context;
use self::service::Pages;

/// The time within which a client must send a request's head, including the idle time before the
/// request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// The time that a shutdown waits for running requests. Event streams end immediately.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The settings of a console.
pub struct Settings {
    /// The bound socket to serve.
    pub bound: BoundListener,
    /// The hosts that the operator allows besides this machine's own names.
    pub hosts: Vec<String>,
    /// The resources that pages and actions may use.
    pub context: Context,
}

/// A running console. Dropping it closes its connections.
#[derive(Debug)]
pub struct Console {
    listener: Listener,
    stop: watch::Sender<bool>,
}

/// Serves the console.
///
/// # Errors
/// A host is not a valid name.
pub fn serve(settings: Settings) -> Result<Console, AllowListError> {
    let Settings { bound, hosts, context } = settings;
    // Only the console's own pages may send forms. An origin that the operator allows for the other endpoints
    // could otherwise read the token in a page and use it.
    let origins = own_origins(bound.address().port(), &hosts);
    let allowed = AllowList::new(&hosts, &origins)?;
    let (stop, stopped) = watch::channel(false);
    let context = Arc::new(context);
    tokio::spawn(pages::partitions::sample(Arc::clone(&context), stopped.clone()));
    let service = Pages::new(context, stopped);
    let gate = GateSettings::new(allowed, Some(HEAD_TIMEOUT));
    Ok(Console { listener: Listener::serve(bound, gate, service), stop })
}

/// Returns the origins of the console's own pages, under each name of this machine.
fn own_origins(port: u16, hosts: &[String]) -> Vec<String> {
    let own = ["127.0.0.1", "localhost", "[::1]"].into_iter();
    let names = own.chain(hosts.iter().map(String::as_str));
    names.map(|host| format!("http://{host}:{port}")).collect()
}

impl Console {
    /// Returns the address for a browser.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listener.address())
    }

    /// Stops accepting requests, ends event streams, and waits at most a second for running requests.
    pub async fn shutdown(self) {
        self.stop.send_replace(true);
        // The result is ignored: requests that did not end within the grace period may be cut off.
        let _in_order = self.listener.shutdown(SHUTDOWN_GRACE).await;
    }
}
