//! Functions as real processes: tests invoke, delay, crash and kill the example `scripted_function`, which
//! uses the real `lambda_runtime`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use bytes::Bytes;
use futures::future::join_all;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy, rt::TokioExecutor};
use serde_json::{Value, json};
use server::gate::{AllowList, BoundListener};
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

use super::{runtime_api::Mailbox, *};

/// The maximum time of every wait, on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

fn binary() -> PathBuf {
    let program = env::current_exe().unwrap();
    let folder = program.parent().unwrap().parent().unwrap().join("examples");
    let path = folder.join(format!("scripted_function{}", env::consts::EXE_SUFFIX));
    assert!(path.is_file(), "build {} first: cargo build -p local --examples", path.display());
    path
}

struct Fixture {
    folder: TempDir,
    function: Function,
    events: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new("scripted", binary(), folder.path().to_owned());
        settings.timeout = Duration::from_secs(30);
        change(&mut settings);
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let observer: Observer = Arc::new(move |event| {
            let name = match event {
                Event::InstanceStarted { .. } => "started".to_owned(),
                Event::InstanceReady { .. } => "ready".to_owned(),
                Event::InstanceExited { exit, .. } => format!("exited: {exit}"),
                Event::ProgramChanged { .. } => "built anew".to_owned(),
                Event::InvocationStarted { cold, .. } => format!("invoked, cold {cold}"),
                Event::InvocationEnded { .. } => "ended".to_owned(),
                Event::Line { request_id, line, .. } => {
                    format!("line, in invocation {}: {line}", request_id.is_some())
                }
            };
            seen.lock().unwrap().push(name);
        });
        Self { folder, function: Function::new(settings, observer).unwrap(), events }
    }

    async fn invoke(&self, event: Value) -> InvokeOutcome {
        self.function.invoke(event.to_string().into()).await
    }

    async fn process(&self, event: Value) -> u64 {
        let InvokeOutcome::Ok(body) = self.invoke(event).await else { panic!("no response") };
        let answer: Value = serde_json::from_slice(&body).unwrap();
        answer["process"].as_u64().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("scripted.log")).unwrap()
    }

    fn seen(&self, event: &str) -> bool {
        self.events.lock().unwrap().iter().any(|seen| seen == event)
    }

    /// Waits until an invocation is running.
    async fn busy(&self) {
        wait(|| self.events.lock().unwrap().iter().any(|seen| seen.starts_with("invoked"))).await;
    }
}

