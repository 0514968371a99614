//! `weir up`: runs the template on persistent data until Ctrl-C.
//!
//! `system` runs the template; this module starts and stops the system.

mod console;
mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use platform::standard_input;
use server::gate::AllowList;
use server::traffic::Throughput;

use ::console::Console;
use client::failure::{Context, Failure, Result, fatal};
use client::interruption;
use client::output;
use client::running::{RUNNING_FILE, RunningState};
use local::status::StatusFile;
use local::system::{Options, System};
use template::{Code, Function, Stack};

/// Default port of the Invoke API.
pub(crate) const INVOKE_PORT: u16 = 9001;

/// Default port of the store.
const STORE_PORT: u16 = 8000;

/// Arguments of `weir up`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir up\n  weir up --port 8001 --s3-port 9091 --directory .weir/other\n  weir up --chaos 42\n  weir up --store aws --region eu-west-1                # functions on this machine, tables on AWS\n  weir up --invoke-url http://127.0.0.1:9000            # functions run by cargo lambda watch"
)]
pub struct UpArguments {
    /// Port of the local store; 0 for a free port [default: 8000]
    #[arg(long)]
    pub port: Option<u16>,
    /// Port of the S3 endpoint; 0 for a free port
    #[arg(long, default_value_t = 9090)]
    pub s3_port: u16,
    /// Port of Lambda's Invoke API; 0 for a free port [default: 9001, or a free port with --port 0]
    #[arg(long)]
    pub invoke_port: Option<u16>,
    /// Port of the console, the web pages about tables, streams and mappings; 0 for a free port
    /// [default: 9002, or a free port if 9002 is in use]
    #[arg(long)]
    pub console_port: Option<u16>,
    /// Let the console change tables with --store aws; with the local store, it is always allowed
    #[arg(long)]
    pub allow_writes: bool,
    /// Folder for the data of the store, the functions and the mappings
    #[arg(long, value_name = "DIRECTORY", default_value = ".weir/up")]
    pub directory: PathBuf,
    /// Deliver each successful batch a second time, as Lambda may do
    #[arg(long)]
    pub duplicate_deliveries: bool,
    /// Inject faults with this seed around every mapping: duplicates, delayed and split batches,
    /// crashes before the checkpoint, expired iterators, slow and throttled functions
    #[arg(long, value_name = "SEED")]
    pub chaos: Option<u64>,
    /// The store: the local store, or the deployed tables in DynamoDB
    #[arg(long, value_enum, default_value_t = StoreChoice::Local)]
    pub store: StoreChoice,
    /// Region of ARNs and of DynamoDB [default: AWS_REGION with --store aws, us-east-1]
    #[arg(long)]
    pub region: Option<String>,
    /// Handling of requests that exceed a table's throughput by the local store: count them, or throttle
    /// them as DynamoDB does [default: count]
    #[arg(long, value_enum)]
    pub throughput: Option<Throughput>,
    /// Send invocations to this address, such as `cargo lambda watch`, instead of starting the
    /// functions
    #[arg(long, value_name = "URL", value_parser = invoke_address)]
    pub invoke_url: Option<String>,
    /// Accept requests for this host in addition to localhost, at every endpoint; repeatable
    #[arg(long, value_name = "NAME")]
    pub allow_host: Vec<String>,
    /// Accept requests from web pages of this origin, such as http://localhost:3000, at every endpoint;
    /// repeatable
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,
    /// Stop when standard input ends, which happens when the parent process has ended
    #[arg(long)]
    pub end_with_stdin: bool,
}

impl UpArguments {
    /// Returns the Region that the user chose. With a local store it ignores `AWS_REGION`. The
    /// tables of a local store belong to one Region, and this variable is set for other tools.
    pub(crate) fn chosen_region(&self) -> Option<String> {
        let from_environment = || match self.store {
            StoreChoice::Aws => std::env::var("AWS_REGION").ok(),
            StoreChoice::Local => None,
        };
        self.region.clone().or_else(from_environment)
    }

