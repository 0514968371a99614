//! `weir demo`: runs all pipelines once on generated data and verifies their results.
//!
//! It uses the real store, streams, function binaries and S3 endpoint. Each batch is delivered twice and
//! function processes are killed, because both can happen on AWS. It empties its own folder first and
//! writes nowhere else. The template is part of the program.

mod archive_check;
mod copies;
mod edits;
mod films;
mod generator;
mod orders;
mod votes;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use server::gate::AllowList;

use client::failure::{Context as _, Result, fatal};
use client::interruption;
use client::output::{Output, show};
use local::system::{Options, System};
use template::{Context, Stack};

/// Arguments of `weir demo`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir demo\n  weir demo --votes 2000 --films 500\n  weir demo --output json"
)]
pub struct DemoArguments {
    /// Number of votes to cast
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub votes: u64,
    /// Number of films to write; four in ten of them expire
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub films: u64,
    /// Number of edits of films; each becomes a version
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub edits: u64,
    /// Number of order lines, each with a copy of its product's name
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(600..=1_000_000))]
    pub lines: u64,
    /// Number of orders to migrate while they are written to
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub orders: u64,
    /// Data folder of the demonstration; `weir demo` empties it first
    #[arg(long, value_name = "DIRECTORY", default_value = ".weir/demo")]
    pub directory: PathBuf,
}

/// The template of this project, so that an installed `weir` needs no checkout.
const TEMPLATE: &str = include_str!("../../../template.yaml");

/// Returns the stack that the demonstration runs without `--template`.
///
/// # Errors
/// The parameters are invalid.
pub fn own_stack(context: &Context) -> Result<Stack> {
    template::read("template.yaml", TEMPLATE, context).map_err(|error| error.why_not_run().into())
}

/// The file that marks a folder as the demonstration's own. Only a folder with this file may be emptied.
const MARK: &str = "weir-demo";

/// The progress: one changing line on standard error, and the lines of each part that has ended on standard
/// output.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether the lines are shown: a report in JSON is shown once, at the end.
    shows_lines: bool,
}

impl Progress {
    fn new(output: Output) -> Self {
        let bar = interruption::progress_bar(None, "   {spinner} {msg}", "");
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar, shows_lines: matches!(output, Output::Table) }
    }

    /// Shows the lines of a part that has ended.
    fn ended(&self, lines: &str) {
        if self.shows_lines {
            self.bar.suspend(|| show(lines));
        }
    }

    /// Shows that `done` of `all` steps are complete.
    pub(crate) fn step(&self, what: &str, done: u64, all: u64) {
        self.bar.set_message(format!("{what}: {done} of {all}"));
    }

    /// Replaces the text of the changing line on standard error.
    pub(crate) fn note(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }
}

/// Runs the demonstration and shows the report.
///
/// # Errors
/// A part cannot be started, or a result is wrong.
pub async fn run(
    arguments: &DemoArguments,
    output: Output,
    stack: Stack,
    template_folder: &Path,
) -> Result<String> {
    empty(&arguments.directory)?;
    let started = Instant::now();
    let options = Options {
        directory: arguments.directory.clone(),
        store_port: 0,
        object_store_port: 0,
        invoke_port: 0,
        duplicate_deliveries: true,
        chaos: None,
        template_folder: template_folder.to_owned(),
        aws: false,
        invoke_url: None,
        allow_list: AllowList::default(),
    };
    let system = System::start(stack, options).await?;
    let mut times = vec![("start", started.elapsed())];
    let progress = Progress::new(output);
    let outcome = all(&system, arguments, template_folder, &progress, &mut times).await;
    progress.bar.finish_and_clear();
    system.shutdown().await;
    let outcome = outcome?;
    Ok(match output {
        Output::Json | Output::Ndjson => json_report(&outcome, &times, started.elapsed()),
        Output::Table => end_text(&outcome.films, &times, &arguments.directory, started.elapsed()),
    })
}

