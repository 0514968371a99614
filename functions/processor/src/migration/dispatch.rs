//! Dispatches records of the control table's stream: a worker processes the task of a record now,
//! checks the task again later, postpones it, or marks it as superseded.
//!
//! The migration's state decides between these actions (`State::decide_task`). Other modules
//! implement the tasks.

use std::sync::Arc;
use std::time::Duration;

use control::{Entry as _, Followed, SORT_KEY, State, Task, TaskDecision};
use model::AttributeValue;
use model::stream_record::LambdaRecord;
use rules::migration::{Direction, Migration};
use tracing::{error, info, warn};

use super::control_table::decode;
use super::lease;
use super::pace::{self, Pace};
use super::retry::{NoProgress, put_behind, put_off};
use super::targets::Targets;
use super::task::{RecheckReason, Worker, supersede, supersede_when_free};
use super::{ActiveMigration, Migrations};
use crate::back_off::Deadline;
use crate::event::{BatchItemFailure, BatchRecord, BatchResponse};
use crate::failure::Failure;
use crate::object_store::ObjectStore;
use crate::tables::attribute_value::to_sdk_item;

/// Interval at which a worker checks whether a part of the migration's rate has become free.
const SHARE_CHECK: Duration = Duration::from_millis(250);
/// Minimum remaining time of an invocation that suffices for a slice with its waits. A worker with
/// less time does not wait for a part of the migration's rate.
const SHARE_TIME_MIN: Duration = Duration::from_secs(4);

/// A task that a stream record offers to a worker.
pub(super) struct Offer<'d> {
    task: Task,
    sequence_number: Option<&'d str>,
}

