//! What a poller needs of a function: to be invoked with an event.
//!
//! How the function runs is not known here.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use mapping::InvokeOutcome;

/// Something that can be invoked synchronously with an event.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Invokes the function with an event (JSON text of at most 6 MB) and waits for its answer,
    /// its error or its time-out. Called for several shards at once.
    ///
    /// A poller has no time-out of its own: the function's belongs here, and is a
    /// [`InvokeOutcome::FunctionError`].
    async fn invoke(&self, payload: Bytes) -> InvokeOutcome;
}

#[async_trait]
impl<I: Invoke + ?Sized> Invoke for Arc<I> {
    async fn invoke(&self, payload: Bytes) -> InvokeOutcome {
        (**self).invoke(payload).await
    }
}
