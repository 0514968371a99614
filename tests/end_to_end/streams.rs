//! Tests of `weir streams tail` while the store's clock jumps: iterators expire, and shards rotate
//! and are trimmed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{LocalStore, Process, binary, wait_for};

const LIMIT: Duration = Duration::from_secs(90);
const MINUTE_MS: u64 = 60_000;

/// A `weir streams tail` of the table `tailed`, and its output.
struct Tail {
    process: Process,
    shown: PathBuf,
}

impl Tail {
    fn start(folder: &Path, store: &LocalStore, name: &str, flags: &[&str]) -> Self {
        let shown = folder.join(format!("{name}.ndjson"));
        let mut command = binary("weir");
        let url = format!("http://{}", store.endpoint.address());
        command.args(["streams", "tail", "tailed", "--output", "ndjson", "--endpoint", &url]);
        command.args(flags).current_dir(folder);
        let mut process = Process::start(command, shown.clone());
        wait_for("the tail to follow", LIMIT, || {
            assert!(!process.has_ended(), "{}", process.log());
            process.log().contains("following ").then_some(())
        });
        Self { process, shown }
    }

    /// Returns the number of times that each item was shown.
    fn items(&self) -> BTreeMap<String, usize> {
        let text = fs::read_to_string(&self.shown).unwrap_or_default();
        // The last line may be incomplete. The log also contains messages.
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut items = BTreeMap::new();
        for record in records {
            let key = record["dynamodb"]["Keys"]["p"]["S"].as_str().unwrap().to_owned();
            *items.entry(key).or_default() += 1;
        }
        items
    }

    fn wait_for(&mut self, item: &str) {
        wait_for(item, LIMIT, || {
            assert!(!self.process.has_ended(), "the tail has ended: {}", self.process.log());
            self.items().contains_key(item).then_some(())
        });
    }
}

/// Starts a store with a table whose stream is followed.
fn store(folder: &Path) -> LocalStore {
    let store = LocalStore::start(folder);
    store.endpoint.ok(
        "CreateTable",
        &json!({
            "TableName": "tailed", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
            "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
        }),
    );
    store
}

fn put(store: &LocalStore, item: &str) {
    store.endpoint.ok("PutItem", &json!({"TableName": "tailed", "Item": {"p": {"S": item}}}));
}

#[test]
fn a_tail_shows_each_record_once_while_days_pass() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    put(&store, "before");
    // A tail also shows the records of the second in which it begins.
    store.endpoint.advance_clock(MINUTE_MS);
    let mut all = Tail::start(folder.path(), &store, "all", &["--from", "trim-horizon"]);
    let mut latest = Tail::start(folder.path(), &store, "latest", &[]);
    all.wait_for("before");
    // In these steps, iterators expire, shards rotate, and the store trims records older than a
    // day.
    for (round, minutes) in [20, 26 * 60, 5 * 60, 26 * 60, 16].into_iter().enumerate() {
        store.endpoint.advance_clock(minutes * MINUTE_MS);
        for number in 0..8 {
            put(&store, &format!("round-{round}-{number}"));
        }
        for number in 0..8 {
            all.wait_for(&format!("round-{round}-{number}"));
            latest.wait_for(&format!("round-{round}-{number}"));
        }
    }
    for tail in [&all, &latest] {
        let twice: Vec<_> = tail.items().into_iter().filter(|(_, times)| *times > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
    assert!(!latest.items().contains_key("before"), "{:?}", latest.items());
}

#[test]
fn writes_while_an_iterator_of_latest_expired_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    (0..8).for_each(|number| put(&store, &format!("before-{number}")));
    store.endpoint.advance_clock(MINUTE_MS);
    let mut tail = Tail::start(folder.path(), &store, "latest", &[]);
    store.endpoint.advance_clock(20 * MINUTE_MS);
    (0..8).for_each(|number| put(&store, &format!("after-{number}")));
    (0..8).for_each(|number| tail.wait_for(&format!("after-{number}")));
    let old = tail.items().into_keys().find(|item| item.starts_with("before"));
    assert_eq!(old, None, "what was there before the tail began is not new");
}
