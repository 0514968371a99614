//! The store's HTTP side, behind the gate.
//!
//! `routes` dispatches requests, the module `api` executes operations, and the module `gate` accepts
//! connections and decides who may send requests.

mod admin;
mod admin_answer;
mod coding;
mod newest_records;
mod partitions;
mod request_id;
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

/// The time-out of a request's head, from the end of the previous response; a head may get slightly
/// more time. An idle connection is closed after the same time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that running requests have to complete after a shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The rules that decide who may send requests.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The access keys; each request must be signed with one of them. `None` accepts every request, signed or
    /// not.
    pub keys: Option<AccessKeys>,
    /// The host names of the store, and the origins whose pages may use it.
    pub allowed: AllowList,
    /// Whether each account and Region that signs requests has its own tables.
    pub separate_tables: bool,
}

/// Serves requests without a signature; see [`serve_with`].
pub async fn serve(bound: BoundListener, store: Store, shutdown: impl Future<Output = ()>) {
    serve_with(bound, store, Access::default(), shutdown).await;
}

/// Begins to serve. It is a function of its own so that this crate compiles the service, as in `Store::open`.
fn listen(bound: BoundListener, store: Store, access: Access) -> Listener {
    let settings = Settings::new(access.allowed.clone(), Some(HEAD_TIMEOUT));
    Listener::serve(bound, settings, Routes::new(store, access))
}

/// Serves requests until `shutdown` resolves, then lets running requests end.
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
