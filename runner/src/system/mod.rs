//! A template, running on this machine: the store, the S3 endpoint, the functions, the mappings and
//! the schedules, started in this order and ended in the reverse one.
//!
//! Everything is kept below one folder: `state/` (the store), `s3/` (objects as plain files),
//! `checkpoints/` (mappings), `destinations/` (what queues and topics got), `logs/` (functions). Nothing here decides when a function runs.

mod functions;
mod indexes;
mod mappings;
mod schedules;
mod splits;
#[cfg(test)]
mod table_tests;
mod tables;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::store::{Config, Store};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::endpoint;
use crate::function::{Function, InvokeEndpoint};
use crate::journal::Journal;
use crate::mapping::Status;
use crate::object_store::{Endpoint, ObjectStore};
use crate::poller::{Chaos, tick_ms};
use crate::template::Stack;
use mappings::RunningMapping;
use schedules::RunningSchedules;

/// How to run a template.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where everything is kept.
    pub directory: PathBuf,
    /// The port of the store; 0 takes a free one.
    pub store_port: u16,
    /// The port of the S3 endpoint; 0 takes a free one.
    pub object_store_port: u16,
    /// The port of Lambda's Invoke API; 0 takes a free one.
    pub invoke_port: u16,
    /// Deliver each batch that succeeded once more.
    pub duplicate_deliveries: bool,
    /// Faults around every mapping, decided by this seed.
    pub chaos: Option<u64>,
    /// The folder that relative paths in the template start from.
    pub template_folder: PathBuf,
}

/// A template that is running.
pub struct System {
    stack: Stack,
    store: Store,
    store_server: (oneshot::Sender<()>, JoinHandle<()>),
    dynamodb_url: String,
    dynamodb: aws_sdk_dynamodb::Client,
    objects: ObjectStore,
    object_endpoint: Endpoint,
    functions: BTreeMap<String, Arc<Function>>,
    invoke_endpoint: InvokeEndpoint,
    mappings: Vec<RunningMapping>,
    schedules: RunningSchedules,
    chaos: Option<Arc<Chaos>>,
    /// Splits partitions while everything runs, when there is chaos.
    splits: Option<JoinHandle<()>>,
}

impl System {
    /// Starts everything.
    ///
    /// # Errors
    /// What cannot be started, and what to do about it. What was started before is ended.
    pub async fn start(stack: Stack, options: Options) -> Result<Self, String> {
        show_not_emulated(&stack);
        // Ports first: a port in use is found out before anything is built.
        let listener = server::listener::bind(loopback(options.store_port)).await?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let binaries = functions::build(&stack, &options.template_folder).await?;
        let config = Config {
            directory: options.directory.join("state"),
            region: stack.region.clone(),
            account: stack.account_id.clone(),
            replicas: server::ring::REPLICAS as u64,
        };
        let on_fatal = Box::new(server::command_line::end_process);
        let store = Store::open(config, on_fatal).await.map_err(|error| error.to_string())?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = server::http::serve(listener, store.clone(), async {
            // Dropping the sender ends the server as well.
            let _ = stopped.await;
        });
        let store_server = (stop, tokio::spawn(serving));
        let dynamodb_url = format!("http://{address}");
        tracing::info!("store      {dynamodb_url}   data in {}", options.directory.display());

        let (objects, object_endpoint) = start_object_store(&stack, &options).await?;
        let dynamodb = endpoint::client(&dynamodb_url);
        let streams = tables::carry_out(&dynamodb, &stack.tables).await?;
        tracing::info!("tables     {}", names(stack.tables.iter().map(|table| &table.name)));

        let endpoints = functions::Endpoints {
            dynamodb: dynamodb_url.clone(),
            s3: object_endpoint.url(),
            log_folder: options.directory.join("logs"),
        };
        let functions = functions::start(&stack, &binaries, &endpoints)?;
        tracing::info!("functions  {}", names(functions.keys()));
        let invoke_endpoint = start_invoke_endpoint(&functions, options.invoke_port).await?;
        let chaos = options.chaos.map(Chaos::new);
        let surroundings = mappings::Surroundings {
            stack: &stack,
            streams: &streams,
            dynamodb_url: &dynamodb_url,
            s3_url: &object_endpoint.url(),
            checkpoint_folder: &options.directory.join("checkpoints"),
            journal: begin_journal(&options.directory.join("journal"), &store),
            destinations_folder: &options.directory.join("destinations"),
            duplicate_deliveries: options.duplicate_deliveries,
            chaos: chaos.as_ref(),
        };
        let mappings = mappings::start(&surroundings, &functions, &store)?;
        let schedules = schedules::start(&stack, &functions, &store);
        let splits = chaos.as_ref().map(|chaos| splits::start(&stack, &dynamodb_url, chaos));
        Ok(Self {
            stack,
            store,
            store_server,
            dynamodb_url,
            dynamodb,
            objects,
            object_endpoint,
            functions,
            invoke_endpoint,
            mappings,
            schedules,
            chaos,
            splits,
        })
    }

    /// Ends everything, in an order in which nothing waits for what is gone: first what invokes,
    /// then the functions, then what they call.
    pub async fn shutdown(self) {
        if let Some(splits) = self.splits {
            splits.abort();
        }
        self.schedules.stop().await;
        for mapping in self.mappings {
            mapping.stop().await;
        }
        if let Some(chaos) = self.chaos {
            tracing::info!("{chaos}");
        }
        self.invoke_endpoint.shutdown().await;
        for function in self.functions.values() {
            function.shutdown().await;
        }
        self.object_endpoint.shutdown().await;
        let (stop, serving) = self.store_server;
        drop(stop);
        if serving.await.is_err() {
            tracing::warn!("the store's listener did not end in order");
        }
        drop(self.store);
    }

