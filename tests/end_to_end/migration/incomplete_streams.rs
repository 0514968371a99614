//! Tests with writes that a stream or a single record does not report completely: temporarily too
//! large items, two items for one key, writes while the stream was disabled, and partial deletes. A
//! switch must lose none of these writes.

use serde_json::{Value, json};

use crate::migration::driver::{LIMIT, Migrating, SECOND_MS};
use crate::process::{LocalStore, Process, binary, root, wait_for};

const DAY_AND_MORE_MS: u64 = 26 * 60 * 60 * SECOND_MS;
/// A plan with two targets for each cat: the cat itself and an entry under its name.
const NAMED: &str = "migration: move
kind: restructure
from:
  - table: cats
    items:
      - to: pets
      - {to: pets, transform: '{p, name, is: \"entry\"}', key: {p: 'NAME#{p}'}}
inverse:
  - table: pets
    items: [{to: cats, transform: select(.is == null)}]
segments: 2
gate_seconds: 0
function_seconds: 10
";
/// A plan in which each cat has an owner.
const OWNED: &str = "migration: move
kind: restructure
from:
  - table: cats
    items: [{to: pets, key: {p: '{owner}#{id}'}}]
inverse:
  - table: pets
    items: [{to: cats, key: {p: '{id}'}}]
segments: 2
gate_seconds: 0
function_seconds: 10
";

impl Migrating<'_> {
    fn put_item(&self, table: &str, item: &Value) {
        self.store.endpoint.ok("PutItem", &json!({"TableName": table, "Item": item}));
    }

    fn delete_item(&self, table: &str, key: &str) {
        let key = json!({"TableName": table, "Key": {"p": {"S": key}}});
        self.store.endpoint.ok("DeleteItem", &key);
    }

    /// Returns an item without its mark; null if there is no item, or only a tombstone.
    fn item(&self, table: &str, key: &str) -> Value {
        let key = json!({"TableName": table, "Key": {"p": {"S": key}}, "ConsistentRead": true});
        let mut item = self.store.endpoint.ok("GetItem", &key)["Item"].clone();
        let mark = item.as_object_mut().and_then(|item| item.remove("_weir"));
        match mark.is_some_and(|mark| mark["M"].get("gone").is_some()) {
            true => Value::Null,
            false => item,
        }
    }

    fn ready(&self, plan: &str, items: &[Value]) -> Process {
        self.prepare(1_000, plan);
        items.iter().for_each(|item| self.put_item("cats", item));
        let mut worker = self.work("start", "plan.yaml");
        self.wait_for_phase("tailing", &mut worker, |_| {});
        self.ok(&["verify", "move"]);
        worker
    }
}

fn cat(p: &str, name: &str) -> Value {
    json!({"p": {"S": p}, "name": {"S": name}})
}

#[test]
fn an_item_that_was_too_large_for_a_moment_becomes_all_that_it_is_to_become() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let _worker = migrating.ready(NAMED, &[cat("n1", "Tom")]);
    // With its mark, the item exceeds DynamoDB's limit of 400 KB; the entry under the cat's name
    // does not.
    let mut large = cat("n2", "Kim");
    large["text"] = json!({"S": "x".repeat(409_560)});
    migrating.put_item("cats", &large);
    migrating.put_item("cats", &cat("n2", "Kim"));
    migrating.ok(&["cutover", "move"]);
    assert_eq!(migrating.item("pets", "n2"), cat("n2", "Kim"));
    let entry = json!({"p": {"S": "NAME#n2"}, "name": {"S": "Kim"}, "is": {"S": "entry"}});
    assert_eq!(migrating.item("pets", "NAME#n2"), entry);
}

#[test]
fn on_the_way_back_two_items_for_one_key_are_a_collision() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let owned = |p: &str, id: &str, owner: &str| json!({"p": {"S": p}, "id": {"S": id}, "owner": {"S": owner}});
    let cats = ["n1", "n2", "n3"].map(|id| owned(id, id, "ann"));
    let _worker = migrating.ready(OWNED, &cats);
    migrating.ok(&["cutover", "move"]);
    // The test writes and deletes one item with the wrong owner, and writes a second one without
    // deleting it. It does not change the items with the right owner.
    migrating.put_item("pets", &owned("zoe#n1", "n1", "zoe"));
    wait_for("the first to be seen", LIMIT, || {
        let key = json!({"TableName": "cats", "Key": {"p": {"S": "n1"}}});
        (!store.endpoint.ok("GetItem", &key)["Item"]["_weir"].is_null()).then_some(())
    });
    migrating.delete_item("pets", "zoe#n1");
    migrating.put_item("pets", &owned("zoe#n2", "n2", "zoe"));
    let (code, said) = migrating.verb(&["revert", "move", "--timeout", "10"]);
    assert!(code == 4 && said.contains("have the same target"), "{code}: {said}");
    migrating.delete_item("pets", "zoe#n2");
    migrating.ok(&["revert", "move"]);
    for item in &cats {
        assert_eq!(migrating.item("cats", item["p"]["S"].as_str().unwrap()), *item);
    }
}

