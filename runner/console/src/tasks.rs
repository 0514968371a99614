//! Background tasks of actions, which outlive their requests: restores and erasures. A page shows
//! their results.
//!
//! Results are kept in memory until the console ends, or newer results replace them.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use client::failure::Failure;
use locks::Mutex;
use serde::Serialize;

use crate::apart::apart;
use crate::error::PageError;

/// The maximum number of results that are stored.
const KEPT_MAX: usize = 16;
/// The maximum number of concurrent tasks. Each task reads objects of the archive into memory.
const RUNNING_MAX: usize = 2;

/// The tasks of this console.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    last: u64,
    tasks: VecDeque<Task>,
}

/// A background task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Task {
    /// The number of the task in this console.
    pub(crate) id: u64,
    /// The description of the task, such as `restore into movies`.
    pub(crate) what: String,
    /// The state of the task, with its result.
    pub(crate) state: TaskState,
}

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TaskState {
    /// The task is running.
    Running,
    /// The task succeeded, with this result as JSON.
    Done(String),
    /// The task failed, for this reason.
    Failed(String),
}

impl Tasks {
    /// Starts a task, and returns its number.
    ///
    /// # Errors
    /// Too many tasks are running.
    pub(crate) fn start<F>(
        &self,
        what: String,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Result<u64, PageError>
    where
        F: Future<Output = Result<String, Failure>>,
    {
        let id = self.begin(what)?;
        let tasks = self.clone();
        tokio::spawn(async move {
            let state = match apart(work).await {
                Ok(Ok(answer)) => TaskState::Done(answer),
                Ok(Err(failure)) => TaskState::Failed(failure.to_string()),
                Err(error) => TaskState::Failed(error.to_string()),
            };
            tasks.end(id, state);
        });
        Ok(id)
    }

    fn begin(&self, what: String) -> Result<u64, PageError> {
        let mut known = self.0.lock();
        let running = known.tasks.iter().filter(|task| task.state == TaskState::Running).count();
        if running >= RUNNING_MAX {
            return Err(PageError::Refused(format!(
                "{running} tasks are running: wait until one of them ends"
            )));
        }
        known.last += 1;
        let id = known.last;
        if known.tasks.len() >= KEPT_MAX {
            let oldest = known.tasks.iter().position(|task| task.state != TaskState::Running);
            oldest.map(|at| known.tasks.remove(at));
        }
        known.tasks.push_back(Task { id, what, state: TaskState::Running });
        Ok(id)
    }

    fn end(&self, id: u64, state: TaskState) {
        let mut known = self.0.lock();
        if let Some(task) = known.tasks.iter_mut().find(|task| task.id == id) {
            task.state = state;
        }
    }

    /// Returns the tasks that are still in memory, newest first.
    pub(crate) fn list(&self) -> Vec<Task> {
        self.0.lock().tasks.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(tasks: &Tasks, id: u64) -> Option<Task> {
        tasks.list().into_iter().find(|task| task.id == id)
    }

    #[tokio::test]
    async fn a_task_outlives_its_start_and_few_run_at_a_time() {
        let tasks = Tasks::default();
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let wait = |until: tokio::sync::oneshot::Receiver<()>| {
            || async move {
                until.await.map_err(Failure::fatal)?;
                Ok("{}".to_owned())
            }
        };
        let first = tasks.start("one".to_owned(), wait(receive)).unwrap();
        let second = tasks.start("two".to_owned(), wait(ended)).unwrap();
        assert!(tasks.start("three".to_owned(), || async { Ok(String::new()) }).is_err());
        assert_eq!(find(&tasks, first).unwrap().state, TaskState::Running);
        send.send(()).unwrap();
        while find(&tasks, first).unwrap().state == TaskState::Running {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(find(&tasks, first).unwrap().state, TaskState::Done("{}".to_owned()));
        for _ in 0..2 * KEPT_MAX {
            let id = tasks.start("more".to_owned(), || async { Err("no".into()) }).unwrap();
            while find(&tasks, id).unwrap().state == TaskState::Running {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        assert_eq!(find(&tasks, first), None, "newer results replace it");
        assert_eq!(find(&tasks, second).unwrap().state, TaskState::Running);
        assert_eq!(tasks.0.lock().tasks.len(), KEPT_MAX);
        end.send(()).unwrap();
    }
}
