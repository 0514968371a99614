//! `weir logs`: shows the log of a function, or only the lines of one request id.
//!
//! It reads the log files of `weir up`, even if `weir up` is not running. The times in the logs are
//! from this machine's clock, which also measures the timeouts of functions. The store's clock may
//! differ.

mod rotated;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use self::rotated::RotatedLog;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Context, Result, fatal};
use client::output::{self, Output};
use client::running::{RunningState, match_function};

/// The interval at which `--follow` checks the file.
const PERIOD: Duration = Duration::from_millis(200);

/// Arguments of `weir logs`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir logs CountersFunction\n  weir logs archive --follow\n  weir logs archive --request 6c1f0d9c-7d8b-4b6e-9f5f-1f0d9c7d8b4b\n\nTimes are by this machine's clock, even after `weir clock advance`; stream records and expiry use the store's clock (`weir clock show`)"
)]
pub struct LogsArguments {
    /// The function's logical id or name; a trailing `Function` may be omitted
    pub function: String,
    /// Show new lines as they are written, until Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// Show only the lines of this request id
    #[arg(long, value_name = "ID")]
    pub request: Option<String>,
    /// The data folder of `weir up` [default: the folder of the running `weir up`, or .weir/up]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
}

/// Returns the data folder: the value of the flag, or the data folder of the `weir up` of this folder,
/// even if that process was killed.
pub(crate) fn data_folder(flag: Option<&Path>) -> PathBuf {
    flag.map_or_else(
        || {
            let running = RunningState::here()
                .last_published()
                .map(|said| said.directory)
                .unwrap_or_default();
            if running.as_os_str().is_empty() { PathBuf::from(".weir/up") } else { running }
        },
        Path::to_owned,
    )
}

/// Shows the lines. JSON output splits each line into its parts.
///
/// # Errors
/// The log does not exist, or a single JSON document would never end.
pub async fn run(arguments: &LogsArguments, output: Output) -> Result<Exit> {
    if arguments.follow && output == Output::Json {
        return Err(fatal!(
            "--follow never ends, so its output cannot be one JSON document: use --output ndjson"
        ));
    }
    let directory = data_folder(arguments.directory.as_deref());
    let (folder, look) = (directory.join("logs"), RunningState::of_data(&directory));
    let store = match &look {
        RunningState::Running(running) => running.dynamodb.clone(),
        RunningState::NotStarted | RunningState::Ended(_) => String::new(),
    };
    let not_run = look.last_published().map(|said| said.not_run).unwrap_or_default();
    let name = &log_of(&arguments.function, names(&folder), &not_run)?;
    if let Some(advanced) = endpoint::advanced(&store).await {
        output::say(&format!(
            "times are by this machine's clock; the store's clock is {} ahead",
            advanced.words()
        ));
    }
    let path = folder.join(format!("{name}.log"));
    let doing = || format!("cannot read `{}`", path.display());
    let mut lines = Lines::new(name, arguments.request.as_deref(), output);
    let mut log = RotatedLog::open(path.clone()).context(doing)?;
    if !arguments.follow {
        output::show(&lines.take(&log.read_once().context(doing)?));
        return match &arguments.request {
            Some(id) if lines.found == 0 => Err(fatal!(
                "no line of request `{id}` in `{}` or its predecessor; in the output of `weir logs {name}`, ids follow `RequestId:`",
                path.display()
            )),
            _ => {
                output::show(&lines.end());
                Ok(Exit::Done)
            }
        };
    }
    loop {
        // The bytes include the rest of a log that was rotated since the last read.
        let bytes = log.read().context(doing)?;
        if bytes.is_empty() {
            tokio::time::sleep(PERIOD).await;
        } else {
            output::show(&lines.take(&bytes));
        }
    }
}

/// The selection and the format of a function's log lines.
struct Lines<'a> {
    function: &'a str,
    /// The request id to select, in the form of the log lines; `None` selects all lines.
    request: Option<String>,
    output: Output,
    /// The number of lines that matched.
    found: u64,
    /// The lines of a JSON document, which is written at the end.
    held: Vec<Value>,
}

impl<'a> Lines<'a> {
    fn new(function: &'a str, request: Option<&str>, output: Output) -> Self {
        let request = request.map(|id| format!(" {id} "));
        Self { function, request, output, found: 0, held: Vec::new() }
    }

    /// Returns the output for these bytes.
    fn take(&mut self, bytes: &[u8]) -> String {
        let mut shown = String::new();
        for line in String::from_utf8_lossy(bytes).lines() {
            if self.request.as_ref().is_some_and(|id| !line.contains(id)) {
                continue;
            }
            self.found += 1;
            match self.output {
                Output::Table => shown.push_str(line),
                Output::Ndjson => shown.push_str(&parts(self.function, line).to_string()),
                Output::Json => {
                    self.held.push(parts(self.function, line));
                    continue;
                }
            }
            shown.push('\n');
        }
        shown
    }

    /// Returns the output after the last line.
    fn end(self) -> String {
        match self.output {
            Output::Json => format!("{}\n", Value::Array(self.held)),
            Output::Table | Output::Ndjson => String::new(),
        }
    }
}

/// Splits a line into the time, the request id (`-` means none) and the function's output.
fn parts(function: &str, line: &str) -> Value {
    let known = line.split_once(' ').and_then(|(time, rest)| {
        let (request, rest) = rest.split_once(' ')?;
        time.parse::<jiff::Timestamp>().ok()?;
        Some((time, Some(request).filter(|request| *request != "-"), rest))
    });
    match known {
        Some((time, request, rest)) => {
            json!({"function": function, "time": time, "request": request, "line": rest})
        }
        None => json!({"function": function, "time": null, "request": null, "line": line}),
    }
}

