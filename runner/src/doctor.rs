//! `weir doctor`: checks that this machine and this folder have what `weir` needs.
//!
//! It changes nothing. Each failed check shows its fix.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use clap::Args;
use http::Method;
use serde_json::{Value, json};

use client::endpoint;
use client::exit::Exit;
use client::failure::Result;
use client::output::{self, Output};
use client::running::{Running, RunningState};
use local::function::binaries::Wanted;
use local::function::scripts::Interpreters;
use local::system::functions::{built, wanted};
use template::{Code, Stack};

/// The free space in MB below which a first build may not fit.
const FREE_MB_MIN: u64 = 5_000;

/// The maximum number of characters of a finding in the table.
const FINDING_CHARS_MAX: usize = 80;

/// Arguments of `weir doctor`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir doctor\n  weir doctor --output json\n\nExit codes: 0 all checks passed, 1 a check failed; its fix is shown"
)]
pub struct DoctorArguments {
    /// The data folder of `weir up`
    #[arg(long, value_name = "DIRECTORY", default_value = ".weir/up")]
    pub directory: std::path::PathBuf,
}

/// The result of one check.
#[derive(Clone)]
struct Check {
    what: &'static str,
    state: State,
    finding: String,
    fix: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Well,
    Warning,
    Failed,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Runs every check and shows the results.
pub async fn run(
    arguments: &DoctorArguments,
    output: Output,
    stack: Result<Stack>,
    template_folder: &Path,
) -> Exit {
    let functions = match &stack {
        Ok(stack) => vec![functions(stack, template_folder), interpreters(stack).await],
        Err(_) => Vec::new(),
    };
    let builds = stack.as_ref().map_or(true, |stack| builds(stack, template_folder));
    let mut checks = vec![
        tool("toolchain", "rustc", builds),
        tool("cargo", "cargo", builds),
        template(stack),
        folder(&arguments.directory),
        space(),
    ];
    checks.extend(functions);
    checks.extend(running().await);
    let rows: Vec<Vec<Value>> = checks
        .iter()
        .map(|check| {
            let fix = if check.state == State::Well { Value::Null } else { json!(check.fix) };
            vec![json!(check.what), json!(check.state.word()), json!(check.finding), fix]
        })
        .collect();
    output::rows(output, &["check", "state", "finding", "fix"], &rows);
    let has_failed = checks.iter().any(|check| check.state == State::Failed);
    if has_failed { Exit::Failed } else { Exit::Done }
}

/// Returns whether a function of the template must be built on this machine.
fn builds(stack: &Stack, template_folder: &Path) -> bool {
    wanted(stack, template_folder).values().any(Wanted::has_source)
}

/// Checks that a build tool can be started. A missing tool fails the check only if `is_needed`.
fn tool(what: &'static str, program: &str, is_needed: bool) -> Check {
    let fix = "install Rust 1.95 or later: https://rustup.rs";
    let answer = Command::new(program).arg("--version").output();
    let (state, finding) = match answer {
        Ok(answer) if answer.status.success() => {
            (State::Well, String::from_utf8_lossy(&answer.stdout).trim().to_owned())
        }
        _ if !is_needed => (State::Well, "not found, but no function has to be built".to_owned()),
        Ok(answer) => (State::Failed, format!("`{program} --version` failed: {}", answer.status)),
        Err(error) => (State::Failed, format!("cannot start `{program}`: {error}")),
    };
    Check { what, state, finding, fix }
}

fn template(stack: Result<Stack>) -> Check {
    let fix = match &stack {
        Err(error) if error.to_string().starts_with("cannot read") => {
            "run weir in the folder of the template, or name it with --template FILE"
        }
        _ => "run `weir check` to see each line and its correction",
    };
    let (state, finding) = match stack {
        Ok(stack) if stack.warnings.is_empty() => (State::Well, counts(&stack)),
        Ok(stack) => {
            let count = output::counted(stack.warnings.len(), "warning", "warnings");
            let first = stack.warnings.first();
            let first = first.map(|it| format!("line {}: {}", it.line, it.message));
            (State::Warning, short(&format!("{count}, {}", first.unwrap_or_default())))
        }
        Err(error) => (State::Failed, short(error.to_string().lines().next().unwrap_or_default())),
    };
    Check { what: "template", state, finding, fix }
}

/// Shortens a finding so that its fix fits next to it.
fn short(finding: &str) -> String {
    match finding.char_indices().nth(FINDING_CHARS_MAX) {
        Some((end, _)) => format!("{}…", finding.get(..end).unwrap_or_default().trim_end()),
        None => finding.to_owned(),
    }
}

/// Checks that every function can be built, or that its binary is in the folder of this program.
fn functions(stack: &Stack, template_folder: &Path) -> Check {
    let wanted = wanted(stack, template_folder);
    let built = built(stack, template_folder).len();
    let absent = wanted.iter().find_map(|(id, wanted)| Some((id, wanted.absence()?)));
    let (state, finding) = match absent {
        Some((id, error)) => (State::Failed, format!("`{id}`: {error}")),
        None => {
            let (sources, there): (Vec<_>, Vec<_>) =
                wanted.values().partition(|wanted| wanted.has_source());
            let is_script =
                |function: &&template::Function| matches!(function.code, Code::Script(_));
            let counts = [
                (sources.len(), "built from source"),
                (there.len() + built, "already built"),
                (stack.functions.iter().filter(is_script).count(), "in Python or Node"),
            ];
            let said = counts.into_iter().filter(|(count, _)| *count > 0);
            let said: Vec<String> = said.map(|(count, how)| format!("{count} {how}")).collect();
            match said.is_empty() {
                true => (State::Well, "the template has no function to run here".to_owned()),
                false => (State::Well, said.join(", ")),
            }
        }
    };
    let fix = "correct CodeUri, or put the binary into the folder of `weir`";
    Check { what: "functions", state, finding, fix }
}

/// Checks that handlers in Python and Node have an interpreter.
async fn interpreters(stack: &Stack) -> Check {
    let (mut interpreters, mut found) = (Interpreters::default(), BTreeMap::new());
    let (what, fix) = ("interpreters", "install the interpreter, so that it is on PATH");
    for function in &stack.functions {
        let Code::Script(script) = &function.code else { continue };
        match interpreters.of(script, &function.logical_id).await {
            Ok(interpreter) => found.insert(
                script.runtime(),
                format!("{} for {}", interpreter.version, script.runtime()),
            ),
            Err(error) => {
                return Check { what, state: State::Failed, finding: error.to_string(), fix };
            }
        };
    }
    let found: Vec<String> = found.into_values().collect();
    let finding =
        if found.is_empty() { "no function needs one".to_owned() } else { found.join(", ") };
    Check { what, state: State::Well, finding, fix }
}

fn counts(stack: &Stack) -> String {
    let (tables, functions) = (stack.tables.len(), stack.functions.len());
    let tables = output::counted(tables, "table", "tables");
    let functions = output::counted(functions, "function", "functions");
    let mappings = output::counted(stack.mappings.len(), "mapping", "mappings");
    format!("{tables}, {functions}, {mappings}")
}

fn folder(directory: &Path) -> Check {
    let fix =
        "run weir in a folder in which you can write: `weir up` keeps its data in `.weir` there";
    // Uses the nearest existing folder, because `weir up` creates the folders below it.
    let existing = directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let probe = existing.join(format!(".weir-doctor-{}", std::process::id()));
    let written = std::fs::write(&probe, b"probe").and_then(|()| std::fs::remove_file(&probe));
    let (state, finding) = match written {
        Ok(()) => (State::Well, format!("{} can be written", directory.display())),
        Err(error) => {
            (State::Failed, format!("cannot write below {}: {error}", existing.display()))
        }
    };
    Check { what: "data folder", state, finding, fix }
}

fn space() -> Check {
    let fix = "free some space: a build takes about 5 GB";
    let answer = Command::new("df").args(["-Pm", "."]).output().ok();
    let text = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned());
    let free = text
        .as_deref()
        .and_then(|text| text.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok());
    let (state, finding) = match free {
        Some(free) if free >= FREE_MB_MIN => (State::Well, format!("{free} MB free")),
        Some(free) => (State::Warning, format!("{free} MB free")),
        None => (State::Warning, "`df` does not report the free space".to_owned()),
    };
    Check { what: "disk", state, finding, fix }
}

