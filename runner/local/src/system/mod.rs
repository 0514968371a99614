//! Runs a template on this machine: the store, the S3 endpoint, the functions, the mappings and the
//! schedules. They start in this order and stop in the reverse order.
//!
//! All data is below one folder: `state/` (the store), `s3/` (objects as plain files), `checkpoints/`
//! (mappings), `destinations/` (messages to queues and topics), `logs/` (functions), `packages/`, `runtime/`
//! and `inline/` (handlers in Python and Node), `lock` (locked by the process that uses the folder).

mod address;
mod backing;
mod billing;
pub mod functions;
mod indexes;
mod mappings;
mod reports;
mod schedules;
mod splits;
mod table_state;
#[cfg(test)]
mod table_tests;
mod tables;
mod time_to_live;

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::gate::{AllowList, BindError, BoundListener};
use server::store::Store;
use tokio::task::JoinHandle;

use crate::function::scripts::Folders;
use crate::function::{Function, InvokeEndpoint};
use crate::journal::Journal;
use crate::object_store::{Endpoint, ObjectStore};
use crate::poller::{Chaos, tick_ms};
use backing::{Backing, Local};
use client::failure::{Context, Failure, Result, fatal};
use functions::Program;
use mapping::Status;
use mappings::RunningMapping;
use schedules::RunningSchedules;
use template::Stack;

/// The maximum number of settings that are shown for each reason why settings are not emulated.
const PLACES_SHOWN: usize = 2;

/// The options for running a template.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder of `weir up`.
    pub directory: PathBuf,
    /// The port of the store; 0 picks a free port.
    pub store_port: u16,
    /// The port of the S3 endpoint; 0 picks a free port.
    pub object_store_port: u16,
    /// The port of Lambda's Invoke API; 0 picks a free port.
    pub invoke_port: u16,
    /// Whether to deliver each successful batch a second time, as an injected fault.
    pub duplicate_deliveries: bool,
    /// The seed of the faults around every mapping; `None` for no faults.
    pub chaos: Option<u64>,
    /// The base folder of relative paths in the template.
    pub template_folder: PathBuf,
    /// Whether to use the tables of DynamoDB in the stack's Region instead of the local store.
    pub aws: bool,
    /// The address of the other program that runs the functions, such as `cargo lambda watch`.
    pub invoke_url: Option<String>,
    /// The hosts and origins that the endpoints accept in addition to this machine's own.
    pub allow_list: AllowList,
}

/// A running template: its store, endpoints, functions, mappings and schedules.
pub struct System {
    stack: Stack,
    store: Option<Local>,
    dynamodb_url: Option<String>,
    aws_url: Option<String>,
    dynamodb: aws_sdk_dynamodb::Client,
    objects: ObjectStore,
    object_endpoint: Endpoint,
    functions: BTreeMap<String, Arc<Function>>,
    invoke_endpoint: InvokeEndpoint,
    mappings: Vec<RunningMapping>,
    schedules: RunningSchedules,
    /// The journal, or the reason why it cannot be written.
    journal: Result<Journal>,
    chaos: Option<Arc<Chaos>>,
    /// The task that splits partitions during the run; `None` without fault injection.
    splits: Option<JoinHandle<()>>,
    /// The task that loads each handler in Python or Node once.
    handler_check: JoinHandle<()>,
    /// The lock of the data folder. While it is held, no other process can use the same checkpoints.
    _lock: File,
}

