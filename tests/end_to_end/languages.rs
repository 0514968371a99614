//! Tests of handlers in Python and Node in `weir up`: records of a stream reach the handlers, even
//! under faults, after a change of the source, and after an error. If this machine lacks the
//! interpreter of a language, the test skips that language with a message.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use crate::process::{Up, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(120);

/// A handler that writes an item for each record by plain HTTP, so that it requires no package.
const PYTHON: &str = r#"
import json, os, urllib.request
MARK = "python"

def put(text):
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL_DYNAMODB"], json.dumps(
        {"TableName": os.environ["SEEN"], "Item": {"id": {"S": text}}}).encode())
    for name, value in {
        "x-amz-target": "DynamoDB_20120810.PutItem", "content-type": "application/x-amz-json-1.0",
        "authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0",
    }.items():
        request.add_header(name, value)
    urllib.request.urlopen(request).read()

def handler(event, context):
    for record in event.get("Records", []):
        key = record["dynamodb"]["Keys"]["id"]["S"]
        print("saw", key)
        if key == "bad":
            raise ValueError("no bad items")
        put(MARK + " " + key)
    return {"batchItemFailures": []}
"#;

const NODE: &str = r#"
const mark = 'node';

async function put(text) {
    const response = await fetch(process.env.AWS_ENDPOINT_URL_DYNAMODB, {
        method: 'POST',
        headers: {
            'x-amz-target': 'DynamoDB_20120810.PutItem', 'content-type': 'application/x-amz-json-1.0',
            authorization: 'AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0',
        },
        body: JSON.stringify({ TableName: process.env.SEEN, Item: { id: { S: text } } }),
    });
    if (!response.ok) throw new Error(await response.text());
}

export const handler = async (event) => {
    for (const record of event.Records ?? []) {
        const key = record.dynamodb.Keys.id.S;
        console.log('saw', key);
        if (key === 'bad') throw new TypeError('no bad items');
        await put(`${mark} ${key}`);
    }
    return { batchItemFailures: [] };
};
"#;

/// Returns the runtime, program, file and code of each language whose interpreter is installed.
fn languages() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let all = [
        ("Python", "python3", "python3.13", "app.py", PYTHON),
        ("Node", "node", "nodejs22.x", "app.mjs", NODE),
    ];
    let is_here = |program: &str| {
        let answer = Command::new(program).arg("--version").output();
        answer.is_ok_and(|answer| answer.status.success())
    };
    let mut here = Vec::new();
    for (language, program, runtime, file, code) in all {
        if is_here(program) {
            here.push((language, runtime, file, code));
        } else {
            println!("{language} is left out: `{program}` is not on this machine");
        }
    }
    here
}

/// Creates a folder with a template of two tables, and a function in each language on the stream of
/// the first table.
fn project() -> TempDir {
    let table = |name: &str, more: &str| {
        format!(
            "  {name}:\n    Type: AWS::DynamoDB::Table\n    Properties:\n      TableName: {name}\n      \
             BillingMode: PAY_PER_REQUEST\n      AttributeDefinitions: [{{AttributeName: id, AttributeType: S}}]\n      \
             KeySchema: [{{AttributeName: id, KeyType: HASH}}]\n{more}"
        )
    };
    let stream = "      StreamSpecification: {StreamViewType: NEW_IMAGE}\n";
    let mut template = format!(
        "Transform: AWS::Serverless-2016-10-31\nResources:\n{}{}",
        table("people", stream),
        table("seen", "")
    );
    let folder = tempfile::tempdir().unwrap();
    for (language, runtime, file, code) in languages() {
        let code_folder = folder.path().join(language);
        fs::create_dir(&code_folder).unwrap();
        fs::write(code_folder.join(file), code).unwrap();
        template += &format!(
            "  {language}Function:\n    Type: AWS::Serverless::Function\n    Properties:\n      Runtime: {runtime}\n      \
             CodeUri: {language}\n      Handler: app.handler\n      Timeout: 30\n      Environment: {{Variables: {{SEEN: !Ref seen}}}}\n      \
             Events:\n        Changed:\n          Type: DynamoDB\n          Properties:\n            \
             Stream: !GetAtt people.StreamArn\n            StartingPosition: TRIM_HORIZON\n            \
             MaximumRetryAttempts: 2\n            FunctionResponseTypes: [ReportBatchItemFailures]\n"
        );
    }
    fs::write(folder.path().join("template.yaml"), template).unwrap();
    folder
}

