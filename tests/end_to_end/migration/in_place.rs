//! A migration that changes items in place, by the real binaries: items that it must not change,
//! and a reverse direction that does not exist for every item.

use serde_json::json;

use crate::migration::driver::{LIMIT, Migrating};
use crate::process::{LocalStore, wait_for};

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

/// The tombstone that another migration leaves in place of a deleted item.
const TOMBSTONE: &str =
    r#"{"p":{"S":"gone"},"_weir":{"M":{"from":{"S":"x"},"at":{"S":"x"},"gone":{"BOOL":true}}}}"#;

#[test]
fn a_way_back_names_what_it_cannot_change_and_tombstones_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PLAN);
    (0..5).for_each(|number| migrating.put(number, 10));
    let tombstone: serde_json::Value = serde_json::from_str(TOMBSTONE).unwrap();
    let put = |item: &serde_json::Value| {
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

    // A writer writes an item in the new form that the inverse cannot transform.
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
