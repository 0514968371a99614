//! Tasks that could not be worked on. A record that is delivered again and again blocks the tasks of every
//! other migration behind it, so the failure is written to the task's entry instead.
//!
//! A task that may succeed later has another record by that write, behind those of the others; so has a
//! task that must wait. A task that needs a person is set aside until `weir migrate resume`. If a worker
//! dies before the write, its record is delivered again; after it the record has nothing more to say.

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
    /// Items of its next page at most, if it was a page that failed.
    pub(crate) page: Option<u32>,
}

impl From<Failure> for Stuck {
    fn from(failure: Failure) -> Self {
        Self { failure, page: None }
    }
}

/// Writes to its entry why the task that a record offered made no progress. Returns whether that record
/// need not be delivered again: the failure was written, or the task has a later record. The more often a
/// task failed, the longer it waits before the write, so that its record does not come at once.
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
    // If that worker dies, no other record offers the task.
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

/// Gives a task that must wait another record, behind those of other migrations, unless a worker has it.
/// Returns whether the record that offered it need not be delivered again.
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
    // A lease that is over is that of a worker that died.
    task.release();
    Ok(control.replace(task).await?.is_some())
}