    /// Returns the hosts and origins that the endpoints accept.
    fn allowed(&self) -> Result<AllowList> {
        AllowList::new(&self.allow_host, &self.allow_origin).map_err(Failure::fatal)
    }

    fn invoke_port(&self) -> u16 {
        self.invoke_port.unwrap_or(if self.port == Some(0) { 0 } else { INVOKE_PORT })
    }

    /// Returns the console's port; `None` if the user did not choose it.
    fn console_port(&self) -> Option<u16> {
        self.console_port.or((self.port == Some(0)).then_some(0))
    }

    fn store_port(&self) -> u16 {
        self.port.unwrap_or(STORE_PORT)
    }

    /// Validates combinations of flags that are valid individually.
    ///
    /// # Errors
    /// The combination is invalid. The error names the flags and the correction.
    pub(crate) fn check_together(&self) -> Result<()> {
        self.check_store_is_here()?;
        self.check_ports_differ()?;
        self.allowed().map(drop)
    }

    /// Refuses flags of the local store with `--store aws`.
    fn check_store_is_here(&self) -> Result<()> {
        let of_local =
            [("--port", self.port.is_some()), ("--throughput", self.throughput.is_some())];
        let flag = of_local.iter().find(|(_, said)| *said && self.store == StoreChoice::Aws);
        match flag {
            Some((flag, _)) => Err(fatal!(
                "{flag} configures the local store, which --store aws does not start: remove one of the two flags"
            )),
            None => Ok(()),
        }
    }

    /// Refuses equal ports, because the error of the second bind would wrongly blame another
    /// process.
    fn check_ports_differ(&self) -> Result<()> {
        let store = match self.store {
            StoreChoice::Aws => 0,
            StoreChoice::Local => self.store_port(),
        };
        let ports = [
            ("--port", store),
            ("--s3-port", self.s3_port),
            ("--invoke-port", self.invoke_port()),
            ("--console-port", self.console_port().unwrap_or(0)),
        ];
        for (at, (flag, port)) in ports.iter().enumerate() {
            let earlier = ports.iter().take(at).find(|(_, other)| other == port);
            if let (Some((other, _)), 1..) = (earlier, port) {
                return Err(fatal!(
                    "{other} and {flag} are both {port}: set different ports, or 0 for a free port"
                ));
            }
        }
        Ok(())
    }
}

/// Parses the address of the other program that runs the functions: a host and optionally a port. Lambda's
/// API determines the path.
fn invoke_address(text: &str) -> Result<String> {
    let fault =
        |what: &str| Err(fatal!("{what}: write http://HOST:PORT, such as http://127.0.0.1:9000"));
    let Ok(uri) = text.parse::<http::Uri>() else { return fault("it is not a valid URL") };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return fault("https is not supported"),
        _ => return fault("it does not begin with http://"),
    }
    let Some(authority) = uri.authority() else { return fault("it has no host") };
    // In an IPv6 address in brackets, the last colon may be part of the host.
    let behind_host = authority.as_str().rsplit_once(authority.host()).map_or("", |parts| parts.1);
    if authority.host().is_empty() || authority.as_str().contains('@') {
        return fault("it has no host");
    }
    if !behind_host.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return fault("it has no port after the colon");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return fault("it has a path, but Lambda's API determines the path");
    }
    Ok(text.to_owned())
}

/// The store on which a template runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreChoice {
    /// The local store, with its own clock
    #[default]
    Local,
    /// DynamoDB, with the credentials of the environment; functions write to real tables
    Aws,
}

/// The template to run: its file and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Template<'a> {
    /// The path of the template.
    pub path: &'a Path,
    /// The folder of the file.
    pub folder: &'a Path,
    /// The parameters that differ from their defaults.
    pub parameters: &'a BTreeMap<String, String>,
}

