//! Tests of a migration while the store's clock jumps by days: iterators expire, shards are
//! trimmed, and earlier comparisons no longer count as proof.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{LocalStore, Process, binary, root, wait_for, weir_on};

const LIMIT: Duration = Duration::from_secs(90);
const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_AND_MORE_MS: u64 = 26 * HOUR_MS;
/// The number of items with which every shard of a new table has at least one item, for any hashes
/// of the keys.
const ITEMS_IN_ALL_SHARDS: usize = 32;
const PLAN: &str = "migration: leaps
kind: restructure
from:
  - table: old
    items:
      - to: new
        key: {pk: 'OLD#{p}'}
gate_seconds: 1
function_seconds: 20
";
const WAY_BACK: &str = "inverse:
  - table: new
    items:
      - to: old
        transform: del(.pk)
";

const SPLIT: &str = "migration: leaps
kind: split
from:
  - table: old
    to: new
    key: {pk: 'OLD#{p}'}
    profile: PROFILE
    parts:
      - {name: TAG, path: tags, cut: each}
gate_seconds: 1
function_seconds: 20
";

struct Migration<'s> {
    folder: &'s Path,
    url: String,
    store: &'s LocalStore,
}

impl Migration<'_> {
    /// Runs a subcommand to completion, and returns its exit code and its output.
    fn verb(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = binary("weir");
        command.args(["migrate", "--endpoint", &self.url]).args(arguments);
        let ended = command.current_dir(self.folder).output().unwrap();
        let said = [ended.stderr, ended.stdout].concat();
        (ended.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
    }

    fn ok(&self, arguments: &[&str]) {
        let (code, said) = self.verb(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
    }

    fn start(&self, plan: &str) -> Process {
        fs::write(self.folder.join("leaps.yaml"), plan).unwrap();
        self.work("start", "leaps.yaml", ".weir/migrate")
    }

    /// Starts the migration and waits until all items are copied.
    fn begin(&self, plan: &str) -> Process {
        let mut worker = self.start(plan);
        wait_for("the migration to begin", LIMIT * 4, || {
            assert!(!worker.has_ended(), "{}", worker.log());
            (self.verb(&["status", "leaps"]).0 == 0).then_some(())
        });
        self.ok(&["wait", "leaps"]);
        worker
    }

    /// Writes an item of the new table.
    fn put_new(&self, item: &str, name: &str) {
        let key = format!("OLD#{item}");
        let item = json!({"pk": {"S": key}, "p": {"S": item}, "name": {"S": name}});
        self.store.endpoint.ok("PutItem", &json!({"TableName": "new", "Item": item}));
    }

    /// Advances the clock in steps of 20 hours, and lets the worker read the streams after each
    /// step.
    fn look_daily(&self) {
        let next_check_by = || {
            let (_, said) = self.verb(&["status", "leaps", "--output", "json"]);
            let status: Value = serde_json::from_str(said.trim()).unwrap();
            status["way_back"]["next_check_by"].as_i64().unwrap()
        };
        for _ in 0..2 {
            let before = next_check_by();
            self.store.endpoint.advance_clock(20 * HOUR_MS);
            let after = before + 19 * 60 * 60;
            wait_for("a look that proves it", LIMIT, || (next_check_by() > after).then_some(()));
        }
    }

    /// Advances the clock by more than a day, and waits until a table's stream is trimmed. A store
    /// trims some time after its clock was advanced, and a worker may read the stream before that.
    fn leap(&self, table: &str) {
        self.store.endpoint.advance_clock(DAY_AND_MORE_MS);
        wait_for("the records to be trimmed", LIMIT, || {
            let mut tail = weir_on(&self.store.endpoint);
            tail.args(["streams", "tail", table, "--from", "trim-horizon", "--no-follow"]);
            let ended = tail.args(["--output", "ndjson"]).output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            ended.stdout.is_empty().then_some(())
        });
    }

    /// Starts workers on this machine, with checkpoints in this folder.
    fn work(&self, verb: &str, what: &str, folder: &str) -> Process {
        let package = root().join("functions/processor").display().to_string();
        let mut work = binary("weir");
        work.args(["migrate", "--endpoint", &self.url, verb, what, "--directory", folder]);
        work.args(["--local-workers", "2", "--package", &package]).current_dir(self.folder);
        Process::start(work, self.folder.join("worker.log"))
    }

    fn put(&self, item: &str) {
        let item = json!({"p": {"S": item}, "name": {"S": "a"}});
        self.store.endpoint.ok("PutItem", &json!({"TableName": "old", "Item": item}));
    }

    fn wait_for(&self, item: &str) {
        let expected = format!("OLD#{item}");
        wait_for(item, LIMIT, || {
            let found = self.store.endpoint.scan("new");
            found.iter().any(|item| item["pk"]["S"] == expected.as_str()).then_some(())
        });
    }
}

/// Starts a store with a table to be migrated and a target table with the key `new_key`. The tables
/// in `followed` have a stream.
fn store(folder: &Path, followed: &[&str], new_key: &[&str]) -> LocalStore {
    let store = LocalStore::start(folder);
    let stream: Value = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
    for (table, key) in [("old", &["p"][..]), ("new", new_key)] {
        let of_type = |name| json!({"AttributeName": name, "AttributeType": "S"});
        let of_kind = |(name, kind)| json!({"AttributeName": name, "KeyType": kind});
        let mut request = json!({
            "TableName": table, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": key.iter().map(of_type).collect::<Vec<_>>(),
            "KeySchema": key.iter().zip(["HASH", "RANGE"]).map(of_kind).collect::<Vec<_>>(),
        });
        if followed.contains(&table) {
            request["StreamSpecification"] = stream.clone();
        }
        store.endpoint.ok("CreateTable", &request);
    }
    store
}

#[test]
fn a_migration_goes_on_over_a_leap_and_wants_a_new_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &["old"], &["pk"]);
    let url = format!("http://{}", store.endpoint.address());
    let migration = Migration { folder: folder.path(), url, store: &store };
    (0..8).for_each(|number| migration.put(&format!("before-{number}")));
    let mut worker = migration.begin(PLAN);
    // Every shard has at least one of these records. When they are applied, each shard has been
    // read up to its record.
    let read = |n: usize| format!("read-{n}");
    (0..ITEMS_IN_ALL_SHARDS).for_each(|n| migration.put(&read(n)));
    (0..ITEMS_IN_ALL_SHARDS).for_each(|n| migration.wait_for(&read(n)));
    migration.ok(&["verify", "leaps"]);

    migration.leap("old");
    let (code, said) = migration.verb(&["cutover", "leaps", "--no-way-back"]);
    assert!(code == 4 && said.contains("`weir migrate verify leaps` again"), "{code}: {said}");
    // The earlier records are trimmed and the iterators have expired, but the worker applies new
    // writes.
    (0..8).for_each(|number| migration.put(&format!("after-{number}")));
    (0..8).for_each(|number| migration.wait_for(&format!("after-{number}")));
    migration.ok(&["verify", "leaps"]);
    migration.ok(&["cutover", "leaps", "--no-way-back"]);
    let names: Vec<_> =
        (0..8).flat_map(|n| [format!("before-{n}"), format!("after-{n}")]).collect();
    names.iter().for_each(|name| migration.wait_for(name));
    migration.ok(&["complete", "leaps"]);
    wait_for("the worker to end with its migration", LIMIT, || worker.has_ended().then_some(()));
}

