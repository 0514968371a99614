//! The one gate of every HTTP listener of the product.
//!
//! A [`Listener`] takes a [`Service`] and puts two things before it, which no service can leave out:
//!
//! - the [`guard`](Guard): a request's `Host` must be a name of this machine or one that the operator
//!   named, and a request of a page in a browser is refused unless the operator named its origin;
//! - the [budget of connections](Connections), which all listeners of the process share.
//!
//! It does not know what a request means, nor who signed it.

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
pub(crate) use self::bound_listener::take_port;
pub use self::bound_listener::{BindError, BoundListener};
#[cfg(test)]
pub(crate) use self::connection::{Guarded, serve as serve_connection};
pub use self::connections::{Connections, Place};
pub use self::guard::Guard;
pub use self::listener::{Listener, Settings};
pub use self::progress::Progress;
pub use self::refusal::{Dialect, Refusal};

/// What answers the requests that the gate lets pass.
pub trait Service: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data: Send, Error: Into<Box<dyn StdError + Send + Sync>>>
        + From<Bytes>
        + Send
        + Unpin
        + 'static;
    /// Why a connection has to end without an answer.
    type Error: Into<Box<dyn StdError + Send + Sync>>;

    /// How clients of this service read a refusal.
    fn dialect(&self) -> Dialect;

    /// Returns true if requests must be signed; then the service says with [`Progress::set_known`]
    /// which were. Otherwise whoever was answered counts as known.
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
