//! `weir bench`: what a DynamoDB endpoint can do, and how near that is to what this machine can.
//!
//! `request` and `plain_http` are a client that costs little; `workload` says what is sent;
//! `measurement` sends it in a closed loop; `ceiling` is what to compare with. It verifies no result
//! but the sum of the counter. `docs/benchmarks.md` says how to read the figures.

mod ceiling;
mod fixture;
mod histogram;
mod measurement;
mod process;
mod report;
mod request;
mod syncs;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use self::ceiling::{Ceiling, CeilingProcess};
use self::fixture::Fixture;
use self::measurement::{Outcome, Plan};
pub use self::report::Format;
use self::report::{Report, Row, STORE, SumCheck};
pub use self::workload::{Follower, Operation};
use client::endpoint;
use client::interruption;
use client::output::Output;
use client::plain_http::Endpoint;

/// What to measure, and how long.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    weir bench --endpoint http://127.0.0.1:8000 --server-pid 4711\n  \
    weir bench --endpoint http://127.0.0.1:8000 --operations put,get --connections 64 --report tsv\n  \
    weir bench --endpoint http://127.0.0.1:8000 --operations put,batch --with stream,index\n  \
    weir bench --ceiling                      what this machine can do without a store\n  \
    weir bench --ceiling --endpoint URL       both, and the store's puts in percent of it\n\n\
    The tables weir-bench-… are made, loaded, and deleted afterwards.")]
pub struct BenchArguments {
    /// The endpoint, plain HTTP [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…", default_values = ["put", "get", "get-eventual", "update", "query", "batch", "query-index", "transact2", "transact25", "scan", "get-records"])]
    operations: Vec<Operation>,
    /// What the tables of items and slots have beside, so that writes cost what they do with it
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,…")]
    with: Vec<Follower>,
    /// Connections that send at the same time, one figure for each measurement
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values = ["1", "16", "64"], value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: Vec<u32>,
    /// Seconds that each operation is measured with each number of connections
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    duration: u64,
    /// Seconds before each of them that do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=600))]
    warm_up: u64,
    /// Single items in the table; and --partitions times 50 for the queries
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(25..=100_000_000))]
    items: u64,
    /// Partitions of 50 items
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    partitions: u64,
    /// Processes of the server, whose CPU time and memory are read (Linux)
    #[arg(long = "server-pid", value_name = "PID", value_delimiter = ',')]
    server_pids: Vec<u32>,
    /// Measure also an HTTP echo and a group commit without a store, which nothing can beat
    #[arg(long)]
    ceiling: bool,
    /// How to write the results [default: text, or JSON with --output json]
    #[arg(long, value_enum)]
    report: Option<Format>,
    /// Be a ceiling's server: how `--ceiling` starts it
    #[arg(long, value_enum, hide = true)]
    serve_ceiling: Option<Ceiling>,
    /// Where the ceilings' logs go, which should be the disk of the store [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchReport {
    /// The results, in the format that was asked for.
    pub text: String,
    /// What makes the results worthless, if anything does.
    pub failure: Option<String>,
}

/// Runs the benchmark. `announce` is given what has to be written to standard output at once.
///
/// # Errors
/// When nothing can be measured; the tables are deleted then too, if the endpoint answers.
pub async fn run(
    arguments: &BenchArguments,
    output: Output,
    announce: impl FnOnce(&str),
) -> Result<BenchReport, String> {
    let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
    if let Some(ceiling) = arguments.serve_ceiling {
        ceiling::serve(ceiling, &folder, announce).await?;
        return Ok(BenchReport { text: String::new(), failure: None });
    }
    let mut report = Report::default();
    if cfg!(debug_assertions) {
        let note = "a development build: load and ceilings cost more than with --release";
        report.notes.push(note.to_owned());
    }
    let with: Vec<_> = arguments.with.iter().map(|follower| follower.name()).collect();
    if !with.is_empty() {
        report
            .notes
            .push(format!("the tables of items and slots have beside: {}", with.join(", ")));
    }
    let url = match &arguments.endpoint {
        None if arguments.ceiling => None,
        flag => Some(endpoint::find(flag.as_deref())?),
    };
    let progress = progress_bar();
    interruption::follow(&progress, "");
    let result = measure_all(arguments, url.as_deref(), &folder, &progress, &mut report).await;
    progress.finish_and_clear();
    result?;
    let wrong = report.sum.is_some_and(|sum| !sum.holds());
    let failure = wrong.then(|| "the sum of the slots is not what was acknowledged".to_owned());
    let format = arguments.report.unwrap_or(match output {
        Output::Table => Format::Text,
        Output::Json | Output::Ndjson => Format::Json,
    });
    Ok(BenchReport { text: report.write(format), failure })
}

