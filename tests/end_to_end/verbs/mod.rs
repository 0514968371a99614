//! Tests of each subcommand of `weir` with a running `weir up`: its data on standard output and its
//! exit code.

mod since;

use std::fs;
use std::process::{Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Up, binary, root, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(90);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a subcommand that must succeed, and returns the JSON objects that it prints, one per line.
fn objects(up: &Up, arguments: &[&str]) -> Vec<Value> {
    let arguments: Vec<&str> = arguments.iter().chain(&["--output", "ndjson"]).copied().collect();
    let output = weir(up.folder.path(), &arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {} {error}", output.status);
    text(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn code(up: &Up, arguments: &[&str]) -> i32 {
    weir(up.folder.path(), arguments).status.code().unwrap()
}

#[test]
fn every_verb_works_with_a_running_system() {
    let up = Up::start(&[]);
    let vote = json!({
        "TableName": "votes", "Key": {"slot": {"S": "poll#3"}},
        "UpdateExpression": "ADD votes :one", "ExpressionAttributeValues": {":one": {"N": "1"}},
    });
    up.store.ok("UpdateItem", &vote);
    wait_for("the total", LIMIT, || (!up.store.scan("totals").is_empty()).then_some(()));

    streams(&up);
    filtered_records_are_counted(&up);
    time_and_expiry(&up);
    functions(&up);
    assert_eq!(code(&up, &["status"]), 0);
    until_worked_off(&up);
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&weir(up.folder.path(), &["completions", shell]));
        assert!(script.contains("streams") && script.contains("weir"), "{shell}");
    }
    let template = root().join("template.yaml");
    let checked = weir(up.folder.path(), &["check", "--template", template.to_str().unwrap()]);
    assert!(checked.status.success());
    let said = text(&checked);
    assert!(said.contains("0 errors, 0 warnings"), "{said}");
    assert!(said.starts_with("not emulated:"), "{said}");
    assert_eq!(code(&up, &["check", "--template", "nowhere.yaml"]), 1);
    assert_eq!(code(&up, &["no-such-verb"]), 2);
    addresses(&up);
    let doctor = weir(up.folder.path(), &["doctor", "--template", template.to_str().unwrap()]);
    assert!(!text(&doctor).is_empty());
}

fn until_worked_off(up: &Up) {
    let began = Instant::now();
    loop {
        let status = weir(up.folder.path(), &["status", "--exit-code"]);
        if status.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&status.stderr);
        assert!(began.elapsed() < LIMIT, "still not worked off:\n{}\n{said}", text(&status));
        sleep(Duration::from_millis(100));
    }
}

/// Checks that a missing or wrong name is reported in one line.
fn addresses(up: &Up) {
    let s3 = fs::read_to_string(up.folder.path().join(".weir/running.json")).unwrap();
    let s3: Value = serde_json::from_str(&s3).unwrap();
    let s3 = s3["s3"].as_str().unwrap();
    let dead = "http://127.0.0.1:1";
    let refused = "`http://127.0.0.1:1` does not answer (Connection refused";
    let cases: [(&[&str], &str); 8] = [
        (&["streams", "shards", "nosuch"], "unknown table `nosuch`; tables with a stream: "),
        (&["streams", "tail", "totals"], "has no stream; tables with a stream: "),
        (&["streams", "ls", "--endpoint", "localhost:81"], "write http://localhost:81"),
        (&["streams", "ls", "--endpoint", dead], refused),
        (&["clock", "show", "--endpoint", dead], refused),
        (&["clock", "show", "--endpoint", s3], "is not a store of `weir`"),
        (&["migrate", "list", "--endpoint", dead], refused),
        (
            &["streams", "explain", "--last", "--table", "nosuch"],
            "no stream record of table `nosuch`",
        ),
    ];
    for (arguments, words) in cases {
        let output = weir(up.folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!said.contains("ServiceError") && said.len() < 600, "{arguments:?}: {said}");
    }
    assert_eq!(code(up, &["logs", "counters", "--request", "nosuch"]), 1);
    // A folder can have only one running system, because commands in the folder could not
    // distinguish two systems.
    let template = root().join("template.yaml");
    let second = ["up", "--port", "0", "--s3-port", "0", "--directory", ".weir/other"];
    let flags = [&second[..], &["--template", template.to_str().unwrap()]].concat();
    let second = weir(up.folder.path(), &flags);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && said.contains("is already running in this folder"),
        "{said}"
    );
    assert_eq!(code(up, &["status"]), 0);
}