/// Case: no worker reads the sources' streams for longer than the streams retain records. A worker
/// detects the gap in each shard that it had read earlier.
#[test]
fn a_worker_that_comes_too_late_ends_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &["old"], &["pk"]);
    let url = format!("http://{}", store.endpoint.address());
    let migration = Migration { folder: folder.path(), url, store: &store };
    let mut worker = migration.begin(PLAN);
    for part in ["read", "late"] {
        let item = |n: usize| format!("{part}-{n}");
        (0..ITEMS_IN_ALL_SHARDS).for_each(|n| migration.put(&item(n)));
        if part == "read" {
            (0..ITEMS_IN_ALL_SHARDS).for_each(|n| migration.wait_for(&item(n)));
            worker.kill();
        }
    }
    migration.leap("old");
    let mut late = migration.work("work", "leaps", ".weir/migrate");
    wait_for("the worker to see that it is late", LIMIT, || late.has_ended().then_some(()));
    let said = late.log();
    assert!(said.contains("of `old` are lost"), "{said}");
    assert!(said.contains("run `weir migrate abort leaps`, then start a new migration"), "{said}");
}

/// Case: no worker reads the targets' streams for longer than the streams retain records.
#[test]
fn what_was_lost_on_the_way_back_is_found_before_writers_go_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &["old", "new"], &["pk"]);
    let url = format!("http://{}", store.endpoint.address());
    let migration = Migration { folder: folder.path(), url, store: &store };
    (0..40).for_each(|number| migration.put(&format!("item-{number}")));
    let mut worker = migration.begin(&format!("{PLAN}{WAY_BACK}"));
    migration.ok(&["verify", "leaps"]);
    migration.ok(&["cutover", "leaps"]);
    migration.ok(&["verify", "leaps"]);
    // If workers read the streams at least once a day, they copy all changes back.
    let name_of_0 = || {
        let key = json!({"TableName": "old", "Key": {"p": {"S": "item-0"}}});
        store.endpoint.ok("GetItem", &key)["Item"]["name"]["S"].clone()
    };
    migration.put_new("item-0", "b");
    wait_for("the change to come back", LIMIT, || (name_of_0() == "b").then_some(()));
    migration.look_daily();
    migration.ok(&["revert", "leaps", "--dry-run"]);
    worker.kill();

    migration.put_new("added", "a");
    migration.put_new("item-1", "changed");
    let gone = json!({"TableName": "new", "Key": {"pk": {"S": "OLD#item-2"}}});
    store.endpoint.ok("DeleteItem", &gone);
    migration.leap("new");
    // A worker that starts after the trim finds no record of the change in the streams.
    let mut worker = migration.work("work", "leaps", ".weir/other");
    let (code, said) = migration.verb(&["revert", "leaps"]);
    assert!(code == 4 && said.contains("run `weir migrate verify leaps`"), "{code}: {said}");
    let (code, said) = migration.verb(&["verify", "leaps"]);
    let found = "1 missing, 1 different, 1 extra, 0 occupied, 0 refused, 0 not_invertible";
    assert!(code == 3 && said.contains(found), "{code}: {said}");
    assert_eq!(migration.verb(&["revert", "leaps"]).0, 4, "it is not repaired");
    migration.ok(&["verify", "leaps", "--repair"]);
    migration.put_new("later", "a");
    migration.ok(&["revert", "leaps"]);
    let mut expected: Vec<_> = (0..40).filter(|n| *n != 2).map(|n| format!("item-{n}")).collect();
    expected.extend(["added".to_owned(), "later".to_owned()]);
    expected.sort_unstable();
    let found = store.endpoint.scan("old");
    let text = |item: &Value, name: &str| item[name]["S"].as_str().unwrap().to_owned();
    let mut names: Vec<_> = found.iter().map(|item| text(item, "p")).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    for item in &found {
        let name = match text(item, "p").as_str() {
            "item-0" => "b",
            "item-1" => "changed",
            _ => "a",
        };
        assert_eq!(text(item, "name"), name, "{item}");
        assert_eq!(item.as_object().unwrap().len(), 2, "a mark is left: {item}");
    }
    wait_for("the worker to end with its migration", LIMIT, || worker.has_ended().then_some(()));
}

