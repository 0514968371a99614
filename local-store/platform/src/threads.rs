//! The threads of a program: one worker for each processor, and a bounded number of threads for
//! blocking work.
//!
//! The crates `node`, `storage` and `server` start additional threads for each node.

use std::future::Future;
use std::io;
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

/// The maximum number of threads for blocking work, such as reading a file. Additional blocking
/// work waits for a free thread. With 1,024 descriptors, a process has 216 connections, so there is
/// a thread for each connection's request. Blocking work that waits for other blocking work needs
/// its own, much lower limit. Otherwise all threads may wait for work that has no thread.
const BLOCKING_THREADS_MAX: usize = 256;

/// Runs a program to completion. Returns a failure exit code if the runtime cannot be created.
#[expect(clippy::print_stderr, reason = "the program cannot begin, so it has no log or output")]
pub fn run(program: impl Future<Output = ExitCode>) -> ExitCode {
    match runtime() {
        Ok(runtime) => runtime.block_on(program),
        Err(error) => {
            eprintln!("error: the program cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().max_blocking_threads(BLOCKING_THREADS_MAX).build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Goal: even if much work blocks at the same time, the number of threads does not exceed its
    /// limit, other tasks continue, and all work is eventually done.
    #[test]
    fn work_that_blocks_waits_for_a_thread() {
        let runtime = runtime().unwrap();
        let (running, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let is_open = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let is_late = move || begun.elapsed() > Duration::from_secs(60);
        let total = BLOCKING_THREADS_MAX + 100;
        let tasks: Vec<_> = (0..total)
            .map(|_| {
                let (running, done) = (Arc::clone(&running), Arc::clone(&done));
                let is_open = Arc::clone(&is_open);
                runtime.spawn_blocking(move || {
                    running.fetch_add(1, Ordering::SeqCst);
                    while !is_open.load(Ordering::SeqCst) && !is_late() {
                        thread::sleep(Duration::from_millis(2));
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        while running.load(Ordering::SeqCst) < BLOCKING_THREADS_MAX && !is_late() {
            thread::sleep(Duration::from_millis(2));
        }
        runtime.block_on(runtime.spawn(async {})).unwrap();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(running.load(Ordering::SeqCst), BLOCKING_THREADS_MAX);
        is_open.store(true, Ordering::SeqCst);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), total);
    }
}
