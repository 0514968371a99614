//! Tests of handlers in Python and Node on real interpreters: responses, failures and environment.
//! Without an interpreter on this machine, a test prints a message and ends.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tempfile::TempDir;
use template::{Context, read};

use super::*;
use crate::function::{Event, Function, InvokeOutcome, Settings};

/// One language: its runtime, and the command that prints its version.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    runtime: &'static str,
    program: &'static str,
}

const PYTHON: Kind = Kind { runtime: "python3.13", program: "python3" };
const NODE: Kind = Kind { runtime: "nodejs20.x", program: "node" };

/// Returns whether the interpreter is installed. If not, prints that the test is skipped.
fn is_here(kind: Kind) -> bool {
    let answer = std::process::Command::new(kind.program).arg("--version").output();
    let is_here = answer.is_ok_and(|answer| answer.status.success());
    if !is_here {
        eprintln!("skipped: `{}` is not on this machine", kind.program);
    }
    is_here
}

/// A template with a function `F`, in its own folder.
struct Fixture {
    folder: TempDir,
    function: Function,
    events: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    async fn start(kind: Kind, handler: &str, files: &[(&str, &str)], more: &str) -> Self {
        Self::try_start(kind, handler, files, more).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn try_start(
        kind: Kind,
        handler: &str,
        files: &[(&str, &str)],
        more: &str,
    ) -> Result<Self, Error> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            put(folder.path(), path, text);
        }
        let text = format!(
            "Transform: AWS::Serverless-2016-10-31\nResources:\n  Shared:\n    Type: \
             AWS::Serverless::LayerVersion\n    Properties: {{ContentUri: shared}}\n  F:\n    Type: \
             AWS::Serverless::Function\n    Properties:\n      Runtime: {}\n      Handler: {handler}\n\
             {more}",
            kind.runtime
        );
        let context = Context { folder: Some(folder.path().to_owned()), ..Context::default() };
        let stack = read("t.yaml", &text, &context).unwrap_or_else(|found| panic!("{found}"));
        assert!(stack.not_run.is_empty(), "{:?}", stack.not_run);
        let data = folder.path().join(".weir/up");
        let places = Folders { template: folder.path(), data: &data };
        let launch = prepare(&stack, &places).await?.remove("F").unwrap();
        let described = &stack.functions[0];
        let mut settings = Settings::new("F", launch.program.clone(), data.join("logs"));
        settings.working_folder = Some(launch.task_root.clone());
        settings.script = Some(launch);
        settings.handler.clone_from(&described.handler);
        settings.environment.clone_from(&described.environment);
        settings.memory_mb = described.memory_mb;
        settings.timeout = described.timeout;
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let observer = Arc::new(move |event: &Event<'_>| {
            if let Event::ProgramChanged { .. } = event {
                seen.lock().unwrap().push("changed".to_owned());
            } else if let Event::Line { line, .. } = event {
                seen.lock().unwrap().push((*line).to_owned());
            }
        });
        Ok(Self { folder, function: Function::new(settings, observer).unwrap(), events })
    }

    async fn invoke(&self, event: Value) -> InvokeOutcome {
        self.function.invoke(Bytes::from(event.to_string())).await
    }

    async fn answer(&self, event: Value) -> Value {
        let outcome = self.invoke(event).await;
        let InvokeOutcome::Ok(body) = &outcome else { panic!("{outcome:?}") };
        serde_json::from_slice(body).unwrap()
    }

    /// Returns the payload of a failed invocation, and its readable text.
    async fn failure(&self) -> (Value, String) {
        let outcome = self.invoke(json!({})).await;
        let InvokeOutcome::FunctionError { payload, message, .. } = &outcome else {
            panic!("{outcome:?}")
        };
        (serde_json::from_slice(payload).unwrap(), message.clone())
    }

    fn has_seen(&self, part: &str) -> bool {
        self.events.lock().unwrap().iter().any(|seen| seen.contains(part))
    }
}