fn progress_bar() -> ProgressBar {
    // Hidden by itself when standard error is not a terminal.
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Loads, measures, and deletes the tables whatever became of it.
async fn measure_all(
    arguments: &BenchArguments,
    url: Option<&str>,
    folder: &Path,
    progress: &ProgressBar,
    report: &mut Report,
) -> Result<(), String> {
    let mut fixture = match url {
        Some(url) => {
            let endpoint = Endpoint::parse(url)?;
            let (items, partitions) = (arguments.items, arguments.partitions);
            let (operations, with) = (&arguments.operations, &arguments.with);
            Some(Fixture::open(endpoint, items, partitions, operations, with).await?)
        }
        None => None,
    };
    let result = match &mut fixture {
        Some(fixture) => {
            progress.set_message("loading");
            fixture.load(progress).await
        }
        None => Ok(()),
    };
    let result = match result {
        Ok(()) => measure_in_turn(arguments, url, folder, &mut fixture, progress, report).await,
        Err(error) => Err(format!("cannot load the tables: {error}")),
    };
    if let Some(fixture) = &mut fixture {
        let removed = fixture.remove().await;
        return result.and(removed);
    }
    result
}

/// For each number of connections: every operation, and the ceilings right behind, so that what
/// is compared was measured within the same minute.
async fn measure_in_turn(
    arguments: &BenchArguments,
    url: Option<&str>,
    folder: &Path,
    fixture: &mut Option<Fixture>,
    progress: &ProgressBar,
    report: &mut Report,
) -> Result<(), String> {
    let operations = if url.is_some() { arguments.operations.len() } else { 0 };
    let each = operations + if arguments.ceiling { Ceiling::ALL.len() } else { 0 };
    progress.reset();
    progress.set_length(u64::try_from(each * arguments.connections.len()).unwrap_or(0));
    let mut counted = SumCheck { acknowledged: 0, unknown: 0, sum: 0 };
    for connections in &arguments.connections {
        if let (Some(url), Some(fixture)) = (url, fixture.as_ref()) {
            for operation in &arguments.operations {
                let tables = fixture.tables.clone();
                let pids = arguments.server_pids.clone();
                let plan = plan(arguments, url, tables, *operation, *connections, pids)?;
                let endpoint = plan.endpoint.clone();
                let before = syncs::of_store(&endpoint).await;
                let outcome = measure_one(arguments, STORE, plan, progress, report).await?;
                let after = syncs::of_store(&endpoint).await;
                let syncs =
                    before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
                count_syncs(report, outcome.acknowledged, syncs);
                if *operation == Operation::Update {
                    counted.acknowledged += outcome.acknowledged;
                    counted.unknown += outcome.unknown;
                }
            }
        }
        if arguments.ceiling {
            for ceiling in Ceiling::ALL {
                measure_ceiling(arguments, ceiling, *connections, folder, progress, report).await?;
            }
        }
    }
    if let Some(fixture) = fixture
        && arguments.operations.contains(&Operation::Update)
    {
        counted.sum = fixture.sum_slots().await?;
        report.sum = Some(counted);
    }
    Ok(())
}

fn plan(
    arguments: &BenchArguments,
    url: &str,
    tables: workload::Tables,
    operation: Operation,
    connections: u32,
    server_pids: Vec<u32>,
) -> Result<Plan, String> {
    Ok(Plan {
        endpoint: Endpoint::parse(url)?,
        tables,
        operation,
        connections,
        warm_up: Duration::from_secs(arguments.warm_up),
        duration: Duration::from_secs(arguments.duration),
        server_pids,
    })
}

async fn measure_one(
    arguments: &BenchArguments,
    target: &str,
    plan: Plan,
    progress: &ProgressBar,
    report: &mut Report,
) -> Result<Outcome, String> {
    let (name, connections) = (plan.operation.name(), plan.connections);
    progress.set_message(format!("{target} {name}, {connections} connections"));
    let outcome = measurement::measure(plan).await?;
    let seconds = Duration::from_secs(arguments.duration).as_secs_f64();
    let row = Row::new(target, name, connections, seconds, &outcome);
    if let Some(error) = &outcome.first_error {
        let note = format!("{target} {name}, {connections} connections: first error: {error}");
        report.notes.push(note);
    }
    report.rows.push(row);
    progress.inc(1);
    Ok(outcome)
}

/// Notes how many requests of the last measurement, with its warm-up, shared a sync.
fn count_syncs(report: &mut Report, requests: u64, syncs: u64) {
    if syncs > 0
        && let Some(row) = report.rows.last_mut()
    {
        row.requests_per_sync = Some(report::ratio(requests, syncs));
    }
}

/// Starts a ceiling, measures put requests against it, and ends it.
async fn measure_ceiling(
    arguments: &BenchArguments,
    ceiling: Ceiling,
    connections: u32,
    folder: &Path,
    progress: &ProgressBar,
    report: &mut Report,
) -> Result<(), String> {
    let folder = folder.join(format!("weir-bench-{}-{}", std::process::id(), ceiling.name()));
    let result = async {
        let server = CeilingProcess::start(ceiling, &folder).await?;
        let tables = workload::Tables {
            items: "ceiling".to_owned(),
            votes: "ceiling".to_owned(),
            indexed: "ceiling".to_owned(),
            streamed: "ceiling".to_owned(),
            iterators: Vec::new(),
            item_count: arguments.items,
            partition_count: arguments.partitions,
        };
        let pids = vec![server.pid];
        let plan = plan(arguments, &server.url, tables, Operation::Put, connections, pids)?;
        let outcome = measure_one(arguments, ceiling.name(), plan, progress, report).await?;
        let syncs = syncs::of_ceiling(&Endpoint::parse(&server.url)?).await?;
        count_syncs(report, outcome.acknowledged, syncs);
        Ok(())
    }
    .await;
    // The echo has no folder; a folder that stays behind is in the temporary one.
    let _ = std::fs::remove_dir_all(&folder);
    result
}
