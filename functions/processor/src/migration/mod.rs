//! The function `migration`: stream records of source tables into targets, and records of the
//! control table's stream into work on tasks.
//!
//! Which migrations are active is read from the control table at the beginning of each invocation,
//! strongly consistent: a batch that is passed over was written before the migration was made
//! active, and the backfill, which begins after that, reads what it wrote.

mod assembly;
mod check;
pub(crate) mod control;
mod describe;
mod documents;
mod first_writes;
mod in_place;
mod server_date;
mod targets;
mod task;
mod throttling;
mod touch;
mod window;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use model::arn::StreamArn;
use model::stream_record::LambdaRecord;
use model::{AttributeValue, Item, KeySchema};
use rules::migration::{Direction, Kind, Migration, Phase, Plan};
use tracing::info;

use crate::back_off::{Deadline, RetryPolicy};
use crate::event::{BatchItemFailure, BatchResponse, Delivered};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::object_store::ObjectStore;
use crate::quarantine::Quarantine;
use control::{Active, BACKFILL_PREFIX, Control, Lag, TASK_PREFIX, direction_of};
use targets::Targets;
use task::{Later, Pace, Worker};
pub(crate) use throttling::Throttling;

/// Seconds between two notes of one table's lag or throttling by one process: well within those for
/// which a note counts.
const NOTED_EVERY: u64 = 10;
/// What names the tables of a plan, where a setting names others.
const PLAN_TABLE: &str = "the plan of the migration";
/// Plans that are kept compiled at most; beyond that all are compiled anew.
const COMPILED_MAX: usize = 64;

/// The function.
pub(crate) struct Migrations<O> {
    control: Control,
    quarantine: Quarantine<O>,
    retry: RetryPolicy,
    /// This process, as an owner of leases.
    name: String,
    compiled: Mutex<BTreeMap<Active, Arc<Migration>>>,
    /// By the entry of a note: the second in which it was written last.
    noted: Mutex<BTreeMap<String, u64>>,
}

/// A batch, told apart by what its records are from.
enum Batch {
    Control,
    Sources,
}

/// The frame of one batch: the migrations that are active now, and their targets.
pub(crate) type SourcesFrame<O> = Frame<Vec<Arc<Migration>>, Targets, O>;

/// What is to be done with a batch.
pub(crate) enum Begun<O> {
    /// It is the frame's.
    Frame(Box<SourcesFrame<O>>),
    /// It is done.
    Done(BatchResponse),
}

