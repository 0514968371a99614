//! Tasks that failed. A record that is redelivered again and again would block the tasks of every
//! other migration after it, so the failure is written to the task's entry instead.
//!
//! That write produces another record, after those of other tasks, for a task that may succeed
//! later; the same holds for a task that must wait. A task that needs an operator is set aside
//! until `weir migrate resume`. If a worker crashes before the write, its record is redelivered;
//! after the write the record has no effect.

use control::Task;

use super::control_table::Control;
use super::lease::{held_by_another, now_ms};
use super::task::Later;
use crate::back_off::Deadline;
use crate::failure::Failure;

/// Why a task made no progress.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub(crate) failure: Failure,
    /// Upper bound of its next page, if a page failed.
    pub(crate) page: Option<u32>,
}

impl From<Failure> for Stuck {
    fn from(failure: Failure) -> Self {
        Self { failure, page: None }
    }
}

/// Records in its entry why a task made no progress. Returns whether its record is done: the
/// failure was written, or the task has a later record. The more often a task failed, the longer
/// the wait before the write, which delays the next record.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn put_off(
    control: &Control,
    offered: &Task,
    name: &str,
    stuck: &Stuck,
    deadline: Deadline,
) -> Result<bool, Failure> {
    let Some(mut task) = control.reread(offered).await?.filter(|task| !task.outdates(offered))
    else {
        return Ok(true);
    };
    // If that worker crashes, no other record contains the task.
    if held_by_another(&task, name, now_ms()).is_some() {
        return Ok(false);
    }
    if let Failure::Retry(reason) = &stuck.failure {
        let again = u32::try_from(task.failed).unwrap_or(u32::MAX);
        let wait = Later::from(reason.as_str()).wait_for_record(again, deadline.remaining());
        tokio::time::sleep(wait).await;
    }
    let set_aside = matches!(stuck.failure, Failure::Fatal(_));
    task.fail(&stuck.failure.to_string(), stuck.page, set_aside);
    Ok(control.replace(task).await?.is_some())
}

/// Writes a task that must wait, so that it gets another record after those of other migrations,
/// unless a worker has it. Returns whether the current record is done.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn put_behind(control: &Control, offered: &Task) -> Result<bool, Failure> {
    let Some(mut task) = control.reread(offered).await?.filter(|task| !task.outdates(offered))
    else {
        return Ok(true);
    };
    if task.is_leased(now_ms()) {
        return Ok(false);
    }
    // An expired lease belongs to a crashed worker.
    task.release();
    Ok(control.replace(task).await?.is_some())
}
