//! The loop of one mapping: waits for an event, passes it to the mapping, and executes the mapping's
//! commands.
//!
//! [`Run::next_input`] waits, and [`Run::carry_out`] executes.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use aws_sdk_dynamodbstreams::Client;
use bytes::Bytes;
use server::store::Arrivals;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::chaos::MappingChaos;
use super::checkpoint_store::{CheckpointError, CheckpointStore};
use super::destination::FailureDestination;
use super::invoke::{Invoke, request_id};
use super::reports::{Observer, PageWatcher, Reports};
use super::stream::{DescribeFailure, Listing, ReadStart, Stream};
use client::failure::Result;
use client::stream_page::Page;
use mapping::{
    BatchId, Checkpoints, Command, DeliveryId, Input, InvalidSetting, InvokeOutcome, Mapping, Now,
    ReadFailure, ReadFrom, Settings, ShardId, Status, event,
};

/// The maximum number of concurrent page reads. Each page may need about 10 MB while it is decoded.
const READS_AT_ONCE: usize = 16;
/// The maximum number of concurrent invocations, for all shards. Each invocation holds an event of up to
/// 6 MB.
const INVOCATIONS_AT_ONCE: usize = 64;
/// The maximum time in milliseconds that a stopping mapping waits for work in progress. The next run
/// redelivers unfinished batches.
const STOP_MS: u64 = 10_000;

/// The pause in milliseconds before a failed save is retried.
const SAVE_RETRY_MS: u64 = 1_000;
/// The maximum time in milliseconds without a successful save. After this time, the mapping ends, because the
/// next run would redeliver everything since the last save.
const SAVE_FAILING_MS_MAX: u64 = 10 * 60 * 1_000;

/// A mapping that can be run: its settings, clients, stores and channels.
pub struct Poller<I, D, C> {
    /// The mapping's settings.
    pub settings: Settings,
    /// The client of the Streams API, with any endpoint.
    pub streams: Client,
    /// The function that the mapping invokes.
    pub invoker: I,
    /// The store of the mapping's checkpoints.
    pub checkpoints: CheckpointStore,
    /// The destination of failure records. It is used only if the settings have a destination.
    pub failures: D,
    /// The store's time, in milliseconds since 1970. It may be frozen or jump.
    pub clock: C,
    /// The observer of the mapping's status and events.
    pub observer: Observer,
    /// The injected faults; `None` without `--chaos`.
    pub chaos: Option<Arc<MappingChaos>>,
    /// Notifies about new records; `None` if the store has no notifications.
    pub arrivals: Option<Arrivals>,
    /// Receives the shards whose gap the operator accepts. The channel may be closed.
    pub accepted_gaps: mpsc::Receiver<ShardId>,
    /// The stop signal: the mapping stops when the value becomes true or the sender is dropped.
    pub shutdown: watch::Receiver<bool>,
}

/// The reason why a mapping ended normally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The mapping was stopped. Its checkpoints are on disk.
    Stopped,
    /// The stream was disabled, and all its records were delivered. The checkpoints are on disk.
    StreamEnded,
}

/// The reason why a mapping failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is out of bounds.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// Checkpoints cannot be stored. If the mapping continued, a growing number of records would be
    /// delivered twice.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The stream cannot be read, or was missing for longer than the settings allow.
    #[error(
        "cannot read the stream `{arn}`: {reason}; check that the table exists and that \
         the mapping names the table's current stream"
    )]
    StreamGone {
        /// The stream's ARN.
        arn: String,
        /// The error of the Streams API.
        reason: String,
    },
    /// A task has crashed, which is a defect of this program.
    #[error("a task of the poller has failed: {0}; report this as a defect")]
    Task(String),
}

/// Returns the milliseconds since the first call in this process. This clock never stops; [`Now::tick_ms`]
/// and [`Status::is_drained_after`] use it.
#[must_use]
pub fn tick_ms() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// Runs a mapping until it is stopped or its stream ends.
///
/// Dropping the future is like killing the process: the next run redelivers unfinished records.
///
/// # Errors
/// A setting is out of bounds. Checkpoints cannot be read, or could not be written for ten minutes.
/// The stream was missing for longer than the settings allow. Temporary errors (a store, function
/// or destination that cannot be reached) are retried with back-off and shown in the status.
pub async fn run_mapping<I, D, C>(poller: Poller<I, D, C>) -> Result<RunEnd, RunError>
where
    I: Invoke,
    D: FailureDestination,
    C: Fn() -> i64 + Send,
{
    poller.settings.check()?;
    let checkpoints = load(poller.checkpoints.clone(), poller.settings.clone()).await?;
    Run::new(poller, checkpoints).run().await
}

