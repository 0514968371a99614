//! Tests of `weir editions` against a store: during prepare, publish and rollback, a reader always
//! sees one complete edition.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::process::{LocalStore, weir};

const ITEMS: usize = 120;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A set of editions in a store, and the commands on it.
struct Editions<'f> {
    folder: &'f Path,
    url: String,
}

impl Editions<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        let all = [&["editions", "--endpoint", &self.url][..], arguments].concat();
        weir(self.folder, &all)
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn code(&self, arguments: &[&str]) -> i32 {
        self.run(arguments).status.code().unwrap()
    }

    /// Returns the `price` of all items in the current edition; a single value if the edition is
    /// complete.
    fn price(&self) -> String {
        let dump = self.ok(&["dump"]);
        let items: Vec<Value> = dump.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(items.len(), ITEMS);
        let price = items[0]["price"]["N"].as_str().unwrap().to_owned();
        assert!(items.iter().all(|item| item["price"]["N"] == *price), "a mixed edition: {dump}");
        price
    }
}

fn create_table(store: &LocalStore) {
    let attribute = |name: &str| json!({"AttributeName": name, "AttributeType": "S"});
    let key = |name: &str, kind: &str| json!({"AttributeName": name, "KeyType": kind});
    store.endpoint.ok(
        "CreateTable",
        &json!({
            "TableName": "editions", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [attribute("edition"), attribute("item")],
            "KeySchema": [key("edition", "HASH"), key("item", "RANGE")],
        }),
    );
}

#[test]
fn readers_see_one_whole_edition() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    create_table(&store);
    let editions =
        Editions { folder: folder.path(), url: format!("http://{}", store.endpoint.address()) };
    let lines: String = (0..ITEMS)
        .map(|number| format!("{{\"id\":{{\"N\":\"{number}\"}},\"price\":{{\"N\":\"1.10\"}}}}\n"))
        .collect();
    fs::write(folder.path().join("items.ndjson"), lines).unwrap();
    assert_eq!(editions.code(&["dump"]), 1, "nothing is current yet");
    editions.ok(&["prepare", "--from-file", "items.ndjson", "--keys", "id"]);
    editions.ok(&["publish", "1"]);
    assert_eq!(editions.price(), "1.1");

    let (stop, read) = (AtomicBool::new(false), std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        // `Reading` stops the reader even if an assertion of this test fails.
        let _reading = Reading(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let price = editions.price();
                assert!(["1.1", "2.2"].contains(&price.as_str()), "{price}");
                read.fetch_add(1, Ordering::Relaxed);
            }
        });
        turn(&editions);
    });
    assert!(read.into_inner() > 0);
}

/// Stops the reader when it is dropped.
struct Reading<'s>(&'s AtomicBool);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn turn(editions: &Editions<'_>) {
    editions.ok(&["prepare", "--through", r#"sed 's/"N":"1\.1"/"N":"2.2"/'"#]);
    let key = r#"{"id":{"N":"7"}}"#;
    assert!(editions.ok(&["get", key]).contains("1.1"), "what is prepared is not seen");
    let check = editions.ok(&["check", "2", "--output", "json"]);
    let check: Value = serde_json::from_str(&check).unwrap();
    assert_eq!(check[0]["changed"], ITEMS, "{check}");
    assert_eq!(check[0]["whole"], true, "{check}");
    for _ in 0..2 {
        let published = editions.ok(&["publish", "2", "--output", "ndjson"]);
        assert_eq!(published.trim(), r#"{"current":2,"previous":1}"#);
    }
    assert!(editions.ok(&["get", key]).contains("2.2"));
    assert_eq!(editions.code(&["publish", "1"]), 4, "it is older than the current one");
    editions.ok(&["rollback"]);
    assert_eq!(editions.price(), "1.1");
    // Repeat the command, as a client does after a lost answer.
    editions.ok(&["rollback"]);
    assert_eq!(editions.price(), "1.1");
    editions.ok(&["rollback", "--to", "2"]);
    editions.ok(&["rollback", "--to", "2"]);
    assert_eq!(editions.price(), "2.2");

    // The incomplete editions can be pruned but not published. The current and the previous edition
    // cannot be pruned.
    for through in ["head -n 1; exit 3", "cat; echo '{\"id\":{\"N\":\"7\"}}'", "echo x"] {
        assert_eq!(editions.code(&["prepare", "--through", through]), 1, "{through}");
    }
    assert_eq!(editions.code(&["publish", "3"]), 4);
    editions.ok(&["prune", "--days", "0"]);
    let left = editions.ok(&["ls", "--output", "json"]);
    let left: Value = serde_json::from_str(&left).unwrap();
    let numbers: Vec<_> = left.as_array().unwrap().iter().map(|e| e["edition"].clone()).collect();
    assert_eq!(numbers, [json!(1), json!(2)], "{left}");
    assert_eq!(editions.code(&["publish", "3"]), 1, "it is gone");
}

#[test]
fn a_concurrent_publication_is_not_undone() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    create_table(&store);
    let editions =
        Editions { folder: folder.path(), url: format!("http://{}", store.endpoint.address()) };
    let item = |text: &str| format!("{{\"id\":{{\"N\":\"1\"}},\"is\":{{\"S\":\"{text}\"}}}}\n");
    fs::write(folder.path().join("items.ndjson"), item("one")).unwrap();
    editions.ok(&["prepare", "--from-file", "items.ndjson", "--keys", "id"]);
    editions.ok(&["publish", "1"]);
    editions.ok(&["prepare", "--through", "sed s/one/two/"]);
    editions.ok(&["prepare", "--through", "sed s/one/three/"]);
    editions.ok(&["publish", "2"]);
    let refused = editions.run(&["publish", "3"]);
    assert_eq!(refused.status.code(), Some(4));
    let said = text(&refused.stderr);
    assert!(said.contains("prepared while edition 1 was current, and now edition 2 is"), "{said}");
    assert_eq!(editions.ok(&["dump"]), item("two"));
    // Repeat the command, as a client does after a lost answer.
    editions.ok(&["publish", "2"]);
    editions.ok(&["rollback", "--to", "3"]);
    assert_eq!(editions.ok(&["dump"]), item("three"));
}

#[test]
fn nothing_is_prepared_from_an_edition_that_is_being_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::start(folder.path());
    create_table(&store);
    let editions =
        Editions { folder: folder.path(), url: format!("http://{}", store.endpoint.address()) };
    fs::write(folder.path().join("items.ndjson"), "{\"id\":{\"N\":\"1\"}}\n").unwrap();
    editions.ok(&["prepare", "--from-file", "items.ndjson", "--keys", "id"]);
    editions.ok(&["publish", "1"]);
    // Simulate a prune of edition 1, as after two publications since `prepare` read the head.
    store.endpoint.ok(
        "UpdateItem",
        &json!({
            "TableName": "editions",
            "Key": {"edition": {"S": "main#"}, "item": {"S": "v0000000001"}},
            "UpdateExpression": "SET #state = :pruned",
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": {":pruned": {"S": "pruned"}},
        }),
    );
    let prepared = editions.run(&["prepare"]);
    assert_eq!(prepared.status.code(), Some(1));
    assert!(text(&prepared.stderr).contains("pruned while it was read"), "{prepared:?}");
    assert_eq!(editions.code(&["publish", "2"]), 4, "what was not read whole is not ready");
}
