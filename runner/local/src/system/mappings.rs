//! Runs the event source mappings of a template, each on its stream.
//!
//! The crate `mapping` defines the behaviour of a mapping. `poller` connects it to the stream.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use server::store::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::backing::Clock;
use super::reports;
use crate::function::Function;
use crate::journal::{Entry, Journal, MappingJournal, Messages};
use crate::poller::{
    Chaos, CheckpointStore, FailureDestination, FileDestination, Invoke, NoDestination, Observer,
    PageWatcher, Poller, RunEnd, S3Destination, run_mapping,
};
use client::endpoint;
use client::failure::{Failure, Result, fatal};
use client::output::counted;
use mapping::{FilterCriteria, InvokeOutcome, Pace, Settings, ShardId, StartingPosition, Status};
use template::{self, Destination, EventSourceMapping, Stack, StreamSource};

/// The capacity of the channel of shards that continue after a gap. A shard that does not fit is
/// reported again in a later status.
const GAPS_MAX: usize = 16;
/// The maximum number of a mapping's reports that wait to be shown. Further reports are counted and
/// dropped.
const EVENTS_MAX: usize = 256;

/// The parts of the system that mappings use, except the functions.
pub(crate) struct Surroundings<'a> {
    pub(crate) stack: &'a Stack,
    /// The ARNs of the enabled streams, by the logical id of the table.
    pub(crate) streams: &'a BTreeMap<String, String>,
    pub(crate) clients: &'a aws_sdk_dynamodbstreams::Client,
    pub(crate) clock: &'a Clock,
    /// The maximum time in milliseconds by which this clock may be ahead of the streams' clock.
    pub(crate) clock_margin_ms: i64,
    /// The pace at which the streams are read.
    pub(crate) pace: Pace,
    /// The store, if it is in this process. Such a store notifies about new records.
    pub(crate) store: Option<&'a Store>,
    pub(crate) s3_url: &'a str,
    pub(crate) checkpoint_folder: &'a Path,
    /// The journal; `None` if it cannot be written.
    pub(crate) journal: Option<Journal>,
    /// The data folder. Messages to queues and topics are files in its folder `destinations/`.
    pub(crate) data_folder: &'a Path,
    pub(crate) duplicate_deliveries: bool,
    /// The injected faults; `None` without `--chaos`.
    pub(crate) chaos: Option<&'a Arc<Chaos>>,
}

/// A mapping that is running.
pub(crate) struct RunningMapping {
    name: String,
    function: String,
    status: watch::Receiver<Status>,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// The result of the mapping; empty while it runs.
    end: Arc<OnceLock<Result<RunEnd>>>,
}

impl RunningMapping {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the current status of the mapping.
    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Returns the reason why the mapping has ended; `None` while it runs.
    pub(crate) fn end(&self) -> Option<String> {
        match self.end.get() {
            Some(Ok(RunEnd::Stopped)) => Some("the mapping was stopped".to_owned()),
            Some(Ok(RunEnd::StreamEnded)) => Some(
                "the stream was disabled, and all its records were processed or discarded"
                    .to_owned(),
            ),
            Some(Err(error)) => Some(error.to_string()),
            None => self
                .task
                .is_finished()
                .then(|| "the mapping crashed, which is a defect of weir".to_owned()),
        }
    }

    /// Returns the logical id of the function.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Returns whether the function is processing a batch of this mapping.
    pub(crate) fn is_invoking(&self) -> bool {
        self.status.borrow().shards.iter().any(|shard| shard.in_flight > 0)
    }

    /// Returns whether every record that was in the stream at a tick was filtered, processed or discarded.
    pub(crate) fn is_drained_after(&self, tick_ms: u64) -> bool {
        let has_ended_well = matches!(self.end.get(), Some(Ok(_)));
        has_ended_well || self.status.borrow().is_drained_after(tick_ms)
    }

    pub(crate) fn describe(&self) -> String {
        let status = self.status.borrow();
        let waiting: usize = status.shards.iter().map(|shard| shard.waiting).sum();
        let end = self.end().map(|why| format!(", ended: {why}")).unwrap_or_default();
        let shards = status.shards.len();
        let shards = counted(shards, "shard", "shards");
        let waiting = counted(waiting, "record waiting", "records waiting");
        format!("{shards}, {waiting}, {:?}{end}", status.totals)
    }

    /// Stops the mapping after its work in progress, and returns when its checkpoints are on disk.
    pub(crate) async fn stop(self) {
        // The send fails if the mapping has already ended, which does not matter.
        let _ = self.shutdown.send(true);
        if self.task.await.is_err() {
            tracing::warn!("mapping `{}` did not stop cleanly", self.name);
        }
    }
}

