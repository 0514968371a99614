//! A listener: accepts connections within the budget of the process, and shuts down gracefully.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::connection::{self, Guarded};
use super::connections::{Connections, Place};
use super::{AllowList, BoundListener, Guard, Service};

/// The pause after a connection could not be accepted because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The settings of a listener.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The hosts and origins that the operator allows.
    pub allowed: AllowList,
    /// The time-out of a request's head, including the idle time before it. `None` for child
    /// processes, which may pause for as long as an invocation lasts.
    pub head_timeout: Option<Duration>,
    /// The connection budget, which limits the number of connections.
    pub connections: Arc<Connections>,
}

impl Settings {
    /// Returns settings with the budget of this process.
    #[must_use]
    pub fn new(allowed: AllowList, head_timeout: Option<Duration>) -> Self {
        Self { allowed, head_timeout, connections: Connections::of_process() }
    }
}

/// A running listener. Dropping it closes every connection immediately.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Serves the requests that pass the gate with `service`.
    pub fn serve<S: Service>(bound: BoundListener, settings: Settings, service: S) -> Self {
        let (tcp, address) = bound.into_parts();
        let (stop, stopped) = watch::channel(false);
        let Settings { allowed, head_timeout, connections } = settings;
        let guarded = Arc::new(Guarded { guard: Guard::new(allowed), service, head_timeout });
        let accepting = tokio::spawn(accept(tcp, connections, guarded, stopped));
        Self { address, stop, accepting }
    }

    /// Returns the bound address. If port 0 was requested, it has the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections, and waits at most `grace` for running requests. Then closes the
    /// remaining connections. Returns false if any connection was still open after `grace`.
    pub async fn shutdown(mut self, grace: Duration) -> bool {
        self.stop.send_replace(true);
        // Dropping `self` closes the remaining connections.
        tokio::time::timeout(grace, &mut self.accepting).await.is_ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The accepting task owns the connections, so aborting it closes them.
        self.accepting.abort();
    }
}

/// Accepts connections until `stopped`, then waits for the open connections to end.
async fn accept<S: Service>(
    tcp: TcpListener,
    places: Arc<Connections>,
    guarded: Arc<Guarded<S>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        // Removes finished connections outside of the `select!`. If a branch of the `select!`
        // removed them and finished first, an accepted connection that waits for a permit would be
        // dropped.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = accept_one(&tcp, &places) => accepted,
        };
        if let Some((stream, place)) = accepted {
            let (guarded, stopped) = (Arc::clone(&guarded), stopped.clone());
            connections.spawn(async move {
                let own = stream.local_addr().ok().map(|address| address.ip());
                connection::serve(stream, own, &guarded, place.progress(), stopped).await;
                drop(place);
            });
        }
    }
    drop(tcp);
    while connections.join_next().await.is_some() {}
}

/// Accepts the next connection, and returns it with its permit.
async fn accept_one(tcp: &TcpListener, places: &Arc<Connections>) -> Option<(TcpStream, Place)> {
    match tcp.accept().await {
        Ok((stream, _)) => {
            // Every write contains a complete response, so waiting for more data (Nagle's algorithm)
            // would only delay it.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "cannot set TCP_NODELAY on a new connection");
            }
            Some((stream, places.place().await?))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            places.make_room();
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
