//! `weir streams tail --since`, `weir streams redrive --since`, and the remark of `weir status`
//! about a filter whose attribute does not exist. The records have two different times, and there
//! are failure objects to replay.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{TO_BUCKET, Up, pets_project, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(120);
const MINUTE_MS: u64 = 60_000;

/// A function that fails while the file `broken` exists, next to the file of the keys that it has
/// processed.
const FUNCTION: &str = r#"
import os

def handler(event, context):
    if os.path.exists(os.path.join(os.environ["PLACE"], "broken")):
        raise ValueError("broken")
    with open(os.path.join(os.environ["PLACE"], "keys"), "a") as file:
        for record in event["Records"]:
            file.write(record["dynamodb"]["Keys"]["id"]["S"] + "\n")
    return {"batchItemFailures": []}
"#;

/// Creates a project with a table, a bucket, and two functions: [`FUNCTION`], and a function whose
/// filter has a misspelt attribute.
fn project() -> TempDir {
    let misspelt = "FilterCriteria: {Filters: [{Pattern: '{\"dynamodb\":{\"NewImage\":{\"tennant\":{\"S\":[\"7\"]}}}}'}]}";
    pets_project(FUNCTION, &[("Works", TO_BUCKET), ("Misspelt", misspelt)])
}

/// Puts an item, and waits until the broken function's record is discarded into the bucket.
fn discard(up: &Up, key: &str, discarded: u64) {
    let item = json!({"id": {"S": key}, "tenant": {"S": "7"}});
    up.store.ok("PutItem", &json!({"TableName": "pets", "Item": item}));
    wait_for(key, LIMIT, || {
        let rows = rows(up, &["status"]);
        let of_it = |row: &&Value| row["mapping"] == "WorksPets" && !row["read"].is_null();
        (rows.iter().find(of_it)?["discarded"] == discarded).then_some(())
    });
}

/// Runs a command that must succeed, and returns the JSON objects that it prints, one per line.
fn rows(up: &Up, arguments: &[&str]) -> Vec<Value> {
    let arguments = [arguments, &["--output", "ndjson"]].concat();
    let output = weir(up.folder.path(), &arguments);
    let (said, error) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(said)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the keys that the function has processed.
fn processed(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("keys")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn records_and_failure_objects_since_a_time() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|it| it.status.success()) {
        println!("left out: `python3` is not on this machine");
        return;
    }
    let folder = project();
    fs::write(folder.path().join("broken"), "").unwrap();
    let up = Up::start_in(folder, &[]);
    discard(&up, "one", 1);
    up.store.advance_clock(20 * MINUTE_MS);
    discard(&up, "two", 2);
    discard(&up, "three", 3);

    // Records of different shards are not ordered.
    let seen = |since: &str| -> BTreeSet<String> {
        let rows = rows(&up, &["streams", "tail", "pets", "--since", since, "--no-follow"]);
        let key = |row: &Value| row["dynamodb"]["Keys"]["id"]["S"].as_str().unwrap().to_owned();
        rows.iter().map(key).collect()
    };
    let keys =
        |keys: &[&str]| -> BTreeSet<String> { keys.iter().map(|it| (*it).to_owned()).collect() };
    assert_eq!(seen("10m"), keys(&["two", "three"]));
    assert_eq!(seen("2h"), keys(&["one", "two", "three"]));
    let nothing = weir(up.folder.path(), &["streams", "tail", "pets", "--no-follow"]);
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert!(nothing.stdout.is_empty() && said.contains("--no-follow has no effect"), "{said}");

    let said = weir(up.folder.path(), &["status"]).stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    let expected = "the first record has no `dynamodb.NewImage.tennant`; did you mean `tenant`?";
    assert!(said.contains(expected), "{said}");

    fs::remove_file(up.folder.path().join("broken")).unwrap();
    let redriven = rows(&up, &["streams", "redrive", "--since", "10m"]);
    let outcomes: Vec<&str> = redriven.iter().map(|row| row["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["done", "done"], "{redriven:?}");
    assert_eq!(processed(up.folder.path()), ["two", "three"]);
    // A second replay skips failure objects that were already redriven.
    assert_eq!(rows(&up, &["streams", "redrive", "--since", "2h"]).len(), 1);
    assert_eq!(processed(up.folder.path()), ["two", "three", "one"]);
}
