//! Tests of attribute names in a plan that no item has: they are reported before the migration
//! begins, and a purge that removes nothing does not end like a successful purge.

use std::fs;

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating};
use crate::process::{LocalStore, wait_for};

const PURGE: &str = "migration: move
kind: purge
from:
  - table: cats
    where: '.tenant == \"2\"'
segments: 2
gate_seconds: 0
function_seconds: 10
";
const SPLIT: &str = "migration: parts
kind: split
from:
  - table: cats
    to: parts
    key: {pk: 'D#{p}'}
    parts: [{name: LINE, path: lines, cut: each}]
";

fn report(migrating: &Migrating<'_>, expected: i32) -> Value {
    let (code, said) = migrating.verb(&["plan", "plan.yaml", "--output", "json"]);
    assert_eq!(code, expected, "{said}");
    said.lines().find_map(|line| serde_json::from_str(line).ok()).expect("a report")
}

#[test]
fn a_misspelt_purge_is_reported_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, PURGE);
    for number in 0..10 {
        let (key, tenant) = (format!("n{number}"), format!("{}", number % 3));
        let item = json!({"p": {"S": key}, "tenant": {"S": tenant}});
        store.endpoint.ok("PutItem", &json!({"TableName": "cats", "Item": item}));
    }
    assert_eq!(report(&migrating, 0)["unmatched"], json!([]));

    let slip = PURGE.replace(".tenant", ".tennant");
    fs::write(folder.path().join("plan.yaml"), slip).unwrap();
    let told = report(&migrating, 3)["unmatched"][0].as_str().unwrap().to_owned();
    assert!(told.contains("`.tennant` is in none of 10 items of `cats`"), "{told}");
    assert!(told.contains("did you mean `tenant`?"), "{told}");
    let (_, said) = migrating.verb(&["plan", "plan.yaml"]);
    assert!(said.contains("none of the sampled items would be removed"), "{said}");
    assert!(!said.contains("weir migrate start"), "{said}");

    let mut worker = migrating.work("start", "plan.yaml");
    migrating.wait_for_phase("tailing", &mut worker, |_| {});
    migrating.ok(&["verify", "move"]);
    let (code, said) = migrating.verb(&["complete", "move", "--dry-run"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("cats: 0 removed so far, of 10 items"), "{said}");
    // A second `complete` fails in the same way as the first.
    for _ in 0..2 {
        let (code, said) = migrating.verb(&["complete", "move"]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("`move` removed nothing") && said.contains("\"left\":0"), "{said}");
    }
    assert_eq!(store.endpoint.scan("cats").len(), 10);
    wait_for("the worker to end", LIMIT, || worker.has_ended().then_some(()));
}

#[test]
fn a_split_that_never_splits_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, SPLIT);
    store.endpoint.ok(
        "CreateTable",
        &json!({
            "TableName": "parts", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        }),
    );
    let put = |lines: Value| {
        let item = json!({"p": {"S": "1"}, "lines": lines});
        store.endpoint.ok("PutItem", &json!({"TableName": "cats", "Item": item}));
    };
    put(json!({"M": {"a": {"S": "x"}}}));
    let told = report(&migrating, 3)["unmatched"].to_string();
    assert!(
        told.contains("`.lines` is cut in none of 1 item") && told.contains("its type is M"),
        "{told}"
    );
    put(json!({"L": [{"S": "x"}]}));
    assert_eq!(report(&migrating, 0)["unmatched"], json!([]));
    fs::write(folder.path().join("plan.yaml"), SPLIT.replace("path: lines", "path: linse"))
        .unwrap();
    let told = report(&migrating, 3)["unmatched"].to_string();
    assert!(told.contains("did you mean `lines`?"), "{told}");
}

#[test]
fn a_target_that_is_full_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    migrating.prepare(1_000, crate::migration::driver::PLAN);
    migrating.put(1, 10);
    let (code, said) = migrating.verb(&["plan", "plan.yaml"]);
    assert_eq!(code, 0, "{said}");
    let left = json!({"TableName": "pets", "Item": {"p": {"S": "n001"}}});
    store.endpoint.ok("PutItem", &left);
    for verb in [&["plan", "plan.yaml"][..], &["start", "plan.yaml", "--dry-run"]] {
        let (code, said) = migrating.verb(verb);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains("`pets` has about 1 item, for example"), "{said}");
    }
}
