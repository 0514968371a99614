//! Tests of migrations with obstacles: throttling by DynamoDB, a hook that fails, a worker that
//! held a task when its record was lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating, PLAN, SECOND_MS};
use crate::process::{LocalStore, wait_for};

const DAY_AND_MORE_MS: u64 = 26 * 60 * 60 * SECOND_MS;
/// The maximum number of seconds of throughput that a table saves for a burst.
const BURST_SECONDS: u64 = 300;

#[test]
fn throttling_is_named_and_slows_a_backfill_down_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start_with(folder.path(), &["--throughput", "enforce"]);
    let migrating = Migrating { folder: folder.path(), store: &store };
    // Each item takes 5 write units. All items take more units than a table with 5 units per second
    // saves for a burst.
    const ITEMS: usize = 500;
    migrating.prepare(5, PLAN);
    (0..ITEMS).for_each(|number| migrating.put(number, 4 * 1024));
    let mut worker = migrating.work("start", "plan.yaml");
    let mut named = BTreeSet::new();
    migrating.wait_for_phase("tailing", &mut worker, |status| {
        if let Some(reason) = status["throttled"].as_str() {
            named.insert(reason.to_owned());
            store.endpoint.advance_clock(BURST_SECONDS * SECOND_MS);
        }
    });
    let expected = "DynamoDB throttles `pets`: ProvisionedThroughputExceededException, TableWriteProvisionedThroughputExceeded";
    // On a fast machine, the table saves another burst, and `named` also contains the limit of a
    // partition.
    assert!(named.contains(expected), "{named:?}");
    let counts = &migrating.status()["backfill"]["counts"];
    assert_eq!(counts["refused"], Value::Null, "{counts}");
    assert_eq!(store.endpoint.scan("pets").len(), ITEMS);
}

/// Writes a hook that appends its arguments to a file, and fails if there is a file `no` next to
/// it. Another process writes the hook, so that no child process of another thread has it open when
/// it is started.
fn hook(folder: &Path, name: &str) {
    let path = folder.join("hooks").join(name);
    fs::create_dir_all(folder.join("hooks")).unwrap();
    let script = format!("#!/bin/sh\ncat >> '{0}/told'\ntest ! -e '{0}/no'\n", folder.display());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "cat > \"$0\" && chmod +x \"$0\""]).arg(&path);
    let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

#[test]
fn hooks_are_called_and_can_stop_a_verb() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(100, PLAN);
    (0..10).for_each(|number| migrating.put(number, 10));
    for name in ["before-cutover", "after-cutover", "on-failure"] {
        hook(folder.path(), name);
    }
    let told = || -> Vec<(String, String)> {
        let text = fs::read_to_string(folder.path().join("told")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        lines.map(|told| (text(&told["hook"]), text(&told["status"]["phase"]))).collect()
    };
    let pair = |hook: &str, phase: &str| (hook.to_owned(), phase.to_owned());
    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    migrating.ok(&["verify", "move"]);
    // A dry run calls no hooks.
    migrating.ok(&["cutover", "move", "--hooks", "hooks", "--dry-run"]);
    assert_eq!(told(), []);
    fs::write(folder.path().join("no"), "").unwrap();
    let route = migrating.status()["route"].clone();
    let (code, said) = migrating.verb(&["cutover", "move", "--hooks", "hooks"]);
    assert!(code == 4 && said.contains("nothing was changed"), "{code}: {said}");
    assert_eq!(
        (migrating.status()["phase"].clone(), &migrating.status()["route"]),
        (json!("ready"), &route)
    );
    assert_eq!(told(), [pair("before-cutover", "ready"), pair("on-failure", "ready")]);
    fs::remove_file(folder.path().join("no")).unwrap();
    migrating.ok(&["cutover", "move", "--hooks", "hooks"]);
    assert_eq!(told()[2..], [pair("before-cutover", "ready"), pair("after-cutover", "cut-over")]);
    // When the command is repeated, only the hook that runs after the switch is called again.
    migrating.ok(&["cutover", "move", "--hooks", "hooks"]);
    assert_eq!(told()[4..], [pair("after-cutover", "cut-over")]);
}

#[test]
fn a_leased_task_whose_record_was_lost_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(100, PLAN);
    (0..10).for_each(|number| migrating.put(number, 10));
    migrating.ok(&["start", "plan.yaml"]);
    // A worker leased both tasks and crashed. After that, no worker ran for more than a day.
    for segment in 0..2 {
        store.endpoint.ok(
            "UpdateItem",
            &json!({
                "TableName": "weir-migrations",
                "Key": {"migration": {"S": "move"}, "entry": {"S": format!("TASK#0#backfill#cats#{segment:04}")}},
                "UpdateExpression": "SET #o = :o, leased_until = :l, #r = #r + :one",
                "ExpressionAttributeNames": {"#o": "owner", "#r": "revision"},
                "ExpressionAttributeValues": {":o": {"S": "gone"}, ":l": {"N": "1"}, ":one": {"N": "1"}},
            }),
        );
    }
    store.endpoint.advance_clock(DAY_AND_MORE_MS);
    let mut worker = migrating.work("work", "move");
    migrating.ok(&["resume", "move"]);
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    assert_eq!(store.endpoint.scan("pets").len(), 10);
}

