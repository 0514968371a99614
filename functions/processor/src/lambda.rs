//! The functions as Lambda runs them: start-up, invocations, the log.
//!
//! A function that cannot start logs the reason and exits with code 1 before it requests its first
//! event, so that Lambda reports a failed initialization. The frame processes the batches.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
use rules::archive::Archive;
use rules::counters::Counters;
use rules::fan_out::FanOut;
use rules::versions::Versions;
use serde::Serialize;
use serde_json::value::RawValue;
use tracing::{error, info};

use crate::archive_sink::ArchiveSink;
use crate::archive_sink::compaction::Compactor;
use crate::archive_sink::erasure::Eraser;
use crate::back_off::{Deadline, RetryPolicy};
use crate::copies::{
    Copies, DynamoDbCopies, RepairRequest, Repaired, SAVED_EVERY, SelfCheckReport,
};
use crate::event::{self, BatchResponse, Event};
use crate::failure::Failure;
use crate::frame::{Executor, Frame, Processed, Report, Summary};
use crate::histories::{DynamoDbHistories, Histories};
use crate::maintenance;
use crate::metrics::{self, Metrics};
use crate::migration::control_table::Control;
use crate::migration::{BatchStart, Migrations, Throttling};
use crate::object_store::ObjectStore;
use crate::object_store::s3::S3ObjectStore;
use crate::quarantine::Quarantine;
use crate::reconcile::{ReconcileReport, Reconciler};
use crate::sdk;
use crate::settings::{
    ARCHIVE_BUCKET, ArchiveSettings, CountersSettings, FanOutSettings, HISTORY_TABLE,
    MaintenanceSettings, MigrationSettings, Place, QUARANTINE_BUCKET, SLOTS_TABLE, TOTALS_TABLE,
    VersionsSettings,
};
use crate::tables::dynamodb::DynamoDbTable;
use crate::totals::Totals;

type ArchiveFunction = Frame<Archive, ArchiveSink<S3ObjectStore>, S3ObjectStore>;
type FanOutFunction = Frame<FanOut, Copies<DynamoDbCopies>, S3ObjectStore>;
type VersionsFunction = Frame<Versions, Histories<DynamoDbHistories>, S3ObjectStore>;
type CountersFunction = Frame<Counters, Totals<DynamoDbTable>, S3ObjectStore>;

/// The response of `counters`: Lambda's batch response for a batch, and the reconciliation's report
/// for any other event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CountersResponse {
    /// The response to a batch.
    Batch(BatchResponse),
    /// The response to an event that is not a batch: the report of a reconciliation.
    Reconciled {
        /// The reconciliation's report.
        reconciled: ReconcileReport,
    },
}

/// The response of `fan-out`: Lambda's batch response for a batch, the progress for a repair
/// request, and the self-check's report for any other event.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum FanOutResponse {
    /// The response to a batch.
    Batch(BatchResponse),
    /// The response to a repair request.
    Repaired(Repaired),
    /// The response to an event that is neither a batch nor a repair request: the report of a self-check.
    Checked {
        /// The self-check's report.
        checked: SelfCheckReport,
    },
}

/// Runs the function `archive` until Lambda ends the process.
pub async fn run_archive() -> ExitCode {
    locks::abort_when_poisoned();
    start_log();
    let settings = match ArchiveSettings::read(&environment_variable) {
        Ok(settings) => settings,
        Err(error) => return refuse_to_start(&error),
    };
    let config = sdk::config(&environment_variable).await;
    let s3 = aws_sdk_s3::Client::new(&config);
    let store = S3ObjectStore::new(s3.clone(), settings.archive.bucket, ARCHIVE_BUCKET);
    let function: &ArchiveFunction = &Frame {
        rule: settings.rule,
        executor: ArchiveSink::new(store, settings.archive.prefix, RetryPolicy::CONTENDED),
        quarantine: quarantine(s3, settings.quarantine, "archive"),
    };
    let handler = service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let deadline = deadline_of(event.context.deadline());
        let response = process_event(function, "archive", event.payload.get(), deadline).await?;
        response.ok_or_else(no_records)
    });
    finish(lambda_runtime::run(handler).await)
}

