//! The HTTP service of the store.
//!
//! `routes` dispatches requests, the module `api` executes operations, and the module `gate` accepts
//! connections and checks the origin of requests.

mod admin;
mod admin_answer;
mod coding;
mod handover;
mod newest_records;
mod partitions;
mod request_id;
mod ring;
mod routes;
mod status;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::time::Duration;

use self::routes::Routes;
use crate::access::AccessKeys;
use crate::gate::{AllowList, BoundListener, Listener, Settings};
use crate::store::Store;

/// The time-out of a request's head, counted from the end of the previous response. The time-out is
/// checked four times in its duration, so a head may get up to a quarter more time. An idle
/// connection is closed after the same time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which running requests must complete after a shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The rules that decide who may send requests.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The access keys; each request must be signed with one of these keys. If `None`, signed and unsigned
    /// requests are accepted.
    pub keys: Option<AccessKeys>,
    /// The host names of the store, and the origins whose pages may use it.
    pub allowed: AllowList,
    /// Whether each account and Region in the signatures of requests has its own tables.
    pub separate_tables: bool,
}

/// Serves requests without a signature; see [`serve_with`].
pub async fn serve(bound: BoundListener, store: Store, shutdown: impl Future<Output = ()>) {
    serve_with(bound, store, Access::default(), shutdown).await;
}

/// Starts the listener. The function is not generic, so that the service is compiled once, in this
/// crate, and not in each dependent crate.
fn listen(bound: BoundListener, store: Store, access: Access) -> Listener {
    let settings = Settings::new(access.allowed.clone(), Some(HEAD_TIMEOUT));
    Listener::serve(bound, settings, Routes::new(store, access))
}

/// Serves requests until `shutdown` resolves, and then waits for the running requests.
pub async fn serve_with(
    bound: BoundListener,
    store: Store,
    access: Access,
    shutdown: impl Future<Output = ()>,
) {
    let listener = listen(bound, store, access);
    shutdown.await;
    if !listener.shutdown(SHUTDOWN_TIMEOUT).await {
        tracing::warn!("aborted the requests that did not finish in time for the shutdown");
    }
}
