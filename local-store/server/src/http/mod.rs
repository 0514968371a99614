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
mod taken;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

pub use self::cors::Origins;
use self::routes::Routes;
use self::taken::Taken;
use crate::access::AccessKeys;
use crate::store::Store;

/// Connections that are served at once; for one more, the oldest is closed after its answer. Enough
/// for any number of clients on one machine, few enough for their buffers and file descriptors.
const CONNECTIONS_MAX: u32 = 1024;
/// Time that a client has at least to send a request's head, from the end of the answer before it: so
/// also the time after which an idle connection is closed. It is looked at a few times in that time, and
/// no clock is set for each request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
const HEAD_LOOKS: u32 = 4;
/// Time that requests under way have to end after the shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a connection has to end whose place is wanted: for the request under way, and for its
/// client to take the answer.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same while the request has not come whole: nothing was done yet, so its client sends it again.
/// Longer than a request takes that somebody is sending, and short for the client that waits.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time to wait when no connection can be accepted, because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who may send requests.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Requests must be signed with one of these; with `None`, any signature is taken, or none.
    pub keys: Option<AccessKeys>,
    /// Pages of these origins may send requests.
    pub origins: Origins,
    /// Each account and Region that signs requests has tables of its own.
    pub separate_tables: bool,
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
    serve_up_to(CONNECTIONS_MAX, listener, routes, shutdown).await;
}

async fn serve_up_to(
    connections_max: u32,
    listener: TcpListener,
    routes: Arc<Routes>,
    shutdown: impl Future<Output = ()>,
) {
    let room = Arc::new(Room {
        places: Arc::new(Semaphore::new(connections_max as usize)),
        wanted: Notify::new(),
    });
    let (stop, stopped) = watch::channel(false);
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &room) => accepted,
        };
        if let Some((stream, place)) = accepted {
            let (routes, room, stopped) = (Arc::clone(&routes), Arc::clone(&room), stopped.clone());
            tokio::spawn(async move {
                serve_connection(stream, routes, &room, stopped).await;
                drop(place);
            });
        }
    }
    drop(listener);
    stop.send_replace(true);
    // Every place is free again when every connection has ended.
    let ended = room.places.acquire_many(connections_max);
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await.is_err() {
        tracing::warn!("requests that did not end in time were cut off");
    }
}

/// The places for connections.
struct Room {
    places: Arc<Semaphore>,
    /// Told once for each connection that finds no place. Connections wait for it in the order in
    /// which they came, so the oldest leaves, busy or idle: clients keep idle ones for a minute, and
    /// nobody new would be served meanwhile.
    wanted: Notify,
}

impl Room {
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        self.wanted.notify_one();
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

/// How far the request of a connection is.
#[derive(Default)]
struct Progress {
    is_arrived: AtomicBool,
    is_under_way: AtomicBool,
    /// Counts requests that begin, answers that are made, and parts of them that were taken.
    steps: AtomicU64,
}

impl Progress {
    /// Notes whether the last request has come whole.
    fn set_arrived(&self, is_arrived: bool) {
        self.is_arrived.store(is_arrived, Ordering::Relaxed);
    }

    fn is_arrived(&self) -> bool {
        self.is_arrived.load(Ordering::Relaxed)
    }

    /// Notes that a request has begun, or that its answer is made.
    fn set_under_way(&self, is_under_way: bool) {
        self.is_under_way.store(is_under_way, Ordering::Relaxed);
        self.step();
    }

    /// Notes that something happened.
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when no request began for [`HEAD_TIMEOUT`], and none was under way.
    async fn silence(&self) {
        let (mut quiet, mut seen) = (0, self.steps.load(Ordering::Relaxed));
        while quiet < HEAD_LOOKS {
            sleep(HEAD_TIMEOUT / HEAD_LOOKS).await;
            let steps = self.steps.load(Ordering::Relaxed);
            let is_quiet = steps == seen && !self.is_under_way.load(Ordering::Relaxed);
            quiet = if is_quiet { quiet + 1 } else { 0 };
            seen = steps;
        }
    }
}

/// Why a connection ends although its client has not ended it.
enum Leave {
    /// No request came for long.
    Silence,
    /// After the request under way, which has so long to come.
    Wanted(Duration),
}

/// Answers the requests of a connection until the client or the shutdown ends it, or its place is
/// wanted; then the request under way is still answered, if its client takes the answer in time.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Arc<Routes>,
    room: &Room,
    mut stopped: watch::Receiver<bool>,
) {
    let progress = Arc::new(Progress::default());
    let service = service_fn(|request| {
        let (routes, progress) = (Arc::clone(&routes), Arc::clone(&progress));
        async move { routes.answer(request, &progress).await }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(Taken::new(stream, Arc::clone(&progress))), service);
    let mut connection = pin!(connection);
    // The value that `wait_for` lends must not live on into the next await.
    let stop = async { stopped.wait_for(|stop| *stop).await.is_ok() };
    let leave = async {
        tokio::select! {
            _ = stop => Leave::Wanted(LEAVE_TIMEOUT),
            () = room.wanted.notified() => Leave::Wanted(ARRIVE_TIMEOUT),
            () = progress.silence() => Leave::Silence,
        }
    };
    // Of itself it is looked at only when something of it has happened, not at every request.
    let mut leave = pin!(FuturesUnordered::from_iter([leave]));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        Some(leave) = leave.next() => {
            let Leave::Wanted(time_to_arrive) = leave else {
                tracing::debug!("a connection on which no request came was closed");
                return;
            };
            connection.as_mut().graceful_shutdown();
            let mut ended = tokio::time::timeout(time_to_arrive, connection.as_mut()).await;
            if ended.is_err() && progress.is_arrived() {
                ended = tokio::time::timeout(LEAVE_TIMEOUT, connection).await;
            }
            let Ok(ended) = ended else {
                tracing::debug!("a connection whose place was wanted was cut off");
                return;
            };
            ended
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The next connection, when there is room for one.
async fn accept(listener: &TcpListener, room: &Room) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    match listener.accept().await {
        Ok((stream, _)) => {
            // Answers are small and complete: waiting for more to send only costs time.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection was gone before it began");
            }
            Some((stream, room.place().await?))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
