//! Where a node's blocking work is done: syncs of the log, persists of the state.
//!
//! The node itself starts no thread and waits for nothing but its tasks. A worker runs jobs one
//! after another, in order. The real one is a thread; a simulated one is a task that waits for a
//! while before each job, and can lose the jobs that wait when its node crashes.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// A piece of blocking work.
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after another, in the order in which they came.
pub trait Worker: Send + Sync + 'static {
    /// Runs a job after those before it.
    fn run(&self, job: Job);

    /// Runs a job after those before it and not before this time has passed; later jobs wait for it.
    fn run_later(&self, delay: Duration, job: Job);
}

enum Work {
    Run(Job),
    Wait(Duration),
}

/// A thread of its own. It ends when the last handle is gone and its jobs are done.
#[derive(Debug, Clone)]
pub struct ThreadWorker {
    jobs: Sender<Work>,
}

impl ThreadWorker {
    /// Starts the thread under this name.
    ///
    /// # Errors
    /// When the system has no thread left.
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
        // The thread ends only after the last sender: this cannot fail while `self` is there.
        let _ = self.jobs.send(Work::Run(job));
    }

    fn run_later(&self, delay: Duration, job: Job) {
        let _ = self.jobs.send(Work::Wait(delay));
        self.run(job);
    }
}

/// Runs a job on a worker; what this gives waits for what the job returns, `None` if the worker lost it.
/// The job has its place among the others when this returns, also before anybody waits.
pub fn run_on<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(
    worker: &dyn Worker,
    job: J,
) -> impl Future<Output = Option<T>> + Send + use<T, J> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    worker.run(Box::new(move || {
        // Whoever asked may have gone away.
        let _ = sender.send(job());
    }));
    async { receiver.await.ok() }
}
