//! The command line of `weir`: its commands and the flags that they share.
//!
//! Data goes to standard output, everything else to standard error. Exit codes are in `exit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use platform::descriptors::Descriptors;
use tracing_subscriber::EnvFilter;

use crate::check::{self, CheckArguments};
use crate::clock::{self, ClockArguments, TtlArguments};
use crate::console::{self, ConsoleArguments};
use crate::copy::{self, CopyArguments};
use crate::data_model::{self, ModelArguments};
use crate::demo::{self, DemoArguments};
use crate::doctor::{self, DoctorArguments};
use crate::init::{self, InitArguments};
use crate::invoke::{self, InvokeArguments};
use crate::local_workers::OnLocalRuntime;
use crate::logs::{self, LogsArguments};
use crate::mcp::{self, McpArguments};
use crate::partitions::{self, PartitionsArguments};
use crate::status::{self, StatusArguments};
use crate::streams::{self, StreamsArguments};
use crate::unused_options;
use crate::up::{self, UpArguments};
use client::endpoint;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::interruption;
use client::keys;
use client::output::{self, Output, say, show};
use client::running::RunningState;
use load::LoadArguments;
use operations::archive::{self, ArchiveArguments};
use operations::counters::{self, CountersArguments};
use operations::editions::{self, EditionsArguments};
use operations::fan_out::{self, FanOutArguments};
use operations::migrate::{self, MigrateArguments};
use operations::versions::{self, VersionsArguments};
use template::{Context, Diagnostics, Stack};

/// The default names of the template, in SAM's order. The first existing file is used.
const TEMPLATES: [&str; 3] = ["template.yaml", "template.yml", "template.json"];

/// Runs DynamoDB stream functions on this machine as AWS runs them.
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    after_help = "Examples:\n  weir init --help          write a small project for your table\n  weir demo                 run and verify all pipelines, in under a minute\n  weir check                find errors and probable mistakes in template.yaml\n  weir up                   run template.yaml and keep it running\n  weir load --help          load files into a table\n  weir streams explain --last   why a function ran or did not\n  weir clock advance 26h    advance time by a day and two hours\n\nExit codes: 0 done, 1 failed, 2 wrong flags, 3 done with differences, 4 refused, 5 timed out, 130 Ctrl-C, 143 SIGTERM"
)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    /// The SAM template [default: template.yaml, template.yml or template.json]
    #[arg(long, global = true, value_name = "FILE", env = "WEIR_TEMPLATE")]
    template: Option<PathBuf>,
    /// A template parameter: NAME=VALUE
    #[arg(
        long = "parameter",
        global = true,
        value_name = "NAME=VALUE",
        value_parser = parse_parameter
    )]
    parameters: Vec<(String, String)>,
    /// Format of data on standard output
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run all pipelines once on generated data and verify the results
    Demo(DemoArguments),
    /// Write a small project: a template for one pipeline of Weir, or for your own function
    Init(Box<InitArguments>),
    /// Run the template until Ctrl-C; its data persists across restarts
    Up(UpArguments),
    /// Check the template for errors and probable mistakes
    Check(CheckArguments),
    /// Check a data model: run its access patterns, find mistakes, compute its cost
    Model(ModelArguments),
    /// Load a CSV or JSON file into a table
    Load(LoadArguments),
    /// Copy all tables to another endpoint while clients write to them
    Copy(CopyArguments),
    /// Inspect streams and explain what happened to each record
    Streams(StreamsArguments),
    /// Show, freeze or advance the store's clock
    Clock(ClockArguments),
    /// Delete expired items
    Ttl(TtlArguments),
    /// Show the partitions and hot keys of a table, and split a partition
    Partitions(PartitionsArguments),
    /// Invoke a function once
    Invoke(InvokeArguments),
    /// Show the log of a function
    Logs(LogsArguments),
    /// Show the progress of each mapping
    Status(StatusArguments),
    /// Serve web pages about the tables, streams and mappings of a store
    Console(ConsoleArguments),
    /// Serve the console's pages to an assistant, by the Model Context Protocol
    Mcp(McpArguments),
    /// Read, verify, restore, compact and erase archived items
    Archive(Box<ArchiveArguments>),
    /// Read a counter, fold its slots, cast and recount votes
    Counters(CountersArguments),
    /// Read, compare and restore versions of an item; create and verify histories
    Versions(VersionsArguments),
    /// Restructure tables while clients write to them
    Migrate(Box<MigrateArguments>),
    /// Prepare versions of many items, publish them with one write, roll back
    Editions(EditionsArguments),
    /// Check the copy rules, show jobs, repair copies
    FanOut(FanOutArguments),
    /// Check the prerequisites of weir on this machine
    Doctor(DoctorArguments),
    /// Write shell completions to standard output
    #[command(
        after_help = "Examples:\n  weir completions bash > ~/.local/share/bash-completion/completions/weir\n  weir completions zsh\n  weir completions fish"
    )]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

