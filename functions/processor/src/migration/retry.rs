//! Retries of failed tasks. If the record of a failed task were redelivered, it would block all
//! later records in the shard, including records of other migrations. Therefore the failure is
//! written to the task's entry instead.
//!
//! That write creates a new record of the task after the records of other tasks, so the task is
//! retried later. A task that must wait is treated in the same way. A task that needs an operator
//! is set aside until `weir migrate resume`. If a worker crashes before the write, its record is
//! redelivered; after the write that record has no effect.

use control::Task;

use super::control_table::Control;
use super::lease::{held_by_another, now_ms};
use super::task::RecheckReason;
use crate::back_off::Deadline;
use crate::failure::Failure;

/// Why a task made no progress.
#[derive(Debug)]
pub(crate) struct NoProgress {
    pub(crate) failure: Failure,
    /// The limit for the task's next page, if a page failed.
    pub(crate) page: Option<u32>,
}

impl From<Failure> for NoProgress {
    fn from(failure: Failure) -> Self {
        Self { failure, page: None }
    }
}

/// Writes the reason why a task made no progress to the task's entry. Returns whether the record
/// needs no redelivery: the failure was written, or the task has a later record. Waits before the
/// write, longer with each failure, to delay the next record.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn put_off(
    control: &Control,
    offered: &Task,
    name: &str,
    stuck: &NoProgress,
    deadline: Deadline,
) -> Result<bool, Failure> {
    let Some(mut task) = control.reread(offered).await?.filter(|task| !task.outdates(offered))
    else {
        return Ok(true);
    };
    // If the other worker crashes, only this record still offers the task, so the record must be
    // redelivered.
    if held_by_another(&task, name, now_ms()).is_some() {
        return Ok(false);
    }
    if let Failure::Retry(reason) = &stuck.failure {
        let again = u32::try_from(task.failed).unwrap_or(u32::MAX);
        let wait =
            RecheckReason::from(reason.as_str()).wait_for_record(again, deadline.remaining());
        tokio::time::sleep(wait).await;
    }
    let set_aside = matches!(stuck.failure, Failure::Fatal(_));
    task.fail(&stuck.failure.to_string(), stuck.page, set_aside);
    Ok(control.replace(task).await?.is_some())
}

/// Writes a task that must wait, unless a worker leases the task. The write creates a new record of
/// the task, after the records of other migrations. Returns whether the current record needs no
/// redelivery.
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
    // The lease has expired, so its worker has crashed.
    task.release();
    Ok(control.replace(task).await?.is_some())
}
