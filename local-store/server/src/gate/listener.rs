//! A listener: accepts connections within the budget of the process, and ends them in order.

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

/// Time to wait when no connection can be accepted, because the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a service is served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Hosts and origins that the operator named.
    pub allowed: AllowList,
    /// How long a client may take to send a request's head, an idle connection included; `None` for
    /// clients that are children of this process and may pause for as long as one invocation lasts.
    pub head_timeout: Option<Duration>,
    /// The budget that connections count for.
    pub connections: Arc<Connections>,
}

impl Settings {
    /// Returns settings with the budget of this process.
    #[must_use]
    pub fn new(allowed: AllowList, head_timeout: Option<Duration>) -> Self {
        Self { allowed, head_timeout, connections: Connections::of_process() }
    }
}

/// A running listener. Dropping it cuts every connection at once.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Answers the requests that pass the gate with `service`.
    pub fn serve<S: Service>(bound: BoundListener, settings: Settings, service: S) -> Self {
        let (tcp, address) = bound.into_parts();
        let (stop, stopped) = watch::channel(false);
        let Settings { allowed, head_timeout, connections } = settings;
        let guarded = Arc::new(Guarded { guard: Guard::new(allowed), service, head_timeout });
        let accepting = tokio::spawn(accept(tcp, connections, guarded, stopped));
        Self { address, stop, accepting }
    }

    /// Returns where it listens, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, lets running requests end for at most `grace`, then cuts what is left. Returns
    /// false if something was cut.
    pub async fn shutdown(mut self, grace: Duration) -> bool {
        self.stop.send_replace(true);
        // The drop of `self` cuts what is left.
        tokio::time::timeout(grace, &mut self.accepting).await.is_ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The accepting task owns the connections, so they end with it.
        self.accepting.abort();
    }
}

/// Accepts until `stopped`, then waits for the connections that are still open.
async fn accept<S: Service>(
    tcp: TcpListener,
    places: Arc<Connections>,
    guarded: Arc<Guarded<S>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        // Not as a branch below: that would drop a connection that was accepted and waits for a place.
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

/// Returns the next connection and its place.
async fn accept_one(tcp: &TcpListener, places: &Arc<Connections>) -> Option<(TcpStream, Place)> {
    match tcp.accept().await {
        Ok((stream, _)) => {
            // Answers are small and complete: waiting for more to send only costs time.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection was gone before it began");
            }
            Some((stream, places.place().await?))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            places.make_room();
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
