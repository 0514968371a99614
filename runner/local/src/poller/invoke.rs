//! The interface through which a poller invokes a function.
//!
//! The implementation decides how the function runs.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use mapping::InvokeOutcome;

/// A function that can be invoked synchronously with an event.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Invokes the function with an event (JSON text of at most 6 MB) and waits for the response, an
    /// error or the timeout. Called concurrently for several shards.
    ///
    /// A poller has no timeout, so the implementation must enforce the function's timeout, as a
    /// [`InvokeOutcome::FunctionError`].
    async fn invoke(&self, payload: Bytes) -> InvokeOutcome;
}

#[async_trait]
impl<I: Invoke + ?Sized> Invoke for Arc<I> {
    async fn invoke(&self, payload: Bytes) -> InvokeOutcome {
        (**self).invoke(payload).await
    }
}