/// Starts every enabled mapping.
pub(crate) fn start(
    surroundings: &Surroundings<'_>,
    functions: &BTreeMap<String, Arc<Function>>,
) -> Result<Vec<RunningMapping>> {
    let mut running = Vec::new();
    for described in &surroundings.stack.mappings {
        if !described.enabled {
            let EventSourceMapping { logical_id, function, .. } = described;
            tracing::info!("mapping    {logical_id} is disabled: no record is read for {function}");
            continue;
        }
        let StreamSource::StreamOf(table) = &described.stream else {
            // The stream is not in this template; `weir check` lists this as not emulated.
            continue;
        };
        let Some(function) = functions.get(&described.function) else {
            continue;
        };
        let stream = surroundings.streams.get(table).ok_or_else(|| {
            fatal!(
                "mapping `{}`: table `{table}` has no stream; add a StreamSpecification to the table",
                described.logical_id
            )
        })?;
        let settings = settings(described, function, stream, surroundings)?;
        tracing::info!(
            "mapping    {table} stream -> {} (batches of {})",
            described.function,
            described.batch_size
        );
        running.push(run(described, settings, function, surroundings));
    }
    Ok(running)
}

fn settings(
    described: &EventSourceMapping,
    function: &Function,
    stream: &str,
    surroundings: &Surroundings<'_>,
) -> Result<Settings> {
    let patterns: Vec<&str> = described.filters.iter().map(|filter| filter.text.as_str()).collect();
    let filter = FilterCriteria::compile(&patterns)
        .map_err(|error| fatal!("mapping `{}`: {error}", described.logical_id))?;
    let millis =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut settings = Settings::new(&described.logical_id, &function.settings().arn(), stream);
    settings.starting_position = match described.starting_position {
        template::StartingPosition::TrimHorizon => StartingPosition::TrimHorizon,
        template::StartingPosition::Latest => StartingPosition::Latest,
    };
    settings.batch_size = usize::try_from(described.batch_size).unwrap_or(usize::MAX);
    settings.batching_window_ms = millis(described.batching_window);
    settings.bisect_on_function_error = described.bisect_batch_on_function_error;
    settings.retry_attempts = described.retry_attempts_max;
    settings.record_age_ms =
        described.record_age_max.map(|age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    settings.report_batch_item_failures = described.report_batch_item_failures;
    settings.filter = filter;
    settings.parallelization_factor =
        usize::try_from(described.parallelization_factor).unwrap_or(usize::MAX);
    settings.tumbling_window_s =
        described.tumbling_window.map(|window| u32::try_from(window.as_secs()).unwrap_or(u32::MAX));
    let destination = destination(described, surroundings.stack);
    settings.has_failure_destination = destination.is_some();
    settings.failure_payload = matches!(destination, Some(Destination::Bucket(_)));
    (settings.pace, settings.clock_margin_ms) = (surroundings.pace, surroundings.clock_margin_ms);
    settings.faults.duplicate_delivery = surroundings.duplicate_deliveries;
    Ok(settings)
}

/// Returns the destination of a mapping's failure records; `None` if the template does not contain it,
/// which `weir check` reports.
fn destination<'m>(described: &'m EventSourceMapping, stack: &Stack) -> Option<&'m Destination> {
    described.on_failure.as_ref().filter(|destination| match destination {
        Destination::Bucket(name) => stack.buckets.iter().any(|bucket| bucket.name == *name),
        Destination::Queue(_) | Destination::Topic(_) => true,
        Destination::Arn(_) => false,
    })
}

fn run(
    described: &EventSourceMapping,
    settings: Settings,
    function: &Arc<Function>,
    surroundings: &Surroundings<'_>,
) -> RunningMapping {
    let clock = Arc::clone(surroundings.clock);
    let (status_sender, status) = watch::channel(Status::default());
    let (events, observed) = mpsc::channel(EVENTS_MAX);
    let (shutdown, stopped) = watch::channel(false);
    let (accept, accepted_gaps) = mpsc::channel(GAPS_MAX);
    tokio::spawn(go_on_after_gaps(described.logical_id.clone(), status.clone(), accept));
    let failures: Arc<dyn FailureDestination> = match destination(described, surroundings.stack) {
        Some(Destination::Bucket(bucket)) => Arc::new(S3Destination {
            client: endpoint::s3_client(surroundings.s3_url),
            bucket: bucket.clone(),
        }),
        Some(Destination::Queue(name) | Destination::Topic(name)) => Arc::new(FileDestination {
            folder: surroundings.data_folder.join("destinations").join(name),
        }),
        _ => Arc::new(NoDestination),
    };
    let arrivals = surroundings.store.and_then(|store| store.arrivals(settings.table()));
    let journal = journal(described, &settings, function, surroundings);
    let pages = journal.clone().map(|journal| Arc::new(journal) as Arc<dyn PageWatcher>);
    let poller = Poller {
        settings,
        streams: surroundings.clients.clone(),
        invoker: Invoker(Arc::clone(function)),
        checkpoints: CheckpointStore::new(surroundings.checkpoint_folder),
        failures,
        clock: move || clock(),
        observer: Observer { status: status_sender, events: Some(events), pages },
        chaos: surroundings.chaos.map(|chaos| chaos.of_mapping(&described.logical_id)),
        arrivals,
        accepted_gaps,
        shutdown: stopped,
    };
    let name = described.logical_id.clone();
    let task_name = name.clone();
    let messages = messages(described).map(|to| (to, surroundings.data_folder.to_owned()));
    tokio::spawn(reports::show(name.clone(), observed, journal, messages));
    let end = Arc::new(OnceLock::new());
    let ended = Arc::clone(&end);
    let task = tokio::spawn(async move {
        let outcome = run_mapping(poller).await;
        match &outcome {
            Ok(RunEnd::Stopped) => tracing::debug!("mapping {task_name} was stopped"),
            Ok(RunEnd::StreamEnded) => tracing::warn!(
                "mapping {task_name} has ended: its stream was disabled, and all its records were processed or discarded; restart `weir up` to read a new stream"
            ),
            Err(error) => tracing::error!("mapping {task_name} has failed: {error}"),
        }
        let _ = ended.set(outcome.map_err(Failure::fatal));
    });
    let function = described.function.clone();
    RunningMapping { name, function, status, shutdown, task, end }
}