/// Runs the function `versions` until Lambda ends the process.
pub async fn run_versions() -> ExitCode {
    locks::abort_when_poisoned();
    start_log();
    let settings = match VersionsSettings::read(&environment_variable) {
        Ok(settings) => settings,
        Err(error) => return refuse_to_start(&error),
    };
    let config = sdk::config(&environment_variable).await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&config);
    let function: &VersionsFunction = &Frame {
        rule: settings.rule,
        executor: Histories {
            table: DynamoDbHistories::new(dynamodb, settings.history_table, HISTORY_TABLE),
            retention: settings.retention,
            retry: RetryPolicy::CONTENDED,
        },
        quarantine: quarantine(aws_sdk_s3::Client::new(&config), settings.quarantine, "versions"),
    };
    let handler = service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let deadline = deadline_of(event.context.deadline());
        let response = process_event(function, "versions", event.payload.get(), deadline).await?;
        response.ok_or_else(no_records)
    });
    finish(lambda_runtime::run(handler).await)
}

/// Runs the function `fan-out` until Lambda ends the process.
pub async fn run_fan_out() -> ExitCode {
    locks::abort_when_poisoned();
    start_log();
    let mut settings = match FanOutSettings::read(&environment_variable) {
        Ok(settings) => settings,
        Err(error) => return refuse_to_start(&error),
    };
    let config = sdk::config(&environment_variable).await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&config);
    let tables = match DynamoDbCopies::open(dynamodb, &mut settings.rule).await {
        Ok(tables) => tables,
        Err(error) => return refuse_to_start(&error),
    };
    let function: &FanOutFunction = &Frame {
        rule: settings.rule.clone(),
        executor: Copies {
            tables,
            rule: settings.rule,
            retry: RetryPolicy::CONTENDED,
            saved_every: SAVED_EVERY,
        },
        quarantine: quarantine(aws_sdk_s3::Client::new(&config), settings.quarantine, "fan-out"),
    };
    let handler = service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let deadline = deadline_of(event.context.deadline());
        let payload = event.payload.get();
        match process_event(function, "fan-out", payload, deadline).await? {
            Some(response) => Ok(FanOutResponse::Batch(response)),
            None => check_copies(function, payload, deadline).await,
        }
    });
    finish(lambda_runtime::run(handler).await)
}

/// Checks copies: all copies of one rule if the event requests a repair, otherwise a sample of each
/// rule.
async fn check_copies(
    function: &FanOutFunction,
    event: &str,
    deadline: Deadline,
) -> Result<FanOutResponse, Diagnostic> {
    let started = Instant::now();
    let (checked, response) = match RepairRequest::read(event)? {
        Some(request) => {
            let repaired = function.executor.repair(&request, deadline).await?;
            (repaired.checked.clone(), FanOutResponse::Repaired(repaired))
        }
        None => {
            // The draw selects the sample. Any number is suitable, provided that it differs from run to run.
            let draw = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let draw = draw.map_or(0, |since| since.as_secs() / 60);
            let checked = function.executor.check_sample(draw, deadline).await?;
            (checked.clone(), FanOutResponse::Checked { checked })
        }
    };
    log_self_check(&checked);
    Metrics::of_self_check(&checked, started.elapsed())
        .write(&name_on_aws("fan-out"), SystemTime::now());
    Ok(response)
}

fn log_self_check(report: &SelfCheckReport) {
    info!(
        function = "fan-out",
        rules = report.rules,
        copies = report.copies,
        repaired = report.repaired,
        postponed = report.postponed,
        refused = report.refused,
        "checked"
    );
}

fn no_records() -> Diagnostic {
    Diagnostic::from(Failure::Fatal(
        "the event has no `Records`; invoke this function by an event source mapping of a DynamoDB stream".to_owned(),
    ))
}

