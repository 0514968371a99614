//! What becomes of a record of the control table's stream: its task is worked on now, or looked at
//! again, or put off, or nobody does it any more.

use std::sync::Arc;
use std::time::Duration;

use model::stream_record::LambdaRecord;
use model::{AttributeValue, Item};
use rules::migration::{Direction, Migration, Phase};
use tracing::{error, info};

use super::control::{Active, BACKFILL_PREFIX, SHARE, TASK_PREFIX, Task, direction_of};
use super::pace::{self, Pace};
use super::retry::{ASIDE, Stuck, put_behind, put_off, released};
use super::targets::Targets;
use super::task::{Idle, Later, Worker};
use super::{Migrations, lease, task, touch};
use crate::back_off::Deadline;
use crate::event::{BatchItemFailure, BatchResponse, Delivered};
use crate::failure::Failure;
use crate::object_store::ObjectStore;

/// How often a worker looks whether others leave something of a rate.
const SHARE_LOOK: Duration = Duration::from_millis(250);
/// Time of an invocation that a slice with its waits needs: a worker does not wait for a share in it.
const SHARE_TIME_MIN: Duration = Duration::from_secs(4);

/// The task that an image of the control table's stream tells of.
#[derive(Clone, Copy, Debug)]
struct Told<'i> {
    image: &'i Item,
    migration: &'i str,
    entry: &'i str,
    revision: u64,
}

impl<'i> Told<'i> {
    /// None if it is something else, done, set aside, or only a lease.
    fn of(record: &'i LambdaRecord) -> Option<Self> {
        let image = record.record.new_image.as_ref()?;
        let text = |name: &str| image.get(name).and_then(AttributeValue::as_str);
        let entry = text("entry").filter(|entry| entry.starts_with(TASK_PREFIX))?;
        if flag(image, "done") || flag(image, ASIDE) || image.contains_key("owner") {
            return None;
        }
        let revision = number(image, "revision")?;
        Some(Self { image, migration: text("migration")?, entry, revision })
    }

    fn text(&self, name: &str) -> &'i str {
        self.image.get(name).and_then(AttributeValue::as_str).unwrap_or_default()
    }

    fn is_touch(&self) -> bool {
        self.entry.contains(touch::ENTRIES)
    }

    fn segment(&self) -> u64 {
        number(self.image, "segment").unwrap_or(0)
    }
}