/// Returns the tasks in the records of a batch. Like the template's event filter, ignores other
/// entries of the control table. Also ignores records that cannot be decoded.
pub(super) fn offers<'d>(batch: &'d [BatchRecord<'_>]) -> Vec<Offer<'d>> {
    let offer = |delivered: &'d BatchRecord<'_>| {
        let task = task_of(delivered.record().as_ref().ok()?)?;
        let sequence_number = delivered.sequence_number();
        task.is_offered().then_some(Offer { task, sequence_number })
    };
    batch.iter().filter_map(offer).collect()
}

/// Returns the task in a record; `None` for another entry or a damaged task.
fn task_of(record: &LambdaRecord) -> Option<Task> {
    let image = record.record.new_image.as_ref()?;
    let name = image.get(SORT_KEY).and_then(AttributeValue::as_str)?;
    let task = name.starts_with(Task::PREFIX).then(|| decode(to_sdk_item(image)))?;
    task.inspect_err(|reason| warn!(function = "migration", %reason, "damaged task ignored")).ok()
}

impl<O: ObjectStore + Clone> Migrations<O> {
    /// Processes the task of each record, sequentially.
    pub(super) async fn work(&self, offers: &[Offer<'_>], deadline: Deadline) -> BatchResponse {
        let mut response = BatchResponse::default();
        for Offer { task, sequence_number } in offers {
            let done = match self.work_or_wait(task, deadline).await {
                Ok(None) => true,
                Ok(Some(_)) => false,
                Err(stuck) => self.put_off(task, &stuck, deadline).await,
            };
            if !done && let Some(sequence_number) = sequence_number {
                let item_identifier = (*sequence_number).to_owned();
                response.batch_item_failures.push(BatchItemFailure { item_identifier });
                break;
            }
        }
        response
    }

    /// Writes the reason why a task made no progress to the task's entry. Returns whether the
    /// record needs no redelivery.
    async fn put_off(&self, task: &Task, stuck: &NoProgress, deadline: Deadline) -> bool {
        error!(
            function = "migration",
            migration = task.migration,
            work = task.work.as_str(),
            table = task.table,
            segment = task.segment,
            reason = %stuck.failure,
            "task failed"
        );
        match put_off(&self.control, task, &self.name, stuck, deadline).await {
            Ok(done) => done,
            Err(failure) => {
                let (migration, entry) = (&task.migration, task.name());
                error!(function = "migration", migration, entry, reason = %failure, "the reason could not be recorded in the task");
                false
            }
        }
    }

    /// Processes the task of a record. While the task must wait and time remains, checks the task
    /// again. The number of checks is bounded by the invocation's seconds, because each check waits
    /// at least a second.
    async fn work_or_wait(
        &self,
        task: &Task,
        deadline: Deadline,
    ) -> Result<Option<RecheckReason>, NoProgress> {
        let mut again = 0;
        loop {
            let Some(later) = self.work_on(task, deadline).await? else { return Ok(None) };
            let Some(wait) = later.wait(again, deadline.remaining()) else {
                let (migration, entry, reason) = (&task.migration, task.name(), &later.reason);
                info!(function = "migration", migration, entry, reason, "task postponed");
                if again == 0 {
                    tokio::time::sleep(later.wait_for_record(0, deadline.remaining())).await;
                }
                if !later.is_of_a_lease() && put_behind(&self.control, task).await? {
                    return Ok(None);
                }
                return Ok(Some(later));
            };
            tokio::time::sleep(wait).await;
            again += 1;
        }
    }

    /// Processes the task of a record. Returns the reason if the task must be checked again.
    async fn work_on(
        &self,
        offered: &Task,
        deadline: Deadline,
    ) -> Result<Option<RecheckReason>, NoProgress> {
        let (control, name) = (&self.control, &self.name);
        let state = control.state(&offered.migration).await?;
        let turn = state.decide_task(offered);
        match turn {
            TaskDecision::Work => {
                if let Some(later) = self.must_wait(offered).await? {
                    return Ok(Some(later));
                }
            }
            TaskDecision::RemoveMarks => {}
            TaskDecision::CheckLater => {
                return Ok(Some(
                    "a cut-over or revert is in progress; the repair runs after it ends".into(),
                ));
            }
            TaskDecision::Ignore => return Ok(None),
            TaskDecision::Supersede => {
                supersede(control, offered).await?;
                return Ok(None);
            }
            TaskDecision::SupersedeWhenFree => {
                return Ok(supersede_when_free(control, offered, name).await?);
            }
        }
        let task = match lease::lease(control, offered, name).await? {
            Ok(task) => task,
            Err(later) => return Ok(later),
        };
        // A switch does not wait for repairs of an earlier run that no worker has leased. Therefore
        // a worker that leases a repair reads the state again. Either the switch has seen the
        // lease, or the worker sees the later run.
        if task.repairs && control.state(&task.migration).await?.replaces(task.run) {
            return Ok(supersede_when_free(control, offered, name).await?);
        }
        let worker = self.worker(&task, turn == TaskDecision::RemoveMarks).await?;
        if let Some((task, pace)) = self.paced(task, &state, deadline).await? {
            worker.work(&task, &pace, deadline).await?;
        }
        Ok(None)
    }

    /// Reserves a share (items per second) of the migration's rate for a leased task. Returns the
    /// task with the share, and its pace. Returns `None` if another worker has leased the task
    /// meanwhile, or if no share became free in time. In the second case the lease is released.
    async fn paced(
        &self,
        task: Task,
        state: &State,
        deadline: Deadline,
    ) -> Result<Option<(Task, Pace)>, Failure> {
        if state.rate == 0 || !task.work.has_rate() {
            return Ok(Some((task, Pace(None))));
        }
        let waiting = Box::pin(self.free_share(&task, state.rate, deadline));
        let Some((share, mut task)) = lease::while_held(&self.control, &task, waiting).await?
        else {
            return Ok(None);
        };
        match share? {
            0 => task.release(),
            share => task.share = Some(share),
        }
        let task = self.control.replace(task).await?;
        Ok(task.and_then(|task| task.share.map(|share| (task, Pace(Some(share))))))
    }

    /// Waits until a part of the migration's rate is free, and returns it in items per second.
    /// Returns 0 if there is no time to wait.
    async fn free_share(&self, task: &Task, rate: u64, deadline: Deadline) -> Result<u64, Failure> {
        loop {
            let tasks = self.control.tasks(&task.migration).await?;
            let share = pace::share(rate, &tasks, task, lease::now_ms());
            if share > 0 || deadline.remaining() < SHARE_TIME_MIN {
                return Ok(share);
            }
            tokio::time::sleep(SHARE_CHECK).await;
        }
    }

    /// Returns the reason if the backfill must wait. No worker leases the task during the wait.
    async fn must_wait(&self, task: &Task) -> Result<Option<RecheckReason>, Failure> {
        if !task.work.has_rate() {
            return Ok(None);
        }
        let Some(followed) = self.control.active().await?.active.remove(&task.migration) else {
            return Ok(None);
        };
        let active = ActiveMigration { name: task.migration.clone(), followed };
        let migration = self.migration(&active).await?;
        let lag = self.behind(&migration).await?;
        Ok(lag.map(|reason| RecheckReason::from(reason.as_str())))
    }

    /// Returns a worker for a leased task.
    async fn worker(&self, task: &Task, clears: bool) -> Result<Worker<'_>, Failure> {
        let active = |direction| {
            let followed = Followed { direction, fingerprint: task.fingerprint.clone(), since: 0 };
            ActiveMigration { name: task.migration.clone(), followed }
        };
        let migration: Arc<Migration> = self.migration(&active(task.direction)).await?;
        let (plan, _) = self.plan(&task.migration).await?;
        let other = match task.direction {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        };
        let inverse = match plan.inverse.is_empty() {
            true => None,
            false => Some(self.migration(&active(other)).await?),
        };
        let migrations = [Arc::clone(&migration)];
        let is_way_back = task.direction == Direction::Reverse;
        let ways_there: Vec<_> = inverse.iter().filter(|_| is_way_back).cloned().collect();
        let targets = Targets::new(self.control.clone(), &migrations, self.retry)
            .with_ways_there(&ways_there);
        Ok(Worker { control: &self.control, migration, inverse, clears, targets })
    }
}
