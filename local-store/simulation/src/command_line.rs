//! The command line: runs many seeds, explains one seed, or runs another check of the store's code. Progress
//! goes to standard error, and a summary in JSON to standard output.

use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use partition::mutation::Mutation;

use crate::batch::{Batch, Summary, run_all};
use crate::error::HarnessError;
use crate::minimise::minimise;
use crate::power_loss;
use crate::processes::process::find_binary;
use crate::processes::rounds::{self, Counts};
use crate::run::run;
use crate::world::plan::Plan;

/// Run the store's own code in a simulated world with seeded faults, and check the answers that
/// clients got
#[derive(Debug, Parser)]
#[command(
    name = "simulation",
    version,
    after_help = "Examples:\n  simulation --seeds 240\n  simulation --first 17 --seeds 1 --explain\n  simulation power-loss --images 20000\n\nExit codes: 0 no violation, 1 a violation or a class of faults that never occurred, 2 invalid arguments."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    runs: Runs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Cut the power at any disk operation, and check that log and state recover completely
    PowerLoss {
        /// Number of disk images to recover from, each the result of a power cut
        #[arg(long, default_value_t = 20_000)]
        images: u64,
        /// First seed
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Kill, stop, partition and damage the real binary repeatedly under load, while nodes come and go
    Processes(Processes),
    /// Inject one deliberate fault at a time into the store's code, and check that the simulation
    /// finds each fault; requires `--features mutations`
    Mutations {
        /// Simulated seconds of load in each run
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Print the table of `docs/development/simulation.md` instead of JSON
        #[arg(long)]
        markdown: bool,
        /// Inject only this fault, by its name in `docs/development/simulation.md`; repeatable
        #[arg(long, value_name = "NAME", value_parser = parse_mutation)]
        only: Vec<Mutation>,
    },
}

#[derive(Debug, Args)]
struct Processes {
    /// Number of kills of one process that runs all nodes
    #[arg(long, default_value_t = 300)]
    embedded: usize,
    /// Number of kills of one of three processes with one node each
    #[arg(long, default_value_t = 50)]
    one: usize,
    /// Number of kills of all three processes at the same time
    #[arg(long, default_value_t = 30)]
    all: usize,
    /// Number of times that one of three processes is paused and resumed
    #[arg(long, default_value_t = 8)]
    pauses: usize,
    /// Number of times that one of three processes is disconnected from the others and reconnected
    #[arg(long, default_value_t = 8)]
    cuts: usize,
    /// Number of times that one of three processes is killed and loses its disk
    #[arg(long, default_value_t = 2)]
    wipes: usize,
    /// Number of times that one of three processes is killed and a bit flips in a file of its node
    #[arg(long, default_value_t = 2)]
    damages: usize,
    /// Number of times that a node joins, leaves, is killed, cut off or replaced, in stores of three to
    /// six processes
    #[arg(long, default_value_t = 8)]
    moves: usize,
    /// Seed of the clients' choices and of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Path of the binary `local-store` [default: next to this binary]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Parent directory of the data directories; the data of a failed round is not deleted
    #[arg(long, value_name = "DIRECTORY", default_value = "target/process-faults")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
struct Runs {
    /// Number of seeds to run
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Simulated seconds of load in each run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Number of nodes: 3, or 1 for the log, the state machine and the storage without consensus
    #[arg(long, default_value = "3", value_parser = ["1", "3"])]
    nodes: String,
    /// Number of concurrent runs [default: the number of processors]
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the plan and every event of each run; a failing seed's plan is always minimised
    #[arg(long)]
    explain: bool,
    /// Folder for the clients' history of each run in Jepsen's format, for checkers of other projects
    #[arg(long, value_name = "FOLDER")]
    export: Option<PathBuf>,
}

/// The given name is not the name of a mutation.
#[derive(Debug, thiserror::Error)]
#[error("unknown mutation; docs/development/simulation.md lists the names")]
struct UnknownMutation;

fn parse_mutation(name: &str) -> Result<Mutation, UnknownMutation> {
    let found = Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == name);
    found.ok_or(UnknownMutation)
}

/// Runs the command.
///
/// # Errors
/// Standard output or standard error cannot be written.
pub fn execute(arguments: Arguments) -> std::io::Result<ExitCode> {
    match arguments.command {
        None => run_seeds(&arguments.runs),
        Some(Command::PowerLoss { images, first }) => run_power_loss(first, images),
        Some(Command::Processes(processes)) => run_process_faults(processes),
        Some(Command::Mutations { seconds, markdown, only }) => {
            let chosen = if only.is_empty() { Mutation::ALL.to_vec() } else { only };
            run_mutations(seconds, markdown, &chosen)
        }
    }
}

/// A progress display on standard error, which is updated at most twice a second.
struct Progress {
    shown: Instant,
    total: u64,
}

impl Progress {
    fn new(total: u64) -> Self {
        Self { shown: Instant::now(), total }
    }