async fn load(store: CheckpointStore, settings: Settings) -> Result<Option<Checkpoints>, RunError> {
    let loaded = tokio::task::spawn_blocking(move || store.load(&settings)).await;
    Ok(loaded.map_err(|error| RunError::Task(error.to_string()))??)
}

/// The result of a task that the mapping's loop has started.
enum TaskResult {
    Described(Result<Listing, DescribeFailure>),
    Read(ShardId, Result<Page, ReadFailure>),
    Invoked(BatchId, InvokeOutcome),
    Delivered(DeliveryId, Result<()>),
    Saved(Result<(), CheckpointError>),
}

struct Run<I, D, C> {
    mapping: Mapping,
    mapping_id: Arc<str>,
    stream: Stream,
    invoker: Arc<I>,
    failures: Arc<D>,
    store: CheckpointStore,
    clock: C,
    status: watch::Sender<Status>,
    pages: Option<Arc<dyn PageWatcher>>,
    reports: Reports,
    chaos: Option<Arc<MappingChaos>>,
    arrivals: Option<Arrivals>,
    accepted_gaps: mpsc::Receiver<ShardId>,
    shutdown: watch::Receiver<bool>,
    stop_at: Option<u64>,
    wake: Option<u64>,
    /// The next iterator of each shard that is being read.
    iterators: BTreeMap<ShardId, String>,
    tasks: JoinSet<TaskResult>,
    reads: Arc<Semaphore>,
    invocations: Arc<Semaphore>,
    /// Whether the checkpoints have changed since the last save began.
    unsaved: bool,
    saving: bool,
    /// The time of the first failed save since the last success, and the time of the next attempt.
    save_failing: Option<SaveFailing>,
}

#[derive(Clone, Copy)]
struct SaveFailing {
    since: u64,
    next: u64,
}

impl<I: Invoke, D: FailureDestination, C: Fn() -> i64 + Send> Run<I, D, C> {
    fn new(poller: Poller<I, D, C>, checkpoints: Option<Checkpoints>) -> Self {
        let limit = Duration::from_millis(poller.settings.pace.call_ms);
        let arn = poller.settings.stream_arn.clone();
        let stream = Stream { client: poller.streams, arn, limit };
        let mapping_id: Arc<str> = poller.settings.mapping_id.as_str().into();
        let Observer { status, events, pages } = poller.observer;
        Self {
            reports: Reports::new(Arc::clone(&mapping_id), events),
            mapping_id,
            status,
            pages,
            mapping: Mapping::new(poller.settings, checkpoints),
            stream,
            invoker: Arc::new(poller.invoker),
            failures: Arc::new(poller.failures),
            store: poller.checkpoints,
            clock: poller.clock,
            chaos: poller.chaos,
            arrivals: poller.arrivals,
            accepted_gaps: poller.accepted_gaps,
            shutdown: poller.shutdown,
            stop_at: None,
            wake: None,
            iterators: BTreeMap::new(),
            tasks: JoinSet::new(),
            reads: Arc::new(Semaphore::new(READS_AT_ONCE)),
            invocations: Arc::new(Semaphore::new(INVOCATIONS_AT_ONCE)),
            unsaved: false,
            saving: false,
            save_failing: None,
        }
    }

    async fn run(mut self) -> Result<RunEnd, RunError> {
        let mut input = Some(Input::Tick);
        loop {
            if let Some(input) = input {
                let now = self.now();
                // The mapping's step may request a new wake-up, which replaces the previous
                // wake-up.
                self.wake = None;
                for command in self.mapping.step(now, input) {
                    self.carry_out(command, now);
                }
                self.status.send_replace(self.mapping.status(now.time_ms));
            }
            if let Some(reason) = self.mapping.gone() {
                let (arn, reason) = (self.stream.arn.clone(), reason.to_owned());
                return Err(RunError::StreamGone { arn, reason });
            }
            self.reports.flush();
            self.save_if_due();
            if let Some(end) = self.end() {
                self.reports.finish().await;
                return Ok(end);
            }
            input = self.next_input().await?;
        }
    }

    fn now(&self) -> Now {
        Now { time_ms: (self.clock)(), tick_ms: tick_ms() }
    }

    /// Returns how the mapping ended; `None` if it must continue. A mapping ends when no work is in
    /// progress whose outcome the checkpoints need, or after the maximum wait. It never ends before its
    /// checkpoints are saved.
    fn end(&self) -> Option<RunEnd> {
        let saved = !self.saving && !self.unsaved;
        let patience_is_over = self.stop_at.is_some_and(|stop_at| tick_ms() >= stop_at);
        let idle = self.mapping.is_idle() || patience_is_over;
        match (self.stop_at, self.mapping.is_over()) {
            (Some(_), _) if saved && idle => Some(RunEnd::Stopped),
            (None, true) if saved => Some(RunEnd::StreamEnded),
            _ => None,
        }
    }

