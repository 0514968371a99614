//! The gate of every HTTP listener of the product.
//!
//! A [`Listener`] applies two checks before a [`Service`] gets a request:
//!
//! - The [`guard`](Guard): the `Host` of a request must be a name of this machine or a name that the
//!   operator allows. A web page may send requests only if the operator allows its origin.
//! - The [budget of connections](Connections), which all listeners of the process share.
//!
//! The gate does not interpret requests or verify signatures.

mod allow_list;
mod body;
mod bound_listener;
mod connection;
pub(crate) mod connections;
mod cors;
mod guard;
mod listener;
mod progress;
mod refusal;
#[cfg(test)]
mod tests;
mod write_timeout;

use std::error::Error as StdError;
use std::future::Future;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body;

pub use self::allow_list::{AllowList, AllowListError};
pub use self::body::RequestBody;
pub use self::bound_listener::take_port;
pub use self::bound_listener::{BindError, BoundListener};
#[cfg(test)]
pub(crate) use self::connection::{Guarded, serve as serve_connection};
pub use self::connections::{Connections, Place};
pub use self::guard::Guard;
pub use self::listener::{Listener, Settings};
pub use self::progress::Progress;
pub use self::refusal::{Dialect, Refusal};

/// A service that answers the requests that pass the gate.
pub trait Service: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>>
        + From<Bytes>
        + Send
        + Unpin
        + 'static;
    /// The error that closes the connection without a response.
    type Error: Into<Box<dyn StdError + Send + Sync>>;

    /// Returns the error format of this service, which the gate uses for its own refusals.
    fn dialect(&self) -> Dialect;

    /// Returns whether requests must be signed. If true, the service must call
    /// [`Progress::set_known`] after it has verified a signature. If false, every client that got a
    /// response counts as known.
    fn has_keys(&self) -> bool {
        false
    }

    /// Answers one request.
    fn answer(
        &self,
        request: Request<RequestBody>,
        progress: &Progress,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}
