//! Test of the places where Weir keeps values of items after a purge. It compares the files in the
//! data folder with the places that the receipt lists. `plan/value_copies.rs` compares these places
//! with the documentation page.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Process, TO_BUCKET, Up, binary, pets_project, root, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(240);
/// A value that occurs only in purged items.
const SECRET: &str = "zebra-4711-quartz";
const PLAN: &str = r#"migration: leaves
kind: purge
from:
  - table: pets
    where: '.tenant == "7"'
segments: 2
gate_seconds: 0
function_seconds: 10
"#;
/// A function that fails, with the item in its error message.
const FUNCTION: &str = r#"
def handler(event, context):
    for record in event["Records"]:
        image = record["dynamodb"].get("NewImage", {})
        if image.get("tenant", {}).get("S") == "7":
            raise ValueError("cannot read " + image["name"]["S"])
    return {"batchItemFailures": []}
"#;

/// The paths below `.weir` whose files may contain the value, each with the beginning of the place
/// in the receipt.
const ALLOWED: [(&str, &str); 7] = [
    ("up/state/", "log and files of the local store"),
    ("up/logs/", "logs of the functions"),
    ("up/journal/", "error messages of functions"),
    ("up/status.json", "error messages of functions"),
    ("up/s3/failures/", "objects of the failures bucket"),
    ("migrate/", "quarantined records and logs of local workers"),
    ("put-aside", "lines that `weir load` has put aside"),
];

/// Creates a project with a table, a bucket, a function that fails, and a function whose filter
/// matches no item.
fn project() -> TempDir {
    let filter = "FilterCriteria: {Filters: [{Pattern: '{\"dynamodb\":{\"NewImage\":{\"name\":{\"S\":[\"never\"]}}}}'}]}";
    let folder = pets_project(FUNCTION, &[("Fails", TO_BUCKET), ("Filters", filter)]);
    fs::write(folder.path().join("plan.yaml"), PLAN).unwrap();
    fs::write(folder.path().join("bad.csv"), format!("id,n\nx,{SECRET}\n")).unwrap();
    folder
}

/// Returns the files below a folder whose bytes contain the value, with relative paths.
fn files_with_the_value(folder: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            // The store may delete a file in the meantime.
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = fs::read(&path)
                && bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
            {
                found.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found
}

fn ok(up: &Up, arguments: &[&str]) -> String {
    let output = weir(up.folder.path(), arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {} {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Purges the items of a tenant, and returns the receipt.
fn purge(up: &Up) -> Value {
    let package = root().join("functions/processor").display().to_string();
    let mut start = binary("weir");
    start.args(["migrate", "start", "plan.yaml", "--local-workers", "2", "--package", &package]);
    start.current_dir(up.folder.path());
    let _worker = Process::start(start, up.folder.path().join("worker.log"));
    wait_for("the migration to start", LIMIT, || {
        let status = weir(up.folder.path(), &["migrate", "status", "leaves"]);
        status.status.success().then_some(())
    });
    ok(up, &["migrate", "wait", "leaves", "--timeout", "240"]);
    ok(up, &["migrate", "verify", "leaves"]);
    serde_json::from_str(ok(up, &["migrate", "complete", "leaves"]).trim()).unwrap()
}

#[test]
fn after_a_purge_values_remain_only_where_the_receipt_says() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|it| it.status.success()) {
        println!("left out: `python3` is not on this machine");
        return;
    }
    let up = Up::start_in(project(), &[]);
    for number in 0..10 {
        let tenant = if number % 2 == 0 { "7" } else { "8" };
        let name = if number % 2 == 0 { SECRET } else { "other" };
        let item = json!({
            "id": {"S": format!("p{number}")}, "tenant": {"S": tenant}, "name": {"S": name},
        });
        up.store.ok("PutItem", &json!({"TableName": "pets", "Item": item}));
    }
    let load = ["load", "--table", "pets", "--format", "csv", "--types", "n:N", "bad.csv"];
    assert!(!weir(up.folder.path(), &load).status.success());
    wait_for("every record to have an end", LIMIT, || {
        let rows = ok(&up, &["status", "--output", "ndjson"]);
        let rows: Vec<Value> =
            rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let count = |mapping: &str, name: &str| {
            let of_it = |row: &&Value| row["mapping"] == mapping && !row["read"].is_null();
            rows.iter().find(of_it).map(|row| row[name].as_u64().unwrap())
        };
        let is_over = count("FiltersPets", "filtered") == Some(10)
            && count("FailsPets", "discarded") > Some(0);
        is_over.then_some(())
    });
    let receipt = purge(&up);
    assert_eq!((&receipt["left"], up.store.scan("pets").len()), (&json!(0), 5), "{receipt}");

    let kept = receipt["kept"].as_array().unwrap();
    let mut places = BTreeSet::new();
    for file in files_with_the_value(&up.folder.path().join(".weir")) {
        let of_file = ALLOWED.iter().find(|(path, _)| file.starts_with(path));
        let (_, place) = of_file.unwrap_or_else(|| panic!("`{file}` holds a value"));
        let is_told = |entry: &Value| entry["place"].as_str().unwrap().starts_with(place);
        assert!(kept.iter().any(is_told), "{file}: {place}: {receipt}");
        places.insert(*place);
    }
    // The search must find the value in each of these places; otherwise the search does not work.
    for place in ["log and files", "logs of", "error messages", "objects of", "lines that"] {
        assert!(places.iter().any(|found| found.starts_with(place)), "{place}: {places:?}");
    }
    // In the journal, only error messages of functions contain values.
    let journal = fs::read_dir(up.path("journal")).unwrap();
    for segment in journal.map(|entry| entry.unwrap().path()) {
        for line in fs::read_to_string(segment).unwrap().lines().filter(|it| it.contains(SECRET)) {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["kind"], "failed", "{line}");
        }
    }
}