/// Checks the endpoints of the running `weir up`. If no `weir up` is running, checks that its
/// default ports are free.
async fn running() -> Vec<Check> {
    let running = match RunningState::here() {
        RunningState::Running(running) => running,
        RunningState::Ended(ended) => return [vec![has_ended(&ended)], ports()].concat(),
        RunningState::NotStarted => return ports(),
    };
    // On AWS the store has no clock to check.
    if running.dynamodb.is_empty() {
        return vec![is_on_aws(&running)];
    }
    let clock = endpoint::admin(Method::GET, &running.dynamodb, "clock", &Value::Null).await;
    let clock = match clock {
        Ok(clock) if clock.get("frozen") == Some(&json!(true)) => Check {
            what: "clock",
            state: State::Warning,
            finding: "the store's clock is frozen, so nothing expires".to_owned(),
            fix: "weir clock resume",
        },
        Ok(_) => Check {
            what: "clock",
            state: State::Well,
            finding: format!(
                "the store at {} is running, and its clock is not frozen",
                running.dynamodb
            ),
            fix: "",
        },
        Err(error) => Check {
            what: "running",
            state: State::Failed,
            finding: error.to_string(),
            fix: "restart `weir up`",
        },
    };
    vec![clock]
}

fn has_ended(ended: &Running) -> Check {
    let finding = format!("`weir up` (process {}) was killed or crashed", ended.process);
    Check { what: "running", state: State::Warning, finding, fix: "weir up" }
}