    /// The template.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// The store, for its clock.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A client of the store.
    #[must_use]
    pub fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        &self.dynamodb
    }

    /// The store's endpoint.
    #[must_use]
    pub fn dynamodb_url(&self) -> &str {
        &self.dynamodb_url
    }

    /// The S3 endpoint.
    #[must_use]
    pub fn s3_url(&self) -> String {
        self.object_endpoint.url()
    }

    /// The endpoint of Lambda's Invoke API.
    #[must_use]
    pub fn lambda_url(&self) -> String {
        self.invoke_endpoint.url()
    }

    /// Every mapping that runs, by its name, with its function's logical id and its state now.
    #[must_use]
    pub fn statuses(&self) -> Vec<(String, String, Status)> {
        let of = |mapping: &RunningMapping| {
            (mapping.name().to_owned(), mapping.function().to_owned(), mapping.status())
        };
        self.mappings.iter().map(of).collect()
    }

    /// The folder in which a bucket's objects are plain files.
    #[must_use]
    pub fn bucket_folder(&self, bucket: &str) -> PathBuf {
        self.objects.root().join(bucket)
    }

    /// The name of the table with a logical id.
    ///
    /// # Errors
    /// When the template has no such table.
    pub fn table_name(&self, logical_id: &str) -> Result<String, String> {
        let table = self.stack.table(logical_id);
        table.map(|table| table.name.clone()).ok_or_else(|| missing("table", logical_id))
    }

    /// An environment variable of the function with a logical id.
    ///
    /// # Errors
    /// When the template does not have it.
    pub fn environment(&self, function: &str, variable: &str) -> Result<String, String> {
        self.stack
            .function(function)
            .and_then(|found| found.environment.get(variable).cloned())
            .ok_or_else(|| missing("environment variable", &format!("{function}.{variable}")))
    }

    /// Kills an instance of a function that is working on an event, as `kill -9` does. Gives
    /// whether there was one.
    #[must_use]
    pub fn kill_working_instance(&self, function: &str) -> bool {
        let working = self.mappings.iter().any(|m| m.function() == function && m.is_invoking());
        working && self.functions.get(function).is_some_and(|found| found.kill_instance().is_some())
    }

    /// Waits until every record that is in a stream now was filtered, done or given up.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub async fn wait_until_drained(&self, limit: Duration) -> Result<(), String> {
        let (started, tick) = (Instant::now(), tick_ms());
        while let Some(mapping) = self.mappings.iter().find(|m| !m.is_drained_after(tick)) {
            if started.elapsed() > limit {
                return Err(format!(
                    "mapping {} still has records after {} s: {}",
                    mapping.name(),
                    limit.as_secs(),
                    mapping.describe()
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn missing(kind: &str, name: &str) -> String {
    format!(
        "the template has no {kind} `{name}`: the demonstration needs the project's own template.yaml"
    )
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn names<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

/// Begins the journal. Without one everything runs all the same, and only `explain` knows less.
fn begin_journal(folder: &Path, store: &Store) -> Option<Journal> {
    let now_ms = i64::try_from(store.now().0).unwrap_or(i64::MAX);
    Journal::begin(folder, now_ms)
        .inspect_err(|error| {
            tracing::warn!("cannot write the journal in {}: {error}", folder.display());
        })
        .ok()
}

async fn start_invoke_endpoint(
    functions: &BTreeMap<String, Arc<Function>>,
    port: u16,
) -> Result<InvokeEndpoint, String> {
    let functions: Vec<Function> = functions.values().map(|found| Function::clone(found)).collect();
    let endpoint = InvokeEndpoint::start(functions, loopback(port)).await;
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    tracing::info!("lambda     {}   for `aws lambda invoke --endpoint-url`", endpoint.url());
    Ok(endpoint)
}

async fn start_object_store(
    stack: &Stack,
    options: &Options,
) -> Result<(ObjectStore, Endpoint), String> {
    let root: &Path = &options.directory.join("s3");
    let objects = ObjectStore::open(root).map_err(|error| error.to_string())?;
    for bucket in &stack.buckets {
        objects.create_bucket(&bucket.name).map_err(|error| error.to_string())?;
    }
    let endpoint =
        Endpoint::start(objects.clone(), loopback(options.object_store_port), &stack.region)
            .await
            .map_err(|error| error.to_string())?;
    tracing::info!("s3         {}   objects are files in {}", endpoint.url(), root.display());
    Ok((objects, endpoint))
}

/// Says what of the template does not happen here. Nothing is silently ignored.
fn show_not_emulated(stack: &Stack) {
    for warning in &stack.warnings {
        tracing::warn!("{warning}");
    }
    let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for entry in &stack.not_emulated {
        let place = if entry.property.is_empty() {
            entry.resource.clone()
        } else {
            format!("{}.{}", entry.resource, entry.property)
        };
        kinds.entry(&entry.instead).or_default().push(format!("{place} (line {})", entry.at.line));
    }
    for (instead, places) in kinds {
        tracing::info!("not emulated: {}: {instead}", places.join(", "));
    }
}
