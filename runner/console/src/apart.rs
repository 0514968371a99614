//! Runs work that blocks on a thread of its own: it reads Parquet files, and decodes them.

use std::future::Future;

use tokio::runtime::Handle;

use crate::error::PageError;

/// Runs work on a thread that may block, and returns its result. The work goes on if the caller is dropped, so it
/// must be bounded.
///
/// # Errors
/// The work has panicked, or the console ends.
pub(crate) async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, PageError>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime = Handle::current();
    let ended = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    ended.map_err(|error| PageError::Store(format!("the read was not finished: {error}")))
}