impl System {
    /// Starts all parts of the system.
    ///
    /// # Errors
    /// A part cannot be started. The error names the part and the correction. All parts that were
    /// started before are stopped.
    pub async fn start(stack: Stack, options: Options) -> Result<Self> {
        show_not_emulated(&stack);
        let lock = lock(&options.directory)?;
        let ports = Ports::take(&options).await?;
        let programs = build(&stack, &options).await?;
        let backing = match ports.store {
            None => backing::aws(&stack.region).await?,
            Some(port) => backing::local(port, &stack, &options).await?,
        };
        let Backing { dynamodb, streams: clients, clock, clock_margin_ms, pace, .. } = backing;
        let Backing { local, url, aws_url, credentials, credentials_source, .. } = backing;
        let (objects, object_endpoint) = start_object_store(&stack, &options, ports.objects)?;
        let streams = match options.aws {
            true => tables::find(&dynamodb, &stack.tables).await?,
            false => tables::carry_out(&dynamodb, &stack.tables).await?,
        };
        tracing::info!("tables     {}", names(stack.tables.iter().map(|table| &table.name)));
        let endpoints = functions::Endpoints {
            dynamodb: url.clone(),
            s3: object_endpoint.url(),
            lambda: (!options.aws).then(|| format!("http://{}", ports.invoke.address())),
            credentials,
            credentials_source,
            log_folder: options.directory.join("logs"),
            invoke_url: options.invoke_url.clone(),
        };
        let functions = functions::start(&stack, &programs, &endpoints)?;
        tracing::info!("functions  {}", names(functions.keys()));
        let invoke_endpoint = start_invoke_endpoint(&functions, ports.invoke, &options.allow_list);
        let chaos = options.chaos.map(Chaos::new);
        let journal = begin_journal(&options.directory.join("journal"), clock());
        let surroundings = mappings::Surroundings {
            stack: &stack,
            streams: &streams,
            clients: &clients,
            clock: &clock,
            clock_margin_ms,
            pace,
            store: local.as_ref().map(|local| &local.store),
            s3_url: &object_endpoint.url(),
            checkpoint_folder: &options.directory.join("checkpoints"),
            journal: journal.as_ref().ok().cloned(),
            data_folder: &options.directory,
            duplicate_deliveries: options.duplicate_deliveries,
            chaos: chaos.as_ref(),
        };
        let mappings = mappings::start(&surroundings, &functions)?;
        let schedules = schedules::start(&stack, &functions, &clock);
        // Splits use the local store's admin endpoint, which AWS does not have.
        let splitting = chaos.as_ref().zip(url.as_deref().filter(|_| !options.aws));
        let splits = splitting.map(|(chaos, url)| splits::start(&stack, url, chaos));
        Ok(Self {
            stack,
            store: local,
            dynamodb_url: url,
            aws_url,
            dynamodb,
            objects,
            object_endpoint,
            handler_check: functions::check_handlers(&functions),
            functions,
            invoke_endpoint,
            mappings,
            schedules,
            journal,
            chaos,
            splits,
            _lock: lock,
        })
    }

    /// Stops all parts: first the callers, then the functions, then the services that functions call. In
    /// this order, no part waits for a part that has already stopped.
    pub async fn shutdown(self) {
        self.handler_check.abort();
        if let Some(splits) = self.splits {
            splits.abort();
        }
        // The mappings stop concurrently. Each may take as long as its current invocation, and
        // starts no new invocation.
        let mappings = self.mappings.into_iter().map(RunningMapping::stop);
        futures::join!(self.schedules.stop(), futures::future::join_all(mappings));
        if let Some(chaos) = self.chaos {
            tracing::info!("{chaos}");
        }
        self.invoke_endpoint.shutdown().await;
        for function in self.functions.values() {
            function.shutdown().await;
        }
        self.object_endpoint.shutdown().await;
        if let Some(local) = self.store {
            local.shutdown().await;
        }
    }

    /// Returns the template.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Returns the store in this process, for its clock.
    ///
    /// # Errors
    /// The template runs on DynamoDB, whose clock cannot be changed.
    pub fn store(&self) -> Result<&Store> {
        let local = self.store.as_ref().ok_or("this operation needs the local store")?;
        Ok(&local.store)
    }