/// Runs until SIGINT or SIGTERM.
///
/// # Errors
/// A part of the system cannot be started. The error contains the fix.
pub async fn run(arguments: &UpArguments, stack: Stack, template: &Template<'_>) -> Result<()> {
    let options = Options {
        directory: arguments.directory.clone(),
        store_port: arguments.store_port(),
        object_store_port: arguments.s3_port,
        invoke_port: arguments.invoke_port(),
        duplicate_deliveries: arguments.duplicate_deliveries,
        chaos: arguments.chaos,
        template_folder: template.folder.to_owned(),
        aws: arguments.store == StoreChoice::Aws,
        invoke_url: arguments.invoke_url.clone(),
        allow_list: arguments.allowed()?,
    };
    refuse_beside_another()?;
    for (option, why) in unused_options(arguments, &stack) {
        output::no_effect(option, why);
    }
    keep_from_watchers(Path::new(RUNNING_FILE))?;
    let console_port = console::take_port(arguments.console_port()).await?;
    // After this call, Ctrl-C shuts the system down in an orderly way, even while functions are
    // being compiled.
    let mut interrupted = tokio::spawn(end(arguments.end_with_stdin));
    let system = tokio::select! {
        started = System::start(stack, options) => started?,
        _ = &mut interrupted => return Err(fatal!("interrupted during startup")),
    };
    if let Ok(store) = system.store() {
        store.traffic().set_throughput(arguments.throughput.unwrap_or(Throughput::Count));
    }
    let status = StatusFile::create(&system, &arguments.directory).await;
    let mut running = published::of(&system, arguments, template);
    // Another `weir up` may have started while functions were compiled.
    let written = refuse_beside_another()
        .and_then(|()| console::start(console_port, arguments, &system, &mut running))
        .and_then(|console| published::write(&running).map(|()| console))
        .and_then(|console| {
            write_environments(&system, arguments, template.folder).map(|()| console)
        });
    let console = match written {
        Ok(console) => console,
        Err(error) => {
            system.shutdown().await;
            return Err(error);
        }
    };
    say_how_to_reach(&system, arguments);
    output::next(next_commands(arguments.store));
    tokio::select! {
        _ = &mut interrupted => {}
        () = status.keep() => {}
    }
    tracing::info!(
        "waiting for running invocations before shutdown; press Ctrl-C again to stop immediately"
    );
    let again = tokio::spawn(interruption::requested());
    let ended = tokio::select! {
        () = shut_down(console, system) => Ok(()),
        // The next start delivers unfinished batches again, as after a crash.
        _ = again => Err(fatal!("interrupted during invocations; the next start delivers their batches again")),
    };
    // The file may have been removed, or may belong to a different `weir up`.
    let own = std::process::id();
    if RunningState::here().last_published().is_some_and(|said| said.process == own) {
        let _ = std::fs::remove_file(RUNNING_FILE);
    }
    ended
}

/// Shuts down the console, then the system that it shows.
async fn shut_down(console: Console, system: System) {
    console.shutdown().await;
    system.shutdown().await;
}

/// Returns each option that has no effect on a template, and why.
fn unused_options(arguments: &UpArguments, stack: &Stack) -> Vec<(&'static str, &'static str)> {
    let has_mapping = stack.mappings.iter().any(|mapping| mapping.enabled);
    let no_mapping = "the template has no event source mapping that is enabled";
    let no_function = "the template has no function that runs here";
    let options = [
        ("--duplicate-deliveries", arguments.duplicate_deliveries && !has_mapping, no_mapping),
        ("--chaos", arguments.chaos.is_some() && !has_mapping, no_mapping),
        ("--invoke-url", arguments.invoke_url.is_some() && stack.functions.is_empty(), no_function),
        (
            "--allow-writes",
            arguments.allow_writes && arguments.store == StoreChoice::Local,
            "the console can always write to the local store",
        ),
    ];
    let unused = options.into_iter().filter(|(_, is_unused, _)| *is_unused);
    unused.map(|(option, _, why)| (option, why)).collect()
}

