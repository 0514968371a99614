//! Tasks that could not be worked on. A record that is delivered again and again stands in front of the
//! tasks of every other migration, so what went wrong is noted in the task's entry instead.
//!
//! What may work later has another record by that note, behind those of the others; so has a task that
//! has to wait. What somebody has to put right first is set aside until `weir migrate resume` has it
//! taken up again. A worker that dies before the note is written has its record delivered again, as
//! ever; after it the record has nothing more to say.

use model::{AttributeValue, Item, Number};

use super::control::{Control, SHARE, Task};
use super::lease::now_ms;
use super::task::Later;
use crate::back_off::Deadline;
use crate::failure::Failure;

/// Why the last attempt came to nothing.
const FAILING: &str = "failing";
/// Attempts in a row that did.
const FAILED: &str = "failed";
/// Nobody takes the task up until a person has it taken up again.
pub(super) const ASIDE: &str = "aside";
/// Items of a page at most.
const PAGE: &str = "page";
/// Characters of a reason that are kept: it may hold what a server answered.
const REASON_CHARACTERS_MAX: usize = 500;

/// Why nothing of a task could be done.
#[derive(Debug)]
pub(crate) struct Stuck {
    pub(crate) failure: Failure,
    /// Items of its next page at most, if it was a page that could not be done.
    pub(crate) page: Option<i32>,
}

impl From<Failure> for Stuck {
    fn from(failure: Failure) -> Self {
        Self { failure, page: None }
    }
}

/// Takes a task's lease out of its entry, and what was noted of attempts before.
pub(super) fn worked(item: &mut Item, page: Option<i32>) {
    for name in ["owner", "leased_until", SHARE, FAILING, FAILED, ASIDE, PAGE] {
        item.remove(name);
    }
    item.extend(page.map(|items| (PAGE.to_owned(), number(items.unsigned_abs().into()))));
}

/// The task without its lease, as it was before.
pub(super) fn released(task: &Task) -> Item {
    task.next(|item| {
        for name in ["owner", "leased_until", SHARE] {
            item.remove(name);
        }
    })
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(Number::from(value))
}

/// The task as it stands after an attempt that came to nothing.
fn failed(task: &Task, Stuck { failure, page }: &Stuck) -> Item {
    task.next(|item| {
        worked(item, page.or(task.page));
        let reason: String = failure.to_string().chars().take(REASON_CHARACTERS_MAX).collect();
        item.insert(FAILING.to_owned(), AttributeValue::S(reason));
        item.insert(FAILED.to_owned(), number(task.failed.saturating_add(1)));
        if matches!(failure, Failure::Fatal(_)) {
            item.insert(ASIDE.to_owned(), AttributeValue::Bool(true));
        }
    })
}

/// Notes why nothing of a task could be done. Answers whether its record need not be delivered again:
/// that is so when it was noted, and when the task has a later record. The note of what may work later
/// waits the longer the more often it failed, so that its record does not come round at once.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn put_off(
    control: &Control,
    (migration, entry, told_revision): (&str, &str, u64),
    name: &str,
    stuck: &Stuck,
    deadline: Deadline,
) -> Result<bool, Failure> {
    let Some(task) = control.get(migration, entry).await?.as_ref().and_then(Task::from_item) else {
        return Ok(true);
    };
    if task.done || (task.revision > told_revision && task.owner.is_none()) {
        return Ok(true);
    }
    // If that worker dies, this record is the only one that tells of the task.
    if task.leased_until > now_ms() && task.owner.as_deref() != Some(name) {
        return Ok(false);
    }
    if let Failure::Retry(reason) = &stuck.failure {
        let again = u32::try_from(task.failed).unwrap_or(u32::MAX);
        let wait = Later::from(reason.as_str()).wait_for_record(again, deadline.remaining());
        tokio::time::sleep(wait).await;
    }
    control.replace(&failed(&task, stuck), task.revision).await
}

/// Gives a task that must wait another record, behind those of other migrations, unless a worker has
/// it. Answers whether its record need not be delivered again.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn put_behind(
    control: &Control,
    (migration, entry, told_revision): (&str, &str, u64),
) -> Result<bool, Failure> {
    let Some(task) = control.get(migration, entry).await?.as_ref().and_then(Task::from_item) else {
        return Ok(true);
    };
    if task.done {
        return Ok(true);
    }
    match &task.owner {
        Some(_) if task.leased_until > now_ms() => Ok(false),
        // Whoever had it has died.
        Some(_) => control.replace(&released(&task), task.revision).await,
        None if task.revision > told_revision => Ok(true),
        None => control.replace(&task.next(|_| ()), task.revision).await,
    }
}