/// The duration of each step, in order.
type Times = Vec<(&'static str, Duration)>;

/// The results of all parts of the demonstration.
struct Outcome {
    votes: votes::Outcome,
    films: films::Outcome,
    edits: edits::Outcome,
    copies: copies::Outcome,
    orders: orders::Outcome,
}

async fn all(
    system: &System,
    arguments: &DemoArguments,
    template_folder: &Path,
    progress: &Progress,
    times: &mut Times,
) -> Result<Outcome> {
    let mut last = Instant::now();
    let mut done =
        |step| times.push((step, std::mem::replace(&mut last, Instant::now()).elapsed()));
    let votes = votes::run(system, arguments.votes, progress).await?;
    progress.ended(&votes_text(&votes));
    done("counters");
    let films = films::run(system, arguments.films, progress).await?;
    progress.ended(&films_text(&films));
    done("archive");
    let edits = edits::run(system, arguments.edits, progress).await?;
    progress.ended(&edits_text(&edits));
    done("versions");
    let copies = copies::run(system, arguments.lines, progress).await?;
    progress.ended(&copies_text(&copies));
    done("fan-out");
    let (count, directory) = (arguments.orders, &arguments.directory);
    let orders = orders::run(system, count, directory, template_folder, progress).await?;
    progress.ended(&orders_text(&orders));
    done("migration");
    Ok(Outcome { votes, films, edits, copies, orders })
}

/// Empties the demonstration's own folder. Refuses any other folder.
fn empty(directory: &Path) -> Result<()> {
    let doing = || format!("cannot use `{}`", directory.display());
    if directory.exists() {
        let ours = directory.join(MARK).exists();
        let is_empty = std::fs::read_dir(directory).context(doing)?.next().is_none();
        if !ours && !is_empty {
            return Err(fatal!(
                "`{}` is not empty, and no earlier demonstration created it: use a different --directory",
                directory.display()
            ));
        }
        std::fs::remove_dir_all(directory).context(doing)?;
    }
    std::fs::create_dir_all(directory).context(doing)?;
    std::fs::write(directory.join(MARK), "This folder is emptied by `weir demo`.\n").context(doing)
}

fn votes_text(votes: &votes::Outcome) -> String {
    format!(
        " [1/5] counters  {} votes in {} counters ({}/s), every batch delivered twice, {} function process killed, {} partitions split\n       \
         every total equals the generator's own count; sum {}, {:.1} s after the last vote\n",
        votes.votes,
        votes.counters,
        votes.votes_per_second,
        votes.kills,
        votes.splits,
        votes.sum,
        votes.lag.as_secs_f64(),
    )
}

fn films_text(films: &films::Outcome) -> String {
    format!(
        " [2/5] archive   {} films, clock +{} h: {} expired and are archived exactly once, {} deleted by hand are not\n       \
         {} Parquet files, {:.1} s after the clock was advanced, every `_item` equal to its film\n",
        films.films,
        films::HOURS,
        films.archived,
        films.deleted_by_hand,
        films.files,
        films.lag.as_secs_f64(),
    )
}

fn edits_text(edits: &edits::Outcome) -> String {
    format!(
        " [3/5] versions  {} edits of {} films, {} function process killed: one version per edit, no gap, in order\n       \
         {} versions of {} films checked, {:.1} s after the last edit; version 1 of a film restored\n",
        edits.edits,
        edits.films,
        edits.kills,
        edits.checked_versions,
        edits.checked_histories,
        edits.lag.as_secs_f64(),
    )
}

fn copies_text(copies: &copies::Outcome) -> String {
    format!(
        " [4/5] fan-out   {} renames of {} products while {} order lines are created, {} function process killed\n       \
         no line has an old name, {:.1} s after the last write\n",
        copies.renames,
        copies.products,
        copies.lines,
        copies.kills,
        copies.lag.as_secs_f64(),
    )
}

fn orders_text(orders: &orders::Outcome) -> String {
    format!(
        " [5/5] migration {} orders into {} items during {} changes, {} function process killed\n       \
         compared in both directions and with the generator's count: no difference, {:.1} s\n",
        orders.orders,
        orders.targets,
        orders.changes,
        orders.kills,
        orders.took.as_secs_f64(),
    )
}

/// Returns the last lines of the report: the times, and where the results are.
fn end_text(films: &films::Outcome, times: &Times, directory: &Path, took: Duration) -> String {
    let files = format!("{}/**/*.parquet", films.folder.join("table=movies").display());
    let steps = times.iter().map(|(step, took)| format!("{step} {:.1}", took.as_secs_f64()));
    format!(
        " ✔ all five pipelines verified in {:.1} s ({})\n\n \
         Written to {}: state/ (tables), s3/ (objects), logs/ (functions)\n \
         The archive, with any tool that reads Parquet:\n   \
         duckdb -c \"select year, title, info_rating, _deleted_at from read_parquet('{files}', hive_partitioning=true, union_by_name=true) limit 5\"\n",
        took.as_secs_f64(),
        steps.collect::<Vec<_>>().join(", "),
        directory.display()
    )
}

fn json_report(
    Outcome { votes, films, edits, copies, orders }: &Outcome,
    times: &Times,
    took: Duration,
) -> String {
    let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let report = serde_json::json!({
        "schema": "weir.demo/v1",
        "verified": true,
        "took_ms": millis(took),
        "steps_ms": times.iter().map(|(step, took)| ((*step).to_owned(), millis(*took).into())).collect::<serde_json::Map<_, _>>(),
        "counters": {
            "votes": votes.votes, "counters": votes.counters, "sum": votes.sum,
            "votes_per_second": votes.votes_per_second, "lag_ms": millis(votes.lag),
            "instances_killed": votes.kills, "partitions_split": votes.splits,
        },
        "archive": {
            "films": films.films, "archived": films.archived, "deleted_by_hand": films.deleted_by_hand,
            "files": films.files, "lag_ms": millis(films.lag), "folder": films.folder,
        },
        "versions": {
            "edits": edits.edits, "films": edits.films, "checked_versions": edits.checked_versions,
            "checked_histories": edits.checked_histories, "lag_ms": millis(edits.lag),
            "instances_killed": edits.kills,
        },
        "fan_out": {
            "renames": copies.renames, "products": copies.products, "lines": copies.lines,
            "stale": 0, "lag_ms": millis(copies.lag), "instances_killed": copies.kills,
        },
        "migration": {
            "orders": orders.orders, "targets": orders.targets, "changes": orders.changes,
            "differences": 0, "took_ms": millis(orders.took), "instances_killed": orders.kills,
        },
    });
    format!("{report}\n")
}