fn put(folder: &Path, path: &str, text: &str) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const PYTHON_ECHO: &str = "
import logging, os
logging.getLogger().setLevel('INFO')
def run(event, context):
    logging.info('told %s', event)
    names = ('_HANDLER', 'STAGE', 'AWS_EXECUTION_ENV', 'LAMBDA_TASK_ROOT', 'HOME')
    return {
        'event': event, 'request': context.aws_request_id, 'arn': context.invoked_function_arn,
        'memory': context.memory_limit_in_mb, 'left': context.get_remaining_time_in_millis() > 0,
        'log': context.log_group_name, 'here': os.getcwd(), 'variables': [os.environ.get(n) for n in names],
    }
";

const NODE_ECHO: &str = "
exports.run = async (event, context) => {
    console.log('told', JSON.stringify(event));
    const names = ['_HANDLER', 'STAGE', 'AWS_EXECUTION_ENV', 'LAMBDA_TASK_ROOT', 'HOME'];
    return {
        event, request: context.awsRequestId, arn: context.invokedFunctionArn,
        memory: context.memoryLimitInMB, left: context.getRemainingTimeInMillis() > 0,
        log: context.logGroupName, here: process.cwd(), variables: names.map((name) => process.env[name] ?? null),
    };
};
";

#[tokio::test]
async fn a_handler_gets_its_event_its_context_and_its_variables() {
    for (kind, file, text) in
        [(PYTHON, "code/src/app.py", PYTHON_ECHO), (NODE, "code/src/app.js", NODE_ECHO)]
    {
        if !is_here(kind) {
            continue;
        }
        let more = "      CodeUri: code\n      MemorySize: 256\n      Environment: {Variables: {STAGE: test}}\n";
        let fixture = Fixture::start(kind, "src/app.run", &[(file, text)], more).await;
        let first = fixture.answer(json!({"n": 1})).await;
        let second = fixture.answer(json!(["two"])).await;
        assert_eq!((&first["event"], &second["event"]), (&json!({"n": 1}), &json!(["two"])));
        assert_ne!(first["request"], second["request"]);
        assert_eq!(first["arn"], "arn:aws:lambda:us-east-1:000000000000:function:F");
        assert_eq!((&first["memory"], &first["left"]), (&json!("256"), &json!(true)));
        assert_eq!(first["log"], "/aws/lambda/F");
        let here = fixture.folder.path().join("code");
        assert_eq!(
            fs::canonicalize(first["here"].as_str().unwrap()).unwrap(),
            fs::canonicalize(&here).unwrap()
        );
        let execution = format!("AWS_Lambda_{}", kind.runtime);
        let expected = json!(["src/app.run", "test", execution, here, null]);
        assert_eq!(first["variables"], expected);
        assert_eq!(fixture.function.instances().len(), 1, "one instance is kept");
        assert!(fixture.has_seen("told"));
        let written: Vec<_> = fs::read_dir(here.join("src")).unwrap().collect();
        assert_eq!(written.len(), 1, "no file is written next to the code");
    }
}

