//! The store's HTTP side: what a request means, behind the gate.
//!
//! Which request means what is decided in `routes`; what the operations do, in the module `api`;
//! connections and who may send requests at all, in the module `gate`.

mod admin;
mod admin_answer;
mod coding;
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

/// Time that a client has at least to send a request's head, from the end of the answer before it: so
/// also the time after which an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that requests under way have to end after the shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Who may send requests.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Requests must be signed with one of these; with `None`, any signature is taken, or none.
    pub keys: Option<AccessKeys>,
    /// Hosts by which the store may be asked, and origins whose pages may use it.
    pub allowed: AllowList,
    /// Each account and Region that signs requests has tables of its own.
    pub separate_tables: bool,
}

/// Serves requests without a signature; see [`serve_with`].
pub async fn serve(bound: BoundListener, store: Store, shutdown: impl Future<Output = ()>) {
    serve_with(bound, store, Access::default(), shutdown).await;
}

/// Serves requests until `shutdown` resolves, then lets those under way end.
pub async fn serve_with(
    bound: BoundListener,
    store: Store,
    access: Access,
    shutdown: impl Future<Output = ()>,
) {
    let settings = Settings::new(access.allowed.clone(), Some(HEAD_TIMEOUT));
    let listener = Listener::serve(bound, settings, Routes::new(store, access));
    shutdown.await;
    if !listener.shutdown(SHUTDOWN_TIMEOUT).await {
        tracing::warn!("requests that did not end in time were cut off");
    }
}