fn put(up: &Up, key: &str) {
    up.store.ok("PutItem", &json!({"TableName": "people", "Item": {"id": {"S": key}}}));
}

/// Waits until each language has written each of these keys.
fn wait_until_seen(up: &Up, marks: &[&str], keys: &[String]) {
    let wanted: BTreeSet<String> =
        marks.iter().flat_map(|mark| keys.iter().map(move |key| format!("{mark} {key}"))).collect();
    wait_for("every record to reach every handler", LIMIT, || {
        let items = up.store.scan("seen");
        let seen = items.iter().map(|item| item["id"]["S"].as_str().unwrap().to_owned());
        wanted.is_subset(&seen.collect()).then_some(())
    });
}

fn marks() -> Vec<&'static str> {
    let mark = |language: &str| if language == "Python" { "python" } else { "node" };
    languages().iter().map(|(language, ..)| mark(language)).collect()
}

/// Replaces the mark that a language's handler writes.
fn change(folder: &Path, from: &str, to: &str) {
    for (language, _, file, code) in languages() {
        let changed = code.replace(&format!("\"{from}\""), &format!("\"{to}\""));
        let changed = changed.replace(&format!("'{from}'"), &format!("'{to}'"));
        if changed != code {
            fs::write(folder.join(language).join(file), changed).unwrap();
        }
    }
}

#[test]
fn records_reach_handlers_in_python_and_node_and_a_change_is_what_runs_next() {
    let up = Up::start_in(project(), &[]);
    let keys: Vec<String> = (0..5).map(|number| format!("k{number}")).collect();
    keys.iter().for_each(|key| put(&up, key));
    wait_until_seen(&up, &marks(), &keys);
    for (language, ..) in languages() {
        let said = weir(up.folder.path(), &["invoke", &format!("{language}Function")]);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(
            String::from_utf8_lossy(&said.stdout).trim(),
            r#"{"batchItemFailures":[]}"#
                .replace(":", if language == "Python" { ": " } else { ":" })
        );
        let log = fs::read_to_string(up.path(&format!("logs/{language}Function.log"))).unwrap();
        assert!(log.contains(" saw k0"), "{log}");
    }
    change(up.folder.path(), "python", "serpent");
    change(up.folder.path(), "node", "knot");
    put(&up, "later");
    let changed: Vec<&str> =
        marks().iter().map(|mark| if *mark == "python" { "serpent" } else { "knot" }).collect();
    wait_until_seen(&up, &changed, &["later".to_owned()]);
    let explained = weir(up.folder.path(), &["streams", "explain", "--last"]);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    for (language, ..) in languages() {
        assert!(explained.contains(&format!("{language}Function")), "{explained}");
    }
    put(&up, "bad");
    for (language, ..) in languages() {
        let error = if language == "Python" { "ValueError" } else { "no bad items" };
        wait_for("the error in the log", LIMIT, || {
            let log = fs::read_to_string(up.path(&format!("logs/{language}Function.log"))).unwrap();
            log.contains(error).then_some(())
        });
    }
}

#[test]
fn faults_around_handlers_in_python_and_node_lose_no_record() {
    let up = Up::start_in(project(), &["--chaos", "11"]);
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    keys.iter().for_each(|key| put(&up, key));
    wait_until_seen(&up, &marks(), &keys);
}

#[test]
fn what_keeps_a_handler_from_running_is_named_before_it_starts() {
    let text = |properties: &str| {
        format!(
            "Transform: AWS::Serverless-2016-10-31\nResources:\n  AFunction:\n    Type: AWS::Serverless::Function\n    \
             Properties: {{{properties}}}\n"
        )
    };
    for (properties, part) in [
        (
            "Runtime: python3.13, Handler: app.run",
            "`app.py`, the file of the handler `app.run`, does not exist",
        ),
        ("Runtime: nodejs22.x, Handler: a.b, CodeUri: gone", "the folder `gone` does not exist"),
        ("Runtime: nodejs22.x, Handler: typed.run", "`typed.ts` is TypeScript"),
        ("Runtime: java21, Handler: a.B", "functions for the runtime `java21` are not supported"),
        ("Handler: app.run", "`Runtime` is missing"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("template.yaml"), text(properties)).unwrap();
        fs::write(folder.path().join("typed.ts"), "").unwrap();
        let said = weir(folder.path(), &["check"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(part) && said.contains("help: "), "{properties}: {said}");
    }
}