/// Case: no worker reads the stream of the documents' parts for longer than the stream retains
/// records.
#[test]
fn documents_that_were_lost_on_the_way_back_are_made_of_their_parts() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), &["old", "new"], &["pk", "sk"]);
    let url = format!("http://{}", store.endpoint.address());
    let migration = Migration { folder: folder.path(), url, store: &store };
    let item = |p: &str, name: &str, tags: &[&str]| {
        let mut item = json!({"p": {"S": p}, "name": {"S": name}});
        if !tags.is_empty() {
            item["tags"] =
                json!({"L": tags.iter().map(|tag| json!({"S": tag})).collect::<Vec<_>>()});
        }
        item
    };
    let names: Vec<String> = (0..40).map(|number| format!("item-{number}")).collect();
    for name in &names {
        let item = item(name, "a", &["x", "y"]);
        store.endpoint.ok("PutItem", &json!({"TableName": "old", "Item": item}));
    }
    let mut worker = migration.begin(SPLIT);
    migration.ok(&["verify", "leaps"]);
    migration.ok(&["cutover", "leaps"]);
    migration.ok(&["verify", "leaps"]);
    worker.kill();

    let key = |p: &str, sk: &str| json!({"pk": {"S": format!("OLD#{p}")}, "sk": {"S": sk}});
    let put = |p: &str, sk: &str, attributes: Value| {
        let mut item = key(p, sk);
        item.as_object_mut().unwrap().extend(attributes.as_object().unwrap().clone());
        store.endpoint.ok("PutItem", &json!({"TableName": "new", "Item": item}));
    };
    let delete = |p: &str, sk: &str| {
        store.endpoint.ok("DeleteItem", &json!({"TableName": "new", "Key": key(p, sk)}));
    };
    put("added", "PROFILE", item("added", "a", &[]));
    put("item-1", "TAG#000002", json!({"tags": {"S": "z"}}));
    ["PROFILE", "TAG#000000", "TAG#000001"].iter().for_each(|sk| delete("item-2", sk));
    delete("item-3", "PROFILE");
    migration.leap("new");
    // A worker that starts after the trim finds no record of the change in the streams.
    let mut worker = migration.work("work", "leaps", ".weir/other");
    let (code, said) = migration.verb(&["revert", "leaps"]);
    assert!(code == 4 && said.contains("run `weir migrate verify leaps`"), "{code}: {said}");
    // The parts of `item-3` without its profile do not form a document.
    let (code, said) = migration.verb(&["verify", "leaps"]);
    let found = "1 missing, 1 different, 2 extra, 0 occupied, 1 refused, 0 not_invertible";
    assert!(code == 3 && said.contains(found), "{code}: {said}");
    assert!(said.contains("parts but no profile"), "{said}");
    ["TAG#000000", "TAG#000001"].iter().for_each(|sk| delete("item-3", sk));
    assert_eq!(migration.verb(&["revert", "leaps"]).0, 4, "it is not repaired");
    migration.ok(&["verify", "leaps", "--repair"]);
    put("item-4", "TAG#000000", json!({"tags": {"S": "later"}}));
    migration.ok(&["revert", "leaps"]);
    let mut expected: Vec<Value> = names
        .iter()
        .filter(|name| !["item-2", "item-3"].contains(&name.as_str()))
        .map(|name| match name.as_str() {
            "item-1" => item(name, "a", &["x", "y", "z"]),
            "item-4" => item(name, "a", &["later", "y"]),
            _ => item(name, "a", &["x", "y"]),
        })
        .chain([item("added", "a", &[])])
        .collect();
    let mut found = store.endpoint.scan("old");
    for items in [&mut expected, &mut found] {
        items.sort_by_key(|item| item["p"]["S"].as_str().unwrap().to_owned());
    }
    assert_eq!(found, expected);
    wait_for("the worker to end with its migration", LIMIT, || worker.has_ended().then_some(()));
}
