//! Tests of complete migrations that use only the command line, on a store with only DynamoDB's
//! operations: two tables become one, one table becomes two, and both migrations are reverted. A
//! dry run writes nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::process::{LocalStore, Process, binary, root, wait_for, weir};
use crate::wire::Endpoint;

const LIMIT: Duration = Duration::from_secs(180);
const PLAN: &str = r#"
migration: regroup
kind: restructure
from:
  - table: cats
    items: [{to: pets, transform: '. + {kind: "cat"}', key: {p: 'cat/{p}'}}]
  - table: dogs
    items: [{to: pets, transform: '. + {kind: "dog"}', key: {p: 'dog/{p}'}}]
  - table: people
    items:
      - {to: names}
      - {to: towns, transform: 'select(.town) | {p, town}'}
inverse:
  - table: names
    items: [{to: people}]
  - table: pets
    items:
      - {to: cats, transform: 'select(.kind == "cat") | del(.kind) | .p |= ltrimstr("cat/")'}
      - {to: dogs, transform: 'select(.kind == "dog") | del(.kind) | .p |= ltrimstr("dog/")'}
segments: 2
gate_seconds: 0
function_seconds: 30
"#;

struct Migrating<'m> {
    folder: &'m Path,
    gateway: &'m Gateway,
}

impl Migrating<'_> {
    /// Runs a subcommand, and returns its exit code and its output.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let all = [&["migrate"], arguments, &["--endpoint", &self.gateway.url]].concat();
        let output = weir(self.folder, &all);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    }

    /// Runs a subcommand with `--dry-run`, and checks that it writes nothing.
    fn dry(&self, arguments: &[&str], expected: i32) {
        let before = self.gateway.writes();
        let (code, said) = self.run(arguments);
        assert_eq!(code, expected, "{arguments:?}: {said}");
        assert_eq!(self.gateway.writes(), before, "{arguments:?} wrote: {said}");
    }
}

fn create(store: &Endpoint, table: &str) {
    store.ok(
        "CreateTable",
        &json!({
            "TableName": table, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        }),
    );
}

fn put(store: &Endpoint, table: &str, item: &Value) {
    store.ok("PutItem", &json!({ "TableName": table, "Item": item }));
}

fn delete(store: &Endpoint, table: &str, key: &str) {
    store.ok("DeleteItem", &json!({ "TableName": table, "Key": {"p": {"S": key}} }));
}

/// Returns the items of a table as strings, without marks and tombstones.
pub(super) fn visible(store: &Endpoint, table: &str) -> Vec<String> {
    let items = store.scan(table).into_iter().filter_map(|mut item| {
        let mark = item.as_object_mut().unwrap().remove("_weir");
        let gone = mark.is_some_and(|mark| mark["M"].get("gone").is_some());
        (!gone).then(|| item.to_string())
    });
    let mut items: Vec<String> = items.collect();
    items.sort();
    items
}

fn prepare(store: &Endpoint) {
    for table in ["cats", "dogs", "people", "pets", "names", "towns"] {
        create(store, table);
    }
    for number in 0..25 {
        let key = json!({ "S": format!("n{number:02}") });
        put(store, "cats", &json!({ "p": key, "lives": {"N": "9"} }));
        put(store, "dogs", &json!({ "p": key, "bark": {"S": "woof"} }));
        put(store, "people", &json!({ "p": key, "name": {"S": "A"}, "town": {"S": "B"} }));
    }
}