/// Returns the source items as strings, and whether any of them has the mark of a touch.
fn sources(store: &LocalStore) -> (Vec<String>, bool) {
    let items = store.endpoint.scan("cats");
    let marked = items.iter().any(|item| item.get("_weir_touch").is_some());
    let mut items: Vec<String> = items.iter().map(Value::to_string).collect();
    items.sort();
    (items, marked)
}

#[test]
fn a_touch_brings_each_item_through_the_stream_and_leaves_no_mark() {
    const ITEMS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, &format!("{PLAN}backfill: touch\n"));
    (0..ITEMS).for_each(|number| migrating.put(number, 10));
    let before = sources(&store);
    let mut worker = migrating.work("start", "plan.yaml");
    // The worker is killed at an item that has its mark but is not in the targets, or at a leased
    // segment. In both cases the migration must continue.
    wait_for("the touches to begin", LIMIT * 2, || {
        assert!(!worker.has_ended(), "{}", worker.log());
        (!store.endpoint.scan("pets").is_empty()).then_some(())
    });
    worker.kill();
    // Simulate a worker that was killed after it added the mark of a touch to an item, before it
    // removed the mark.
    store.endpoint.ok(
        "UpdateItem",
        &json!({
            "TableName": "cats", "Key": {"p": {"S": "n000"}},
            "UpdateExpression": "SET #t = :t", "ExpressionAttributeNames": {"#t": "_weir_touch"},
            "ExpressionAttributeValues": {":t": {"S": "move"}},
        }),
    );
    store.endpoint.ok("DeleteItem", &json!({"TableName": "cats", "Key": {"p": {"S": "n001"}}}));
    // Reset the segments, so that a worker processes the item's segment again.
    for segment in 0..2 {
        store.endpoint.ok(
            "UpdateItem",
            &json!({
                "TableName": "weir-migrations",
                "Key": {"migration": {"S": "move"}, "entry": {"S": format!("TASK#0#touch#cats#{segment:04}")}},
                "UpdateExpression": "SET done = :no, #r = #r + :one REMOVE #c",
                "ExpressionAttributeNames": {"#r": "revision", "#c": "cursor"},
                "ExpressionAttributeValues": {":no": {"BOOL": false}, ":one": {"N": "1"}},
            }),
        );
    }
    let mut worker = migrating.work("work", "move");
    migrating.ok(&["resume", "move"]);
    wait_for("all of it to arrive", LIMIT * 2, || {
        assert!(!worker.has_ended(), "{}", worker.log());
        let status = migrating.status();
        (status["backfill"]["done"] == 2 && status["stream"]["waiting"] == 0).then_some(())
    });
    let said = migrating.ok(&["verify", "move"]);
    assert!(said.contains("0 missing, 0 different, 0 extra"), "{said}");
    let (after, marked) = sources(&store);
    assert!(!marked, "marks are left: {after:?}");
    let kept: Vec<String> =
        before.0.into_iter().filter(|item| !item.contains("\"n001\"")).collect();
    assert_eq!(after, kept);
    migrating.ok(&["cutover", "move"]);
    let pets = store.endpoint.scan("pets");
    let live = pets.iter().filter(|item| item["_weir"]["M"].get("gone").is_none()).count();
    assert_eq!(live, ITEMS - 1);
}

#[test]
fn a_touch_that_is_given_up_takes_its_marks_off() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, &format!("{PLAN}backfill: touch\n"));
    (0..40).for_each(|number| migrating.put(number, 10));
    let before = sources(&store);
    migrating.ok(&["start", "plan.yaml"]);
    for number in [3, 7] {
        store.endpoint.ok(
            "UpdateItem",
            &json!({
                "TableName": "cats", "Key": {"p": {"S": format!("n{number:03}")}},
                "UpdateExpression": "SET #t = :t", "ExpressionAttributeNames": {"#t": "_weir_touch"},
                "ExpressionAttributeValues": {":t": {"S": "move"}},
            }),
        );
    }
    migrating.ok(&["abort", "move"]);
    let mut worker = migrating.work("work", "move");
    wait_for("the worker to end with its work", LIMIT * 2, || worker.has_ended().then_some(()));
    assert_eq!(sources(&store), before);
    assert_eq!(store.endpoint.scan("pets").len(), 0);
}
