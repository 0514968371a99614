//! The listener: connections, their limits, and a clean end.
//!
//! HTTP/1.1 with keep-alive, one task for each connection. Which request means what is decided in
//! `routes`; what the operations do, in the module `api`.

mod admin;
mod coding;
mod cors;
mod partitions;
mod request_id;
mod routes;
mod status;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::cors::Origins;
use self::routes::Routes;
use crate::access::AccessKeys;
use crate::store::Store;

/// Connections that are served at once; more wait in the listener's queue. Enough for any number
/// of clients on one machine, few enough for their buffers and file descriptors.
const CONNECTIONS_MAX: usize = 1024;
/// Time that a client has to send a request's head, from the end of the request before it: so
/// also the time after which an idle connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that requests under way have to end after the shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait when no connection can be accepted, because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who may send requests.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Requests must be signed with one of these; with `None`, any signature is taken, or none.
    pub keys: Option<AccessKeys>,
    /// Pages of these origins may send requests.
    pub origins: Origins,
}

/// Serves requests of anybody on this machine but pages in a browser; see [`serve_with`].
pub async fn serve(listener: TcpListener, store: Store, shutdown: impl Future<Output = ()>) {
    serve_with(listener, store, Access::default(), shutdown).await;
}

/// Serves requests until `shutdown` resolves, then lets those under way end.
pub async fn serve_with(
    listener: TcpListener,
    store: Store,
    access: Access,
    shutdown: impl Future<Output = ()>,
) {
    let routes = Arc::new(Routes::new(store, access));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        if let Some((stream, permit)) = accepted {
            let routes = Arc::clone(&routes);
            let watcher = graceful.watcher();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let routes = Arc::clone(&routes);
                    async move { routes.answer(request).await }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service);
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop(permit);
            });
        }
    }
    drop(listener);
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests that did not end in time were cut off");
    }
}

/// The next connection, when there is room for one.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Answers are small and complete: waiting for more to send only costs time.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection was gone before it began");
            }
            Some((stream, permit))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
