//! Long reads and long parses, which run outside of the runtime's tasks and do not block them.
//!
//! The consensus of the store runs on the same threads as requests. Reading a page of 1 MB and
//! writing it as JSON takes 2 to 17 ms, during which heartbeats and other requests would wait. A
//! request therefore reads a small part in its own task. It reads the rest as a long read, during
//! which the runtime moves the other tasks of the thread to another thread. Small requests never
//! become long reads, because moving the tasks would cost more than the read.

use std::num::NonZero;
use std::thread;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// The number of bytes of items that a request reads in its own task: some hundred microseconds of work.
pub(crate) const SHORT_READ_BYTES: usize = 64 * 1024;
/// The number of items that a request reads in its own task, however small they are.
pub(crate) const SHORT_READ_ITEMS: usize = 256;
/// The number of items that a request fetches by key in its own task. The number is small, because each item
/// can have 400 KB.
pub(crate) const SHORT_READ_KEYS: usize = 4;
/// The number of bytes of a request that are parsed in its own task. A write of one item has fewer. A
/// request of 16 MB with many small values takes half a second.
pub(crate) const SHORT_PARSE_BYTES: usize = 1024 * 1024;

/// The limit of concurrent long reads.
#[derive(Debug)]
pub(crate) struct LongReads {
    /// One place for each processor. More concurrent reads would not increase throughput, but would
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
    /// Waits for a place and reads. In a runtime with one thread, as in the simulation, reads
    /// directly.
    pub(crate) async fn run<T>(&self, read: impl FnOnce() -> T) -> T {
        // The semaphore is never closed.
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

    /// Goal: a read that waits for another task ends, even on a runtime with one thread.
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