impl Verb {
    /// Returns the value of the command's endpoint flag, for commands that use the running
    /// template.
    fn endpoint(&self) -> Option<&str> {
        match self {
            Self::Counters(arguments) => arguments.endpoint.as_deref(),
            Self::Load(arguments) => arguments.endpoint.as_deref(),
            Self::FanOut(arguments) => arguments.endpoint(),
            _ => None,
        }
    }

    /// Returns the template that the command's own argument names.
    fn template(&self) -> Option<&PathBuf> {
        match self {
            Self::Check(arguments) => arguments.file.as_ref(),
            _ => None,
        }
    }
}

/// Runs the command line and returns the exit code.
pub async fn run() -> ExitCode {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| {
        // The warnings about missing keys are hidden, because the error that ends the command has
        // the reason.
        EnvFilter::new(
            "info,aws=warn,aws_config::meta::credentials=error,hyper=warn,openraft=error,rmcp=warn,s3s=warn",
        )
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .without_time()
        .init();
    platform::private_files::begin();
    if let Err(error) = Descriptors::prepare() {
        show_error(&error.to_string());
        return ExitCode::FAILURE;
    }
    let matches = examples_first(CommandLine::command()).get_matches();
    let line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Err(error) = check_together(&line) {
        CommandLine::command().error(ErrorKind::ArgumentConflict, error).exit();
    }
    unused_options::report(&verb_of(&matches), &matches);
    let nature = interruption::signal_reaction(&verb_of(&matches));
    match interruption::or_end(nature, carry_out(line)).await {
        // Exits without waiting for threads that are blocked reading a file or standard input.
        Ok(Exit::Interrupted(signal)) => std::process::exit(i32::from(signal.exit_code())),
        Ok(exit) => exit.into(),
        Err(failure) => {
            match &failure {
                Failure::Refused(why) => say(why),
                failure => show_error(&failure.to_string()),
            }
            failure.exit().into()
        }
    }
}

/// Returns the parser of the command line, for tests of its options.
#[cfg(test)]
pub(crate) fn parser() -> clap::Command {
    CommandLine::command()
}

/// Returns the words of a command, such as `archive restore`.
pub(crate) fn verb_of(matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    let mut within = matches;
    while let Some((word, inner)) = within.subcommand() {
        words.push(word);
        within = inner;
    }
    words.join(" ")
}

/// Validates combinations of flags, and the environment variables that `weir` reads.
fn check_together(line: &CommandLine) -> Result<()> {
    keys::check_environment()?;
    match &line.verb {
        Verb::Up(arguments) => arguments.check_together(),
        Verb::Streams(arguments) => arguments.check_together(),
        Verb::Check(arguments) => check_named_once(arguments, line.template.as_deref()),
        _ => Ok(()),
    }
}

/// Refuses a template that is named both by an argument and by `--template`. An argument has
/// priority over the environment.
fn check_named_once(arguments: &CheckArguments, template: Option<&Path>) -> Result<()> {
    let of_environment = std::env::var_os("WEIR_TEMPLATE");
    let of_flag = template.filter(|path| Some(path.as_os_str()) != of_environment.as_deref());
    match arguments.file.is_some() && of_flag.is_some() {
        true => Err(fatal!("name the template once: as an argument, or with --template")),
        false => Ok(()),
    }
}

/// Places the examples before the flags in the help of every command, because most readers want to
/// copy an example.
fn examples_first(command: clap::Command) -> clap::Command {
    let own = match command.get_after_help() {
        Some(_) => command.help_template(
            "{before-help}{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n{all-args}",
        ),
        None => command,
    };
    own.mut_subcommands(examples_first)
}

async fn carry_out(line: CommandLine) -> Result<Exit> {
    let output = line.output;
    let template = line.verb.template().or(line.template.as_ref()).cloned();
    let template = template.or_else(|| template_in(Path::new(""))).ok_or_else(no_template);
    let folder = template.as_deref().map_or_else(|_| PathBuf::from("."), folder_of);
    let context = context(&line.parameters, &folder);
    let read =
        |context: &Context| parse_template(template.as_deref().map_err(String::clone)?, context);
    let stack_by =
        |context: &Context| read(context)?.map_err(|error| Failure::from(error.why_not_run()));
    // Uses the parameters of the `weir up` of this template. Other parameters would select other tables and
    // settings.
    let store = endpoint::named(line.verb.endpoint());
    let path = template.as_deref().ok();
    let of_running = || stack_by(&context_of_running(&context, path, store.as_deref()));
    // `counters` also works without a template, but a template named by `--template` must exist.
    let stack_if_there = || if template.is_err() { Ok(None) } else { of_running().map(Some) };
    match line.verb {
        Verb::Demo(arguments) => {
            // Without `--template`, the demonstration uses its own template: a template in this folder
            // may belong to a project without the demonstration's tables.
            let is_named = line.template.is_some();
            let stack = if is_named { stack_by(&context) } else { demo::own_stack(&context) };
            Box::pin(run_demo(&arguments, output, stack?, &folder, template.is_ok())).await
        }
        Verb::Init(arguments) => Box::pin(init::run(*arguments, output)).await,
        Verb::Up(arguments) => {
            let path = template.as_deref().map_err(String::clone)?;
            let template = up::Template { path, folder: &folder, parameters: &context.parameters };
            Box::pin(run_up(&arguments, &context, stack_by, &template)).await
        }
        Verb::Check(arguments) => Ok(check::run(&arguments, output, &read(&context)?)),
        Verb::Model(arguments) => Box::pin(data_model::run(&arguments, output)).await,
        Verb::Load(arguments) => Box::pin(load::run(arguments, output, stack_if_there)).await,
        Verb::Copy(arguments) => Box::pin(copy::run(&arguments, output)).await,
        Verb::Streams(arguments) => Box::pin(streams::run(&arguments, output)).await,
        Verb::Clock(arguments) => Box::pin(clock::run(&arguments, output)).await,
        Verb::Ttl(arguments) => Box::pin(clock::run_ttl(&arguments, output)).await,
        Verb::Partitions(arguments) => Box::pin(partitions::run(&arguments, output)).await,
        Verb::Invoke(arguments) => Box::pin(invoke::run(&arguments)).await,
        Verb::Logs(arguments) => Box::pin(logs::run(&arguments, output)).await,
        Verb::Status(arguments) => status::run(&arguments, output),
        Verb::Console(arguments) => Box::pin(console::run(&arguments)).await,
        Verb::Mcp(arguments) => Box::pin(mcp::run(&arguments)).await,
        Verb::Archive(arguments) => {
            let mut writer = std::io::BufWriter::new(std::io::stdout());
            Box::pin(archive::run(*arguments, output, &mut writer)).await
        }
        Verb::Counters(arguments) => {
            Box::pin(counters::run(arguments, output, stack_if_there)).await
        }
        Verb::Versions(arguments) => Box::pin(versions::run(arguments, output)).await,
        Verb::Migrate(arguments) => {
            Box::pin(migrate::run(*arguments, output, &OnLocalRuntime)).await
        }
        Verb::Editions(arguments) => Box::pin(editions::run(arguments, output)).await,
        Verb::FanOut(arguments) => Box::pin(fan_out::run(arguments, output, of_running)).await,
        Verb::Doctor(arguments) => {
            Ok(Box::pin(doctor::run(&arguments, output, of_running(), &folder)).await)
        }
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "weir", &mut script);
            show(&String::from_utf8_lossy(&script));
            Ok(Exit::Done)
        }
    }
}

