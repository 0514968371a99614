//! The function `migration`: stream records of source tables into targets, and records of the
//! control table's stream into work on tasks.
//!
//! Which migrations are active is read from the control table at the beginning of each invocation,
//! strongly consistent: a batch that is passed over was written before the migration was made
//! active, and the backfill, which begins after that, reads what it wrote.

mod assembly;
mod check;
pub(crate) mod control_table;
mod describe;
mod dispatch;
mod documents;
mod first_writes;
mod foreign_items;
mod in_place;
mod lease;
mod pace;
mod retry;
mod server_date;
mod tally;
mod targets;
mod task;
mod throttling;
mod touch;
mod window;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use control::{Entry as _, Followed, FollowedTable, Lag, PlanEntry, SHARED, Throttled};
use locks::Mutex;
use model::KeySchema;
use model::arn::StreamArn;
use rules::migration::plan::NOTED_EVERY_SECONDS;
use rules::migration::{Direction, Kind, Migration, Plan};

use crate::back_off::{Deadline, RetryPolicy};
use crate::event::{BatchResponse, Delivered};
use crate::failure::Failure;
use crate::frame::{Frame, Report};
use crate::object_store::ObjectStore;
use crate::quarantine::Quarantine;
use control_table::Control;
use targets::Targets;
pub(crate) use throttling::Throttling;

/// How long a note may take that nothing waits for: that of a lag comes after the time of the batch is
/// over, and a second is left for the answer.
const NOTE_LIMIT: Duration = Duration::from_millis(300);
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
    compiled: Mutex<BTreeMap<ActiveMigration, Arc<Migration>>>,
    /// By the name of a note's entry: the second in which it was written last.
    noted: Mutex<BTreeMap<String, u64>>,
}