fn streams(up: &Up) {
    let listed = objects(up, &["streams", "ls"]);
    assert!(listed.iter().any(|stream| stream["table"] == "votes"), "{listed:?}");
    assert_eq!(objects(up, &["streams", "shards", "votes"]).len(), 4);
    let tail = ["streams", "tail", "votes", "--from", "trim-horizon", "--no-follow"];
    assert_eq!(objects(up, &tail).len(), 1);
    let none = [&tail[..], &["--filter", r#"{"eventName":["REMOVE"]}"#]].concat();
    assert_eq!(objects(up, &none).len(), 0);
    let explained = text(&weir(up.folder.path(), &["streams", "explain", "--last"]));
    assert!(explained.contains("votes") && explained.contains("delivered"), "{explained}");
    assert_eq!(code(up, &["streams", "explain", "000000000000000000000000000000000000000000"]), 1);
    redrive(up);
}

/// Checks that records that a filter drops are not counted as delivered.
fn filtered_records_are_counted(up: &Up) {
    for year in 2001..=2005 {
        let item = json!({
            "year": {"N": year.to_string()}, "title": {"S": "Weir"}, "expires_at": {"N": "1800000000"},
        });
        up.store.ok("PutItem", &json!({"TableName": "movies", "Item": item}));
    }
    until_worked_off(up);
    let rows = objects(up, &["status"]);
    let counts = |mapping: &str| {
        let of_it = |row: &&Value| row["mapping"] == mapping && !row["read"].is_null();
        let row = rows.iter().find(of_it).unwrap();
        ["read", "filtered", "delivered", "failed_invocations", "discarded"]
            .map(|name| row[name].as_u64().unwrap())
    };
    assert_eq!(counts("ArchiveFunctionExpired"), [5, 5, 0, 0, 0], "{rows:?}");
    assert_eq!(counts("VersionsFunctionChanged"), [5, 0, 5, 0, 0], "{rows:?}");
    let shown = weir(up.folder.path(), &["status"]);
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(text(&shown).contains("\n\nmapping "), "a table of its own: {}", text(&shown));
    let expected = "ArchiveFunctionExpired: the mapping's filter dropped all 5 records that it read, so function `";
    assert!(said.contains(expected), "{said}");
}

/// Checks a redrive of a failure object, in Lambda's format, whose record is still in the stream.
fn redrive(up: &Up) {
    let tail = ["streams", "tail", "votes", "--from", "trim-horizon", "--no-follow"];
    let record = objects(up, &tail).remove(0);
    let event = json!({
        "eventID": "0".repeat(32), "eventName": "INSERT", "eventVersion": "1.1",
        "eventSource": "aws:dynamodb", "awsRegion": "us-east-1",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:000000000000:table/votes/stream/2026-11-20T00:00:00.000",
        "dynamodb": {
            "Keys": {"slot": {"S": "poll#3"}},
            "NewImage": {"slot": {"S": "poll#3"}, "votes": {"N": "1"}},
            "SequenceNumber": "000000000000000000001", "SizeBytes": 20,
            "ApproximateCreationDateTime": 1_800_000_000, "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    });
    let object = json!({
        "requestContext": {
            "requestId": "r", "condition": "RetryAttemptsExhausted", "approximateInvokeCount": 1,
            "functionArn": "arn:aws:lambda:us-east-1:000000000000:function:CountersFunction",
        },
        "version": "1.0", "payload": json!({"Records": [event]}).to_string(),
    });
    let path = up.folder.path().join("failure.json");
    fs::write(&path, object.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let dry = objects(up, &["streams", "redrive", path, "--dry-run"]);
    assert_eq!(dry[0]["outcome"], "not invoked", "{record}");
    let done = objects(up, &["streams", "redrive", path]);
    assert_eq!((&done[0]["outcome"], &done[0]["records"]), (&json!("done"), &json!(1)));
    let since = weir(up.folder.path(), &["streams", "redrive", "--since", "10m"]);
    let said = String::from_utf8_lossy(&since.stderr).into_owned();
    assert!(since.status.success() && said.contains("no failure object is left"), "{said}");
    // Repeating the redrive changes nothing, because the total already contains the vote of this
    // slot.
    assert_eq!(up.store.scan("totals")[0]["total"]["N"], "1");
}

fn time_and_expiry(up: &Up) {
    assert_eq!(objects(up, &["clock", "show"]).len(), 1);
    for action in ["freeze", "resume"] {
        assert_eq!(code(up, &["clock", action]), 0, "{action}");
    }
    let item =
        json!({"year": {"N": "2026"}, "title": {"S": "Weir"}, "expires_at": {"N": "1800000000"}});
    up.store.ok("PutItem", &json!({"TableName": "movies", "Item": item}));
    // Records that are not read before their stream is trimmed are lost, and `status` continues to
    // report them.
    until_worked_off(up);
    assert_eq!(code(up, &["clock", "advance", "10000h"]), 4, "more than a year, permanently");
    assert_eq!(code(up, &["clock", "advance", "10000h", "--yes"]), 0);
    assert_eq!(code(up, &["ttl", "sweep"]), 0);
    assert_eq!(up.store.scan("movies").len(), 0);
    assert_eq!(code(up, &["clock", "advance", "later"]), 2);
}

fn functions(up: &Up) {
    assert_eq!(code(up, &["invoke", "counters"]), 0);
    assert_eq!(code(up, &["invoke", "nobody"]), 1);
    let logs = text(&weir(up.folder.path(), &["logs", "counters"]));
    assert!(logs.contains("REPORT RequestId: ") && logs.contains("Init Duration: "), "{logs}");
    // `weir logs --follow` shows log lines that are written after the command started.
    let mut follow = binary("weir");
    let log = up.folder.path().join("followed.log");
    follow.args(["logs", "counters", "--follow"]).current_dir(up.folder.path());
    let file = fs::File::create(&log).unwrap();
    let mut following = follow.stdout(file).stderr(Stdio::null()).spawn().unwrap();
    let reports = || fs::read_to_string(&log).unwrap().matches("REPORT ").count();
    let before = wait_for("the first lines", LIMIT, || Some(reports()).filter(|count| *count > 0));
    assert_eq!(code(up, &["invoke", "counters"]), 0);
    wait_for("the new lines", LIMIT, || (reports() > before).then_some(()));
    following.kill().unwrap();
    following.wait().unwrap();
}
