//! The command line of `weir`: verbs, flags, exit codes.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed,
//! 2 the flags are wrong, 3 done but some lines were put aside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::demo::{self, DemoArguments};
use crate::endpoint;
use crate::load::{self, LoadArguments};
use crate::template::{Context, Stack};
use crate::up::{self, UpArguments};

/// Runs DynamoDB stream functions on this machine as AWS runs them.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    after_help = "Examples:\n  weir demo                 see everything work, in under a minute\n  weir up                   run template.yaml and keep it running\n  weir load --help          put real files into a table"
)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    /// The SAM template
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "template.yaml",
        env = "WEIR_TEMPLATE"
    )]
    template: PathBuf,
    /// Values for the template's parameters: NAME=VALUE
    #[arg(long = "parameter", global = true, value_name = "NAME=VALUE")]
    parameters: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the whole pipe once on generated data, verify it, and end
    Demo(DemoArguments),
    /// Run the template until Ctrl-C; the data is still there the next time
    Up(UpArguments),
    /// Load a CSV or JSON file into a table
    Load(Box<LoadArguments>),
}

/// How data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Some lines were put aside.
const EXIT_PUT_ASIDE: u8 = 3;

/// Runs what the command line asks for.
pub async fn run() -> ExitCode {
    let filter = EnvFilter::try_from_env("WEIR_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,aws=warn,hyper=warn,s3s=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .init();
    match carry_out(CommandLine::parse()).await {
        Ok(code) => code,
        Err(error) => {
            show_error(&error);
            ExitCode::FAILURE
        }
    }
}

async fn carry_out(line: CommandLine) -> Result<ExitCode, String> {
    match line.verb {
        Verb::Demo(arguments) => {
            let stack = read_stack(&line.template, &line.parameters)?;
            let report = demo::run(&arguments, stack, &folder_of(&line.template)).await?;
            show(&report);
            Ok(ExitCode::SUCCESS)
        }
        Verb::Up(arguments) => {
            let stack = read_stack(&line.template, &line.parameters)?;
            up::run(&arguments, stack, &folder_of(&line.template)).await?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Load(arguments) => {
            let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
            let now = endpoint::store_seconds(&endpoint).await;
            let table = arguments.table.clone();
            let aside = arguments.put_aside.clone();
            let report = load::load(*arguments, endpoint::client(&endpoint), now).await?;
            show(&format!(
                "{} loaded into {table}, {} put aside\n",
                report.loaded, report.put_aside
            ));
            if report.put_aside == 0 {
                return Ok(ExitCode::SUCCESS);
            }
            show_error(&format!(
                "lines were put aside, with their reasons, in {}",
                aside.display()
            ));
            Ok(ExitCode::from(EXIT_PUT_ASIDE))
        }
    }
}

/// The folder that relative paths of a template start from.
fn folder_of(template: &Path) -> PathBuf {
    match template.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Reads the template and shows what is to be known about it.
fn read_stack(template: &Path, parameters: &[String]) -> Result<Stack, String> {
    let name = template.display().to_string();
    let text = std::fs::read_to_string(template).map_err(|error| {
        format!("cannot read `{name}`: {error}\n  = help: run weir where template.yaml is, or name it with --template FILE")
    })?;
    let mut given = BTreeMap::new();
    for parameter in parameters {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| format!("--parameter `{parameter}` is not NAME=VALUE"))?;
        given.insert(name.to_owned(), value.to_owned());
    }
    let context = Context { parameters: given, ..Context::default() };
    crate::template::read(&name, &text, &context).map_err(|error| error.to_string())
}

#[expect(
    clippy::print_stdout,
    reason = "this is the one place that writes data to standard output"
)]
fn show(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "this is the one place that writes the final error")]
fn show_error(text: &str) {
    if text.starts_with("error") {
        eprintln!("{text}");
    } else {
        eprintln!("error: {text}");
    }
}