/// Lets shards continue at the oldest existing record if unread records were trimmed. Lambda does the same:
/// an iterator before the trim horizon moves to it, and the records are lost.
async fn go_on_after_gaps(
    name: String,
    mut status: watch::Receiver<Status>,
    accept: mpsc::Sender<ShardId>,
) {
    while status.changed().await.is_ok() {
        let gaps: Vec<ShardId> =
            status.borrow_and_update().gaps().map(|shard| shard.id.clone()).collect();
        for shard in gaps {
            tracing::error!(
                "mapping {name}: unread records of {shard} are LOST: the stream no longer has them, because they were older than 24 hours or the table was deleted; the mapping resumes at the oldest remaining record"
            );
            if accept.send(shard).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the queue or topic for the mapping's discarded records.
fn messages(described: &EventSourceMapping) -> Option<Messages> {
    match &described.on_failure {
        Some(Destination::Queue(name)) => Some(Messages::Queue(name.clone())),
        Some(Destination::Topic(name)) => Some(Messages::Topic(name.clone())),
        _ => None,
    }
}

/// Writes the mapping's settings to the journal, and returns the journal writer of the mapping.
fn journal(
    described: &EventSourceMapping,
    settings: &Settings,
    function: &Function,
    surroundings: &Surroundings<'_>,
) -> Option<MappingJournal> {
    let journal = surroundings.journal.clone()?;
    let bucket = match destination(described, surroundings.stack) {
        Some(Destination::Bucket(bucket)) => Some(bucket.clone()),
        _ => None,
    };
    let messages = messages(described);
    journal.introduce(Entry::Mapping {
        mapping: described.logical_id.clone(),
        function: function.name().to_owned(),
        table: settings.table().to_owned(),
        stream: settings.stream_arn.clone(),
        filters: described.filters.iter().map(|filter| filter.text.clone()).collect(),
        bucket,
        messages,
        report_batch_item_failures: settings.report_batch_item_failures,
        starting_position: Some(settings.starting_position.as_str().to_owned()),
    });
    Some(MappingJournal::new(journal, &described.logical_id, settings.filter.clone()))
}

/// A function that a mapping invokes.
struct Invoker(Arc<Function>);

#[async_trait]
impl Invoke for Invoker {
    async fn invoke(&self, request: &str, payload: Bytes) -> InvokeOutcome {
        self.0.invoke_as(request, payload).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapping::{Phase, ShardStatus};

    #[tokio::test]
    async fn a_shard_with_a_gap_goes_on_and_others_are_left_alone() {
        let shard = |id: &str, phase| ShardStatus {
            id: ShardId::new(id),
            parent: None,
            phase,
            last_read: None,
            checkpoint: None,
            at_tip: false,
            tip_tick_ms: None,
            in_flight: 0,
            waiting: 0,
            failed_attempts: 0,
            unreachable: false,
            lag_ms: 0,
            lacks_child: false,
        };
        let (statuses, status) = watch::channel(Status::default());
        let (accept, mut accepted) = mpsc::channel(GAPS_MAX);
        let going = tokio::spawn(go_on_after_gaps("m".to_owned(), status, accept));
        let shards = vec![
            shard("shardId-1", Phase::Reading),
            shard("shardId-2", Phase::Gap),
            shard("shardId-3", Phase::Waiting),
        ];
        statuses.send(Status { shards, ..Status::default() }).unwrap();
        assert_eq!(accepted.recv().await, Some(ShardId::new("shardId-2")));
        drop(statuses);
        going.await.unwrap();
        assert_eq!(accepted.recv().await, None);
    }
}