/// Runs the function `archive-maintenance` until Lambda ends the process.
pub async fn run_archive_maintenance() -> ExitCode {
    locks::abort_when_poisoned();
    start_log();
    let settings = match MaintenanceSettings::read(&environment_variable) {
        Ok(settings) => settings,
        Err(error) => return refuse_to_start(&error),
    };
    let s3 = aws_sdk_s3::Client::new(&sdk::config(&environment_variable).await);
    let store = S3ObjectStore::new(s3, settings.archive.bucket, ARCHIVE_BUCKET);
    let (prefix, retry) = (settings.archive.prefix, RetryPolicy::CONTENDED);
    let compactor = &Compactor { store: store.clone(), prefix: prefix.clone(), retry };
    let eraser = &Eraser { store, prefix, receipts_prefix: settings.receipts_prefix, retry };
    let handler = service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let deadline = deadline_of(event.context.deadline());
        let started = Instant::now();
        let request = maintenance::decode(event.payload.get())?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let answer =
            maintenance::carry_out(request, compactor, eraser, now.as_secs(), deadline).await?;
        info!(function = "archive-maintenance", answer = ?answer, "done");
        if let maintenance::Answer::Compacted(report) = &answer {
            Metrics::of_compaction(report, started.elapsed())
                .write(&name_on_aws("archive-maintenance"), SystemTime::now());
        }
        Ok::<_, Diagnostic>(answer)
    });
    finish(lambda_runtime::run(handler).await)
}

/// Runs the function `counters` until Lambda ends the process.
pub async fn run_counters() -> ExitCode {
    locks::abort_when_poisoned();
    start_log();
    let settings = match CountersSettings::read(&environment_variable) {
        Ok(settings) => settings,
        Err(error) => return refuse_to_start(&error),
    };
    let config = sdk::config(&environment_variable).await;
    let dynamodb = aws_sdk_dynamodb::Client::new(&config);
    let slots = DynamoDbTable::new(
        dynamodb.clone(),
        settings.slots_table,
        settings.rule.slot_key.clone(),
        SLOTS_TABLE,
    );
    let totals = DynamoDbTable::new(
        dynamodb,
        settings.totals_table,
        settings.total_key.clone(),
        TOTALS_TABLE,
    );
    let totals = Totals::new(totals, settings.total_key, RetryPolicy::CONTENDED);
    let reconciler = &Reconciler {
        rule: settings.rule.clone(),
        slots,
        totals: totals.clone(),
        retry: RetryPolicy::CONTENDED,
        now: || {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            since.unwrap_or_default().as_secs()
        },
    };
    let function: &CountersFunction = &Frame {
        rule: settings.rule,
        executor: totals,
        quarantine: quarantine(aws_sdk_s3::Client::new(&config), settings.quarantine, "counters"),
    };
    let handler = service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let deadline = deadline_of(event.context.deadline());
        match process_event(function, "counters", event.payload.get(), deadline).await? {
            Some(response) => Ok(CountersResponse::Batch(response)),
            None => {
                let started = Instant::now();
                let reconciled = reconciler.run(deadline).await?;
                log_reconciliation(&reconciled);
                Metrics::of_reconciliation(&reconciled, started.elapsed())
                    .write(&name_on_aws("counters"), SystemTime::now());
                Ok::<_, Diagnostic>(CountersResponse::Reconciled { reconciled })
            }
        }
    });
    finish(lambda_runtime::run(handler).await)
}

/// Runs the function `migration` until Lambda ends the process.
pub async fn run_migration() -> ExitCode {
    locks::abort_when_poisoned();
    start_log();
    let settings = match MigrationSettings::read(&environment_variable) {
        Ok(settings) => settings,
        Err(error) => return refuse_to_start(&error),
    };
    let config = sdk::config(&environment_variable).await;
    let throttling = Throttling::default();
    let watched = aws_sdk_dynamodb::config::Builder::from(&config).interceptor(throttling.clone());
    let client = aws_sdk_dynamodb::Client::from_conf(watched.build());
    let control = Control::new(client, settings.control_table, throttling);
    let aside = quarantine(aws_sdk_s3::Client::new(&config), settings.quarantine, "migration");
    let function = &Migrations::new(control, aside, RetryPolicy::CONTENDED);
    let handler = service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let deadline = deadline_of(event.context.deadline());
        match event::decode(event.payload.get())? {
            Event::Batch(batch) => match Box::pin(function.begin(&batch, deadline)).await? {
                BatchStart::Frame(frame) => {
                    let (started, now) = (Instant::now(), SystemTime::now());
                    let lag = metrics::lag(&batch, now);
                    let result = function.follow(&frame, &batch, deadline).await;
                    log_batch("migration", batch.len(), lag, started, result)
                }
                BatchStart::Done(response) => Ok(response),
            },
            Event::Other => Err(Diagnostic::from(Failure::Fatal(
                "the event has no `Records`; invoke this function by event source mappings of the control table's stream and of the source tables' streams".to_owned(),
            ))),
        }
    });
    finish(lambda_runtime::run(handler).await)
}