/// Returns commands that the user may need next. Only the local store has a clock to advance.
fn next_commands(store: StoreChoice) -> &'static [(&'static str, &'static str)] {
    const COMMANDS: [(&str, &str); 3] = [
        ("weir streams explain --last", "why a function ran, or did not run"),
        ("weir status", "the progress of each mapping"),
        ("weir clock advance 26h", "advance time by a day and two hours"),
    ];
    let [on_any_store @ .., _] = &COMMANDS;
    match store {
        StoreChoice::Local => &COMMANDS,
        StoreChoice::Aws => on_any_store,
    }
}

/// Resolves on Ctrl-C or SIGTERM. If `with_stdin` is true, it also resolves at the end of standard input.
async fn end(with_stdin: bool) {
    tokio::select! {
        _ = interruption::requested() => {}
        () = standard_input::ended(), if with_stdin => {}
    }
}

/// Shows the environment variables that other tools need.
fn say_how_to_reach(system: &System, arguments: &UpArguments) {
    if let Some(url) = system.dynamodb_url().filter(|_| arguments.store == StoreChoice::Local) {
        tracing::info!("running until Ctrl-C. In another terminal:");
        tracing::info!(
            "  export AWS_ENDPOINT_URL_DYNAMODB={url} AWS_ENDPOINT_URL_S3={}",
            system.s3_url()
        );
        tracing::info!(
            "  export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_REGION={region} AWS_DEFAULT_REGION={region}",
            // The AWS command line and boto3 read only AWS_DEFAULT_REGION.
            region = system.stack().region
        );
    } else {
        tracing::info!("running until Ctrl-C");
    }
}

/// Refuses a second `weir up` in a folder, because other commands can find only one `weir up`
/// there.
fn refuse_beside_another() -> Result<()> {
    match RunningState::here() {
        RunningState::Running(other) => Err(fatal!(
            "`weir up` (process {}) is already running in this folder with data folder `{}`; stop it, or start this one in another folder with --template FILE",
            other.process,
            other.directory.display()
        )),
        RunningState::Ended(_) | RunningState::NotStarted => Ok(()),
    }
}

/// Makes git and `cargo lambda watch` ignore the data folder. Otherwise, `cargo lambda watch` would
/// compile again after each change of the data.
fn keep_from_watchers(running: &Path) -> Result<()> {
    let Some(folder) = running.parent() else { return Ok(()) };
    let ignore = folder.join(".gitignore");
    let write = || {
        platform::private_files::create_directory(folder)?;
        if ignore.exists() { Ok(()) } else { std::fs::write(&ignore, "*\n") }
    };
    let written: std::io::Result<()> = write();
    written.context(|| format!("cannot write `{}`", ignore.display()))
}

/// With `--invoke-url`, writes the environment variables of each function in the format of `cargo lambda
/// watch --env-file`.
fn write_environments(system: &System, arguments: &UpArguments, project: &Path) -> Result<()> {
    if arguments.invoke_url.is_none() {
        return Ok(());
    }
    let folder = arguments.directory.join("environment");
    let doing = || format!("cannot write `{}`", folder.display());
    std::fs::create_dir_all(&folder).context(doing)?;
    let of_cargo = |function: &&Function| matches!(function.code, Code::Binary(_));
    let of_cargo: BTreeSet<&str> =
        system.stack().functions.iter().filter(of_cargo).map(Function::invoked_as).collect();
    for (function, variables) in system.environments() {
        let lines = variables.iter().map(|(name, value)| format!("{name}={value}\n"));
        let path = folder.join(format!("{function}.env"));
        std::fs::write(&path, lines.collect::<String>()).context(doing)?;
        if of_cargo.contains(function.as_str()) {
            tracing::info!("invoke     cargo lambda watch --env-file {}", path.display());
        } else {
            tracing::info!(
                "invoke     {function}, with the environment variables in {}",
                path.display()
            );
        }
    }
    if !of_cargo.is_empty() && !ignores_data(project) {
        tracing::warn!(
            "invoke     a `cargo lambda watch` that was started before `weir up` rebuilds on every write below .weir: add /.weir to `{}`, or restart `cargo lambda watch`",
            project.join(".gitignore").display()
        );
    }
    Ok(())
}