impl<O: ObjectStore + Clone> Migrations<O> {
    pub(crate) fn new(control: Control, quarantine: Quarantine<O>, retry: RetryPolicy) -> Self {
        let name = format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(0_u8));
        let (compiled, noted) = (Mutex::default(), Mutex::default());
        Self { control, quarantine, retry, name, compiled, noted }
    }

    /// Does a batch of the control table; makes the frame for a batch of a source table.
    pub(crate) async fn begin(
        &self,
        batch: &[Delivered<'_>],
        deadline: Deadline,
    ) -> Result<Begun<O>, Failure> {
        match self.kind(batch)? {
            Batch::Control => {
                let response = self.work(batch, deadline).await;
                self.note_throttling().await;
                Ok(Begun::Done(response))
            }
            Batch::Sources => {
                let (mut migrations, mut ways_there) = (Vec::new(), Vec::new());
                for active in self.control.active().await? {
                    let migration = self.migration(&active).await?;
                    if active.direction == Direction::Reverse
                        && migration.kind() == Kind::Restructure
                    {
                        let there = Active { direction: Direction::Forward, since: None, ..active };
                        ways_there.push(self.migration(&there).await?);
                    }
                    migrations.push(migration);
                }
                self.note_lag(&migrations, batch).await?;
                // What the invocation before this one met with.
                self.note_throttling().await;
                Ok(Begun::Frame(Box::new(Frame {
                    executor: Targets::new(self.control.clone(), &migrations, self.retry)
                        .with_ways_there(&ways_there),
                    rule: migrations,
                    quarantine: self.quarantine.clone(),
                })))
            }
        }
    }

    /// Notes when a stream that migrations read is far behind, for the backfills that may be why. What
    /// was written before a migration began says nothing to it, and holds no backfill up.
    async fn note_lag(
        &self,
        migrations: &[Arc<Migration>],
        batch: &[Delivered<'_>],
    ) -> Result<(), Failure> {
        let Some(now) = self.control.now() else { return Ok(()) };
        let first = batch.iter().find_map(|delivered| {
            delivered.look(|record| {
                let record = record.ok()?;
                let arn: StreamArn = record.event_source_arn.parse().ok()?;
                let (table, made) = (arn.table.table, record.approximate_creation_seconds);
                let is_followed = migrations.iter().any(|m| m.follows(&table, made));
                is_followed.then_some((table, made))
            })
        });
        let Some((table, made)) = first else { return Ok(()) };
        let made = made.unwrap_or(now);
        let lag = Lag { seconds: now.saturating_sub(made), at: now };
        if !lag.is_too_long(now) {
            return Ok(());
        }
        if !self.is_to_be_noted(&format!("LAG#{table}"), now) {
            return Ok(());
        }
        self.control.note_lag(&table, lag).await
    }

    /// Notes what DynamoDB throttled, for people. A note that cannot be written holds nothing up.
    async fn note_throttling(&self) {
        let untold = self.control.throttling.take_untold();
        let Some(now) = self.control.now() else { return };
        for (table, why) in untold {
            let entry = format!("THROTTLE#{table}");
            if self.is_to_be_noted(&entry, now)
                && let Err(failure) = self.control.note_throttling(&entry, &why, now).await
            {
                tracing::warn!(function = "migration", why, %failure, "throttled, which could not be noted");
            }
        }
    }

    /// Whether a note that is written all the time is to be written now.
    fn is_to_be_noted(&self, entry: &str, now: u64) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = noted.get(entry).is_some_and(|at| at + NOTED_EVERY > now);
        if !is_fresh {
            noted.insert(entry.to_owned(), now);
        }
        !is_fresh
    }

    /// Why a backfill waits, if it has to: the stream of one of its source tables is far behind.
    async fn behind(&self, migration: &Migration) -> Result<Option<String>, Failure> {
        for table in migration.schemas().keys().filter(|table| migration.reads(table)) {
            let lag = self.control.lag(table).await?;
            if let Some((lag, now)) = lag.zip(self.control.now())
                && lag.is_too_long(now)
            {
                return Ok(Some(format!("the stream of `{table}` is {} s behind", lag.seconds)));
            }
        }
        Ok(None)
    }

    /// A mapping has one stream, so all records of a batch are from one table.
    fn kind(&self, batch: &[Delivered<'_>]) -> Result<Batch, Failure> {
        let first = batch.iter().find_map(|delivered| {
            delivered.look(|record| record.ok().map(|record| record.event_source_arn.into_owned()))
        });
        let Some(arn) = first else {
            // Nothing can be read: the frame puts it aside.
            return Ok(Batch::Sources);
        };
        let arn: StreamArn =
            arn.parse().map_err(|error| Failure::Fatal(format!("`eventSourceARN`: {error}")))?;
        Ok(if arn.table.table == self.control.table() { Batch::Control } else { Batch::Sources })
    }

    /// The compiled migration of a plan: compiling jq takes some milliseconds.
    async fn migration(&self, active: &Active) -> Result<Arc<Migration>, Failure> {
        if let Some(known) = self.compiled().get(active) {
            return Ok(Arc::clone(known));
        }
        let named = |failure: Failure| failure.within(&format!("migration `{}`", active.migration));
        let wrong = |reason: String| named(Failure::Fatal(reason));
        let (plan, fingerprint) = self.plan(&active.migration).await?;
        if fingerprint != active.fingerprint {
            return Err(wrong(
                "its plan is not the one that it was started with; abort it and start it anew"
                    .to_owned(),
            ));
        }
        let schemas = self.schemas(&plan).await.map_err(named)?;
        let migration =
            Migration::compile(&plan, active.direction, &schemas).map_err(|errors| {
                let reasons: Vec<_> = errors.iter().map(ToString::to_string).collect();
                wrong(reasons.join("; "))
            })?;
        let migration = Arc::new(migration.fenced(active.since));
        let mut compiled = self.compiled();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(active.clone(), Arc::clone(&migration));
        Ok(migration)
    }

    fn compiled(&self) -> std::sync::MutexGuard<'_, BTreeMap<Active, Arc<Migration>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn plan(&self, migration: &str) -> Result<(Plan, String), Failure> {
        let missing = || Failure::Fatal(format!("migration `{migration}` has no plan"));
        let item = self.control.get(migration, "PLAN").await?.ok_or_else(missing)?;
        let text = item.get("plan").and_then(AttributeValue::as_str).ok_or_else(missing)?;
        let plan = serde_json::from_str(text)
            .map_err(|error| Failure::Fatal(format!("the plan of `{migration}`: {error}")))?;
        Ok((plan, Plan::fingerprint(text)))
    }

    async fn schemas(&self, plan: &Plan) -> Result<BTreeMap<String, KeySchema>, Failure> {
        let mut schemas = BTreeMap::new();
        for direction in [Direction::Forward, Direction::Reverse] {
            let tables = plan.source_tables(direction).into_iter();
            for table in tables.chain(plan.target_tables(direction)) {
                if !schemas.contains_key(table) {
                    let schema = describe::key_schema(&self.control.client, table).await?;
                    schemas.insert(table.to_owned(), schema);
                }
            }
        }
        Ok(schemas)
    }

    /// Works on the task of each record, one after the other.
    async fn work(&self, batch: &[Delivered<'_>], deadline: Deadline) -> BatchResponse {
        let mut response = BatchResponse::default();
        for delivered in batch {
            // Whatever else is in the control table is no work, and unreadable records are not ours.
            let Ok(record) = delivered.record() else { continue };
            let done = match self.work_or_wait(record, deadline).await {
                Ok(None) => true,
                Ok(Some(later)) => {
                    info!(function = "migration", reason = later.reason, "task later");
                    false
                }
                Err(failure) => {
                    tracing::error!(function = "migration", reason = %failure, "task failed");
                    false
                }
            };
            if !done && let Some(sequence) = delivered.sequence_number() {
                let item_identifier = sequence.to_owned();
                response.batch_item_failures.push(BatchItemFailure { item_identifier });
                break;
            }
        }
        response
    }

    /// Works on the task of a record, and looks at it again as long as it must wait and there is time.
    /// Each look waits for a second or more, so they are not more than the seconds of an invocation.
    async fn work_or_wait(
        &self,
        record: &LambdaRecord,
        deadline: Deadline,
    ) -> Result<Option<Later>, Failure> {
        let mut again = 0;
        loop {
            let Some(later) = self.work_on(record, deadline).await? else { return Ok(None) };
            let Some(wait) = later.wait(again, deadline.remaining()) else {
                return Ok(Some(later));
            };
            tokio::time::sleep(wait).await;
            again += 1;
        }
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

    /// Answers why the task must be looked at again, if it must.
    async fn work_on(
        &self,
        record: &LambdaRecord,
        deadline: Deadline,
    ) -> Result<Option<Later>, Failure> {
        let Some(image) = &record.record.new_image else { return Ok(None) };
        let Some((migration, entry, revision)) = task_of(image) else { return Ok(None) };
        let state = self.control.get(migration, "STATE").await?.unwrap_or_default();
        let flag = |name: &str| state.get(name) == Some(&AttributeValue::Bool(true));
        // Resuming touches every task, which makes a record of each.
        let is_touch = entry.contains(touch::ENTRIES);
        // A comparison that outlived the switch would put what the sources said over what writers
        // have written to the targets since, or the other way round.
        let phase = state.get("phase").and_then(AttributeValue::as_str).and_then(Phase::from_name);
        let repairs = image.get("repairs") == Some(&AttributeValue::Bool(true));
        let way = image.get("direction").and_then(AttributeValue::as_str).and_then(direction_of);
        let way = way.unwrap_or(Direction::Forward);
        if repairs
            && let Some(idle) =
                task::kept_from_repair(&self.control, (migration, entry), phase, way).await?
        {
            return Ok(idle.into_later());
        }
        // What was given up still takes its marks off.
        let clears = is_touch && flag("stopped");
        // A pause is of the backfill. Comparisons and what ends a migration are asked for by a person.
        let is_paused = flag("paused") && entry.starts_with(BACKFILL_PREFIX);
        if !clears && (is_paused || flag("stopped")) {
            return Ok(None);
        }
        if !clears && let Some(reason) = self.must_wait(migration, entry).await? {
            return Ok(Some(Later::from(reason.as_str())));
        }
        let task = task::lease(&self.control, migration, entry, revision, &self.name).await?;
        let task = match task {
            Ok(task) => task,
            Err(idle) => return Ok(idle.into_later()),
        };
        let active = |direction| Active {
            migration: task.migration.clone(),
            direction,
            fingerprint: task.fingerprint.clone(),
            since: None,
        };
        let migration = self.migration(&active(task.direction)).await?;
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
        let worker = Worker { control: &self.control, migration, inverse, clears, targets };
        let rate = state.get("rate").and_then(AttributeValue::as_number);
        let rate = rate.and_then(|rate| rate.to_u64()).filter(|rate| *rate > 0);
        let share = rate.map(|rate| (rate / u64::try_from(task.segments).unwrap_or(1)).max(1));
        worker.work(&task, &Pace(share), deadline).await?;
        Ok(None)
    }
}

/// The task that an image of the control table's stream tells of, and its revision; none if it is
/// something else, done, or only a lease.
fn task_of(image: &Item) -> Option<(&str, &str, u64)> {
    let text = |name: &str| image.get(name).and_then(AttributeValue::as_str);
    let entry = text("entry").filter(|entry| entry.starts_with(TASK_PREFIX))?;
    let done = image.get("done") == Some(&AttributeValue::Bool(true));
    if done || image.contains_key("owner") {
        return None;
    }
    Some((text("migration")?, entry, image.get("revision")?.as_number()?.to_u64()?))
}

#[cfg(test)]
mod tests;