/// Processes an event if it is a batch, and writes the batch's log line and metrics.
async fn process_event<E: Executor, O: ObjectStore>(
    function: &Frame<E::Rule, E, O>,
    name: &str,
    payload: &str,
    deadline: Deadline,
) -> Result<Option<BatchResponse>, Diagnostic> {
    let (started, now) = (Instant::now(), SystemTime::now());
    let Some(Processed { batch, result }) = function.process_event(payload, deadline).await? else {
        return Ok(None);
    };
    let lag = metrics::lag(&batch, now);
    log_batch(name, batch.len(), lag, started, result).map(Some)
}

/// Writes a batch's log line and metrics.
fn log_batch(
    name: &str,
    records: usize,
    lag: Option<Duration>,
    started: Instant,
    processed: Result<Report, Failure>,
) -> Result<BatchResponse, Diagnostic> {
    // If a batch fails as a whole, Lambda redelivers all of its records.
    let failed = Summary { records, retried: records, ..Summary::default() };
    let summary = processed.as_ref().map_or(failed, |report| report.summary);
    Metrics::of_batch(summary, lag, started.elapsed()).write(&name_on_aws(name), SystemTime::now());
    let report = processed?;
    let retry_from =
        report.response.batch_item_failures.first().map(|failure| failure.item_identifier.as_str());
    info!(
        function = name,
        records = summary.records,
        ignored = summary.ignored,
        applied = summary.applied,
        already_applied = summary.already_applied,
        refused = summary.refused,
        retried = summary.retried,
        retry_from,
        duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "batch"
    );
    Ok(report.response)
}

fn log_reconciliation(report: &ReconcileReport) {
    info!(
        function = "counters",
        counters = report.counters,
        slots = report.slots,
        drifted_slots = report.drifted_slots,
        repaired_totals = report.repaired_totals,
        misstated_totals = report.misstated_totals,
        postponed_totals = report.postponed_totals,
        damaged_totals = report.damaged_totals,
        unreadable_slots = report.unreadable_slots,
        foreign_items = report.foreign_items,
        complete = report.complete,
        "reconciled"
    );
}

fn quarantine(
    client: aws_sdk_s3::Client,
    place: Place,
    function: &'static str,
) -> Quarantine<S3ObjectStore> {
    let store = S3ObjectStore::new(client, place.bucket, QUARANTINE_BUCKET);
    Quarantine::new(store, place.prefix, function, RetryPolicy::CONTENDED)
}

/// Returns the function's name on AWS, such as `weir-ArchiveFunction-1X2Y`.
fn name_on_aws(name: &str) -> String {
    environment_variable("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_else(|| name.to_owned())
}

fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The assumed time limit of an invocation whose runtime reports no usable deadline.
const UNTOLD_DEADLINE: Duration = Duration::from_secs(60);

/// Returns the invocation's deadline. Replaces a deadline in the past by a default, because
/// cargo-lambda 1.9 reports a time in 1970.
fn deadline_of(end: SystemTime) -> Deadline {
    Deadline::after(end.duration_since(SystemTime::now()).unwrap_or(UNTOLD_DEADLINE))
}

/// Sends the log to standard output as JSON lines, which Lambda puts into the function's log.
/// `AWS_LAMBDA_LOG_LEVEL` (Lambda's own variable) or `RUST_LOG` sets the level.
fn start_log() {
    let filter = environment_variable("RUST_LOG")
        .or_else(|| environment_variable("AWS_LAMBDA_LOG_LEVEL"))
        .unwrap_or_else(|| "info".to_owned());
    // `tracing` lacks Lambda's level FATAL, so FATAL becomes ERROR.
    let filter = filter.to_lowercase().replace("fatal", "error");
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_target(false)
        .with_env_filter(filter);
    // This call fails only in a test, if another test has already set a subscriber, which then
    // stays active.
    let _ = subscriber.try_init();
}

fn refuse_to_start(error: &dyn std::error::Error) -> ExitCode {
    error!(reason = %error, "the function cannot start");
    ExitCode::FAILURE
}

fn finish(result: Result<(), lambda_runtime::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse_to_start(error.as_ref()),
    }
}