/// Whether a batch of the control table's stream has a record that is work for somebody, as each has
/// that comes through the template's filter.
pub(super) fn tells_of_a_task(batch: &[Delivered<'_>]) -> bool {
    batch
        .iter()
        .any(|delivered| delivered.record().as_ref().is_ok_and(|record| Told::of(record).is_some()))
}

fn flag(item: &Item, name: &str) -> bool {
    item.get(name) == Some(&AttributeValue::Bool(true))
}

fn number(item: &Item, name: &str) -> Option<u64> {
    item.get(name)?.as_number()?.to_u64()
}

/// Whether a later run took the place of a task's: whoever waits for it waits for that one, and two that
/// repair would do so twice. The first run is the backfill, which none takes the place of.
fn is_outdated(run: u64, state: &Item) -> bool {
    run > 0 && number(state, "run").is_some_and(|last| last > run)
}

/// Whether a migration has come to its end, so that nobody waits for any run after its first one. After
/// a way back marks are left to take off yet.
fn is_over(run: u64, state: &Item) -> bool {
    match phase_of(state) {
        Some(Phase::Reverted) => run > 0 && !flag(state, "unswept"),
        Some(phase) => run > 0 && phase.has_ended(),
        None => false,
    }
}

fn phase_of(state: &Item) -> Option<Phase> {
    state.get("phase").and_then(AttributeValue::as_str).and_then(Phase::from_name)
}

impl<O: ObjectStore + Clone> Migrations<O> {
    /// Works on the task of each record, one after the other.
    pub(super) async fn work(&self, batch: &[Delivered<'_>], deadline: Deadline) -> BatchResponse {
        let mut response = BatchResponse::default();
        for delivered in batch {
            // Whatever else is in the control table is no work, and unreadable records are not ours.
            let Ok(record) = delivered.record() else { continue };
            let Some(told) = Told::of(record) else { continue };
            let done = match self.work_or_wait(told, deadline).await {
                Ok(None) => true,
                Ok(Some(_)) => false,
                Err(stuck) => self.put_off(told, &stuck, deadline).await,
            };
            if !done && let Some(sequence) = delivered.sequence_number() {
                let item_identifier = sequence.to_owned();
                response.batch_item_failures.push(BatchItemFailure { item_identifier });
                break;
            }
        }
        response
    }

    /// Notes why nothing of a task could be done; answers whether its record is done with.
    async fn put_off(&self, told: Told<'_>, stuck: &Stuck, deadline: Deadline) -> bool {
        error!(
            function = "migration",
            migration = told.migration,
            work = told.text("work"),
            table = told.text("table"),
            segment = told.segment(),
            reason = %stuck.failure,
            "task failed"
        );
        let place = (told.migration, told.entry, told.revision);
        match put_off(&self.control, place, &self.name, stuck, deadline).await {
            Ok(done) => done,
            Err(failure) => {
                let (migration, entry) = (told.migration, told.entry);
                error!(function = "migration", migration, entry, reason = %failure, "task not noted");
                false
            }
        }
    }

    /// Works on the task of a record, and looks at it again as long as it must wait and there is time.
    /// Each look waits for a second or more, so they are not more than the seconds of an invocation.
    async fn work_or_wait(
        &self,
        told: Told<'_>,
        deadline: Deadline,
    ) -> Result<Option<Later>, Stuck> {
        let mut again = 0;
        loop {
            let Some(later) = self.work_on(told, deadline).await? else { return Ok(None) };
            let Some(wait) = later.wait(again, deadline.remaining()) else {
                let (migration, entry) = (told.migration, told.entry);
                info!(
                    function = "migration",
                    migration,
                    entry,
                    reason = later.reason,
                    "task later"
                );
                let place = (migration, entry, told.revision);
                if again == 0 {
                    tokio::time::sleep(later.wait_for_record(0, deadline.remaining())).await;
                }
                if !later.is_of_a_lease() && put_behind(&self.control, place).await? {
                    return Ok(None);
                }
                return Ok(Some(later));
            };
            tokio::time::sleep(wait).await;
            again += 1;
        }
    }

    /// Answers why the task must be looked at again, if it must.
    async fn work_on(&self, told: Told<'_>, deadline: Deadline) -> Result<Option<Later>, Stuck> {
        let (control, migration) = (&self.control, told.migration);
        let state = control.get(migration, "STATE").await?.unwrap_or_default();
        if let Some(idle) = self.kept_from(told, &state).await? {
            return Ok(idle.into_later());
        }
        let leased =
            lease::lease(control, migration, told.entry, told.revision, &self.name).await?;
        let task = match leased {
            Ok(task) => task,
            Err(idle) => return Ok(idle.into_later()),
        };
        // A switch does not wait for the repairs of an earlier run that nobody has taken. So whoever
        // takes one looks once more: either the switch saw the lease, or the later run is seen here.
        if task.repairs {
            let state = control.get(migration, "STATE").await?.unwrap_or_default();
            if is_outdated(task.run, &state) {
                let place = (migration, told.entry);
                return Ok(task::end_outdated(control, place, &self.name).await?.into_later());
            }
        }
        let worker = self.worker(&task, told.is_touch() && flag(&state, "stopped")).await?;
        let rate = number(&state, "rate").unwrap_or(0);
        if let Some((task, pace)) = self.paced(task, rate, deadline).await? {
            worker.work(&task, &pace, deadline).await?;
        }
        Ok(None)
    }

    /// Takes a share of the rate of a migration for a leased task. Returns the task with it, and its
    /// pace; none if another worker has the task by then, or no share came free in time, so that the
    /// task is given back.
    async fn paced(
        &self,
        task: Task,
        rate: u64,
        deadline: Deadline,
    ) -> Result<Option<(Task, Pace)>, Failure> {
        if rate == 0 || !pace::is_limited(task.work) {
            return Ok(Some((task, Pace(None))));
        }
        let waiting = Box::pin(self.free_share(&task, rate, deadline));
        let Some((share, task)) = lease::while_held(&self.control, &task, waiting).await? else {
            return Ok(None);
        };
        let share = share?;
        let next = match share {
            0 => released(&task),
            share => task.next(|item| {
                item.insert(SHARE.to_owned(), AttributeValue::N(model::Number::from(share)));
            }),
        };
        if !self.control.replace(&next, task.revision).await? || share == 0 {
            return Ok(None);
        }
        Ok(Task::from_item(&next).map(|task| (task, Pace(Some(share)))))
    }

    /// Waits until workers of other tasks leave something of a rate; 0 if there is no time to wait.
    async fn free_share(&self, task: &Task, rate: u64, deadline: Deadline) -> Result<u64, Failure> {
        loop {
            let tasks = self.control.tasks(&task.migration).await?;
            let share = pace::share(rate, &tasks, task.entry(), lease::now_ms());
            if share > 0 || deadline.remaining() < SHARE_TIME_MIN {
                return Ok(share);
            }
            tokio::time::sleep(SHARE_LOOK).await;
        }
    }

    /// Why a task is not worked on in this state; none if it is.
    async fn kept_from(&self, told: Told<'_>, state: &Item) -> Result<Option<Idle>, Failure> {
        let Told { image, migration, entry, .. } = told;
        let run = number(image, "run").unwrap_or(0);
        if is_outdated(run, state) || is_over(run, state) {
            let idle = task::end_outdated(&self.control, (migration, entry), &self.name).await?;
            return Ok(Some(idle));
        }
        // A comparison that outlived the switch would put what the sources said over what writers
        // have written to the targets since, or the other way round.
        let phase = phase_of(state);
        let way = image.get("direction").and_then(AttributeValue::as_str).and_then(direction_of);
        let way = way.unwrap_or(Direction::Forward);
        if flag(image, "repairs")
            && let Some(idle) =
                task::kept_from_repair(&self.control, (migration, entry), phase, way).await?
        {
            return Ok(Some(idle));
        }
        // What was given up still takes its marks off.
        if told.is_touch() && flag(state, "stopped") {
            return Ok(None);
        }
        // A pause is of the backfill. Comparisons and what ends a migration are asked for by a person.
        let is_paused = flag(state, "paused") && entry.starts_with(BACKFILL_PREFIX);
        // Resuming touches every task, which makes a record of each.
        if is_paused || flag(state, "stopped") {
            return Ok(Some(Idle::NothingToDo));
        }
        let reason = self.must_wait(migration, entry).await?;
        Ok(reason.map(|reason| Idle::Later(Later::from(reason.as_str()))))
    }

    /// Why the backfill of a migration waits. It is not leased meanwhile.
    async fn must_wait(&self, name: &str, entry: &str) -> Result<Option<String>, Failure> {
        if !entry.contains("#backfill#") && !entry.contains(touch::ENTRIES) {
            return Ok(None);
        }
        let Some(active) = self.control.active().await?.into_iter().find(|a| a.migration == name)
        else {
            return Ok(None);
        };
        let migration = self.migration(&active).await?;
        self.behind(&migration).await
    }

    /// Who works on a task that was leased.
    async fn worker(&self, task: &Task, clears: bool) -> Result<Worker<'_>, Failure> {
        let active = |direction| Active {
            migration: task.migration.clone(),
            direction,
            fingerprint: task.fingerprint.clone(),
            since: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_takes_the_place_of_all_but_the_first_one() {
        let state = |run: u64| {
            let run = AttributeValue::N(model::Number::from(run));
            Item::new().with("run", run)
        };
        for (last, expected) in [(2, false), (3, false), (4, true)] {
            assert_eq!(is_outdated(3, &state(last)), expected, "{last}");
        }
        assert!(!is_outdated(3, &Item::new()));
        assert!(!is_outdated(0, &state(9)));
    }

    #[test]
    fn nobody_waits_for_a_run_of_a_migration_that_is_over() {
        for phase in Phase::ALL {
            let state = Item::new().with("phase", phase.as_str());
            assert_eq!(is_over(3, &state), phase.has_ended(), "{phase:?}");
            // What was touched and given up is to lose its marks.
            assert!(!is_over(0, &state), "{phase:?}");
            let unswept = state.with("unswept", AttributeValue::Bool(true));
            let is_left = phase.has_ended() && phase != Phase::Reverted;
            assert_eq!(is_over(3, &unswept), is_left, "{phase:?}");
        }
        assert!(!is_over(3, &Item::new()));
    }
}
