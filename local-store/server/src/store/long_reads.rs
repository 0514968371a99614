//! Long reads and long parses, which run so that they do not block other tasks of the runtime.
//!
//! The consensus of the store runs on the same threads as requests. Reading a page of 1 MB and writing
//! it as JSON takes 2 to 17 ms, during which heartbeats and other requests would wait. A request
//! therefore reads a small part in its own task, and the rest as a long read. During a long read, the
//! runtime moves the other tasks of the thread to another thread. Small requests are never long reads,
//! because moving the tasks would cost more than the read.

use std::num::NonZero;
use std::thread;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// The number of bytes of items that a request reads in its own task, which takes some hundred
/// microseconds.
pub(crate) const SHORT_READ_BYTES: usize = 64 * 1024;
/// The maximum number of items that a request reads in its own task, for pages of small items.
pub(crate) const SHORT_READ_ITEMS: usize = 256;
/// The number of items that a request fetches by key in its own task. The number is small, because each item
/// can have 400 KB.
pub(crate) const SHORT_READ_KEYS: usize = 4;
/// The maximum size in bytes of a request that is parsed in its own task. A write of one item is
/// smaller than this limit. Parsing a request of 16 MB with many small values takes half a second.
pub(crate) const SHORT_PARSE_BYTES: usize = 1024 * 1024;

/// A limit on the number of concurrent long reads.
#[derive(Debug)]
pub(crate) struct LongReads {
    /// One permit for each processor. More concurrent reads would not increase throughput, but would
    /// delay other tasks.
    places: Semaphore,
}

impl Default for LongReads {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self { places: Semaphore::new(processors) }
    }
}

impl LongReads {
    /// Waits for a permit, then calls `read` without blocking other tasks. In a runtime with one thread,
    /// as in the simulation, calls `read` directly.
    pub(crate) async fn run<T>(&self, read: impl FnOnce() -> T) -> T {
        // Never fails, because the semaphore is never closed.
        let _place = self.places.acquire().await;
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        match flavor {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(read),
            _ => read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Goal: other tasks run during a long read, even on a runtime with one thread. Method: the read waits for
    /// another task.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_beside_a_long_read() {
        let read = tokio::spawn(async {
            let (sender, receiver) = mpsc::channel();
            tokio::spawn(async move { sender.send(7) });
            let wait = move || receiver.recv_timeout(Duration::from_secs(60));
            LongReads::default().run(wait).await
        });
        assert_eq!(read.await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_reads_at_once() {
        assert_eq!(LongReads::default().run(|| 7).await, 7);
    }
}