async fn run_demo(
    arguments: &DemoArguments,
    output: Output,
    stack: Stack,
    folder: &Path,
    has_template: bool,
) -> Result<Exit> {
    show(&demo::run(arguments, output, stack, folder).await?);
    output::next(&[
        match has_template {
            true => ("weir up", "run the template until Ctrl-C; any AWS SDK can use it"),
            false => ("weir init --help", "write a small project for a table of yours"),
        },
        ("weir load --help", "load CSV or JSON files"),
        (
            "weir streams explain --last --directory .weir/demo",
            "explain what happened to the newest record",
        ),
    ]);
    Ok(Exit::Done)
}

async fn run_up(
    arguments: &UpArguments,
    context: &Context,
    stack_by: impl Fn(&Context) -> Result<Stack>,
    template: &up::Template<'_>,
) -> Result<Exit> {
    let mut context = context.clone();
    context.region = arguments.chosen_region().unwrap_or(context.region);
    context.invoked_elsewhere = arguments.invoke_url.is_some();
    up::run(arguments, stack_by(&context)?, template).await?;
    Ok(Exit::Done)
}

/// Returns the context for a command about a running system. It has the parameters of the command
/// line, otherwise the parameters of the `weir up` of this folder and template.
fn context_of_running(context: &Context, template: Option<&Path>, store: Option<&str>) -> Context {
    let parameters = match (RunningState::here(), template) {
        (RunningState::Running(running), Some(template)) if context.parameters.is_empty() => {
            running.parameters_for(template, store)
        }
        _ => context.parameters.clone(),
    };
    Context { parameters, ..context.clone() }
}