/// Returns whether a file of the project makes watchers ignore `.weir`. A watcher reads ignore files
/// when it starts, so a running watcher does not see the file that `weir up` writes.
fn ignores_data(project: &Path) -> bool {
    [".gitignore", ".ignore"].iter().any(|name| {
        let text = std::fs::read_to_string(project.join(name)).unwrap_or_default();
        text.lines().any(|line| line.trim().trim_matches('/') == ".weir")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use template::{Context, read};

    #[test]
    fn the_address_of_invocations_is_validated() {
        for (text, wrong) in [
            ("http://127.0.0.1:9000", None),
            ("http://localhost:9000/", None),
            ("http://[::1]:9000", None),
            ("http://lambda.example", None),
            ("nonsense", Some("does not begin with http://")),
            ("", Some("it is not a valid URL")),
            ("127.0.0.1:9000", Some("does not begin with http://")),
            ("localhost:9000", Some("does not begin with http://")),
            ("https://127.0.0.1:9000", Some("https is not supported")),
            ("ftp://127.0.0.1", Some("does not begin with http://")),
            ("http://", Some("it is not a valid URL")),
            ("http://:9000", Some("no host")),
            ("http://127.0.0.1:", Some("no port")),
            ("http://127.0.0.1:0", Some("no port")),
            ("http://127.0.0.1:70000", Some("no")),
            ("http://127.0.0.1:9000/path", Some("has a path")),
            ("http://127.0.0.1:9000/?q", Some("has a path")),
        ] {
            match (invoke_address(text), wrong) {
                (Ok(taken), None) => assert_eq!(taken, text),
                (Err(said), Some(wrong)) => {
                    assert!(said.to_string().contains(wrong), "{text}: {said}");
                }
                (found, wrong) => panic!("{text}: {found:?} for {wrong:?}"),
            }
        }
    }

    #[test]
    fn an_option_without_effect_is_reported() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../template.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let whole = read("template.yaml", &text, &Context::default()).unwrap();
        let bare = Stack { mappings: Vec::new(), functions: Vec::new(), ..whole.clone() };
        let command = <UpArguments as Args>::augment_args(clap::Command::new("up"));
        let url = "http://localhost:9";
        let flags =
            ["up", "--chaos", "7", "--duplicate-deliveries", "--invoke-url", url, "--allow-writes"];
        let matches = command.try_get_matches_from(flags).unwrap();
        let arguments = <UpArguments as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
        let unused = |stack: &Stack| -> Vec<&str> {
            unused_options(&arguments, stack).into_iter().map(|(option, _)| option).collect()
        };
        assert_eq!(unused(&whole), ["--allow-writes"]);
        let all = ["--duplicate-deliveries", "--chaos", "--invoke-url", "--allow-writes"];
        assert_eq!(unused(&bare), all);
    }

    #[test]
    fn a_project_may_keep_its_data_from_watchers() {
        let project = tempfile::tempdir().unwrap();
        assert!(!ignores_data(project.path()));
        for (text, is_kept) in [
            ("/target\n", false),
            ("/target\n/.weir\n", true),
            (".weir/\n", true),
            ("#.weir", false),
        ] {
            std::fs::write(project.path().join(".gitignore"), text).unwrap();
            assert_eq!(ignores_data(project.path()), is_kept, "{text}");
        }
    }

    #[test]
    fn only_the_local_store_is_offered_a_clock() {
        let offers = |store| {
            next_commands(store).iter().any(|(command, _)| command.starts_with("weir clock"))
        };
        assert!(offers(StoreChoice::Local) && !offers(StoreChoice::Aws));
    }
}
