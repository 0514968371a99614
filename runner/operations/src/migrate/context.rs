//! The context of every subcommand of `weir migrate`: the store, the control table, and the output.

use std::time::Duration;

use control::{Move, PlanEntry, State, Task};
use rules::migration::plan::Plan;

use crate::migrate::control_table::{Control, Guard};
use crate::migrate::failure::{Failure, Result};
use crate::migrate::hooks::Hooks;
use client::endpoint;
use client::output::Output;
use client::retries::Absence;

/// Interval between checks of the condition for which a subcommand waits.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Interval at which a waiting subcommand reports progress.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(2);
/// Timeout after which a request to the store is retried. The timeout is short, because writers may
/// be blocked during the request.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The context of a subcommand.
pub struct Context {
    pub(crate) endpoint: String,
    pub(crate) control: Control,
    pub(crate) output: Output,
    /// The limit that ends retries if the store is unreachable for too long.
    pub(crate) absence: Absence,
    pub(crate) hooks: Hooks,
    /// True if the subcommand writes nothing, not even the progress that `weir migrate status`
    /// normally records.
    pub(crate) is_read_only: bool,
    /// The time at which the snapshot was taken; `None` if this is not a snapshot.
    known_now: Option<i64>,
}

impl Context {
    /// Returns a context for the store at a known endpoint.
    #[must_use]
    pub fn new(endpoint: &str, control_table: &str, output: Output) -> Self {
        let (client, absence) = endpoint::client_with_limit(endpoint, ANSWER_LIMIT);
        let control = Control::new(client, control_table.to_owned());
        let (endpoint, hooks) = (endpoint.to_owned(), Hooks::default());
        Self { endpoint, control, output, absence, hooks, is_read_only: false, known_now: None }
    }

    /// Returns the same context, restricted to reads. Without this restriction, a request for the
    /// status moves a migration to the phase `tailing` when its backfill is done, and records the
    /// time up to which changes have been copied back.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Returns a read-only context with a snapshot, which is read once: the migration's entries,
    /// the entries shared by all migrations, and the time.
    ///
    /// # Errors
    /// When the control table cannot be read.
    pub(crate) async fn snapshot(&self, name: &str) -> Result<Self> {
        let entries = self.control.with_partitions([name, control::SHARED]);
        let (control, now) = tokio::join!(entries, self.now());
        Ok(Self {
            endpoint: self.endpoint.clone(),
            control: control?,
            output: self.output,
            absence: self.absence.clone(),
            hooks: self.hooks.clone(),
            is_read_only: true,
            known_now: Some(now),
        })
    }

    /// Creates the control table if it is absent.
    ///
    /// # Errors
    /// When the store refuses to create the table, or does not respond.
    pub async fn ensure_control_table(&self) -> Result<()> {
        self.control.ensure().await
    }

    /// Returns the current time in seconds since 1970 by the clock that stamps stream records: the
    /// local store's, or DynamoDB's.
    pub(crate) async fn now(&self) -> i64 {
        if let Some(now) = self.known_now {
            return now;
        }
        endpoint::store_seconds(&self.endpoint, &self.control.client).await
    }

    /// Returns the state of a migration.
    pub(crate) async fn state(&self, name: &str) -> Result<State> {
        let state = self.control.get(name, State::NAME).await?;
        state.ok_or_else(|| {
            Failure::Fatal(format!(
                "unknown migration `{name}`; run `weir migrate list` to list all migrations; if you have just run `weir migrate start`, repeat this command in a few seconds"
            ))
        })
    }

    /// Returns the tasks of a run.
    pub(crate) async fn tasks_of(&self, name: &str, run: u64) -> Result<Vec<Task>> {
        self.control.list(name, &Task::prefix_of(run)).await
    }

    /// Returns the tasks of all runs.
    pub(crate) async fn tasks(&self, name: &str) -> Result<Vec<Task>> {
        self.control.list(name, Task::PREFIX).await
    }

    /// Changes the phase of a migration, in its state and its journal.
    ///
    /// # Errors
    /// When the state is not the one that `it` and `guard` require, or the control table cannot be
    /// read or written.
    pub(crate) async fn make(&self, name: &str, guard: Guard<'_>, it: &Move) -> Result<State> {
        self.control.make(name, guard, it, self.now().await).await
    }

    /// Returns the plan of a migration, and the plan's fingerprint.
    pub(crate) async fn plan(&self, name: &str) -> Result<(Plan, String)> {
        let entry: Option<PlanEntry> = self.control.get(name, PlanEntry::NAME).await?;
        let Some(PlanEntry { plan: json, .. }) = entry else {
            self.state(name).await?;
            return Err(Failure::Fatal(format!(
                "migration `{name}` has no plan yet; repeat this command when `weir migrate start` has written the plan, which takes a few seconds; if `weir migrate start` has exited, run it again"
            )));
        };
        let plan = serde_json::from_str(&json)
            .map_err(|error| format!("cannot parse the plan of `{name}`: {error}"))?;
        Ok((plan, Plan::fingerprint(&json)))
    }
}
