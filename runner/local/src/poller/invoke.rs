//! The interface of a function for a poller.
//!
//! The implementation decides how the function runs.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use mapping::InvokeOutcome;

/// A function that can be invoked synchronously with an event.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Invokes the function with an event (JSON text of at most 6 MB) and waits for its answer, its error or
    /// its time-out. Called concurrently for several shards.
    ///
    /// A poller has no time-out, so the implementation must enforce the function's. A time-out is a
    /// [`InvokeOutcome::FunctionError`].
    async fn invoke(&self, payload: Bytes) -> InvokeOutcome;
}

#[async_trait]
impl<I: Invoke + ?Sized> Invoke for Arc<I> {
    async fn invoke(&self, payload: Bytes) -> InvokeOutcome {
        (**self).invoke(payload).await
    }
}
