//! Tests that compare the costs that `weir migrate plan` estimates with the capacity that the store
//! charges.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::migration::driver::LIMIT;
use crate::migration::meter::{Consumed, Meter};
use crate::process::{LocalStore, Process, root, wait_for, weir_on};
use crate::wire::Endpoint;

const ITEMS: usize = 2_000;
const TABLES: [&str; 2] = ["cats", "pets"];
/// The maximum relative deviation of a plan from the charge.
const TOLERANCE: f64 = 0.1;
/// A plan with two target items for every second source item. One of the two has up to two write
/// units.
const RESTRUCTURE: &str = r#"migration: move
kind: restructure
from:
  - table: cats
    items:
      - {to: pets, transform: '. + {kind: "cat"}', key: {p: 'cat/{p}'}}
      - {to: pets, transform: 'select(.age) | {p, age, kind: "age"}', key: {p: 'age/{p}'}}
segments: 2
gate_seconds: 0
function_seconds: 20
"#;
const IN_PLACE: &str = r#"migration: move
kind: in-place
from:
  - table: cats
    transform: '.kind //= "cat"'
segments: 2
gate_seconds: 0
function_seconds: 20
"#;
/// A plan that purges half of all items.
const PURGE: &str = r#"migration: move
kind: purge
from:
  - table: cats
    where: '.age != null'
segments: 2
gate_seconds: 0
function_seconds: 20
"#;

/// An index: its name, its key and the key's type, and its projection.
type Index = (&'static str, &'static str, &'static str, &'static str);
const BY_KIND: Index = ("by-kind", "kind", "S", "ALL");
const BY_AGE: Index = ("by-age", "age", "N", "KEYS_ONLY");

fn create(store: &Endpoint, table: &str, indexes: &[Index]) {
    let mut attributes = vec![json!({"AttributeName": "p", "AttributeType": "S"})];
    let mut global = Vec::new();
    for (name, key, of_type, projection) in indexes {
        attributes.push(json!({"AttributeName": key, "AttributeType": of_type}));
        global.push(json!({
            "IndexName": name, "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            "Projection": {"ProjectionType": projection},
        }));
    }
    let mut request = json!({
        "TableName": table, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": attributes,
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    });
    if !global.is_empty() {
        request["GlobalSecondaryIndexes"] = json!(global);
    }
    store.ok("CreateTable", &request);
}

/// Puts items of 100 to 1,400 bytes, every second item with an age. A different `round` changes
/// every item and its targets, but not their sizes.
fn fill(store: &Endpoint, round: usize) {
    let numbers: Vec<usize> = (0..ITEMS).collect();
    for some in numbers.chunks(25) {
        let puts = some.iter().map(|number| {
            let text = ["x", "y"][round].repeat(100 + number * 7 % 1_300);
            let mut item = json!({"p": {"S": format!("n{number:05}")}, "text": {"S": text}});
            if number % 2 == 0 {
                item["age"] = json!({"N": (number + round).to_string()});
            }
            json!({"PutRequest": {"Item": item}})
        });
        let puts: Vec<Value> = puts.collect();
        store.ok("BatchWriteItem", &json!({"RequestItems": {"cats": puts}}));
    }
}

fn migrate(folder: &Path, store: &Endpoint, arguments: &[&str]) -> Command {
    let mut command = weir_on(store);
    command.arg("migrate").args(arguments).current_dir(folder);
    command
}

fn run(folder: &Path, store: &Endpoint, arguments: &[&str]) -> String {
    let output = migrate(folder, store, arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}{problem}");
    said
}