#[test]
fn writes_while_the_stream_was_disabled_need_a_new_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let mut worker = migrating.ready(NAMED, &[cat("n1", "Tom"), cat("n2", "Kim")]);
    let stream = |specification: Value| {
        let request = json!({"TableName": "cats", "StreamSpecification": specification});
        store.endpoint.ok("UpdateTable", &request);
    };
    store.endpoint.advance_clock(SECOND_MS);
    stream(json!({"StreamEnabled": false}));
    migrating.put_item("cats", &cat("n3", "Eve"));
    migrating.delete_item("cats", "n1");
    let (code, said) = migrating.verb(&["cutover", "move", "--timeout", "5"]);
    assert!(code != 0 && said.contains("the stream of `cats` is disabled"), "{code}: {said}");
    stream(json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"}));
    let (code, said) = migrating.verb(&["cutover", "move", "--timeout", "5"]);
    assert!(code != 0 && said.contains("compare again"), "{code}: {said}");
    worker.kill();
    let _worker = migrating.work("work", "move");
    store.endpoint.advance_clock(SECOND_MS);
    migrating.ok(&["verify", "move", "--repair"]);
    migrating.ok(&["cutover", "move"]);
    assert_eq!(migrating.item("pets", "n3"), cat("n3", "Eve"));
    assert_eq!(migrating.item("pets", "n1"), Value::Null);
}

#[test]
fn partial_deletions_are_found_in_the_reverse_direction() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let mut worker = migrating.ready(NAMED, &[cat("n1", "Tom"), cat("n2", "Kim")]);
    migrating.ok(&["cutover", "move"]);
    worker.kill();
    // Only the entry under the cat's name remains, from which no cat can be built.
    migrating.delete_item("pets", "n1");
    store.endpoint.advance_clock(DAY_AND_MORE_MS);
    // The checkpoints of this worker are empty, so it detects no gap.
    let package = root().join("functions/processor").display().to_string();
    let url = format!("http://{}", store.endpoint.address());
    let mut work = binary("weir");
    work.args(["migrate", "--endpoint", &url, "work", "move", "--directory", "another"]);
    work.args(["--local-workers", "2", "--package", &package]).current_dir(folder.path());
    let _worker = Process::start(work, folder.path().join("another.log"));
    let (code, said) = migrating.verb(&["verify", "move"]);
    assert!(code == 3 && said.contains("0 missing, 0 different, 1 extra"), "{code}: {said}");
    migrating.ok(&["verify", "move", "--repair"]);
    migrating.ok(&["revert", "move"]);
    assert_eq!(migrating.item("cats", "n1"), Value::Null);
    assert_eq!(migrating.item("cats", "n2"), cat("n2", "Kim"));
}

/// Case: two migrations share a target table, and one of them has an earlier, aborted run.
#[test]
fn completing_one_migration_leaves_the_other_its_marks_and_no_tombstone() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    let migrating = Migrating { folder: folder.path(), store: &store };
    let plan = |name: &str, table: &str, prefix: &str| {
        format!(
            "migration: {name}\nkind: restructure\nfrom:\n  - table: {table}\n    items: [{{to: pets, key: {{p: '{prefix}#{{p}}'}}}}]\nsegments: 2\ngate_seconds: 0\nfunction_seconds: 10\n"
        )
    };
    let dogs = json!({
        "TableName": "dogs", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    });
    store.endpoint.ok("CreateTable", &dogs);
    ["d1", "d2"].iter().for_each(|p| migrating.put_item("dogs", &cat(p, "Rex")));
    let mut first =
        migrating.ready(&plan("move", "cats", "CAT"), &["n1", "n2"].map(|p| cat(p, "Tom")));
    migrating.delete_item("cats", "n1");
    wait_for("the tombstone", LIMIT, || {
        let key = json!({"TableName": "pets", "Key": {"p": {"S": "CAT#n1"}}});
        let item = &store.endpoint.ok("GetItem", &key)["Item"];
        item["_weir"]["M"].get("gone").is_some().then_some(())
    });
    migrating.ok(&["abort", "move"]);
    wait_for("the worker to end", LIMIT, || first.has_ended().then_some(()));

    let start = |name: &str, table: &str, prefix: &str| {
        let file = format!("{name}.yaml");
        std::fs::write(folder.path().join(&file), plan(name, table, prefix)).unwrap();
        let worker = migrating.work("start", &file);
        wait_for("it to be begun", LIMIT, || {
            (migrating.verb(&["wait", name]).0 == 0).then_some(())
        });
        migrating.ok(&["verify", name]);
        worker
    };
    let _cats = start("again", "cats", "CAT");
    let mut dogs = start("dogs", "dogs", "DOG");
    migrating.ok(&["cutover", "again", "--no-way-back"]);
    migrating.ok(&["complete", "again"]);
    let pets = store.endpoint.scan("pets");
    let key_of = |item: &Value| item["p"]["S"].as_str().unwrap().to_owned();
    let (cats, others): (Vec<_>, Vec<_>) =
        pets.iter().partition(|item| key_of(item).starts_with("CAT#"));
    assert!(cats.len() == 1 && cats[0]["_weir"].is_null(), "{cats:?}");
    assert!(others.len() == 2 && others.iter().all(|item| !item["_weir"].is_null()), "{others:?}");
    // The targets of `dogs` still have marks, so the migration `dogs` also applies a deletion.
    migrating.delete_item("dogs", "d1");
    migrating.ok(&["cutover", "dogs", "--no-way-back"]);
    assert_eq!(migrating.item("pets", "DOG#d1"), Value::Null);
    assert_eq!(migrating.item("pets", "DOG#d2")["name"]["S"], "Rex");
    assert!(!dogs.has_ended(), "{}", dogs.log());
}