    /// Returns a client of the store.
    #[must_use]
    pub fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        &self.dynamodb
    }

    /// Returns the store's endpoint; `None` if the store is DynamoDB.
    #[must_use]
    pub fn dynamodb_url(&self) -> Option<&str> {
        self.dynamodb_url.as_deref()
    }

    /// Returns the endpoint of DynamoDB; `None` if the store is local.
    #[must_use]
    pub fn aws_url(&self) -> Option<&str> {
        self.aws_url.as_deref()
    }

    /// Returns the environment of each function, by its name in the other program that runs the functions.
    #[must_use]
    pub fn environments(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let of = |described: &template::Function| {
            let function = self.functions.get(&described.logical_id)?;
            Some((described.invoked_as().to_owned(), function.settings().outside_environment()))
        };
        self.stack.functions.iter().filter_map(of).collect()
    }

    /// Returns the S3 endpoint.
    #[must_use]
    pub fn s3_url(&self) -> String {
        self.object_endpoint.url()
    }

    /// Returns the endpoint of Lambda's Invoke API.
    #[must_use]
    pub fn lambda_url(&self) -> String {
        self.invoke_endpoint.url()
    }

    /// Returns for every mapping: its name, the logical id of its function, the reason if it has ended,
    /// and its status.
    #[must_use]
    pub fn statuses(&self) -> Vec<(String, String, Option<String>, Status)> {
        let of = |mapping: &RunningMapping| {
            let (name, function) = (mapping.name().to_owned(), mapping.function().to_owned());
            (name, function, mapping.end(), mapping.status())
        };
        self.mappings.iter().map(of).collect()
    }

    /// Returns the faults around the mappings; `None` if there are none.
    #[must_use]
    pub fn chaos(&self) -> Option<Arc<Chaos>> {
        self.chaos.clone()
    }

    /// Returns the reason why the journal cannot be written, and its fix; `None` if it can be
    /// written.
    #[must_use]
    pub fn journal_fault(&self) -> Option<String> {
        self.journal.as_ref().map_or_else(|fault| Some(fault.to_string()), Journal::fault)
    }

    /// Returns the folder that contains a bucket's objects as plain files.
    #[must_use]
    pub fn bucket_folder(&self, bucket: &str) -> PathBuf {
        self.objects.root().join(bucket)
    }

    /// Returns the name of the table with a logical id.
    ///
    /// # Errors
    /// The template has no such table.
    pub fn table_name(&self, logical_id: &str) -> Result<String> {
        let table = self.stack.table(logical_id);
        table.map(|table| table.name.clone()).ok_or_else(|| missing("table", logical_id))
    }

    /// Returns an environment variable of the function with a logical id.
    ///
    /// # Errors
    /// The template has no such variable.
    pub fn environment(&self, function: &str, variable: &str) -> Result<String> {
        self.stack
            .function(function)
            .and_then(|found| found.environment.get(variable).cloned())
            .ok_or_else(|| missing("environment variable", &format!("{function}.{variable}")))
    }

    /// Kills an instance of a function during an invocation, with `kill -9`. Returns whether an
    /// instance was killed.
    #[must_use]
    pub fn kill_working_instance(&self, function: &str) -> bool {
        let working = self.mappings.iter().any(|m| m.function() == function && m.is_invoking());
        working && self.functions.get(function).is_some_and(|found| found.kill_instance().is_some())
    }

    /// Waits until every record that is now in a stream has been filtered, processed or discarded.
    ///
    /// # Errors
    /// The records are not done within `limit`.
    pub async fn wait_until_drained(&self, limit: Duration) -> Result<()> {
        let (started, tick) = (Instant::now(), tick_ms());
        while let Some(mapping) = self.mappings.iter().find(|m| !m.is_drained_after(tick)) {
            if started.elapsed() > limit || mapping.end().is_some() {
                return Err(fatal!(
                    "mapping {} still has records after {} s: {}",
                    mapping.name(),
                    started.elapsed().as_secs(),
                    mapping.describe()
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn missing(kind: &str, name: &str) -> Failure {
    fatal!(
        "the template has no {kind} `{name}`: the demonstration needs the project's own template.yaml"
    )
}

/// The bound ports. They are bound before the build, so that a port in use is reported immediately and
/// not after minutes of compiling.
struct Ports {
    /// The port of the store; `None` if the store is DynamoDB.
    store: Option<BoundListener>,
    objects: BoundListener,
    invoke: BoundListener,
}

impl Ports {
    async fn take(options: &Options) -> Result<Self> {
        let bind = async |what, flag, port| {
            let bound = BoundListener::new(what, loopback(port)).await;
            bound.map_err(|error: BindError| format!("{error}; the flag is {flag}"))
        };
        let store = match options.aws {
            true => None,
            false => Some(bind("store", "--port", options.store_port).await?),
        };
        let objects = bind("S3 endpoint", "--s3-port", options.object_store_port).await?;
        let invoke = bind("Lambda Invoke API", "--invoke-port", options.invoke_port).await?;
        Ok(Self { store, objects, invoke })
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn names<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

/// Returns the programs of the functions; none if another program runs the functions.
async fn build(stack: &Stack, options: &Options) -> Result<BTreeMap<String, Program>> {
    let places = Folders { template: &options.template_folder, data: &options.directory };
    match options.invoke_url {
        Some(_) => Ok(BTreeMap::new()),
        None => functions::build(stack, &places).await,
    }
}

/// Locks the data folder for this process. Two processes with the same checkpoints would both deliver,
/// and overwrite each other's checkpoints. The operating system releases the lock when the process ends
/// for any reason.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let doing = || format!("cannot lock the data folder `{}`", directory.display());
    platform::private_files::create_directory(directory).context(doing)?;
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.context(doing)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(fatal!(
            "another `weir up` or `weir demo` uses the data folder `{}`: stop that process, or name a different folder with --directory",
            directory.display()
        )),
        Err(TryLockError::Error(error)) => Err(error).context(doing),
    }
}

/// Starts the journal. If this fails, the system still runs, but `weir streams explain` cannot
/// report events of this run.
fn begin_journal(folder: &Path, now_ms: i64) -> Result<Journal> {
    Journal::begin(folder, now_ms).map_err(|error| {
        let fault = fatal!(
            "cannot start the journal in `{}` ({error}): correct the cause and restart `weir up`",
            folder.display()
        );
        tracing::warn!("{fault}; until then, `weir streams explain` lacks events");
        fault
    })
}

fn start_invoke_endpoint(
    functions: &BTreeMap<String, Arc<Function>>,
    port: BoundListener,
    allowed: &AllowList,
) -> InvokeEndpoint {
    let invocable = functions.values().map(|found| Function::clone(found));
    let endpoint = InvokeEndpoint::start(invocable, port, allowed.clone());
    tracing::info!("lambda     {}   for `aws lambda invoke --endpoint-url`", endpoint.url());
    endpoint
}

fn start_object_store(
    stack: &Stack,
    options: &Options,
    port: BoundListener,
) -> Result<(ObjectStore, Endpoint)> {
    let root: &Path = &options.directory.join("s3");
    let objects = ObjectStore::open(root).map_err(Failure::fatal)?;
    for bucket in &stack.buckets {
        objects.create_bucket(&bucket.name).map_err(Failure::fatal)?;
    }
    let endpoint =
        Endpoint::start(objects.clone(), port, options.allow_list.clone(), &stack.region);
    tracing::info!("s3         {}   objects are files in {}", endpoint.url(), root.display());
    Ok((objects, endpoint))
}

/// Logs the settings of the template that are not emulated: each reason with its first
/// [`PLACES_SHOWN`] settings. `weir check --verbose` shows all settings.
fn show_not_emulated(stack: &Stack) {
    for warning in &stack.warnings {
        tracing::warn!("{warning}");
    }
    for (reason, places) in stack.not_emulated_by_reason() {
        let first = places.get(..PLACES_SHOWN).unwrap_or(&places).join(", ");
        match places.len().saturating_sub(PLACES_SHOWN) {
            0 => tracing::info!("not emulated: {reason}: {first}"),
            more => tracing::info!("not emulated: {reason}: {first}; settings not shown: {more}"),
        }
    }
    if !stack.not_emulated.is_empty() {
        tracing::info!("`weir check --verbose` shows the line of each of these settings");
    }
}