/// A migration that functions follow, or one way of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ActiveMigration {
    name: String,
    followed: Followed,
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
                let offers = dispatch::offers(batch);
                let response = self.work(&offers, deadline).await;
                self.note_throttling().await;
                // This note proves that running functions write such notes. An event without the template's
                // filter delivers the notes as well, and a note for each note would never end.
                if !offers.is_empty() {
                    self.note_followed(self.control.table()).await;
                }
                Ok(Begun::Done(response))
            }
            Batch::Sources => {
                let (migrations, ways_there) = self.followers(batch).await?;
                if let Some(table) = table_of(batch)
                    && migrations.iter().any(|m| m.schemas().contains_key(&table))
                {
                    self.note_followed(&table).await;
                }
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

    /// Does a batch of a source table in its frame, and notes when there was something to do long after
    /// it was written. Whoever reads a stream from its beginning meets old records that others have
    /// applied, and is behind with nothing.
    pub(crate) async fn follow(
        &self,
        frame: &SourcesFrame<O>,
        batch: &[Delivered<'_>],
        deadline: Deadline,
    ) -> Result<Report, Failure> {
        let report = frame.process(batch, deadline).await;
        let had_to_do = match &report {
            Ok(report) => report.summary.applied + report.summary.retried > 0,
            // The stream stands still for as long as that is so.
            Err(_) => true,
        };
        if had_to_do {
            let note = tokio::time::timeout(NOTE_LIMIT, self.note_lag(&frame.rule, batch));
            let late = |_| Err(Failure::Retry("the control table does not answer".to_owned()));
            if let Err(failure) = note.await.unwrap_or_else(late) {
                tracing::warn!(function = "migration", %failure, "behind, which could not be noted");
            }
        }
        report
    }

    /// The migrations that may follow a batch of a source table, and the ways there of those that go
    /// back. One that cannot be carried out, because a table of its plan is gone, say, fails the batches
    /// of the tables that it reads, and of no others.
    async fn followers(
        &self,
        batch: &[Delivered<'_>],
    ) -> Result<(Vec<Arc<Migration>>, Vec<Arc<Migration>>), Failure> {
        let (mut migrations, mut ways_there) = (Vec::new(), Vec::new());
        for (name, followed) in self.control.active().await?.active {
            let active = ActiveMigration { name, followed };
            match self.there_and_back(&active).await {
                Ok((migration, there)) => {
                    migrations.push(migration);
                    ways_there.extend(there);
                }
                Err(failure) if self.is_of_others(&active, batch).await => {
                    tracing::warn!(function = "migration", reason = %failure, "passed over");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((migrations, ways_there))
    }

    /// A migration, and its way there if it goes back and needs it.
    async fn there_and_back(
        &self,
        active: &ActiveMigration,
    ) -> Result<(Arc<Migration>, Option<Arc<Migration>>), Failure> {
        let migration = self.migration(active).await?;
        if active.followed.direction != Direction::Reverse || migration.kind() != Kind::Restructure
        {
            return Ok((migration, None));
        }
        let (name, fingerprint) = (active.name.clone(), active.followed.fingerprint.clone());
        let followed = Followed { direction: Direction::Forward, fingerprint, since: 0 };
        let there = ActiveMigration { name, followed };
        Ok((migration, Some(self.migration(&there).await?)))
    }

    /// Whether a batch is known to be of a table that a migration does not read.
    async fn is_of_others(&self, active: &ActiveMigration, batch: &[Delivered<'_>]) -> bool {
        let Some(table) = table_of(batch) else { return false };
        let ActiveMigration { name, followed } = active;
        self.plan(name).await.is_ok_and(|(plan, fingerprint)| {
            fingerprint == followed.fingerprint
                && !plan.source_tables(followed.direction).contains(&table.as_str())
        })
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
        let lag = Lag { table, seconds: now.saturating_sub(made), at: now };
        if !lag.is_too_long(now) || !self.is_to_be_noted(&lag.name(), now) {
            return Ok(());
        }
        self.control.put(&lag).await
    }

    /// Notes what DynamoDB throttled, for people. A note that cannot be written holds nothing up.
    async fn note_throttling(&self) {
        let untold = self.control.throttling.take_untold();
        let Some(now) = self.control.now() else { return };
        for (table, reason) in untold {
            let note = Throttled { table, reason, at: now };
            if self.is_to_be_noted(&note.name(), now)
                && let Err(failure) = self.control.put(&note).await
            {
                tracing::warn!(function = "migration", reason = note.reason, %failure, "throttled, which could not be noted");
            }
        }
    }

    /// Notes that the stream of a table of a migration is followed, also by whoever has nothing to do
    /// with its records, such as those that a migration makes in its targets before it is turned round.
    /// A note that cannot be written holds nothing up.
    async fn note_followed(&self, table: &str) {
        let Some(at) = self.control.now() else { return };
        let followed = FollowedTable { table: table.to_owned(), at };
        let entry = followed.name();
        if !self.is_to_be_noted(&entry, at) {
            return;
        }
        let note = tokio::time::timeout(NOTE_LIMIT, self.control.put(&followed));
        let late = |_| Err(Failure::Retry("the control table does not answer".to_owned()));
        if let Err(failure) = note.await.unwrap_or_else(late) {
            tracing::warn!(function = "migration", table, %failure, "followed, which could not be noted");
            // The next batch tries again.
            self.noted.lock().remove(&entry);
        }
    }

    /// Whether a note that is written all the time is to be written now. A clock that was set back is no
    /// reason to write none.
    fn is_to_be_noted(&self, entry: &str, now: u64) -> bool {
        let mut noted = self.noted.lock();
        let is_fresh = noted.get(entry).is_some_and(|at| at.abs_diff(now) < NOTED_EVERY_SECONDS);
        if !is_fresh {
            noted.insert(entry.to_owned(), now);
        }
        !is_fresh
    }

    /// Why a backfill waits, if it has to: the stream of one of its source tables is far behind.
    async fn behind(&self, migration: &Migration) -> Result<Option<String>, Failure> {
        for table in migration.schemas().keys().filter(|table| migration.reads(table)) {
            let lag: Option<Lag> = self.control.get(SHARED, &Lag::name_of(table)).await?;
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
        let Some(arn) = first_arn(batch) else {
            // Nothing can be read: the frame puts it aside.
            return Ok(Batch::Sources);
        };
        let arn: StreamArn =
            arn.parse().map_err(|error| Failure::Fatal(format!("`eventSourceARN`: {error}")))?;
        Ok(if arn.table.table == self.control.table() { Batch::Control } else { Batch::Sources })
    }

    /// The compiled migration of a plan: compiling jq takes some milliseconds.
    async fn migration(&self, active: &ActiveMigration) -> Result<Arc<Migration>, Failure> {
        if let Some(known) = self.compiled().get(active) {
            return Ok(Arc::clone(known));
        }
        let ActiveMigration { name, followed } = active;
        let named = |failure: Failure| failure.within(&format!("migration `{name}`"));
        let wrong = |reason: String| named(Failure::Fatal(reason));
        let (plan, fingerprint) = self.plan(name).await?;
        if fingerprint != followed.fingerprint {
            return Err(wrong(
                "its plan is not the one that it was started with; abort it and start it anew"
                    .to_owned(),
            ));
        }
        let schemas = self.schemas(&plan).await.map_err(named)?;
        let migration =
            Migration::compile(&plan, followed.direction, &schemas).map_err(|errors| {
                let reasons: Vec<_> = errors.iter().map(ToString::to_string).collect();
                wrong(reasons.join("; "))
            })?;
        let since = u64::try_from(followed.since).ok().filter(|since| *since > 0);
        let migration = Arc::new(migration.fenced(since));
        let mut compiled = self.compiled();
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(active.clone(), Arc::clone(&migration));
        Ok(migration)
    }

    fn compiled(&self) -> MutexGuard<'_, BTreeMap<ActiveMigration, Arc<Migration>>> {
        self.compiled.lock()
    }

    async fn plan(&self, migration: &str) -> Result<(Plan, String), Failure> {
        let missing = || Failure::Fatal(format!("migration `{migration}` has no plan"));
        let entry = self.control.get::<PlanEntry>(migration, PlanEntry::NAME).await?;
        let text = entry.ok_or_else(missing)?.plan;
        let plan = serde_json::from_str(&text)
            .map_err(|error| Failure::Fatal(format!("the plan of `{migration}`: {error}")))?;
        Ok((plan, Plan::fingerprint(&text)))
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
}

/// The stream of a batch; none if none of its records can be read.
fn first_arn(batch: &[Delivered<'_>]) -> Option<String> {
    batch.iter().find_map(|delivered| {
        delivered.look(|record| record.ok().map(|record| record.event_source_arn.into_owned()))
    })
}

/// The table of a batch; none if that cannot be read.
fn table_of(batch: &[Delivered<'_>]) -> Option<String> {
    let arn: StreamArn = first_arn(batch)?.parse().ok()?;
    Some(arn.table.table)
}

#[cfg(test)]
mod tests;