    /// Waits for the next event; `None` if the event does not concern the mapping.
    async fn next_input(&mut self) -> Result<Option<Input>, RunError> {
        // After the maximum wait, the mapping waits only for a save in progress.
        let stop_at = self.stop_at.filter(|stop_at| *stop_at > tick_ms());
        let save_at = self.save_failing.filter(|_| self.unsaved && !self.saving).map(|it| it.next);
        let deadline = [self.wake, stop_at, save_at].into_iter().flatten().min();
        let sleep = async {
            match deadline {
                Some(tick) => {
                    tokio::time::sleep(Duration::from_millis(tick.saturating_sub(tick_ms()))).await;
                }
                None => pending().await,
            }
        };
        let has_tasks = !self.tasks.is_empty();
        let listens = self.stop_at.is_none();
        let is_resting = self.mapping.is_resting();
        let arrivals = &mut self.arrivals;
        let arrived = async {
            match arrivals {
                Some(arrivals) => arrivals.next().await,
                None => pending().await,
            }
        };
        let chaos = self.chaos.clone();
        let crashed = async {
            match chaos {
                Some(chaos) => chaos.crashed().await,
                None => pending().await,
            }
        };
        tokio::select! {
            Some(done) = self.tasks.join_next(), if has_tasks => {
                let done = done.map_err(|error| RunError::Task(error.to_string()))?;
                self.take_in(done)
            }
            () = told_to_stop(&mut self.shutdown), if listens => {
                self.stop_at = Some(tick_ms().saturating_add(STOP_MS));
                Ok(Some(Input::Stop))
            }
            Some(shard) = self.accepted_gaps.recv() => Ok(Some(Input::AcceptGap { shard })),
            () = sleep => Ok(Some(Input::Tick)),
            () = arrived, if is_resting => Ok(Some(Input::Arrived)),
            () = crashed => self.start_again().await.map(Some),
            () = self.reports.room() => Ok(None),
        }
    }

    /// Simulates a crash and a restart of the process: drops all work in progress, and resumes from the
    /// checkpoints on disk.
    async fn start_again(&mut self) -> Result<Input, RunError> {
        // A save in progress cannot be cancelled, so this call waits for the save.
        self.tasks.shutdown().await;
        self.iterators.clear();
        (self.unsaved, self.saving, self.save_failing) = (false, false, None);
        let settings = self.mapping.settings().clone();
        let checkpoints = load(self.store.clone(), settings).await?;
        self.mapping.restart(checkpoints);
        Ok(if self.stop_at.is_some() { Input::Stop } else { Input::Tick })
    }

    fn take_in(&mut self, done: TaskResult) -> Result<Option<Input>, RunError> {
        Ok(Some(match done {
            TaskResult::Described(Ok(listing)) => {
                Input::Described { enabled: listing.enabled, shards: listing.shards }
            }
            TaskResult::Described(Err(DescribeFailure::Unavailable(reason))) => {
                Input::DescribeFailed { reason }
            }
            TaskResult::Described(Err(DescribeFailure::Missing(reason))) => {
                Input::StreamMissing { reason }
            }
            TaskResult::Described(Err(DescribeFailure::Beyond(reason))) => {
                return Err(RunError::StreamGone { arn: self.stream.arn.clone(), reason });
            }
            TaskResult::Read(shard, Ok(page)) => {
                let end = page.next_iterator.is_none();
                if let Some(iterator) = page.next_iterator {
                    self.iterators.insert(shard.clone(), iterator);
                }
                if let Some(watcher) = &self.pages {
                    watcher.page(&shard, &page.records, self.now());
                }
                Input::Page { shard, records: page.records, end }
            }
            TaskResult::Read(shard, Err(failure)) => Input::ReadFailed { shard, failure },
            TaskResult::Invoked(batch, outcome) => Input::Invoked { batch, outcome },
            TaskResult::Delivered(delivery, Ok(())) => Input::FailureDelivered { delivery },
            TaskResult::Delivered(delivery, Err(reason)) => {
                Input::FailureNotDelivered { delivery, reason: reason.to_string() }
            }
            TaskResult::Saved(saved) => {
                self.saving = false;
                let is_saved = saved.is_ok();
                self.take_in_save(saved)?;
                // The mapping waits only for its first save.
                return Ok((is_saved && self.mapping.waits_for_save()).then_some(Input::Saved));
            }
        }))
    }