#[tokio::test]
async fn each_form_of_a_handler_is_called() {
    let cases = [
        (PYTHON, "a/b.run", "a/b.py", "def run(event, context):\n  return 'done'"),
        (PYTHON, "a.b.run", "a/b/__init__.py", "def run(event, context):\n  return 'done'"),
        (NODE, "app.run", "app.mjs", "export const run = async () => 'done';"),
        (
            NODE,
            "app.run",
            "app.cjs",
            "exports.run = (e, c, callback) => setTimeout(() => callback(null, 'done'), 5);",
        ),
        (
            NODE,
            "app.run",
            "app.js",
            "exports.run = () => new Promise((done) => setTimeout(() => done('done'), 5));",
        ),
        (NODE, "a/app.lib.run", "a/app.js", "exports.lib = { run: async () => 'done' };"),
        (NODE, "app.run", "app/index.js", "exports.run = async () => 'done';"),
    ];
    for (kind, handler, file, text) in cases {
        if is_here(kind) {
            let fixture = Fixture::start(kind, handler, &[(file, text)], "").await;
            assert_eq!(fixture.answer(json!({})).await, "done", "{handler} in {file}");
        }
    }
    if is_here(NODE) {
        let text = "export const run = async () => 'done';";
        let files = [("app.js", text), ("package.json", r#"{"type":"module"}"#)];
        assert_eq!(
            Fixture::start(NODE, "app.run", &files, "").await.answer(json!({})).await,
            "done"
        );
        let nothing = [("app.js", "exports.run = () => {};")];
        let fixture = Fixture::start(NODE, "app.run", &nothing, "").await;
        assert_eq!(fixture.answer(json!({})).await, Value::Null);
    }
}

#[tokio::test]
async fn a_handler_that_fails_says_how_in_lambdas_words() {
    let python = |body: &str| format!("def run(event, context):\n  {body}\n");
    let node = |body: &str| format!("exports.run = async () => {{ {body} }};\n");
    let late = "setTimeout(() => { throw new RangeError('late') }, 5); await new Promise(() => setTimeout(() => {}, 60000))";
    let cases = [
        (PYTHON, python("raise KeyError('id')"), "KeyError", "'id'", "stackTrace"),
        (
            PYTHON,
            python("return {1}"),
            "Runtime.MarshalError",
            "Unable to marshal response: Object of type set",
            "stackTrace",
        ),
        (PYTHON, python("import sys; sys.exit(3)"), "Runtime.ExitError", "exit status 3", ""),
        (NODE, node("throw new TypeError('no')"), "TypeError", "no", "trace"),
        (NODE, node("return 1n"), "Error", "Unable to stringify response body", "trace"),
        (
            NODE,
            node(
                "Promise.reject(new Error('lost')); await new Promise(() => setTimeout(() => {}, 60000))",
            ),
            "Runtime.UnhandledPromiseRejection",
            "lost",
            "trace",
        ),
        (NODE, node(late), "RangeError", "late", "trace"),
        (NODE, node("process.exit(4)"), "Runtime.ExitError", "exit status 4", ""),
    ];
    for (kind, text, error_type, message, trace) in cases {
        if !is_here(kind) {
            continue;
        }
        let file = if kind == PYTHON { "app.py" } else { "app.js" };
        let fixture =
            Fixture::start(kind, "app.run", &[(file, text.as_str())], "      Timeout: 30\n").await;
        let (payload, _) = fixture.failure().await;
        assert_eq!(payload["errorType"], error_type, "{text}: {payload}");
        assert!(payload["errorMessage"].as_str().unwrap().contains(message), "{text}: {payload}");
        assert!(trace.is_empty() || payload[trace].is_array(), "{text}: {payload}");
    }
}

#[tokio::test]
async fn a_handler_that_cannot_start_says_what_is_wrong_where_and_what_to_do() {
    let cases = [
        (
            PYTHON,
            "import absent_module",
            "Runtime.ImportModuleError",
            "No module named 'absent_module'",
            "requirements.txt",
        ),
        (
            PYTHON,
            "def run(:",
            "Runtime.UserCodeSyntaxError",
            "Syntax error in module 'app'",
            "app.py\", line 1",
        ),
        (
            PYTHON,
            "def other(e, c): pass",
            "Runtime.HandlerNotFound",
            "Handler 'run' missing on module 'app'",
            "its functions: `other`",
        ),
        (PYTHON, "1 / 0", "ZeroDivisionError", "division by zero", "app.py\", line 1"),
        (
            NODE,
            "require('absent-module')",
            "Runtime.ImportModuleError",
            "Cannot find module 'absent-module'",
            "package.json",
        ),
        (NODE, "exports.run = (;", "Runtime.UserCodeSyntaxError", "SyntaxError: ", "app.js:1"),
        (
            NODE,
            "export const run = (;",
            "Runtime.UserCodeSyntaxError",
            "SyntaxError: ",
            "app.mjs:1",
        ),
        (
            NODE,
            "exports.other = () => {}",
            "Runtime.HandlerNotFound",
            "app.run is undefined or not exported",
            "its exports: `other`",
        ),
        (NODE, "null.x", "TypeError", "Cannot read properties of null", "app.js:1"),
    ];
    for (kind, text, error_type, message, help) in cases {
        if !is_here(kind) {
            continue;
        }
        let is_module = text.starts_with("export ");
        let file = ["app.js", "app.mjs"][usize::from(is_module)];
        let file = if kind == PYTHON { "app.py" } else { file };
        let fixture = Fixture::start(kind, "app.run", &[(file, text)], "").await;
        let at_start = fixture.function.start_failure().await.unwrap_or_default();
        assert!(at_start.contains(message) && at_start.contains(help), "{text}: {at_start}");
        let (payload, shown) = fixture.failure().await;
        assert_eq!(payload["errorType"], error_type, "{text}: {payload}");
        assert!(payload["errorMessage"].as_str().unwrap().contains(message), "{text}: {payload}");
        assert!(shown.contains(help), "{text}: {shown}");
        let log = fs::read_to_string(fixture.folder.path().join(".weir/up/logs/F.log")).unwrap();
        let report = log.split("INIT_REPORT ").nth(1).unwrap();
        assert!(report.contains(help), "{text}: {log}");
    }
}

#[tokio::test]
async fn a_handler_that_loads_leaves_no_process_after_the_check() {
    for (kind, file, text) in [
        (PYTHON, "app.py", "def run(e, c): return 1"),
        (NODE, "app.js", "exports.run = async () => 1;"),
    ] {
        if is_here(kind) {
            let fixture = Fixture::start(kind, "app.run", &[(file, text)], "").await;
            assert_eq!(fixture.function.start_failure().await, None);
            assert!(fixture.function.instances().is_empty());
            assert_eq!(fixture.answer(json!({})).await, 1);
        }
    }
}

/// A fake of AWS's Python client of the Runtime API. It responds with its own command line and the
/// value that the handler returned.
const PYTHON_CLIENT: &str = r#"
import importlib, json, os, sys, urllib.request
api = "http://" + os.environ["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/invocation/"
module, name = sys.argv[1].split(".")
with urllib.request.urlopen(api + "next") as response:
    request, event = response.headers["Lambda-Runtime-Aws-Request-Id"], json.load(response)
result = getattr(importlib.import_module(module), name)(event, None)
body = json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), "result": result}).encode()
urllib.request.urlopen(urllib.request.Request(api + request + "/response", body)).read()
"#;

