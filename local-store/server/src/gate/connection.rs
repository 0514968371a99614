//! Serves one connection, and checks each request with the guard. The connection closes when it is
//! idle, when the client or the listener ends it, or when another connection needs its permit.
//!
//! The protocol is HTTP/1.1 with keep-alive.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::body::{RequestBody, ResponseBody};
use super::guard::{Admitted, Guard};
use super::progress::Progress;
use super::write_timeout::TimedStream;
use super::{Service, cors};

/// The time in which an incomplete request must arrive completely if another connection needs the
/// permit. After this time the connection is closed. The request was not executed, so its client
/// can retry it.
const ARRIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A service and the guard that checks its requests.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    pub(crate) guard: Guard,
    pub(crate) service: S,
    /// The time-out of a request's head, including the idle time before it.
    pub(crate) head_timeout: Option<Duration>,
}

impl<S: Service> Guarded<S> {
    async fn answer(
        &self,
        request: Request<Incoming>,
        own: Option<IpAddr>,
        progress: &Arc<Progress>,
    ) -> Result<Response<ResponseBody<S::Body>>, S::Error> {
        progress.set_arrived(false);
        progress.set_under_way(true);
        let (head, body) = request.into_parts();
        let answered = match self.guard.check(&head, own) {
            Err(refusal) => {
                tracing::debug!(%refusal, "refused a request");
                Ok(refusal.response(self.service.dialect()))
            }
            Ok(Admitted::Preflight(origin)) => {
                let mut response = Response::new(S::Body::from(Bytes::new()));
                cors::permit_request(&head.headers, response.headers_mut());
                cors::permit(response.headers_mut(), origin);
                Ok(response)
            }
            Ok(admitted) => {
                let body = RequestBody::new(body, Arc::clone(progress));
                let request = Request::from_parts(head, body);
                let mut answered = self.service.answer(request, progress).await;
                if let (Admitted::Page(origin), Ok(response)) = (admitted, &mut answered) {
                    cors::permit(response.headers_mut(), origin);
                }
                if answered.is_ok() && !self.service.has_keys() {
                    progress.set_known();
                }
                answered
            }
        };
        if answered.is_err() {
            progress.set_under_way(false);
        }
        answered.map(|response| response.map(|body| ResponseBody::new(body, Arc::clone(progress))))
    }
}

/// The reason why the server closes a connection.
enum CloseReason {
    /// No request arrived within the idle timeout.
    IdleTimeout,
    /// The listener shuts down. A request in progress is still completed.
    Shutdown,
    /// Another connection needs the permit of this connection.
    Evicted,
}

/// Serves the requests of a connection to the local address `own`. Returns when the client or the
/// listener closes the connection, or when another connection needs its permit. A response in
/// progress is still sent.
pub(crate) async fn serve<S: Service>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    own: Option<IpAddr>,
    guarded: &Guarded<S>,
    progress: &Arc<Progress>,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(|request| guarded.answer(request, own, progress));
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(TimedStream::new(stream, Arc::clone(progress))), service);
    let mut connection = pin!(connection);
    // `wait_for` returns a lock guard, which must not be held across an await.
    let stop = async { stopped.wait_for(|stop| *stop).await.is_ok() };
    let silence = async {
        match guarded.head_timeout {
            Some(timeout) => progress.idle(timeout).await,
            None => std::future::pending().await,
        }
    };
    let leave = async {
        tokio::select! {
            _ = stop => CloseReason::Shutdown,
            () = progress.evicted() => CloseReason::Evicted,
            () = silence => CloseReason::IdleTimeout,
        }
    };
    // `FuturesUnordered` polls the future only when it is woken, instead of at every poll of the
    // connection.
    let mut leave = pin!(FuturesUnordered::from_iter([leave]));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        Some(leave) = leave.next() => match leave {
            CloseReason::IdleTimeout => {
                tracing::debug!("closed a connection that sent no request");
                return;
            }
            CloseReason::Evicted if !progress.is_busy() => {
                tracing::debug!("closed an idle connection to accept a new one: the limit on connections is reached");
                return;
            }
            CloseReason::Evicted => {
                connection.as_mut().graceful_shutdown();
                let ended = tokio::time::timeout(ARRIVE_TIMEOUT, connection.as_mut()).await;
                match ended {
                    Ok(ended) => ended,
                    Err(_) if progress.is_arrived() => connection.await,
                    Err(_) => {
                        tracing::debug!("closed a connection whose request did not arrive in time, to accept a new one: the limit on connections is reached");
                        return;
                    }
                }
            }
            CloseReason::Shutdown => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