#[test]
fn a_migration_needs_nothing_that_only_our_store_has() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let gateway = Gateway::before(store.endpoint.address());
    let store = &store.endpoint;
    prepare(store);
    fs::write(folder.path().join("plan.yaml"), PLAN).unwrap();
    let migrating = Migrating { folder: folder.path(), gateway: &gateway };
    migrating.dry(&["plan", "plan.yaml"], 0);
    migrating.dry(&["start", "plan.yaml", "--dry-run"], 0);

    let mut start = binary("weir");
    start.args(["migrate", "start", "plan.yaml", "--local-workers", "2", "--duplicate-deliveries"]);
    start.args(["--endpoint", &gateway.url, "--package"]);
    start.arg(root().join("functions/processor")).current_dir(folder.path());
    let mut worker = Process::start(start, folder.path().join("worker.log"));
    wait_for("the backfill", LIMIT, || {
        assert!(!worker.has_ended(), "{}", worker.log());
        let (code, said) = migrating.run(&["status", "regroup"]);
        (code == 0 && said.contains("tailing")).then_some(())
    });
    put(store, "cats", &json!({ "p": {"S": "new"}, "lives": {"N": "7"} }));
    put(store, "people", &json!({ "p": {"S": "n01"}, "name": {"S": "C"} }));
    delete(store, "dogs", "n02");
    migrating.ok(&["verify", "regroup"]);
    migrating.dry(&["cutover", "regroup", "--dry-run"], 0);
    migrating.ok(&["cutover", "regroup"]);
    let pets = visible(store, "pets");
    assert_eq!(pets.len(), 26 + 24, "{pets:?}");
    assert!(pets.contains(&r#"{"kind":{"S":"cat"},"lives":{"N":"7"},"p":{"S":"cat/new"}}"#.into()));
    assert_eq!(visible(store, "names").len(), 25);
    assert!(visible(store, "names").contains(&r#"{"name":{"S":"C"},"p":{"S":"n01"}}"#.into()));
    assert_eq!(visible(store, "towns").len(), 24);
    a_late_put_brings_nothing_back(store);

    migrating.dry(&["revert", "regroup", "--dry-run"], 0);
    put(
        store,
        "pets",
        &json!({ "p": {"S": "cat/n03"}, "lives": {"N": "8"}, "kind": {"S": "cat"} }),
    );
    delete(store, "pets", "dog/n04");
    // An update of a tombstone keeps the mark, but turns the tombstone into an item.
    store.ok(
        "UpdateItem",
        &json!({
            "TableName": "pets", "Key": {"p": {"S": "dog/n02"}},
            "UpdateExpression": "SET kind = :kind, bark = :bark",
            "ExpressionAttributeValues": {":kind": {"S": "dog"}, ":bark": {"S": "again"}},
        }),
    );
    let said = migrating.ok(&["revert", "regroup"]);
    assert!(said.contains("regroup is reverted"), "{said}");
    assert!(
        said.contains("`towns` may still contain marks and tombstones (attribute `_weir`)"),
        "{said}"
    );
    let cats = store.scan("cats");
    let dogs = store.scan("dogs");
    assert_eq!((cats.len(), dogs.len()), (26, 24));
    assert!(dogs.contains(&json!({ "p": {"S": "n02"}, "bark": {"S": "again"} })), "{dogs:?}");
    assert!(cats.contains(&json!({ "p": {"S": "n03"}, "lives": {"N": "8"} })), "{cats:?}");
    assert!(cats.iter().all(|item| item.get("_weir").is_none()), "{cats:?}");
    wait_for("the worker to end", LIMIT, || worker.has_ended().then_some(()));
    assert!(gateway.refused() > 0);
}

/// Simulates an invocation that began before the cut-over and was blocked until now: the function
/// puts an item that was deleted in the meantime.
fn a_late_put_brings_nothing_back(store: &Endpoint) {
    let stands = store.scan("pets");
    let tombstone = stands.iter().find(|item| item["p"]["S"] == "dog/n02").unwrap();
    let from = tombstone["_weir"]["M"]["from"].clone();
    let stamp = json!({ "S": format!("/{}", "0".repeat(40)) });
    let late = store.send(
        "PutItem",
        &json!({
            "TableName": "pets",
            "Item": {
                "p": {"S": "dog/n02"}, "kind": {"S": "dog"},
                "_weir": {"M": {"from": from, "at": stamp}},
            },
            "ConditionExpression": "attribute_not_exists(p) OR (#m.#f = :f AND #m.#a < :a AND attribute_not_exists(#m.#n))",
            "ExpressionAttributeNames": {"#m": "_weir", "#f": "from", "#a": "at", "#n": "more"},
            "ExpressionAttributeValues": {":f": from, ":a": stamp},
        }),
    );
    assert_eq!(late.error(), "ConditionalCheckFailedException", "{}", late.body);
}

#[test]
fn a_migration_that_was_begun_can_be_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let gateway = Gateway::before(store.endpoint.address());
    prepare(&store.endpoint);
    fs::write(folder.path().join("plan.yaml"), PLAN).unwrap();
    let migrating = Migrating { folder: folder.path(), gateway: &gateway };
    // No worker runs, so only the subcommands below write.
    migrating.ok(&["start", "plan.yaml"]);
    migrating.dry(&["start", "plan.yaml"], 0);
    migrating.dry(&["status", "regroup"], 0);
    migrating.dry(&["cutover", "regroup"], 4);
    migrating.dry(&["abort", "regroup", "--dry-run"], 0);
    migrating.ok(&["abort", "regroup"]);
    migrating.dry(&["abort", "regroup"], 0);
    let journal = migrating.ok(&["journal", "regroup", "--output", "ndjson"]);
    let phases: Vec<Value> = journal
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|entry| entry["to"].clone())
        .collect();
    assert_eq!(phases, ["preparing", "copying", "aborted"]);
    assert!(gateway.refused() > 0);
}

#[test]
fn a_plan_reports_its_effects_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let gateway = Gateway::before(store.endpoint.address());
    prepare(&store.endpoint);
    // Two dogs have the same key, and one dog has no key.
    let plan = r#"
migration: regroup
kind: restructure
from:
  - table: cats
    items: [{to: pets, transform: 'if .p == "n00" then .p = "rare" else .p = "common-" + .p end'}]
  - table: dogs
    items: [{to: names, transform: 'if .p == "n01" then .p = "n02" elif .p == "n03" then del(.p) else . end'}]
"#;
    fs::write(folder.path().join("plan.yaml"), plan).unwrap();
    let migrating = Migrating { folder: folder.path(), gateway: &gateway };
    migrating.dry(&["plan", "plan.yaml"], 3);
    let (_, said) = migrating.run(&["plan", "plan.yaml", "--output", "json"]);
    let report: Value =
        said.lines().find_map(|line| serde_json::from_str(line).ok()).expect("a report");
    assert_eq!(report["schema"], "weir.migration.plan/v1");
    assert_eq!((&report["source_items"], &report["tried"]), (&json!(50), &json!(50)));
    let bytes = |name: &str| report[name].as_f64().unwrap();
    assert!(bytes("target_bytes") > 49.0 && bytes("source_bytes") > 50.0, "{report}");
    // The targets of 25 cats and 24 dogs take one write unit each, and the removal of each target's
    // mark takes another one.
    assert_eq!(report["write_units"], json!(98.0));
    assert_eq!((&report["collisions_count"], &report["refused_count"]), (&json!(1), &json!(1)));
    let first = |name: &str| report[name][0].as_str().unwrap_or_default().to_owned();
    assert!(first("collisions").contains("n02"), "{report}");
    assert!(first("refused").contains("n03"), "{report}");
    for dollars in ["on_demand_dollars", "provisioned_dollars"] {
        assert!(report[dollars].as_f64().is_some_and(|dollars| dollars > 0.0), "{report}");
    }
    assert!(report["seconds_at_least"].as_f64().is_some_and(|seconds| seconds >= 1.0));
    assert_eq!(report["invertible"], false);
    let sample = &report["samples"][0];
    assert!(sample["before"].as_str().unwrap().starts_with("cats: "), "{report}");
    assert!(sample["after"][0].as_str().unwrap().starts_with("pets: "), "{report}");
    assert_eq!(report["hot_partitions"], json!([]));

    let hot = plan.replace(r#""common-" + .p"#, r#""common""#);
    fs::write(folder.path().join("plan.yaml"), hot).unwrap();
    let (_, said) = migrating.run(&["plan", "plan.yaml", "--output", "json"]);
    let report: Value =
        said.lines().find_map(|line| serde_json::from_str(line).ok()).expect("a report");
    let hot = report["hot_partitions"].to_string();
    assert!(hot.contains("common") && hot.contains("24 of 49"), "{hot}");
}
