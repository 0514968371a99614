//! The interface through which a poller invokes a function.
//!
//! The implementation decides how the function runs.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use mapping::InvokeOutcome;

/// A function that can be invoked synchronously with an event.
#[async_trait]
pub trait Invoke: Send + Sync + 'static {
    /// Invokes the function with an event (JSON text of at most 6 MB) and waits for its response,
    /// its error or its timeout. Called concurrently for several shards. `request` is the request
    /// id in the function's log.
    ///
    /// A poller has no timeout, so the implementation must enforce the function's timeout, as a
    /// [`InvokeOutcome::FunctionError`].
    async fn invoke(&self, request: &str, payload: Bytes) -> InvokeOutcome;
}

#[async_trait]
impl<I: Invoke + ?Sized> Invoke for Arc<I> {
    async fn invoke(&self, request: &str, payload: Bytes) -> InvokeOutcome {
        (**self).invoke(request, payload).await
    }
}

/// Returns a new request id in the form of a random UUID.
pub(crate) fn request_id() -> String {
    // Each `RandomState` has new random keys, so the hash of nothing is a random 64-bit number.
    let random = || RandomState::new().hash_one(());
    let (high, low) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_identifiers_are_unique_and_have_the_form_of_a_uuid() {
        let ids: std::collections::BTreeSet<String> = (0..1_000).map(|_| request_id()).collect();
        assert_eq!(ids.len(), 1_000);
        for id in ids {
            let parts: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
    }
}
