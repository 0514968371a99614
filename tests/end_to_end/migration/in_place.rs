//! Tests of a migration that changes items in place, with the real binaries: items that it must not
//! change, and an inverse that cannot transform every item.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating};
use crate::process::{LocalStore, wait_for};
use crate::wire::Endpoint;

const PLAN: &str = "migration: move
kind: in-place
from:
  - table: cats
    transform: '.state //= \"open\"'
inverse:
  - table: cats
    transform: 'if .state == \"open\" then del(.state) elif (.state | type) == \"number\" then error(\"a number\") else . end'
segments: 2
gate_seconds: 0
function_seconds: 10
";

/// The tombstone that another migration has put in place of a deleted item.
const TOMBSTONE: &str =
    r#"{"p":{"S":"gone"},"_weir":{"M":{"from":{"S":"x"},"at":{"S":"x"},"gone":{"BOOL":true}}}}"#;

#[test]
fn a_way_back_names_what_it_cannot_change_and_tombstones_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PLAN);
    (0..5).for_each(|number| migrating.put(number, 10));
    let tombstone: Value = serde_json::from_str(TOMBSTONE).unwrap();
    let put = |item: &Value| {
        store.endpoint.ok("PutItem", &json!({"TableName": "cats", "Item": item}));
    };
    put(&tombstone);
    let state_of = |key: &str| {
        let request = json!({
            "TableName": "cats", "Key": {"p": {"S": key}}, "ConsistentRead": true,
        });
        store.endpoint.ok("GetItem", &request)["Item"].clone()
    };

    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    migrating.ok(&["verify", "move"]);
    migrating.ok(&["cutover", "move"]);
    assert_eq!(state_of("n000")["state"]["S"], "open");
    assert_eq!(state_of("gone"), tombstone);

    // A writer writes an item in the new form. The inverse cannot transform this item.
    put(&json!({"p": {"S": "odd"}, "state": {"N": "7"}}));
    let (code, said) = migrating.verb(&["revert", "move"]);
    assert!(code == 3 || code == 4, "{code}: {said}");
    assert!(said.contains(r#"{"p":{"S":"odd"}}"#), "{said}");
    assert_eq!(migrating.status()["phase"], "reverting", "{said}");

    put(&json!({"p": {"S": "odd"}, "state": {"S": "open"}}));
    wait_for("the way back", LIMIT, || (migrating.verb(&["revert", "move"]).0 == 0).then_some(()));
    for key in ["n000", "odd"] {
        assert!(state_of(key)["state"].is_null(), "{}", state_of(key));
    }
    assert_eq!(state_of("gone"), tombstone);
}

const RENAME: &str = "migration: move
kind: in-place
from:
  - table: cats
    transform: 'if has(\"status\") then .state = .status | del(.status) else . end'
inverse:
  - table: cats
    transform: 'INVERSE'
segments: 2
gate_seconds: 1
function_seconds: 10
";
const OVERWRITES: &str = "if has(\"state\") then .status = .state | del(.state) else . end";
const KEEPS: &str = "if has(\"state\") then (if has(\"status\") then . else .status = .state end) | del(.state) else . end";
/// The number of clients. The next constant is the number of items that each of them updates.
const CLIENTS: usize = 3;
const ITEMS: usize = 20;

/// Updates the status of items, under the attribute name in the current route. Returns the last
/// acknowledged value of each item.
fn update(
    store: &Endpoint,
    client: usize,
    writes: &AtomicUsize,
    is_over: &AtomicBool,
) -> BTreeMap<String, String> {
    let (mut last, mut number) = (BTreeMap::new(), 0);
    let route = json!({
        "TableName": "weir-migrations", "ConsistentRead": true,
        "Key": {"migration": {"S": "move"}, "entry": {"S": "ROUTE"}},
    });
    while !is_over.load(Ordering::SeqCst) {
        number += 1;
        // A client reads the route before each write, and the write ends within `gate_seconds`
        // after this read.
        let name = match store.ok("GetItem", &route)["Item"]["write"]["S"].as_str() {
            Some("none") => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Some("target") => "state",
            _ => "status",
        };
        let (key, value) = (format!("c{client}-{}", number % ITEMS), format!("v{number}"));
        let request = json!({
            "TableName": "cats", "Key": {"p": {"S": key}},
            "UpdateExpression": "SET #name = :value",
            "ExpressionAttributeNames": {"#name": name},
            "ExpressionAttributeValues": {":value": {"S": value}},
        });
        store.ok("UpdateItem", &request);
        last.insert(key, value);
        writes.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
    }
    last
}

/// A guard that ends the clients when it is dropped, even if the test fails.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn updates_of_clients_that_follow_the_route_are_kept_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, &RENAME.replace("INVERSE", OVERWRITES));
    let item = json!({"p": {"S": "first"}, "status": {"S": "open"}});
    store.endpoint.ok("PutItem", &json!({"TableName": "cats", "Item": item}));
    // An inverse that overwrites updates is rejected by `plan` and by `start`.
    let (code, said) = migrating.verb(&["plan", "plan.yaml"]);
    assert!(code == 3 && said.contains("lost update: cats|"), "{code}: {said}");
    let (code, said) = migrating.verb(&["start", "plan.yaml"]);
    assert!(code == 4 && said.contains("the plan loses updates"), "{code}: {said}");

    std::fs::write(folder.path().join("plan.yaml"), RENAME.replace("INVERSE", KEEPS)).unwrap();
    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    let (is_over, writes) = (AtomicBool::new(false), AtomicUsize::new(0));
    let more = || {
        let seen = writes.load(Ordering::SeqCst);
        wait_for("further writes", LIMIT, || {
            (writes.load(Ordering::SeqCst) > seen + CLIENTS * ITEMS).then_some(())
        });
    };
    let last = thread::scope(|scope| {
        let end = End(&is_over);
        let start = |client| {
            let (writes, is_over, endpoint) = (&writes, &is_over, &store.endpoint);
            scope.spawn(move || update(endpoint, client, writes, is_over))
        };
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        more();
        // An item that is updated during the comparison may count as different.
        wait_for("a comparison without differences", LIMIT, || {
            (migrating.verb(&["verify", "move"]).0 == 0).then_some(())
        });
        migrating.ok(&["cutover", "move"]);
        more();
        migrating.ok(&["revert", "move", "--timeout", "240"]);
        drop(end);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<BTreeMap<_, _>>()
    });
    assert_eq!(last.len(), CLIENTS * ITEMS);
    for (key, value) in last {
        let request = json!({
            "TableName": "cats", "Key": {"p": {"S": key}}, "ConsistentRead": true,
        });
        let item: Value = store.endpoint.ok("GetItem", &request)["Item"].clone();
        assert_eq!((&item["status"]["S"], item.get("state")), (&json!(value), None), "{item}");
    }
}