fn is_on_aws(running: &Running) -> Check {
    let place = running.store().unwrap_or("AWS");
    let finding =
        format!("`weir up` (process {}) is running with DynamoDB at {place}", running.process);
    Check { what: "running", state: State::Well, finding, fix: "" }
}

fn ports() -> Vec<Check> {
    vec![
        port(8000, "weir up --port 0"),
        port(9090, "weir up --s3-port 0"),
        port(crate::up::INVOKE_PORT, "weir up --invoke-port 0"),
    ]
}

fn port(number: u16, fix: &'static str) -> Check {
    let (state, finding) = match TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
        Ok(_) => (State::Well, format!("{number} is free")),
        Err(error) => (State::Failed, format!("cannot listen on port {number}: {error}")),
    };
    Check { what: "port", state, finding, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_needed_only_for_builds() {
        let needed = tool("cargo", "weir-has-no-such-program", true);
        assert!(needed.state == State::Failed && needed.finding.contains("cannot start"));
        assert!(tool("cargo", "false", true).state == State::Failed);
        for program in ["weir-has-no-such-program", "false"] {
            let other = tool("cargo", program, false);
            assert!(
                other.state == State::Well && other.finding.contains("no function has to be built")
            );
        }
    }

    #[test]
    fn many_warnings_are_counted_and_the_first_is_shown() {
        let functions: String = (0..30)
            .map(|number| {
                format!(
                    "  F{number}:\n    Type: AWS::Serverless::Function\n    Properties:\n      \
                     Runtime: provided.al2023\n      CodeUri: s3://bucket/key\n      Handler: \
                     bootstrap\n      Events:\n        S:\n          Type: DynamoDB\n          \
                     Properties:\n            Stream: !GetAtt T.StreamArn\n            \
                     StartingPosition: LATEST\n"
                )
            })
            .collect();
        let table = "  T:\n    Type: AWS::DynamoDB::Table\n    Properties:\n      \
                     BillingMode: PAY_PER_REQUEST\n      AttributeDefinitions: \
                     [{AttributeName: p, AttributeType: S}]\n      KeySchema: \
                     [{AttributeName: p, KeyType: HASH}]\n      StreamSpecification: \
                     {StreamViewType: KEYS_ONLY}\n";
        let text = format!("Transform: AWS::Serverless-2016-10-31\nResources:\n{table}{functions}");
        let read = template::read("t.yaml", &text, &template::Context::default());
        let stack = read.unwrap_or_else(|errors| panic!("{errors}"));
        let warnings = stack.warnings.len();
        assert!(warnings > 30, "{warnings}");
        let check = template(Ok(stack));
        assert!(check.finding.starts_with(&format!("{warnings} warnings, line ")));
        assert!(check.finding.chars().count() <= FINDING_CHARS_MAX + 1, "{}", check.finding);
    }

    #[test]
    fn without_a_template_the_fix_is_to_name_one() {
        let fix = |error: &str| template(Err(error.to_owned().into())).fix;
        assert!(fix("cannot read `template.yaml`: no such file").contains("--template FILE"));
        assert!(fix("error: there is no `Resources`").contains("weir check"));
    }
}
