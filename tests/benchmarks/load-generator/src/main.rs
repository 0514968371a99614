//! A tool that measures a DynamoDB endpoint, and compares it with the upper bounds of this machine.
//!
//! The tool is for this project's developers and is not shipped. `client` and `request` send
//! requests at low cost; `workload` defines them; `measurement` sends them in a closed loop;
//! `ceiling` provides the upper bounds. The tool verifies only the sum of the counter.
//! `docs/development/benchmarks.md` explains the results.

mod arguments;
mod ceiling;
mod client;
mod error;
mod fixture;
mod measurement;
mod output;
mod process;
mod report;
mod request;
mod syncs;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::arguments::Arguments;
use crate::ceiling::{Ceiling, CeilingProcess};
use crate::client::Endpoint;
use crate::error::Result;
use crate::fixture::Fixture;
use crate::measurement::{Outcome, Plan};
use crate::output::{print, say};
use crate::report::{Row, STORE, SumCheck};
use crate::workload::{Operation, Tables};

/// The same allocator as in the store and the functions, so that a ceiling is comparable.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
    if let Some(ceiling) = arguments.serve_ceiling {
        return ceiling::serve(ceiling, &folder).await;
    }
    if cfg!(debug_assertions) {
        say(
            "note: this is a development build: the load and the ceilings use more CPU than with --release",
        );
    }
    print(report::HEADER)?;
    let mut run = Run { arguments, folder, rows: Vec::new(), sum: SumCheck::default() };
    let Some(endpoint) = &arguments.endpoint else { return run.measure(None).await };
    let mut fixture = Fixture::open(endpoint.clone(), arguments).await?;
    // The tables are deleted even if the measurement fails.
    let measured = match fixture.load(&arguments.with).await {
        Ok(()) => run.measure(Some(&mut fixture)).await,
        Err(error) => Err(format!("cannot load the tables: {error}").into()),
    };
    measured.and(fixture.remove().await)
}

/// One run and its results.
struct Run<'a> {
    arguments: &'a Arguments,
    /// The folder of the ceilings' logs.
    folder: PathBuf,
    rows: Vec<Row>,
    sum: SumCheck,
}

impl Run<'_> {
    /// Measures every operation for each number of connections, and the ceilings right after them,
    /// so that compared results are from the same minute.
    async fn measure(&mut self, mut fixture: Option<&mut Fixture>) -> Result<()> {
        let arguments = self.arguments;
        for connections in &arguments.connections {
            if let (Some(endpoint), Some(fixture)) = (&arguments.endpoint, &fixture) {
                for operation in &arguments.operations {
                    let tables = fixture.tables.clone();
                    self.measure_store(endpoint, tables, *operation, *connections).await?;
                }
            }
            for ceiling in Ceiling::ALL.iter().filter(|_| arguments.ceiling) {
                self.measure_ceiling(*ceiling, *connections).await?;
            }
        }
        report::ratios(&self.rows).iter().for_each(|line| say(line));
        if let Some(fixture) = &mut fixture
            && arguments.operations.contains(&Operation::Update)
        {
            self.sum.sum = fixture.sum_slots().await?;
            say(&self.sum.text());
            if !self.sum.holds() {
                return Err("the sum of the slots differs from the acknowledged increments".into());
            }
        }
        Ok(())
    }

    async fn measure_store(
        &mut self,
        endpoint: &Endpoint,
        tables: Tables,
        operation: Operation,
        connections: u32,
    ) -> Result<()> {
        let pids = self.arguments.server_pids.clone();
        let plan = self.plan(endpoint, tables, operation, connections, pids);
        let before = syncs::of_store(endpoint).await;
        let outcome = measurement::measure(plan).await?;
        let after = syncs::of_store(endpoint).await;
        let syncs = before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
        if operation == Operation::Update {
            self.sum.acknowledged += outcome.acknowledged;
            self.sum.unknown += outcome.unknown;
        }
        self.report(STORE, operation, connections, &outcome, syncs)
    }

    /// Starts a ceiling, measures put requests against it, and ends it.
    async fn measure_ceiling(&mut self, ceiling: Ceiling, connections: u32) -> Result<()> {
        let name = format!("load-generator-{}-{}", std::process::id(), ceiling.name());
        let folder = self.folder.join(name);
        let measured: Result<_> = async {
            let server = CeilingProcess::start(ceiling, &folder).await?;
            let tables = Tables {
                items: "ceiling".to_owned(),
                votes: "ceiling".to_owned(),
                item_count: self.arguments.items,
                partition_count: self.arguments.partitions,
            };
            let pids = vec![server.pid];
            let plan = self.plan(&server.endpoint, tables, Operation::Put, connections, pids);
            let outcome = measurement::measure(plan).await?;
            Ok((outcome, syncs::of_ceiling(&server.endpoint).await?))
        }
        .await;
        // The error is ignored, because the echo server has no folder.
        let _ = std::fs::remove_dir_all(&folder);
        let (outcome, syncs) = measured?;
        self.report(ceiling.name(), Operation::Put, connections, &outcome, syncs)
    }

    fn plan(
        &self,
        endpoint: &Endpoint,
        tables: Tables,
        operation: Operation,
        connections: u32,
        server_pids: Vec<u32>,
    ) -> Plan {
        Plan {
            endpoint: endpoint.clone(),
            tables,
            operation,
            connections,
            warm_up: Duration::from_secs(self.arguments.warm_up),
            duration: Duration::from_secs(self.arguments.duration),
            server_pids,
        }
    }

    /// Prints a measurement. `syncs` is the number of syncs of each log including the warm-up; 0 if
    /// unknown.
    fn report(
        &mut self,
        target: &str,
        operation: Operation,
        connections: u32,
        outcome: &Outcome,
        syncs: u64,
    ) -> Result<()> {
        let seconds = Duration::from_secs(self.arguments.duration).as_secs_f64();
        let name = operation.name();
        let mut row = Row::new(target, name, connections, seconds, outcome);
        row.requests_per_sync = (syncs > 0).then(|| report::ratio(outcome.acknowledged, syncs));
        print(&row.line())?;
        self.rows.push(row);
        if let Some(error) = &outcome.first_error {
            say(&format!("{target} {name}, {connections} connections: first error: {error}"));
        }
        Ok(())
    }
}