async fn wait(until: impl Fn() -> bool) {
    let started = Instant::now();
    while !until() {
        assert!(started.elapsed() < LIMIT, "it did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the error type and the message of a failed invocation.
fn failed(outcome: InvokeOutcome) -> (String, String) {
    let InvokeOutcome::FunctionError { kind, message, payload } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(kind, "Unhandled");
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    assert!(message.starts_with(payload["errorMessage"].as_str().unwrap()), "{message}");
    (payload["errorType"].as_str().unwrap().to_owned(), message)
}

#[tokio::test]
async fn a_function_is_invoked_and_its_instance_is_kept() {
    let fixture = Fixture::start(|settings| {
        settings.memory_mb = 256;
        settings.environment.insert("GREETING".to_owned(), "hello".to_owned());
        settings.s3_endpoint = Some("http://127.0.0.1:1".to_owned());
    });
    assert!(fixture.function.instances().is_empty(), "an instance starts at the first invocation");
    let InvokeOutcome::Ok(body) = fixture.invoke(json!({ "do": "echo", "n": 1 })).await else {
        panic!()
    };
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(answer["event"]["n"], 1);
    assert_eq!(answer["memory"], 256);
    assert_eq!(answer["arn"], "arn:aws:lambda:us-east-1:000000000000:function:scripted");
    let request = answer["request"].as_str().unwrap();
    let process = answer["process"].as_u64().unwrap();
    assert_eq!(fixture.process(json!({ "do": "echo" })).await, process, "the same instance");
    for (variable, expected) in [
        ("GREETING", json!("hello")),
        ("AWS_ENDPOINT_URL_S3", json!("http://127.0.0.1:1")),
        ("AWS_ENDPOINT_URL_DYNAMODB", Value::Null),
        ("HOME", Value::Null),
        ("CARGO_MANIFEST_DIR", Value::Null),
    ] {
        let outcome = fixture.invoke(json!({ "do": "environment", "variable": variable })).await;
        assert_eq!(outcome, InvokeOutcome::Ok(expected.to_string().into()), "{variable}");
    }
    fixture.invoke(json!({ "do": "print", "line": "a line" })).await;
    wait(|| fixture.log().contains(" a line\n")).await;
    assert!(fixture.seen("line, in invocation true: a line"));
    assert!(fixture.seen("invoked, cold true") && fixture.seen("invoked, cold false"));
    let log = fixture.log();
    assert!(log.contains(&format!("{request} REPORT RequestId: {request}\tDuration: ")), "{log}");
    assert!(log.contains("\tMemory Size: 256 MB") && log.contains("\tInit Duration: "), "{log}");
    fixture.function.shutdown().await;
    assert!(fixture.function.instances().is_empty());
    let outcome = fixture.invoke(json!({ "do": "echo" })).await;
    assert!(matches!(outcome, InvokeOutcome::NotInvoked(_)), "{outcome:?}");
}

#[tokio::test]
async fn the_report_of_an_invocation_follows_its_lines() {
    let fixture = Fixture::start(|_| {});
    for number in 0..50 {
        fixture.invoke(json!({ "do": "print", "line": format!("line {number}") })).await;
    }
    let log = fixture.log();
    let lines = log.lines().filter(|line| line.contains(" line ") || line.contains(" REPORT "));
    let reports: Vec<bool> = lines.map(|line| line.contains(" REPORT ")).collect();
    assert_eq!(reports, [false, true].repeat(50), "{log}");
}

#[tokio::test]
async fn an_error_or_a_panic_is_told_and_the_instance_goes_on() {
    let fixture = Fixture::start(|_| {});
    let process = fixture.process(json!({ "do": "echo" })).await;
    let (_, message) = failed(fixture.invoke(json!({ "do": "error", "message": "why" })).await);
    assert_eq!(message, "why");
    let (_, message) = failed(fixture.invoke(json!({ "do": "panic" })).await);
    assert!(message.contains("told to panic"), "{message}");
    let (_, message) = failed(fixture.function.invoke(Bytes::from_static(b"[1")).await);
    assert!(message.contains("EOF"), "{message}");
    assert_eq!(fixture.process(json!({ "do": "echo" })).await, process);
}

#[tokio::test]
async fn an_instance_that_exits_fails_its_invocation_and_is_replaced() {
    let fixture = Fixture::start(|_| {});
    let process = fixture.process(json!({ "do": "echo" })).await;
    let (kind, message) = failed(fixture.invoke(json!({ "do": "exit", "code": 3 })).await);
    assert_eq!(kind, "Runtime.ExitError");
    assert!(message.starts_with("RequestId: "), "{message}");
    assert!(message.ends_with(" Error: Runtime exited with error: exit status 3"), "{message}");
    let (_, message) = failed(fixture.invoke(json!({ "do": "exit", "code": 0 })).await);
    assert!(message.ends_with("Runtime exited without providing a reason"), "{message}");
    assert_ne!(fixture.process(json!({ "do": "echo" })).await, process);
    wait(|| fixture.seen("exited: Runtime exited with error: exit status 3")).await;
    assert!(fixture.log().contains(" leaving\n"));
}

#[tokio::test]
async fn an_invocation_that_runs_out_of_time_is_ended_with_its_instance() {
    let fixture = Fixture::start(|settings| settings.timeout = Duration::from_secs(2));
    let process = fixture.process(json!({ "do": "echo" })).await;
    let (kind, message) = failed(fixture.invoke(json!({ "do": "sleep", "ms": 600_000 })).await);
    assert_eq!(kind, "Sandbox.Timedout");
    assert!(message.ends_with(" Error: Task timed out after 2.00 seconds"), "{message}");
    assert_ne!(fixture.process(json!({ "do": "echo" })).await, process);
    wait(|| fixture.seen("exited: Runtime exited with error: signal: killed")).await;
    assert_eq!(fixture.function.instances().len(), 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_an_instance_has_started_ends_with_it() {
    let is_there = |pid: u64| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // A process that has ended may still exist as a zombie.
        !status.is_empty() && !status.contains("State:\tZ")
    };
    let fixture = Fixture::start(|_| {});
    let started = fixture.process(json!({ "do": "start" })).await;
    assert!(is_there(started));
    assert!(fixture.function.kill_instance().is_some());
    wait(|| !is_there(started)).await;
    let started = fixture.process(json!({ "do": "start" })).await;
    failed(fixture.invoke(json!({ "do": "exit", "code": 1 })).await);
    wait(|| !is_there(started)).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_instance_that_uses_more_than_its_memory_is_killed_and_says_so() {
    let fixture = Fixture::start(|settings| settings.memory_mb = 128);
    let fits = json!({ "do": "memory", "mb": 64, "ms": 200 });
    assert!(matches!(fixture.invoke(fits).await, InvokeOutcome::Ok(_)));
    let process = fixture.process(json!({ "do": "echo" })).await;
    let outcome = fixture.invoke(json!({ "do": "memory", "mb": 200, "ms": 60_000 })).await;
    let InvokeOutcome::FunctionError { payload, .. } = &outcome else { panic!("{outcome:?}") };
    let payload: Value = serde_json::from_slice(payload).unwrap();
    let told = payload["errorMessage"].as_str().unwrap();
    assert!(told.ends_with("Error: Runtime exited with error: signal: killed"), "{told}");
    let (kind, message) = failed(outcome);
    assert_eq!(kind, "Runtime.ExitError");
    assert!(message.ends_with(" MB, but its MemorySize is 128 MB"), "{message}");
    assert_ne!(fixture.process(json!({ "do": "echo" })).await, process, "the process was replaced");
    let report = fixture.log();
    let used = report.split("Max Memory Used: ").skip(1).map(|rest| rest.split(' ').next());
    let used: Vec<u64> = used.map(|text| text.unwrap().parse().unwrap()).collect();
    assert!(used.iter().any(|used| *used > 128), "{used:?}");
}

#[tokio::test]
async fn a_reserved_concurrency_of_zero_throttles_every_invocation() {
    let fixture = Fixture::start(|settings| settings.concurrency = 0);
    let outcome = fixture.invoke(json!({ "do": "echo" })).await;
    let InvokeOutcome::NotInvoked(reason) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "function=`scripted` is throttled: its reserved concurrency is 0");
    assert!(fixture.function.instances().is_empty());
}

#[tokio::test]
async fn an_instance_can_be_killed_in_the_middle_or_lose_its_answer() {
    let fixture = Fixture::start(|_| {});
    assert_eq!(fixture.function.kill_instance(), None);
    let (outcome, ()) =
        tokio::join!(fixture.invoke(json!({ "do": "sleep", "ms": 60_000 })), async {
            fixture.busy().await;
            assert!(fixture.function.kill_instance().is_some());
        });
    let (kind, message) = failed(outcome);
    assert_eq!(kind, "Runtime.ExitError");
    assert!(message.ends_with("Runtime exited with error: signal: killed"), "{message}");

    fixture.function.lose_answers(1);
    let (kind, _) = failed(fixture.invoke(json!({ "do": "print", "line": "work is done" })).await);
    assert_eq!(kind, "Runtime.ExitError");
    assert!(fixture.log().contains(" work is done\n"));

    // If an idle instance is killed, no invocation fails.
    let process = fixture.process(json!({ "do": "echo" })).await;
    assert_eq!(fixture.function.kill_instance().map(u64::from), Some(process));
    assert_ne!(fixture.process(json!({ "do": "echo" })).await, process);
}

#[tokio::test]
async fn instances_are_started_when_all_are_busy_up_to_the_concurrency() {
    let fixture = Fixture::start(|settings| settings.concurrency = 2);
    fixture.process(json!({ "do": "echo" })).await;
    fixture.process(json!({ "do": "echo" })).await;
    assert_eq!(fixture.function.instances().len(), 1, "sequential invocations need one instance");
    let sleeps = (0..5).map(|_| fixture.process(json!({ "do": "sleep", "ms": 1_000 })));
    let mut processes = join_all(sleeps).await;
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 2);
    assert_eq!(fixture.function.instances().len(), 2);
}

#[tokio::test]
async fn a_function_that_does_not_start_says_why_and_is_not_started_without_end() {
    let fixture = Fixture::start(|settings| {
        settings.environment.insert("FAIL_INIT".to_owned(), "no luck".to_owned());
    });
    let (kind, message) = failed(fixture.invoke(json!({ "do": "echo" })).await);
    assert_eq!(kind, "Runtime.ExitError");
    assert!(message.contains("exit status 1"), "{message}");
    assert!(message.contains("this function was told to fail"), "{message}");
    let started = Instant::now();
    for _ in 0..3 {
        failed(fixture.invoke(json!({ "do": "echo" })).await);
    }
    let pauses = Duration::from_millis(100 + 200 + 400);
    assert!(started.elapsed() >= pauses, "each start waits longer than the one before");

    let fixture = Fixture::start(|settings| {
        settings.environment.insert("FAIL_INIT".to_owned(), "hang".to_owned());
        settings.init_timeout = Duration::from_millis(300);
    });
    let (_, message) = failed(fixture.invoke(json!({ "do": "echo" })).await);
    assert!(message.contains("did not request an invocation within 0.30 s"), "{message}");
    wait(|| fixture.function.instances().is_empty()).await;
}

#[tokio::test]
async fn payloads_have_limits_in_both_directions() {
    let fixture = Fixture::start(|_| {});
    let large = Bytes::from(vec![b' '; REQUEST_BYTES_MAX + 1]);
    let InvokeOutcome::FunctionError { message, payload, .. } =
        fixture.function.invoke(large).await
    else {
        panic!()
    };
    assert!(message.starts_with("6291457 byte payload is too large"), "{message}");
    assert!(String::from_utf8_lossy(&payload).contains("RequestTooLargeException"));
    assert!(fixture.function.instances().is_empty());
    let fits = json!({ "do": "large", "bytes": RESPONSE_BYTES_MAX - 2 });
    assert!(matches!(fixture.invoke(fits).await, InvokeOutcome::Ok(_)));
    let (kind, _) = failed(fixture.invoke(json!({ "do": "large", "bytes": 7_000_000 })).await);
    assert_eq!(kind, "Function.ResponseSizeTooLarge");
    let mut event = json!({ "do": "sleep", "ms": 0 }).to_string().into_bytes();
    event.resize(REQUEST_BYTES_MAX, b' ');
    assert!(matches!(fixture.function.invoke(event.into()).await, InvokeOutcome::Ok(_)));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    type Change = fn(&mut Settings);
    let cases: [(&str, Change, &str); 6] = [
        ("../evil", |_| {}, "not a valid name"),
        ("", |_| {}, "not a valid name"),
        ("f", |settings| settings.timeout = Duration::ZERO, "timeout must be greater"),
        ("f", |settings| settings.binary = "absent".into(), "build the function first"),
        (
            "f",
            |settings| {
                settings.environment.insert("AWS_REGION".to_owned(), "x".to_owned());
            },
            "reserved by Lambda",
        ),
        ("f", |settings| settings.log_folder = settings.binary.clone(), "cannot write log file"),
    ];
    for (name, change, part) in cases {
        let mut settings = Settings::new(name, binary(), folder.path().to_owned());
        change(&mut settings);
        let error = Function::new(settings, Arc::new(|_| {})).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_can_never_be_started_fails_and_what_is_not_there_was_not_invoked() {
    use std::os::unix::fs::PermissionsExt;
    for (text, mode, expected) in [
        ("not a program", 0o755, "exec format error: it is neither a Linux program"),
        (
            "#!/no/python3\n",
            0o755,
            "no such file or directory: its interpreter `/no/python3` does not exist",
        ),
        ("#!/bin/sh\n", 0o644, "permission denied"),
    ] {
        let fixture = Fixture::start(|settings| {
            settings.binary = settings.log_folder.join("bootstrap");
            fs::write(&settings.binary, text).unwrap();
            fs::set_permissions(&settings.binary, fs::Permissions::from_mode(mode)).unwrap();
        });
        let outcome = fixture.invoke(json!({})).await;
        let InvokeOutcome::FunctionError { message, payload, .. } = outcome else { panic!() };
        let has_type = String::from_utf8_lossy(&payload).contains("Runtime.InvalidEntrypoint");
        assert!(message.contains(expected) && has_type, "{message}");
        assert!(fixture.log().contains(expected), "{}", fixture.log());
        // A build may create the program later, so a missing program is not a permanent error.
        fs::remove_file(&fixture.function.settings().binary).unwrap();
        let InvokeOutcome::NotInvoked(reason) = fixture.invoke(json!({})).await else { panic!() };
        assert!(reason.contains("cannot start binary"), "{reason}");
    }
}

/// Starts the example on a Runtime API of the test, without the pool, so that nothing kills it.
async fn orphan(folder: &Path) -> (server::gate::Listener, Arc<Mailbox>, tokio::process::Child) {
    let (kill, _) = tokio::sync::mpsc::channel(1);
    let mailbox = Arc::new(Mailbox::new(kill, Arc::default()));
    let listener = runtime_api::serve(mailbox.clone()).await.unwrap();
    let settings = Settings::new("scripted", binary(), folder.to_owned());
    let variables = environment::variables(&settings, listener.address(), 1, None);
    let child = Command::new(binary())
        .env_clear()
        .envs(variables)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    (listener, mailbox, child)
}

#[tokio::test]
async fn an_instance_ends_by_itself_when_its_runner_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    // An idle process ends, because its request for the next invocation fails.
    let (listener, mailbox, mut child) = orphan(folder.path()).await;
    wait(|| mailbox.is_ready()).await;
    drop(listener);
    let status = timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert!(!status.success());

    // A busy process ends, because its response fails.
    let (listener, mailbox, mut child) = orphan(folder.path()).await;
    let (received, was_taken) = tokio::sync::oneshot::channel();
    let (reply, _replied) = tokio::sync::oneshot::channel();
    mailbox.put(runtime_api::Delivery {
        request_id: "r-1".to_owned(),
        function_arn: "arn".to_owned(),
        timeout: Duration::from_secs(60),
        payload: json!({ "do": "sleep", "ms": 300 }).to_string().into(),
        received,
        reply,
    });
    was_taken.await.unwrap();
    drop(listener);
    let status = timeout(LIMIT, child.wait()).await.unwrap().unwrap();
    assert!(!status.success());
}

#[tokio::test]
async fn an_invocation_that_nobody_waits_for_any_more_is_ended() {
    let fixture = Fixture::start(|_| {});
    let invoked = fixture.invoke(json!({ "do": "sleep", "ms": 60_000 }));
    assert!(timeout(Duration::from_millis(1_500), invoked).await.is_err());
    wait(|| fixture.function.instances().is_empty()).await;
    // Dropping the last clone ends the idle instances.
    let process = fixture.process(json!({ "do": "echo" })).await;
    let alive = move || Path::new(&format!("/proc/{process}")).exists();
    assert!(alive() || !cfg!(target_os = "linux"));
    drop(fixture);
    wait(|| !alive()).await;
}

#[tokio::test]
async fn every_line_is_told_with_its_invocation() {
    let fixture = Fixture::start(|_| {});
    // Some lines arrive before the response of their invocation, and some after it.
    for number in 0..30 {
        let line = format!("line {number}");
        fixture.invoke(json!({ "do": "print", "line": line })).await;
        let told = |within: bool| fixture.seen(&format!("line, in invocation {within}: {line}"));
        wait(|| told(true) || told(false)).await;
        assert!(told(true), "{}", fixture.log());
    }
}

/// A source of keys. It first returns keys that expire soon, then keys that last longer.
#[derive(Debug)]
struct Renewing(Mutex<Vec<(&'static str, u64)>>);

impl ProvideCredentials for Renewing {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let (key, seconds) = self.0.lock().unwrap().pop().unwrap();
        let end = SystemTime::now() + Duration::from_secs(seconds);
        let found = aws_credential_types::Credentials::new(key, "secret", None, Some(end), "test");
        future::ProvideCredentials::ready(Ok(found))
    }
}

/// Goal: no invocation runs with expired keys, and the replacement of an instance fails no attempt.
#[tokio::test]
async fn an_instance_is_followed_by_one_with_newer_keys() {
    let source = Renewing(Mutex::new(vec![("third", 3_600), ("second", 0), ("first", 3)]));
    let source = SharedCredentialsProvider::new(source);
    let fixture = Fixture::start(|settings| {
        settings.credentials.expires = Some(SystemTime::UNIX_EPOCH);
        settings.credentials_source = Some(source);
    });
    let ask = json!({ "do": "environment", "variable": "AWS_ACCESS_KEY_ID" });
    for expected in [Some("first"), None, Some("third"), Some("third")] {
        if expected.is_none() {
            // Half of the lifetime of the first keys has passed.
            tokio::time::sleep(Duration::from_millis(1_600)).await;
        }
        match (fixture.invoke(ask.clone()).await, expected) {
            (InvokeOutcome::Ok(body), Some(key)) => assert_eq!(body, format!("\"{key}\"")),
            (InvokeOutcome::NotInvoked(why), None) => assert!(why.contains("expired"), "{why}"),
            (outcome, _) => panic!("{expected:?}: {outcome:?}"),
        }
    }
    // The instance with the first keys has ended, and the instance with the newer keys still runs.
    wait(|| fixture.function.instances().len() == 1).await;
}

/// Goal: after a new build, the next invocation runs the new program, even if warm instances of the
/// old program exist. While a build is incomplete, the old program still runs.
#[tokio::test]
async fn a_program_that_is_built_anew_runs_from_the_next_invocation_on() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bootstrap");
    fs::copy(binary(), &program).unwrap();
    let fixture = Fixture::start(|settings| settings.binary.clone_from(&program));
    let echo = json!({ "do": "echo" });
    let sleep = json!({ "do": "sleep", "ms": 500 });
    join_all([fixture.process(sleep.clone()), fixture.process(sleep)]).await;
    let warm = fixture.function.instances();
    assert_eq!(warm.len(), 2);
    let is_warm = |process: u64| warm.iter().any(|pid| u64::from(*pid) == process);
    fs::remove_file(&program).unwrap();
    assert!(is_warm(fixture.process(echo.clone()).await), "no other instance runs");
    assert!(!fixture.seen("built anew"));
    fs::copy(binary(), &program).unwrap();
    let process = fixture.process(echo.clone()).await;
    assert!(!is_warm(process));
    wait(|| fixture.function.instances().len() == 1).await;
    assert_eq!(fixture.process(echo).await, process);
    let events = fixture.events.lock().unwrap();
    assert_eq!(events.iter().filter(|seen| *seen == "built anew").count(), 1);
}

#[tokio::test]
async fn people_invoke_functions_by_name() {
    let fixture = Fixture::start(|_| {});
    let bound =
        BoundListener::new("Lambda Invoke API", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let endpoint = InvokeEndpoint::start([fixture.function.clone()], bound, AllowList::default());
    let http = legacy::Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let send = |name: &str, kind: &str, body: &str| {
        let uri = format!("{}/2015-03-31/functions/{name}/invocations", endpoint.url());
        let request = Request::post(uri).header("x-amz-invocation-type", kind);
        let sent = http.request(request.body(Full::new(body.to_owned().into())).unwrap());
        async move {
            let (parts, body) = sent.await.unwrap().into_parts();
            let error = parts.headers.get("x-amz-function-error").is_some();
            let body = body.collect().await.unwrap().to_bytes();
            (parts.status.as_u16(), error, String::from_utf8(body.to_vec()).unwrap())
        }
    };
    let (status, error, body) = send("scripted", "RequestResponse", r#"{"do":"sleep"}"#).await;
    assert_eq!((status, error), (200, false), "{body}");
    let failing = r#"{"do":"error","message":"why"}"#;
    let (status, error, body) = send("scripted", "RequestResponse", failing).await;
    assert_eq!((status, error), (200, true), "{body}");
    assert!(body.contains(r#""errorMessage":"why""#), "{body}");
    for (name, kind, body, expected) in [
        ("absent", "RequestResponse", "{}", 404),
        ("scripted", "RequestResponse", "{", 400),
        ("scripted", "Nonsense", "{}", 400),
        ("scripted", "DryRun", "{}", 204),
        ("scripted", "Event", r#"{"do":"print","line":"async"}"#, 202),
    ] {
        let (status, _, answer) = send(name, kind, body).await;
        assert_eq!(status, expected, "{name} {kind} {body}: {answer}");
    }
    wait(|| fixture.log().contains(" async\n")).await;
    endpoint.shutdown().await;
}