    fn show(&mut self, done: u64, failed: u64) {
        if self.shown.elapsed() >= Duration::from_millis(500) || done == self.total {
            self.shown = Instant::now();
            // An error while showing progress must not stop the work.
            let _ = writeln!(std::io::stderr(), "{done} of {} done, {failed} failed", self.total);
        }
    }
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn run_seeds(runs: &Runs) -> std::io::Result<ExitCode> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let batch = Batch {
        first: runs.first,
        seeds: runs.seeds,
        seconds: runs.seconds,
        nodes: if runs.nodes == "1" { 1 } else { 3 },
        jobs: runs.jobs.unwrap_or(processors),
    };
    if runs.explain {
        for seed in batch.first..batch.first.saturating_add(batch.seeds) {
            explain(&Plan::of(seed, batch.nodes, batch.seconds))?;
        }
    }
    let mut progress = Progress::new(batch.seeds);
    let summary = run_all(&batch, runs.export.as_deref(), &mut |done, failed| {
        progress.show(done, failed);
    })?;
    report(&batch, &summary)?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{:#}", summary.to_json(&batch))?;
    Ok(code(summary.is_good()))
}

/// Prints a plan and all events of its run.
fn explain(plan: &Plan) -> std::io::Result<()> {
    let outcome = run(plan, true);
    let mut output = std::io::stderr().lock();
    let Plan { seed, nodes, arcs, seconds, .. } = plan;
    writeln!(output, "seed {seed}, {nodes} nodes, {arcs} arcs, {seconds} s:")?;
    for line in &outcome.log {
        writeln!(output, "{line}")?;
    }
    Ok(())
}

/// Prints the violations, and the smallest plan that causes the first violation.
fn report(batch: &Batch, summary: &Summary) -> std::io::Result<()> {
    let mut output = std::io::stderr().lock();
    for (place, outcome) in summary.failures.iter().enumerate() {
        writeln!(output, "\nseed {} fails:", outcome.seed)?;
        for violation in &outcome.violations {
            writeln!(output, "  {violation}")?;
        }
        // Only the first failing plan is minimised, which is enough for an analysis.
        if place > 0 {
            continue;
        }
        let plan = Plan::of(outcome.seed, batch.nodes, batch.seconds);
        let smaller = minimise(&plan, outcome);
        writeln!(
            output,
            "the smallest plan found in {} runs: {} s, clients {:?}, and {} faults:",
            smaller.runs,
            smaller.plan.seconds,
            smaller.plan.clients,
            smaller.plan.faults.len()
        )?;
        for planned in &smaller.plan.faults {
            writeln!(output, "  {planned}")?;
        }
        for violation in &smaller.outcome.violations {
            writeln!(output, "  -> {violation}")?;
        }
    }
    if !summary.missing.is_empty() {
        writeln!(output, "these classes of faults never occurred: {}", summary.missing.join(", "))?;
    }
    writeln!(
        output,
        "{} runs, {} of them failed; simulated {:.0} s in {:.1} s",
        summary.runs,
        summary.failed,
        summary.simulated.as_secs_f64(),
        summary.took.as_secs_f64()
    )
}

fn run_power_loss(first: u64, images: u64) -> std::io::Result<ExitCode> {
    let mut progress = Progress::new(images);
    let summary =
        power_loss::run_all(first, images, &mut |done, failed| progress.show(done, failed));
    for (seed, what) in &summary.violations {
        writeln!(std::io::stderr(), "seed {seed}: {what}")?;
    }
    writeln!(std::io::stdout(), "{:#}", summary.to_json())?;
    Ok(code(summary.is_good()))
}

fn run_process_faults(flags: Processes) -> std::io::Result<ExitCode> {
    let binary = match find_binary(flags.binary) {
        Ok(binary) => binary,
        Err(HarnessError(what)) => {
            writeln!(std::io::stderr(), "{what}")?;
            return Ok(ExitCode::from(2));
        }
    };
    let counts = Counts {
        embedded: flags.embedded,
        kill_one: flags.one,
        kill_all: flags.all,
        pause: flags.pauses,
        cut_off: flags.cuts,
        wipe: flags.wipes,
        damage: flags.damages,
        moves: flags.moves,
    };
    let settings = rounds::Settings { binary, folder: flags.folder, seed: flags.seed, counts };
    let Counts { embedded, kill_one, kill_all, pause, cut_off, wipe, damage, moves } = counts;
    let total = embedded + kill_one + kill_all + pause + cut_off + wipe + damage + moves;
    let progress = RefCell::new((0, Progress::new(total as u64)));
    let step = || {
        let (done, progress) = &mut *progress.borrow_mut();
        *done += 1;
        progress.show(*done, 0);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(rounds::run(&settings, &step)) {
        Ok(summary) => {
            for violation in &summary.violations {
                writeln!(std::io::stderr(), "{violation}")?;
            }
            writeln!(std::io::stdout(), "{:#}", summary.to_json())?;
            Ok(code(summary.violations.is_empty()))
        }
        Err(HarnessError(what)) => {
            writeln!(std::io::stderr(), "{what}")?;
            Ok(ExitCode::from(1))
        }
    }
}

#[cfg(feature = "mutations")]
fn run_mutations(seconds: u64, markdown: bool, chosen: &[Mutation]) -> std::io::Result<ExitCode> {
    let progress = |finding: &crate::mutations::MutationResult| {
        // An error while showing progress must not stop the work.
        let _ = writeln!(std::io::stderr(), "{}", finding.to_row());
    };
    let findings = crate::mutations::find_all(chosen, seconds, &progress);
    let mut output = std::io::stdout().lock();
    if markdown {
        writeln!(output, "| fault | seed | world | found by |\n|---|---|---|---|")?;
        for finding in &findings {
            writeln!(output, "{}", finding.to_row())?;
        }
    } else {
        let rows: Vec<_> = findings.iter().map(crate::mutations::MutationResult::to_json).collect();
        writeln!(output, "{:#}", serde_json::Value::Array(rows))?;
    }
    Ok(code(findings.iter().all(|finding| finding.found.is_some())))
}

#[cfg(not(feature = "mutations"))]
fn run_mutations(_: u64, _: bool, _: &[Mutation]) -> std::io::Result<ExitCode> {
    writeln!(
        std::io::stderr(),
        "this binary was built without deliberate faults; use: cargo run -p simulation --features mutations -- mutations"
    )?;
    Ok(ExitCode::from(2))
}
