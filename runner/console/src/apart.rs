//! Runs blocking work, which reads and decodes Parquet files, on separate threads.

use std::fmt::Display;
use std::future::Future;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::error::PageError;

/// The maximum number of threads that blocking work uses at a time. The work waits for the object
/// store, which may be in the same process and require threads of the same pool. If the work used
/// all threads of the pool, it would deadlock.
const THREADS_MAX: usize = 8;

static THREADS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// Runs work on a blocking thread, and returns its result. Waits while [`THREADS_MAX`] other calls
/// run. The work continues after the caller is dropped, so its duration must be bounded.
///
/// # Errors
/// The work panicked, or the console is shutting down.
pub(crate) async fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, PageError>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let runtime = Handle::current();
    let failed =
        |error: &dyn Display| PageError::Store(format!("the read from the store failed: {error}"));
    let permit = THREADS.acquire().await.map_err(|error| failed(&error))?;
    let ended = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        runtime.block_on(work())
    });
    ended.await.map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::runtime::Builder;

    use super::*;

    /// Goal: if there are more reads than threads, all reads end, although each read requires a
    /// second thread.
    #[test]
    fn reads_leave_threads_for_what_they_wait_for() {
        let threads = THREADS_MAX + 1;
        let runtime =
            Builder::new_multi_thread().enable_all().max_blocking_threads(threads).build().unwrap();
        let read = || apart(|| tokio::task::spawn_blocking(|| 1));
        let reads = join_all((0..10 * threads).map(|_| read()));
        let ended =
            runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), reads).await });
        // Otherwise, a deadlocked thread would keep the test from ending.
        runtime.shutdown_background();
        let sum: usize = ended
            .expect("the reads wait for ever")
            .into_iter()
            .map(|one| one.unwrap().unwrap())
            .sum();
        assert_eq!(sum, 10 * threads);
    }
}
