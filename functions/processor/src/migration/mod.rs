//! The function `migration`: applies stream records of source tables to targets, and processes
//! tasks from the control table's stream.
//!
//! At its start, each invocation reads the active migrations from the control table with strong
//! consistency. So a batch that a migration ignored was written before the migration became active.
//! The backfill begins later and reads the items of this batch.

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
use crate::event::{BatchRecord, BatchResponse};
use crate::failure::Failure;
use crate::frame::{Frame, Report};
use crate::object_store::ObjectStore;
use crate::quarantine::Quarantine;
use control_table::Control;
use targets::Targets;
pub(crate) use throttling::Throttling;

/// Timeout of an informational write, such as the entry of a lag. That entry is written after the
/// deadline of the batch, when one second remains for the response.
const NOTE_LIMIT: Duration = Duration::from_millis(300);
/// The source of the table names, for messages that otherwise name an environment variable.
const PLAN_TABLE: &str = "the plan of the migration";
/// Upper bound of cached compiled plans. When this number is reached, the cache is cleared.
const COMPILED_MAX: usize = 64;

/// The function `migration`: its clients, settings and caches.
pub(crate) struct Migrations<O> {
    control: Control,
    quarantine: Quarantine<O>,
    retry: RetryPolicy,
    /// The name under which this process owns leases.
    name: String,
    compiled: Mutex<BTreeMap<ActiveMigration, Arc<Migration>>>,
    /// The time in seconds at which each recurring entry was last written, by the entry's name.
    noted: Mutex<BTreeMap<String, u64>>,
}

/// An active migration in one direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ActiveMigration {
    name: String,
    followed: Followed,
}

/// The kind of a batch: records of the control table, or of a source table.
enum Batch {
    Control,
    Sources,
}

/// The frame of one batch, with the active migrations and their targets.
pub(crate) type SourcesFrame<O> = Frame<Vec<Arc<Migration>>, Targets, O>;

/// The result of [`Migrations::begin`].
pub(crate) enum BatchStart<O> {
    /// The batch is from a source table; this frame must process it.
    Frame(Box<SourcesFrame<O>>),
    /// The batch is from the control table and has been processed.
    Done(BatchResponse),
}

