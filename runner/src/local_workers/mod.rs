//! Local workers: runs the function `migration` as processes on this machine. The workers have the same
//! event source mappings as on AWS: on the stream of the control table and of each source table.
//!
//! The function contains all logic of the migration. After a restart, the workers resume from their
//! checkpoints.

mod store_clock;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use server::gate::{AllowList, BoundListener};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::store_clock::StoreClock;
use client::aws_host;
use client::endpoint;
use client::failure::{Failure, Result};
use client::shards;
use local::function::binaries::{self, Wanted};
use local::function::{self, Event, Function};
use local::object_store::{Endpoint, ObjectStore};
use local::poller::{
    CheckpointStore, Invoke, NoDestination, Observer, Poller, RunEnd, run_mapping,
};
use mapping::{FilterCriteria, InvokeOutcome, Pace, Settings, ShardId, Status};
use operations::migrate::local_workers::{LocalWorkers, Problem, StartWorkers, WorkerOptions};

/// The bucket for records that fail permanently.
const BUCKET: &str = "migration-failures";
/// The batch size of a source table. It is large, because an invocation combines the effects on each
/// target into one write.
const BATCH_SIZE: usize = 1_000;
/// Lambda's maximum parallelization factor.
const FACTOR_MAX: usize = 10;
/// The filter for tasks that no worker has claimed. All other items of the control table invoke no
/// function.
const TASKS: &str = r#"{"eventName":["INSERT","MODIFY"],"dynamodb":{"Keys":{"entry":{"S":[{"prefix":"TASK#"}]}},"NewImage":{"done":{"BOOL":[false]},"owner":{"S":[{"exists":false}]},"aside":{"BOOL":[{"exists":false}]}}}}"#;

/// The running function and its mappings.
pub(crate) struct Host {
    function: Arc<Function>,
    objects: Endpoint,
    mappings: Vec<FollowingMapping>,
    control_table: String,
    clock: Arc<StoreClock>,
}

/// A running mapping that reads a table's stream.
struct FollowingMapping {
    table: String,
    shutdown: watch::Sender<bool>,
    status: watch::Receiver<Status>,
    /// The channel for shards that continue after a gap.
    accept: mpsc::Sender<ShardId>,
    /// The reason why the mapping ended without a shutdown.
    ended: Arc<OnceLock<String>>,
    task: JoinHandle<()>,
}

impl Host {
    /// Starts the function and its mappings.
    ///
    /// # Errors
    /// The function cannot be built, or a table has no stream.
    pub(crate) async fn start(options: WorkerOptions<'_>) -> Result<Self> {
        let wanted = Wanted {
            package_folder: options.package_folder.clone(),
            binary: "migration".to_owned(),
        };
        let mut progress = |line: &str| tracing::debug!("{line}");
        let built = binaries::build(std::slice::from_ref(&wanted), &mut progress).await;
        let built = built.map_err(Failure::fatal)?;
        let binary = built.get(&wanted).ok_or("the function `migration` was not built")?;
        let store = ObjectStore::open(&options.directory.join("s3"));
        let store = store.map_err(Failure::fatal)?;
        store.create_bucket(BUCKET).map_err(Failure::fatal)?;
        let bound = BoundListener::new("S3 endpoint", ([127, 0, 0, 1], 0).into()).await;
        let bound = bound.map_err(Failure::fatal)?;
        let objects = Endpoint::start(store, bound, AllowList::default(), "us-east-1");
        let settings = function::Settings {
            environment: [
                ("CONTROL_TABLE".to_owned(), options.control_table.to_owned()),
                // The template sets the same value for the deployed function.
                ("MIMALLOC_ALLOW_THP".to_owned(), "0".to_owned()),
                ("QUARANTINE_BUCKET".to_owned(), BUCKET.to_owned()),
            ]
            .into(),
            memory_mb: 256,
            timeout: options.timeout,
            // This concurrency is sufficient for all tasks and four shards of each source table at
            // the same time.
            concurrency: options.workers + options.tables.len() * 4,
            dynamodb_endpoint: Some(options.endpoint.to_owned()),
            s3_endpoint: Some(objects.url()),
            credentials: function::Credentials::for_endpoint(options.endpoint).await?,
            region: aws_host::region(options.endpoint),
            ..function::Settings::new("migration", binary.clone(), options.directory.join("logs"))
        };
        let observer = Arc::new(|event: &Event<'_>| tracing::debug!("{event:?}"));
        let function = Function::new(settings, observer).map_err(Failure::fatal)?;
        let clock = StoreClock::follow(options.endpoint).await;
        let mut host = Self {
            function: Arc::new(function),
            objects,
            mappings: Vec::new(),
            control_table: options.control_table.to_owned(),
            clock,
        };
        let filter = FilterCriteria::compile(&[TASKS]).map_err(Failure::fatal)?;
        let follow = host.settings(options.control_table, &options).await?;
        host.follow(
            options.control_table,
            Settings {
                batch_size: 1,
                parallelization_factor: options.workers.clamp(1, FACTOR_MAX),
                filter,
                ..follow
            },
            &options,
        );
        for table in &options.tables {
            let settings = host.settings(table, &options).await?;
            host.follow(table, Settings { batch_size: BATCH_SIZE, ..settings }, &options);
        }
        Ok(host)
    }

    async fn settings(&self, table: &str, options: &WorkerOptions<'_>) -> Result<Settings> {
        let stream = shards::stream_of(options.endpoint, table).await?;
        let arn = self.function.settings().arn();
        let mut settings = Settings::new(&format!("migration-{table}"), &arn, &stream.arn);
        settings.pace = match self.clock.is_local() {
            true => Pace::of_local_store(),
            false => Pace::of_dynamodb(),
        };
        settings.report_batch_item_failures = true;
        settings.bisect_on_function_error = true;
        settings.faults.duplicate_delivery = options.duplicate_deliveries;
        Ok(settings)
    }

    fn follow(&mut self, table: &str, settings: Settings, options: &WorkerOptions<'_>) {
        let (status_sender, status) = watch::channel(Status::default());
        let (shutdown, stopped) = watch::channel(false);
        let (accept, accepted_gaps) = mpsc::channel(1);
        let clock = Arc::clone(&self.clock);
        let poller = Poller {
            settings,
            streams: endpoint::streams_client(options.endpoint),
            invoker: Invoker(Arc::clone(&self.function)),
            checkpoints: CheckpointStore::new(options.directory.join("checkpoints")),
            failures: Arc::new(NoDestination),
            clock: move || clock.now_ms(),
            observer: Observer { status: status_sender, events: None, pages: None },
            arrivals: None,
            chaos: None,
            accepted_gaps,
            shutdown: stopped,
        };
        let ended = Arc::new(OnceLock::new());
        let end = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            let why = match run_mapping(poller).await {
                Ok(RunEnd::Stopped) => return,
                Ok(RunEnd::StreamEnded) => "the stream was disabled".to_owned(),
                Err(error) => error.to_string(),
            };
            // The value is set only once, by this task.
            let _ = end.set(why);
        });
        let table = table.to_owned();
        self.mappings.push(FollowingMapping { table, shutdown, status, accept, ended, task });
    }

    /// Kills a process of the function during an invocation, as `kill -9` does. Returns false if no
    /// invocation is running.
    pub(crate) fn kill_working_instance(&self) -> bool {
        let is_invoking = |mapping: &FollowingMapping| {
            mapping.status.borrow().shards.iter().any(|shard| shard.in_flight > 0)
        };
        self.mappings.iter().any(is_invoking) && self.function.kill_instance().is_some()
    }
}