    /// Handles the result of a save. A failed save is retried for a while, because its cause (such as a
    /// full disk) may be temporary. Meanwhile the checkpoints on disk are older: after a crash, more
    /// records would be redelivered, but none lost.
    fn take_in_save(&mut self, saved: Result<(), CheckpointError>) -> Result<(), RunError> {
        let Err(error) = saved else {
            if self.save_failing.take().is_some() {
                tracing::info!("mapping {}: a retry saved the checkpoints", self.mapping_id);
            }
            return Ok(());
        };
        let now = tick_ms();
        let since = self.save_failing.map_or(now, |failing| failing.since);
        if self.stop_at.is_some() || now.saturating_sub(since) >= SAVE_FAILING_MS_MAX {
            return Err(error.into());
        }
        if self.save_failing.is_none() {
            let meanwhile = match self.mapping.waits_for_save() {
                true => {
                    "the mapping reads no records until the checkpoints are saved; the save is retried"
                }
                false => "the mapping continues, and the save is retried",
            };
            tracing::error!("mapping {}: {error}; {meanwhile}", self.mapping_id);
        }
        self.unsaved = true;
        let next = now.saturating_add(SAVE_RETRY_MS);
        self.save_failing = Some(SaveFailing { since, next });
        Ok(())
    }

    fn carry_out(&mut self, command: Command, now: Now) {
        tracing::debug!(mapping_id = %self.mapping_id, %command, "mapping");
        // The journal and the log of the function have the same request id.
        let request: Option<Arc<str>> =
            matches!(command, Command::Invoke { .. }).then(|| request_id().into());
        self.reports.take(&command, now, request.as_ref());
        match command {
            Command::Describe => {
                let stream = self.stream.clone();
                self.tasks.spawn(async move { TaskResult::Described(stream.describe().await) });
            }
            Command::Read { shard, from } => self.read(shard, from),
            Command::Invoke { shard, batch, records, window, .. } => {
                let stream_arn = &self.mapping.settings().stream_arn;
                let members = window.map(|window| window.members(&shard, stream_arn));
                let (invoker, permits) = (Arc::clone(&self.invoker), Arc::clone(&self.invocations));
                let chaos = self.chaos.clone();
                self.tasks.spawn(async move {
                    // The semaphore is never closed. A closed semaphore would only remove the
                    // limit.
                    let _permit = permits.acquire_owned().await.ok();
                    let members = members.unwrap_or_default();
                    let payload = Bytes::from(event(&records, &members));
                    drop(records);
                    let request = request.as_deref().unwrap_or_default();
                    let outcome = match chaos {
                        Some(chaos) => chaos.invoke(invoker.as_ref(), request, payload).await,
                        None => invoker.invoke(request, payload).await,
                    };
                    TaskResult::Invoked(batch, outcome)
                });
            }
            Command::DeliverFailure { delivery, object, .. } => {
                let failures = Arc::clone(&self.failures);
                self.tasks.spawn(async move {
                    let body = Bytes::from(object.body.clone());
                    TaskResult::Delivered(delivery, failures.store(&object.key, body).await)
                });
            }
            Command::Checkpoint { .. } | Command::Save => self.unsaved = true,
            Command::Report(_) => {}
            Command::Wake { tick_ms } => self.wake = Some(tick_ms),
        }
    }

    fn read(&mut self, shard: ShardId, from: ReadFrom) {
        let held = self.iterators.remove(&shard).filter(|_| from == ReadFrom::Iterator);
        let start = held.map_or(ReadStart::From(from), ReadStart::Iterator);
        let (stream, permits) = (self.stream.clone(), Arc::clone(&self.reads));
        let expires = self.chaos.as_ref().is_some_and(|chaos| chaos.iterator_expires());
        self.tasks.spawn(async move {
            let _permit = permits.acquire_owned().await.ok();
            if expires {
                return TaskResult::Read(shard, Err(ReadFailure::IteratorExpired));
            }
            let page = stream.read(&shard, start).await;
            TaskResult::Read(shard, page)
        });
    }

    /// Starts a save of the checkpoints if they have changed. Changes during a save are written by the
    /// next save. A slow disk therefore makes saves less frequent, but each save has a complete state.
    fn save_if_due(&mut self) {
        let is_early = self.save_failing.is_some_and(|failing| tick_ms() < failing.next);
        // A stopping mapping does not wait for the next attempt.
        if !self.unsaved || self.saving || (is_early && self.stop_at.is_none()) {
            return;
        }
        self.unsaved = false;
        let Some(checkpoints) = self.mapping.checkpoints() else { return };
        self.saving = true;
        let (store, settings) = (self.store.clone(), self.mapping.settings().clone());
        self.tasks.spawn_blocking(move || TaskResult::Saved(store.save(&settings, &checkpoints)));
    }
}

/// Returns when the mapping must stop: on the signal, or when the sender is dropped.
async fn told_to_stop(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}