impl<O: ObjectStore + Clone> Migrations<O> {
    pub(crate) fn new(control: Control, quarantine: Quarantine<O>, retry: RetryPolicy) -> Self {
        let name = format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(0_u8));
        let (compiled, noted) = (Mutex::default(), Mutex::default());
        Self { control, quarantine, retry, name, compiled, noted }
    }

    /// Processes a batch of the control table. For a batch of a source table, returns the frame
    /// that processes it.
    pub(crate) async fn begin(
        &self,
        batch: &[BatchRecord<'_>],
        deadline: Deadline,
    ) -> Result<BatchStart<O>, Failure> {
        match self.kind(batch)? {
            Batch::Control => {
                let offers = dispatch::offers(batch);
                let response = self.work(&offers, deadline).await;
                self.note_throttling().await;
                // This entry proves that the running functions record the tables that they follow.
                // It is written only for a batch with tasks. Without the event filter, the function
                // also receives the records of its own entries. If it wrote an entry for each of
                // these records, it would invoke itself in an endless loop.
                if !offers.is_empty() {
                    self.note_followed(self.control.table()).await;
                }
                Ok(BatchStart::Done(response))
            }
            Batch::Sources => {
                let (migrations, ways_there) = self.followers(batch).await?;
                if let Some(table) = table_of(batch)
                    && migrations.iter().any(|m| m.schemas().contains_key(&table))
                {
                    self.note_followed(&table).await;
                }
                // Reports throttling since the previous report, including throttling in the
                // previous invocation.
                self.note_throttling().await;
                Ok(BatchStart::Frame(Box::new(Frame {
                    executor: Targets::new(self.control.clone(), &migrations, self.retry)
                        .with_ways_there(&ways_there),
                    rule: migrations,
                    quarantine: self.quarantine.clone(),
                })))
            }
        }
    }

    /// Processes a batch of a source table in its frame. Writes the lag if the batch needed work. A
    /// stream that is read from its beginning delivers old records that were applied already; these
    /// records do not count as a lag.
    pub(crate) async fn follow(
        &self,
        frame: &SourcesFrame<O>,
        batch: &[BatchRecord<'_>],
        deadline: Deadline,
    ) -> Result<Report, Failure> {
        let report = frame.process(batch, deadline).await;
        let had_to_do = match &report {
            Ok(report) => report.summary.applied + report.summary.retried > 0,
            // While a batch fails as a whole, the stream is blocked.
            Err(_) => true,
        };
        if had_to_do {
            let note = tokio::time::timeout(NOTE_LIMIT, self.note_lag(&frame.rule, batch));
            let late =
                |_| Err(Failure::Retry("the control table did not respond in time".to_owned()));
            if let Err(failure) = note.await.unwrap_or_else(late) {
                tracing::warn!(function = "migration", %failure, "the lag could not be recorded");
            }
        }
        report
    }

    /// Returns the migrations that may apply a batch of a source table, and the forward directions
    /// of the migrations that run in reverse. A migration that cannot run, for example because a
    /// table of its plan is missing, blocks only the batches of tables that it reads.
    async fn followers(
        &self,
        batch: &[BatchRecord<'_>],
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
                    tracing::warn!(function = "migration", reason = %failure, "migration ignored for this batch");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((migrations, ways_there))
    }

    /// Returns a migration. If the migration runs in reverse and needs its forward direction, also
    /// returns that direction.
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

    /// Returns true if the migration certainly does not read the batch's table.
    async fn is_of_others(&self, active: &ActiveMigration, batch: &[BatchRecord<'_>]) -> bool {
        let Some(table) = table_of(batch) else { return false };
        let ActiveMigration { name, followed } = active;
        self.plan(name).await.is_ok_and(|(plan, fingerprint)| {
            fingerprint == followed.fingerprint
                && !plan.source_tables(followed.direction).contains(&table.as_str())
        })
    }

    /// Writes the lag of a stream that migrations read, if the lag is long. Backfills, which may be
    /// the cause, then wait until the lag is short. Records from before a migration began do not
    /// count.
    async fn note_lag(
        &self,
        migrations: &[Arc<Migration>],
        batch: &[BatchRecord<'_>],
    ) -> Result<(), Failure> {
        let Some(now) = self.control.now() else { return Ok(()) };
        let first = batch.iter().find_map(|delivered| {
            delivered.with_decoded(|record| {
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

    /// Records for operators which requests DynamoDB throttled. A failure to record this does not
    /// affect the batch.
    async fn note_throttling(&self) {
        let untold = self.control.throttling.take_unreported();
        let Some(now) = self.control.now() else { return };
        for (table, reason) in untold {
            let note = Throttled { table, reason, at: now };
            if self.is_to_be_noted(&note.name(), now)
                && let Err(failure) = self.control.put(&note).await
            {
                tracing::warn!(function = "migration", reason = note.reason, %failure, "the throttling could not be recorded");
            }
        }
    }

    /// Records that a function follows the stream of a migration's table, even if the records need
    /// no work. For example, a function follows the targets before the migration is reversed. If
    /// this write fails, the batch continues.
    async fn note_followed(&self, table: &str) {
        let Some(at) = self.control.now() else { return };
        let followed = FollowedTable { table: table.to_owned(), at };
        let entry = followed.name();
        if !self.is_to_be_noted(&entry, at) {
            return;
        }
        let note = tokio::time::timeout(NOTE_LIMIT, self.control.put(&followed));
        let late = |_| Err(Failure::Retry("the control table did not respond in time".to_owned()));
        if let Err(failure) = note.await.unwrap_or_else(late) {
            tracing::warn!(function = "migration", table, %failure, "could not record that the function follows the stream");
            // The write failed, so the next batch tries again.
            self.noted.lock().remove(&entry);
        }
    }

    /// Returns whether a recurring entry is due. If the clock was set back, the entry is due too.
    fn is_to_be_noted(&self, entry: &str, now: u64) -> bool {
        let mut noted = self.noted.lock();
        let is_fresh = noted.get(entry).is_some_and(|at| at.abs_diff(now) < NOTED_EVERY_SECONDS);
        if !is_fresh {
            noted.insert(entry.to_owned(), now);
        }
        !is_fresh
    }

    /// Returns the reason if a backfill must wait, because the stream of one of its source tables
    /// lags.
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

    /// Returns the kind of a batch. An event source mapping has one stream, so all records are from
    /// one table.
    fn kind(&self, batch: &[BatchRecord<'_>]) -> Result<Batch, Failure> {
        let Some(arn) = first_arn(batch) else {
            // No record can be decoded. The frame quarantines all of them.
            return Ok(Batch::Sources);
        };
        let arn: StreamArn =
            arn.parse().map_err(|error| Failure::Fatal(format!("`eventSourceARN`: {error}")))?;
        Ok(if arn.table.table == self.control.table() { Batch::Control } else { Batch::Sources })
    }

    /// Returns the compiled migration of a plan. Compiled migrations are cached, because compiling
    /// jq takes some milliseconds.
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
                "the plan has changed since the migration started; abort the migration and start it again"
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
        let missing =
            || Failure::Fatal(format!("the control table has no plan of migration `{migration}`"));
        let entry = self.control.get::<PlanEntry>(migration, PlanEntry::NAME).await?;
        let text = entry.ok_or_else(missing)?.plan;
        let plan = serde_json::from_str(&text).map_err(|error| {
            Failure::Fatal(format!("cannot parse the plan of `{migration}`: {error}"))
        })?;
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

/// Returns the stream ARN of a batch; `None` if no record can be decoded.
fn first_arn(batch: &[BatchRecord<'_>]) -> Option<String> {
    batch.iter().find_map(|delivered| {
        delivered
            .with_decoded(|record| record.ok().map(|record| record.event_source_arn.into_owned()))
    })
}

/// Returns the table of a batch; `None` if no record can be decoded.
fn table_of(batch: &[BatchRecord<'_>]) -> Option<String> {
    let arn: StreamArn = first_arn(batch)?.parse().ok()?;
    Some(arn.table.table)
}

#[cfg(test)]
mod tests;