/// The starter of workers on the local Lambda runtime.
pub(crate) struct OnLocalRuntime;

#[async_trait]
impl StartWorkers for OnLocalRuntime {
    async fn start(&self, options: WorkerOptions<'_>) -> Result<Box<dyn LocalWorkers>> {
        Ok(Box::new(Host::start(options).await?))
    }
}

#[async_trait]
impl LocalWorkers for Host {
    fn problem(&self) -> Option<Problem> {
        self.mappings.iter().find_map(|mapping| {
            let FollowingMapping { table, ended, task, status, .. } = mapping;
            if let Some(why) = ended.get() {
                return Some(Problem::NotFollowed(format!(
                    "the mapping of table `{table}` has ended, so the table's stream is no longer read: {why}"
                )));
            }
            if task.is_finished() {
                return Some(Problem::NotFollowed(format!(
                    "the mapping of table `{table}` crashed, so the table's stream is no longer read; report this as a defect"
                )));
            }
            if *table == self.control_table {
                return None;
            }
            let status = status.borrow();
            let shard = status.gaps().next().map(|shard| shard.id.to_string())?;
            Some(Problem::Trimmed { table: table.clone(), shard })
        })
    }

    fn trimmed_tasks(&self) -> Option<ShardId> {
        let of_tasks = self.mappings.iter().filter(|mapping| mapping.table == self.control_table);
        of_tasks.into_iter().find_map(|mapping| {
            let status = mapping.status.borrow();
            status.gaps().next().map(|shard| shard.id.clone())
        })
    }

    fn resume_after_trim(&self, shard: &ShardId) {
        for mapping in self.mappings.iter().filter(|mapping| mapping.table == self.control_table) {
            // If the channel is full, the next check finds the shard again.
            let _sent = mapping.accept.try_send(shard.clone());
        }
    }

    async fn stop(self: Box<Self>) {
        for mapping in &self.mappings {
            // The send fails if the mapping has ended, which does not matter.
            let _ = mapping.shutdown.send(true);
        }
        for mapping in self.mappings {
            if mapping.task.await.is_err() {
                tracing::warn!("a mapping crashed during shutdown");
            }
        }
        self.function.shutdown().await;
        self.objects.shutdown().await;
    }
}

/// The function, as a mapping invokes it.
struct Invoker(Arc<Function>);

#[async_trait]
impl Invoke for Invoker {
    async fn invoke(&self, request: &str, payload: Bytes) -> InvokeOutcome {
        self.0.invoke_as(request, payload).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_filter_passes_only_tasks_without_a_worker() {
        let filter = FilterCriteria::compile(&[TASKS]).unwrap();
        let is_heard = |entry: &str, member: Option<(&str, serde_json::Value)>| {
            let mut image = json!({ "done": { "BOOL": false } });
            if let Some((name, value)) = member {
                image[name] = value;
            }
            let record = json!({
                "eventName": "MODIFY",
                "dynamodb": { "Keys": { "entry": { "S": entry } }, "NewImage": image },
            });
            filter.verdict(&record).matched
        };
        let task = "TASK#0#backfill#cats#0000";
        assert!(is_heard(task, None));
        assert!(is_heard(task, Some(("failing", json!({ "S": "out of time" })))));
        assert!(!is_heard("STATE", None));
        for (name, value) in [
            ("done", json!({ "BOOL": true })),
            ("owner", json!({ "S": "w" })),
            ("aside", json!({ "BOOL": true })),
        ] {
            assert!(!is_heard(task, Some((name, value))), "{name}");
        }
        // The template has the same filter.
        assert!(include_str!("../../../template.yaml").contains(TASKS));
    }
}