/// Returns the name of the log of a function. The name may lack the trailing `Function`.
///
/// # Errors
/// The function does not exist, or it does not run on this machine and has no log.
fn log_of(
    wanted: &str,
    logs: Result<Vec<String>>,
    not_run: &BTreeMap<String, String>,
) -> Result<String> {
    let known: Vec<&str> = logs.iter().flatten().map(String::as_str).collect();
    let unknown = match match_function(wanted, &known) {
        Ok(name) => return Ok(name.to_owned()),
        Err(unknown) => unknown,
    };
    let elsewhere: Vec<&str> = not_run.keys().map(String::as_str).collect();
    let meant = match_function(wanted, &elsewhere).ok();
    if let Some((id, reason)) = meant.and_then(|id| Some((id, not_run.get(id)?))) {
        return Err(fatal!(
            "function `{id}` does not run on this machine, so it has no log: {reason}"
        ));
    }
    logs?;
    match elsewhere.as_slice() {
        [] => Err(unknown),
        names => Err(fatal!(
            "{unknown}; these functions do not run on this machine and have no log: {}",
            names.join(", ")
        )),
    }
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let folder = folder.display();
        fatal!("no logs in `{folder}` ({error}); run `weir up`, or name its data folder with --directory")
    })?;
    let of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".log")?;
        Some(name.to_owned())
    };
    Ok(entries.flatten().filter_map(|entry| of(entry.path())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str =
        "2026-11-24T10:00:00.125Z r-1 START\n2026-11-24T10:00:01.000Z - two  words\nas it is\n";

    #[test]
    fn lines_are_shown_unchanged_or_in_parts() {
        let parts = [
            json!({"function": "archive", "time": "2026-11-24T10:00:00.125Z", "request": "r-1", "line": "START"}),
            json!({"function": "archive", "time": "2026-11-24T10:00:01.000Z", "request": null, "line": "two  words"}),
            json!({"function": "archive", "time": null, "request": null, "line": "as it is"}),
        ];
        let rows: String = parts.iter().map(|part| format!("{part}\n")).collect();
        let document = format!("{}\n", Value::Array(parts.to_vec()));
        let (first, one) = (format!("{}\n", parts[0]), format!("[{}]\n", parts[0]));
        let first_line = LOG.lines().next().unwrap().to_owned() + "\n";
        for (output, request, expected, found) in [
            (Output::Table, None, LOG, 3),
            (Output::Table, Some("r-1"), first_line.as_str(), 1),
            (Output::Table, Some("r-2"), "", 0),
            (Output::Ndjson, None, rows.as_str(), 3),
            (Output::Ndjson, Some("r-1"), first.as_str(), 1),
            (Output::Json, None, document.as_str(), 3),
            (Output::Json, Some("r-1"), one.as_str(), 1),
        ] {
            let mut lines = Lines::new("archive", request, output);
            // The log arrives in two pieces, as from two files.
            let (before, after) = LOG.as_bytes().split_at(LOG.find('\n').unwrap() + 1);
            let shown = lines.take(before) + &lines.take(after);
            assert_eq!(lines.found, found, "{output:?} {request:?}");
            assert_eq!(shown + &lines.end(), expected, "{output:?} {request:?}");
        }
    }

    #[test]
    fn a_function_without_a_log_differs_from_an_unknown_one() {
        let reason = "container images are not run".to_owned();
        let not_run = BTreeMap::from([("ResizeFunction".to_owned(), reason)]);
        let none = BTreeMap::new();
        let logs = || Ok(vec!["ArchiveFunction".to_owned(), "CountersFunction".to_owned()]);
        let no_logs = || Err(fatal!("no logs in `x`"));
        for (wanted, logs, not_run, expected) in [
            ("archive", logs(), &not_run, Ok("ArchiveFunction")),
            (
                "resize",
                logs(),
                &not_run,
                Err(
                    "function `ResizeFunction` does not run on this machine, so it has no log: container images are not run",
                ),
            ),
            (
                "resize",
                no_logs(),
                &not_run,
                Err(
                    "function `ResizeFunction` does not run on this machine, so it has no log: container images are not run",
                ),
            ),
            ("other", no_logs(), &not_run, Err("no logs in `x`")),
            (
                "other",
                logs(),
                &none,
                Err("unknown function `other`; functions are: ArchiveFunction, CountersFunction"),
            ),
            (
                "other",
                logs(),
                &not_run,
                Err(
                    "unknown function `other`; functions are: ArchiveFunction, CountersFunction; these functions do not run on this machine and have no log: ResizeFunction",
                ),
            ),
        ] {
            let found = log_of(wanted, logs, not_run);
            let found = found.as_deref().map_err(ToString::to_string);
            assert_eq!(found, expected.map_err(str::to_owned), "{wanted}");
        }
    }

    #[tokio::test]
    async fn an_endless_output_is_not_one_document() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = LogsArguments {
            function: "archive".to_owned(),
            follow: true,
            request: None,
            directory: Some(folder.path().to_owned()),
        };
        let said = run(&arguments, Output::Json).await.unwrap_err().to_string();
        assert!(said.ends_with("use --output ndjson"), "{said}");
    }
}
