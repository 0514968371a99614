//! Pipelines: the reasons why functions ran or did not. The page shows the state of each mapping in
//! one sentence, then a map from tables to targets, then the counts.
//!
//! The page reads the status file of `weir up`. Only if a shard is blocked, it also reads the
//! newest part of the journal.

mod figures;
mod html;
mod map;
mod state;
mod status;
mod view;

use std::path::Path;

use local::journal::{Failing, Reader, failing};
use local::status::hindrance;

pub(crate) use self::figures::{Change, Sampler, records_read};
pub(crate) use self::html::html;
pub(crate) use self::state::State;
use self::status::Status;
use self::view::{Absent, Mapping, Stream, View};
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;
use crate::rates::PerSecond;

/// The maximum number of streams that the page lists.
const STREAMS_MAX: usize = 100;

/// The maximum number of pages of mappings.
const PAGES_MAX: usize = 100;

/// The number of newest journal segments (8 MB) that are searched for the reason of a failure.
const SEGMENTS: usize = 2;

/// Collects the data of the page Pipelines.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let running = context.running();
    let mut view =
        View { schema: "weir.console.pipelines/v1", runs: running.is_some(), ..View::default() };
    view.page = query.number("page", 1, PAGES_MAX)?;
    let Some(running) = running else {
        view.streams = streams(context).await?;
        return Ok(view);
    };
    let directory = running.directory.clone();
    let read = tokio::task::spawn_blocking(move || {
        let status = Status::read(&directory);
        let blocked = status.as_ref().map(Status::failing).unwrap_or_default();
        let failing = failing_batches(&directory, blocked);
        (status, failing, hindrance::now(&directory))
    });
    let (status, failing, hindered) =
        read.await.map_err(|error| PageError::Store(error.to_string()))?;
    view.hindered = hindered;
    let of_function = running
        .not_run
        .iter()
        .map(|(function, reason)| Absent { function: function.clone(), reason: reason.clone() });
    view.functions_not_run = of_function.collect();
    if let Some(status) = status {
        let rates = rates(context, &status);
        view.taken_ms = Some(status.taken_ms);
        view.mappings = mappings(&status, &failing, &rates);
    }
    Ok(view)
}

/// Adds a sample of the read records, and returns the rate of each mapping.
fn rates(context: &Context, status: &Status) -> PerSecond {
    let read = status.mappings.iter().map(|it| (it.mapping.clone(), it.totals.read)).collect();
    context.rates().note(status.taken_ms, read)
}

/// Returns the mappings of a status: first the running mappings, then the others.
fn mappings(status: &Status, failing: &[Failing], rates: &PerSecond) -> Vec<Mapping> {
    let running = status.mappings.iter().map(|mapping| {
        let own = failing.iter().find(|it| it.mapping == mapping.mapping);
        let rate = rates.get(&mapping.mapping).copied();
        Mapping::running(mapping, status.targets_of(&mapping.function), own, rate)
    });
    let disabled = status.disabled.iter().map(Mapping::disabled);
    running.chain(disabled).chain(status.not_run.iter().map(Mapping::not_run)).collect()
}

/// Returns the batches that block a shard of these mappings.
fn failing_batches(directory: &Path, mappings: Vec<String>) -> Vec<Failing> {
    if mappings.is_empty() {
        return Vec::new();
    }
    let lines = Reader::open_newest(&directory.join("journal"), SEGMENTS);
    lines.map(|lines| failing(lines.of_mappings(mappings))).unwrap_or_default()
}

/// Returns the streams of a store whose mappings no local `weir up` runs.
async fn streams(context: &Context) -> Result<Vec<Stream>, PageError> {
    let arns = client::shards::arns(context.streams(), None).await?;
    let of_arn = |arn: &String| {
        let table = arn.split_once(":table/").and_then(|(_, rest)| rest.split('/').next());
        Stream { table: table.unwrap_or_default().to_owned(), arn: arn.clone() }
    };
    Ok(arns.iter().take(STREAMS_MAX).map(of_arn).collect())
}