/// Returns the folder to which the relative paths of a template refer.
fn folder_of(template: &Path) -> PathBuf {
    match template.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns the template of a folder, under the first name of `TEMPLATES` that exists.
fn template_in(folder: &Path) -> Option<PathBuf> {
    TEMPLATES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

fn no_template() -> String {
    let [first, second, third] = TEMPLATES;
    format!(
        "cannot find a template: this folder has no `{first}`, `{second}` or `{third}`\n  = help: run \
         weir in the folder of the template, or name it with --template FILE"
    )
}

/// Parses a template parameter into its name and value.
fn parse_parameter(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(fatal!("write NAME=VALUE, for example TablePrefix=dev-")),
    }
}

/// Returns the context of a template: its parameters and its folder.
fn context(parameters: &[(String, String)], folder: &Path) -> Context {
    let parameters = parameters.iter().cloned().collect();
    Context { parameters, folder: Some(folder.to_owned()), ..Context::default() }
}

/// Reads and parses the template. The outer error means that the file cannot be read.
fn parse_template(template: &Path, context: &Context) -> Result<Result<Stack, Diagnostics>> {
    let name = template.display().to_string();
    let bytes = std::fs::read(template).map_err(|error| {
        fatal!("cannot read `{name}`: {error}\n  = help: name the template with --template FILE")
    })?;
    Ok(template::read_bytes(&name, &bytes, context))
}

fn show_error(text: &str) {
    if text.starts_with("error") {
        say(text);
    } else {
        say(&format!("error: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs clap's own check of all definitions: names, conflicts, defaults.
    #[test]
    fn the_flags_are_sound() {
        CommandLine::command().debug_assert();
    }

    /// Splits a command line of a document or a help text into words, without quotes, comments and
    /// redirections.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
        let mut in_variable = false;
        for letter in line.chars() {
            match (letter, quote) {
                (letter, Some(open)) if letter == open => quote = None,
                (letter, Some(_)) => word.push(letter),
                ('\'' | '"', None) => (quote, begun) = (Some(letter), true),
                ('#' | '>' | '|', None) if word.is_empty() && !begun => return words,
                // A variable of the shell, such as a process id, becomes a number.
                ('$', None) => {
                    word.push('1');
                    begun = true;
                    in_variable = true;
                }
                (letter, None) if in_variable && !letter.is_whitespace() => {}
                (letter, None) if letter.is_whitespace() => {
                    in_variable = false;
                    if begun || !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                    begun = false;
                }
                (letter, None) => word.push(letter),
            }
        }
        if begun || !word.is_empty() {
            words.push(word);
        }
        words
    }

    /// Checks that the flags of a documented command exist and have the right number of values. Returns the
    /// number of checked commands.
    fn check(line: &str, place: &str) -> usize {
        let mut count = 0;
        for part in line.split("&&") {
            // A command before a pipe into `weir` is not checked.
            let part = part.rsplit(" | weir ").next().map_or(part, |last| last);
            let part = part.trim();
            let part = match line.contains(" | weir ") {
                true => format!("weir {part}"),
                false => part.replacen("cargo run -- ", "weir ", 1),
            };
            // Capitals are placeholders. A process id must be a number.
            let words = words(&part.replace(" PID", " 1"));
            if words.first().map(String::as_str) != Some("weir") {
                continue;
            }
            count += 1;
            if let Err(error) = examples_first(CommandLine::command()).try_get_matches_from(&words)
            {
                let is_text =
                    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                assert!(is_text, "{place}: `{part}`: {error}");
            }
        }
        count
    }

    fn check_help(command: &clap::Command, path: &str, without: &mut Vec<String>) -> usize {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let help = help.replace("\\\n    ", "");
        let examples = help.strip_prefix("Examples:\n").unwrap_or_default();
        // Two or more spaces separate a command from its explanation.
        let lines = examples.lines().take_while(|line| !line.is_empty());
        let commands = lines.map(|line| line.trim().split("  ").next().unwrap_or_default());
        let mut count = commands.map(|line| check(line, path)).sum();
        if count == 0 && !command.has_subcommands() {
            without.push(path.to_owned());
        }
        for inner in command.get_subcommands() {
            count += check_help(inner, &format!("{path} {}", inner.get_name()), without);
        }
        count
    }

    #[test]
    fn every_example_in_the_help_is_a_valid_command() {
        let command = CommandLine::command();
        let mut without = Vec::new();
        assert!(check_help(&command, "weir", &mut without) >= 30);
        // Every command must have examples, or each of its actions must have examples.
        let lacking: Vec<_> = without.iter().filter(|path| path.split(' ').count() == 2).collect();
        assert!(lacking.is_empty(), "without examples: {lacking:?}");
    }

    fn verbs(command: &clap::Command, path: &str) -> Vec<String> {
        let inner: Vec<_> = command.get_subcommands().collect();
        if inner.is_empty() {
            return vec![path.to_owned()];
        }
        let path = |name: &str| format!("{path} {name}").trim_start().to_owned();
        inner.iter().flat_map(|inner| verbs(inner, &path(inner.get_name()))).collect()
    }

    #[test]
    fn every_verb_has_a_signal_behaviour() {
        let mut listed: Vec<&str> = interruption::NATURES.iter().map(|(verb, _)| *verb).collect();
        let mut all = verbs(&CommandLine::command(), "");
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
        let flags = ["weir", "archive", "compact", "--table", "t"];
        let matches = CommandLine::command().try_get_matches_from(flags).unwrap();
        assert_eq!(verb_of(&matches), "archive compact");
    }

    #[test]
    fn a_template_is_found_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(template_in(folder.path()), None);
        for name in ["template.json", "template.yml", "template.yaml"] {
            std::fs::write(folder.path().join(name), "Resources: {}").unwrap();
            assert_eq!(template_in(folder.path()), Some(folder.path().join(name)));
        }
        assert!(TEMPLATES.iter().all(|name| no_template().contains(name)));
    }

    #[test]
    fn help_shows_the_examples_before_the_flags() {
        let mut command = examples_first(CommandLine::command());
        let up = command.find_subcommand_mut("up").unwrap().render_long_help().to_string();
        assert!(up.find("Examples:").unwrap() < up.find("Options:").unwrap(), "{up}");
    }

    #[test]
    fn every_command_in_the_documents_is_valid() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut pages = vec![root.join("README.md")];
        let mut folders = vec![root.join("docs"), root.join("runner/init")];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let (below, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
            folders.extend(below);
            pages.extend(
                files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "md")),
            );
        }
        let mut count = 0;
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            // Every second part between code fences is a code block. A backslash continues a line.
            for block in text.split("```").skip(1).step_by(2) {
                let block = block.replace("\\\n", " ");
                for line in block.lines().skip(1) {
                    count += check(line.trim_start_matches("$ "), &page.display().to_string());
                }
            }
        }
        assert!(count >= 8, "only {count} commands found");
    }
}
