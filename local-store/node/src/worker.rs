//! Workers for a node's blocking work: syncs of the log, persists of the state.
//!
//! The node itself starts no thread and never blocks. A worker runs jobs one after another, in
//! order. The real worker is a thread. A simulated worker is a task that waits before each job, and
//! can lose pending jobs when its node crashes.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A unit of blocking work.
pub type Job = Box<dyn FnOnce() + Send>;

/// A worker that runs jobs one after another, in the order of submission.
pub trait Worker: Send + Sync + 'static {
    /// Runs a job after all earlier jobs.
    fn run(&self, job: Job);

    /// Runs a job after all earlier jobs, but not before `delay` has passed. Later jobs wait until
    /// this job has run.
    fn run_later(&self, delay: Duration, job: Job);
}

enum Work {
    Run(Job),
    Wait(Duration),
}

/// A worker with a dedicated thread. The thread ends when the last handle is dropped and its jobs
/// are done.
#[derive(Debug, Clone)]
pub struct ThreadWorker {
    jobs: Sender<Work>,
}

impl ThreadWorker {
    /// Starts the thread with the given name.
    ///
    /// # Errors
    /// When the system cannot start another thread.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread of a real node; the simulation runs jobs by another `Worker`"
    )]
    pub fn start(name: &str) -> io::Result<Self> {
        let (jobs, waiting): (_, Receiver<Work>) = channel();
        let run = move || {
            for work in waiting {
                match work {
                    Work::Run(job) => job(),
                    Work::Wait(delay) => thread::sleep(delay),
                }
            }
        };
        thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { jobs })
    }
}

impl Worker for ThreadWorker {
    fn run(&self, job: Job) {
        // The thread ends only after all senders are dropped, so sending cannot fail while `self`
        // exists.
        let _ = self.jobs.send(Work::Run(job));
    }

    fn run_later(&self, delay: Duration, job: Job) {
        let _ = self.jobs.send(Work::Wait(delay));
        self.run(job);
    }
}

/// Runs a job on a worker. The returned future resolves to the job's result, or to `None` if the
/// worker lost the job. The job is in the worker's queue when this function returns, even before
/// the future is polled.
pub fn run_on<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(
    worker: &dyn Worker,
    job: J,
) -> impl Future<Output = Option<T>> + Send + use<T, J> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    worker.run(Box::new(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(job());
    }));
    async { receiver.await.ok() }
}