/// A fake of AWS's Node client of the Runtime API.
const NODE_CLIENT: &str = r"
const api = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation/`;
const [module, name] = process.argv[2].split('.');
const response = await fetch(`${api}next`);
const request = response.headers.get('lambda-runtime-aws-request-id');
const { default: handlers } = await import(`${process.cwd()}/${module}.js`);
const result = await handlers[name](await response.json());
const body = JSON.stringify({ arguments: process.argv.slice(2), folder: process.cwd(), result });
await (await fetch(`${api}${request}/response`, { method: 'POST', body })).text();
";

#[tokio::test]
async fn the_client_of_aws_runs_the_handler_where_it_is_installed() {
    let python = [
        ("code/app.py", "def run(event, context): return event['n'] + 1"),
        ("code/awslambdaric/__init__.py", ""),
        ("code/awslambdaric/__main__.py", PYTHON_CLIENT),
        ("code/runtime_client.py", ""),
    ];
    let client = "code/node_modules/aws-lambda-ric/";
    let (list, program) = (format!("{client}package.json"), format!("{client}bin/index.mjs"));
    let node = [
        ("code/app.js", "exports.run = async (event) => event.n + 1;"),
        (list.as_str(), r#"{"bin":{"aws-lambda-ric":"bin/index.mjs"}}"#),
        (program.as_str(), NODE_CLIENT),
    ];
    for (kind, files) in [(PYTHON, python.as_slice()), (NODE, node.as_slice())] {
        if is_here(kind) {
            let fixture = Fixture::start(kind, "app.run", files, "      CodeUri: code\n").await;
            let found = fixture.answer(json!({"n": 1})).await;
            let code = fs::canonicalize(fixture.folder.path().join("code")).unwrap();
            let expected = json!({"arguments": ["app.run"], "folder": code, "result": 2});
            assert_eq!(found, expected);
        }
    }
}

#[tokio::test]
async fn a_client_of_aws_without_a_native_module_for_this_python_does_not_run() {
    let files = [
        ("code/app.py", "def run(event, context): return event['n'] + 1"),
        ("code/awslambdaric/__init__.py", ""),
        ("code/awslambdaric/__main__.py", PYTHON_CLIENT),
        ("code/runtime_client.cpython-30-x86_64-linux-gnu.so", ""),
    ];
    if is_here(PYTHON) {
        let fixture = Fixture::start(PYTHON, "app.run", &files, "      CodeUri: code\n").await;
        assert_eq!(fixture.answer(json!({"n": 1})).await, 2);
    }
}

#[tokio::test]
async fn a_handler_that_runs_out_of_time_is_ended() {
    for (kind, file, text) in [
        (PYTHON, "app.py", "import time\ndef run(e, c): time.sleep(600)"),
        (NODE, "app.js", "exports.run = () => new Promise(() => setTimeout(() => {}, 600000));"),
    ] {
        if is_here(kind) {
            let fixture =
                Fixture::start(kind, "app.run", &[(file, text)], "      Timeout: 1\n").await;
            let (payload, _) = fixture.failure().await;
            assert_eq!(payload["errorType"], "Sandbox.Timedout");
            assert!(payload["errorMessage"].as_str().unwrap().ends_with("after 1.00 seconds"));
        }
    }
}

#[tokio::test]
async fn a_change_of_the_sources_or_of_a_layer_is_what_runs_next() {
    let python = [
        "from part import value\ndef run(e, c): return value",
        "value = 1",
        "value = 2",
        "value = 3",
    ];
    let node = [
        "exports.run = async () => require('/opt/nodejs/part').value;",
        "exports.value = 1;",
        "exports.value = 2;",
        "exports.value = 3;",
    ];
    for (kind, app, part, [text, one, two, three]) in [
        (PYTHON, "code/app.py", "shared/python/part.py", python),
        (NODE, "code/app.js", "shared/nodejs/part.js", node),
    ] {
        if !is_here(kind) {
            continue;
        }
        let more = "      CodeUri: code\n      Layers: [!Ref Shared]\n";
        let fixture = Fixture::start(kind, "app.run", &[(app, text), (part, one)], more).await;
        assert_eq!(fixture.answer(json!({})).await, 1);
        put(fixture.folder.path(), part, two);
        assert_eq!(fixture.answer(json!({})).await, 2);
        put(fixture.folder.path(), part, three);
        put(fixture.folder.path(), "code/written.log", "no source");
        assert_eq!(fixture.answer(json!({})).await, 3);
        let changes = fixture.events.lock().unwrap().iter().filter(|it| *it == "changed").count();
        assert_eq!(changes, 2);
    }
}

#[tokio::test]
async fn modules_of_layers_and_installed_packages_are_found() {
    let more = "      CodeUri: code\n      Layers: [!Ref Shared]\n";
    if is_here(PYTHON) {
        let version = PYTHON.runtime.trim_start_matches("python");
        let deep = format!("shared/python/lib/python{version}/site-packages/deep.py");
        let files = [
            ("code/app.py", "import flat, deep\ndef run(e, c): return [flat.value, deep.value]"),
            ("shared/python/flat.py", "value = 1"),
            (deep.as_str(), "value = 2"),
        ];
        let fixture = Fixture::start(PYTHON, "app.run", &files, more).await;
        assert_eq!(fixture.answer(json!({})).await, json!([1, 2]));
    }
    if is_here(NODE) {
        let app =
            "import one from 'dep0'; import two from 'dep1'; import { x } from '/opt/nodejs/x.mjs';
            export const run = async () => [one.value, two.value, x];";
        let files = [
            ("code/app.mjs", app),
            ("shared/nodejs/node_modules/dep0/index.js", "exports.value = 1;"),
            ("shared/nodejs/node_modules/dep0/package.json", r#"{"main":"index.js"}"#),
            ("shared/nodejs/node20/node_modules/dep1/index.js", "exports.value = 2;"),
            ("shared/nodejs/node20/node_modules/dep1/package.json", r#"{"main":"index.js"}"#),
            ("shared/nodejs/x.mjs", "export const x = 3;"),
        ];
        let fixture = Fixture::start(NODE, "app.run", &files, more).await;
        assert_eq!(fixture.answer(json!({})).await, json!([1, 2, 3]));
    }
}

/// Method: the package is in a local folder, so its installation needs no network.
#[tokio::test]
async fn what_a_list_names_is_installed_once_and_a_failure_is_shown() {
    if is_here(NODE) && is_here(Kind { program: "npm", ..NODE }) {
        let files = [
            ("code/app.js", "exports.run = async () => require('own-part').value;"),
            (
                "code/package.json",
                r#"{"dependencies":{"own-part":"file:../part"},"scripts":{"prepare":"exit 1"}}"#,
            ),
            ("part/package.json", r#"{"name":"own-part","version":"1.0.0"}"#),
            ("part/index.js", "exports.value = 7;"),
        ];
        let fixture = Fixture::start(NODE, "app.run", &files, "      CodeUri: code\n").await;
        assert_eq!(fixture.answer(json!({})).await, 7);
        assert!(!fixture.folder.path().join("code/node_modules").exists());
        let packages = fs::read_dir(fixture.folder.path().join(".weir/up/packages")).unwrap();
        assert_eq!(packages.count(), 1);
        let absent = r#"{"dependencies":{"own-part":"file:../absent"}}"#;
        let files = [("app.js", "exports.run = 1;"), ("package.json", absent)];
        let error =
            Fixture::try_start(NODE, "app.run", &files, "").await.err().unwrap().to_string();
        assert!(error.contains("function=`F`") && error.contains("package.json"), "{error}");
        assert!(error.contains("npm install"), "{error}");
    }
    if is_here(PYTHON) {
        let files = [("app.py", "def run(e, c): pass"), ("requirements.txt", "./absent\n")];
        let error =
            Fixture::try_start(PYTHON, "app.run", &files, "").await.err().unwrap().to_string();
        assert!(error.contains("function=`F`") && error.contains("requirements.txt"), "{error}");
        assert!(error.contains("pip install"), "{error}");
        // If `sam build` has built the same list, its packages are used.
        let files = [
            ("app.py", "import own_part\ndef run(e, c): return own_part.value"),
            ("requirements.txt", "own_part\n"),
            (".aws-sam/build/F/app.py", "raise ValueError('the sources run')"),
            (".aws-sam/build/F/requirements.txt", "own_part\n"),
            (".aws-sam/build/F/own_part.py", "value = 7"),
        ];
        let fixture = Fixture::start(PYTHON, "app.run", &files, "").await;
        assert_eq!(fixture.answer(json!({})).await, 7);
    }
}

#[tokio::test]
async fn code_in_the_template_runs() {
    for (kind, text) in [
        (PYTHON, "def handler(event, context): return event['n'] + 1"),
        (NODE, "exports.handler = async (event) => event.n + 1;"),
    ] {
        if is_here(kind) {
            let more = format!("      InlineCode: |\n        {text}\n");
            let fixture = Fixture::start(kind, "index.handler", &[], &more).await;
            assert_eq!(fixture.answer(json!({"n": 1})).await, 2);
        }
    }
}

#[tokio::test]
async fn a_missing_interpreter_says_what_to_install() {
    let stack = |runtime: &str| {
        let text = format!(
            "Transform: AWS::Serverless-2016-10-31\nResources:\n  F: {{Type: AWS::Serverless::Function, \
             Properties: {{Runtime: {runtime}, Handler: a.b, InlineCode: x}}}}\n"
        );
        read("t.yaml", &text, &Context::default()).unwrap_or_else(|found| panic!("{found}"))
    };
    for (runtime, wanted) in [("python3.13", "Python 3.13"), ("nodejs22.x", "Node 22")] {
        let stack = stack(runtime);
        let Code::Script(script) = &stack.functions[0].code else { panic!() };
        let nothing = std::env::split_paths("").collect::<Vec<_>>();
        let error =
            Interpreters::default().among(&nothing, script, "F").await.unwrap_err().to_string();
        assert!(error.contains("function=`F`") && error.contains(wanted), "{error}");
        assert!(error.contains("install"), "{error}");
    }
}

#[tokio::test]
async fn a_killed_handler_is_replaced() {
    for (kind, file, text) in [
        (PYTHON, "app.py", "def run(e, c): return 1"),
        (NODE, "app.js", "exports.run = async () => 1;"),
    ] {
        if is_here(kind) {
            let fixture = Fixture::start(kind, "app.run", &[(file, text)], "").await;
            assert_eq!(fixture.answer(json!({})).await, 1);
            assert!(fixture.function.kill_instance().is_some());
            assert_eq!(fixture.answer(json!({})).await, 1);
            fixture.function.lose_answers(1);
            assert_eq!(fixture.failure().await.0["errorType"], "Runtime.ExitError");
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(fixture.answer(json!({})).await, 1);
        }
    }
}
