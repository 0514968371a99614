//! One HTTP/1 listener on this machine: accepts connections, bounds their number, ends them in order.
//!
//! It does not know what is served: the Runtime API, the Invoke API and the S3 endpoint each bring
//! their own service.

use std::{error::Error as StdError, io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, Response, body::Body, body::Incoming, server::conn::http1, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

/// Open connections at one time. SDK clients keep a few dozen; the bound keeps a client that leaks
/// connections from taking every file descriptor of the process.
const CONNECTIONS_MAX: usize = 1_024;

/// How long a failing `accept` (no file descriptor left) waits before it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process listens there already.
    #[error(
        "{what}: address=`{address}` is in use by another process; end that process or choose another port (port 0 picks a free one)"
    )]
    InUse {
        /// What was to be served.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// Others could reach the address, and nothing here checks who asks.
    #[error(
        "{what}: address=`{address}` can be reached from other machines, and requests are not authenticated; write 127.0.0.1"
    )]
    NotLoopback {
        /// What was to be served.
        what: &'static str,
        /// Where.
        address: SocketAddr,
    },
    /// The system refused for another reason.
    #[error("{what}: cannot listen on address=`{address}`: {source}")]
    Refused {
        /// What was to be served.
        what: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// An address that is taken: who connects waits until it is served.
#[derive(Debug)]
pub struct Bound {
    tcp: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Takes `address` (port 0 picks a free port). An error says what was to be served there.
    ///
    /// # Errors
    ///
    /// When the address is in use, not loopback, or refused by the system.
    pub async fn new(what: &'static str, address: SocketAddr) -> Result<Self, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback { what, address });
        }
        let tcp = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => Error::InUse { what, address },
            _ => Error::Refused { what, address, source },
        })?;
        let address =
            tcp.local_addr().map_err(|source| Error::Refused { what, address, source })?;
        Ok(Self { tcp, address })
    }

    /// Where it will be served, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running listener. Dropping it cuts every connection at once.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Listener {
    /// Answers each request with `service`.
    ///
    /// `header_timeout` bounds how long a client may take to send a request's head, an idle
    /// kept-alive connection included; `None` is for clients that are our own children and may
    /// pause for as long as one invocation lasts.
    pub(crate) fn serve<S, B>(bound: Bound, header_timeout: Option<Duration>, service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn StdError + Send + Sync>>,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        let Bound { tcp, address } = bound;
        let (stop, stopped) = watch::channel(false);
        let accepting = tokio::spawn(accept(tcp, header_timeout, service, stopped));
        Self { address, stop, accepting }
    }

    /// Where it listens, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, lets running requests end for at most `grace`, then cuts what is left.
    pub(crate) async fn shutdown(mut self, grace: Duration) {
        self.stop.send_replace(true);
        // Both outcomes of the wait end the same way: the drop below cuts what is left.
        let _ended = tokio::time::timeout(grace, &mut self.accepting).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The accepting task owns the connections, so they end with it.
        self.accepting.abort();
    }
}

/// Accepts until `stopped` says so, then waits for the connections that are still open.
async fn accept<S, B>(
    tcp: TcpListener,
    header_timeout: Option<Duration>,
    service: S,
    mut stopped: watch::Receiver<bool>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept_one(&tcp, &places) => accepted,
        };
        let Ok((stream, place)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let connection = serve_connection(stream, header_timeout, service.clone(), stopped.clone());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(tcp);
    while connections.join_next().await.is_some() {}
}

/// The next connection and its place, of which there must be a free one.
async fn accept_one(
    tcp: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = tcp.accept().await?;
    Ok((stream, place))
}

async fn serve_connection<S, B>(
    stream: TcpStream,
    header_timeout: Option<Duration>,
    service: S,
    mut stopped: watch::Receiver<bool>,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    // Small answers should leave at once; a socket that refuses the option still works.
    let _nodelay = stream.set_nodelay(true);
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(header_timeout);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // The value that `wait_for` lends must not live on into the next await.
    let stop = async { stopped.wait_for(|stop| *stop).await.is_ok() };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that goes away is its own business; nothing here needs to act on it.
        tracing::debug!(%error, "connection ended");
    }
}