/// The estimate of a plan, and the capacity that its run was charged.
struct Charged {
    planned: Value,
    phases: [(&'static str, Consumed); 3],
    /// The charge for one change of each item, if items were changed.
    live: Option<Consumed>,
}

/// Runs a complete migration of a plan. If `changes_items` is true, changes each item after the
/// backfill.
fn whole(plan: &str, sources: &[Index], targets: &[Index], changes_items: bool) -> Charged {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    create(&store.endpoint, "cats", sources);
    create(&store.endpoint, "pets", targets);
    fill(&store.endpoint, 0);
    fs::write(folder.path().join("plan.yaml"), plan).unwrap();
    let said = run(folder.path(), &store.endpoint, &["plan", "plan.yaml", "--output", "json"]);
    let planned = said.lines().find_map(|line| serde_json::from_str(line).ok()).expect("a report");

    let meter = Meter::before(store.endpoint.address());
    let metered = Endpoint::new(&meter.address);
    let package = root().join("functions/processor").display().to_string();
    let flags = ["start", "plan.yaml", "--local-workers", "2", "--package", &package];
    let start = migrate(folder.path(), &metered, &flags);
    let mut worker = Process::start(start, folder.path().join("worker.log"));
    let status = ["status", "move", "--output", "json"];
    let mut until_followed = |what: &str| {
        wait_for(what, LIMIT, || {
            assert!(!worker.has_ended(), "{}", worker.log());
            let said = migrate(folder.path(), &store.endpoint, &status).output().unwrap().stdout;
            let status: Value = serde_json::from_slice(&said).unwrap_or_default();
            // Wait until the stream has also delivered the touched items.
            (status["phase"] == "tailing" && status["stream"]["converged_percent"] == 100)
                .then_some(())
        });
    };
    until_followed("the backfill");
    let backfill = meter.take(&TABLES);
    let live = changes_items.then(|| {
        fill(&store.endpoint, 1);
        until_followed("the changes");
        meter.take(&TABLES)
    });
    run(folder.path(), &metered, &["verify", "move"]);
    let comparison = meter.take(&TABLES);
    if !plan.contains("kind: purge") {
        let no_way_back: &[&str] = &["cutover", "move", "--no-way-back"];
        run(folder.path(), &metered, no_way_back);
    }
    meter.take(&TABLES);
    run(folder.path(), &metered, &["complete", "move"]);
    let completion = meter.take(&TABLES);
    let phases = [("backfill", backfill), ("comparison", comparison), ("completion", completion)];
    Charged { planned, phases, live }
}

fn near(what: &str, planned: f64, charged: f64) {
    // A few units come from the subcommands' own reads.
    let is_near = (planned - charged).abs() <= (charged * TOLERANCE).max(5.0);
    assert!(is_near, "{what}: planned {planned}, charged {charged}");
}

/// Compares the estimate and the charge of each phase, and of each index in the phase.
fn compare(Charged { planned, phases: charged, live }: &Charged) {
    if let Some(live) = live {
        compare_changes(&planned["phases"][1], live);
    }
    let (mut writes, mut reads) = (0.0, 0.0);
    for (name, consumed) in charged {
        let phases = planned["phases"].as_array().unwrap();
        let phase = phases.iter().find(|phase| phase["phase"] == *name).unwrap();
        let units = |member: &str| phase[member].as_f64().unwrap();
        near(&format!("{name}, writes"), units("write_units"), consumed.writes);
        near(&format!("{name}, reads"), units("read_units"), consumed.reads);
        for index in phase["indexes"].as_array().unwrap() {
            let index_name = index["index"].as_str().unwrap();
            let charged = consumed.indexes.get(index_name).copied().unwrap_or(0.0);
            near(&format!("{name}, {index_name}"), index["write_units"].as_f64().unwrap(), charged);
        }
        writes += consumed.writes;
        reads += consumed.reads;
    }
    near("all writes", planned["write_units"].as_f64().unwrap(), writes);
    near("all reads", planned["read_units"].as_f64().unwrap(), reads);
    assert!(writes > 1_000.0 && reads > 500.0, "{writes} {reads}");
}

/// Compares the charge for one change of each item with the estimate for one change.
fn compare_changes(planned: &Value, charged: &Consumed) {
    let of = (&planned["phase"], &planned["per"]);
    assert_eq!(of, (&json!("live changes"), &json!("source write")));
    let all = |units: &Value| units.as_f64().unwrap() * ITEMS as f64;
    near("live changes, writes", all(&planned["write_units"]), charged.writes);
    for index in planned["indexes"].as_array().unwrap() {
        let name = index["index"].as_str().unwrap();
        let charged = charged.indexes.get(name).copied().unwrap_or(0.0);
        near(&format!("live changes, {name}"), all(&index["write_units"]), charged);
    }
    // Every second item has two targets, in a table with an index.
    assert!(charged.writes > 2.0 * ITEMS as f64, "{charged:?}");
}

#[test]
fn a_restructuring_with_one_index_costs_what_the_plan_says() {
    let charged = whole(RESTRUCTURE, &[], &[BY_KIND], true);
    assert!(charged.live.is_some());
    compare(&charged);
}

#[test]
fn a_restructuring_with_two_indexes_costs_the_estimate() {
    let charged = whole(RESTRUCTURE, &[], &[BY_KIND, BY_AGE], false);
    compare(&charged);
    assert_eq!(charged.planned["phases"][0]["indexes"].as_array().unwrap().len(), 2);
}

#[test]
fn a_backfill_by_touches_costs_the_estimate() {
    let plan = RESTRUCTURE.replace("segments: 2", "backfill: touch\nsegments: 2");
    compare(&whole(&plan, &[BY_AGE], &[BY_KIND], false));
}

#[test]
fn a_change_in_place_and_a_purge_cost_the_estimate() {
    for plan in [IN_PLACE, PURGE] {
        compare(&whole(plan, &[BY_KIND, BY_AGE], &[], false));
    }
}
