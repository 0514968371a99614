//! Tests of damage to the disks of a running store of three nodes: rebuilt nodes, and the effect on writes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::api;
use crate::store::Config;
use node::incarnation_of;

/// The time-out of every wait in these tests. It is long, because the computer may be busy with
/// other tests.
const LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of attempts of one request, as in an SDK.
const TRIES: u64 = 8;

/// A store in a folder, and the number of its acknowledged writes.
struct Fixture {
    folder: tempfile::TempDir,
    arcs: u32,
    written: u64,
}

impl Fixture {
    fn new(arcs: u32) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), arcs, written: 0 }
    }

    async fn open(&self) -> Store {
        let config = || Config {
            directory: self.folder.path().to_owned(),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 3,
            arcs: self.arcs,
        };
        let begun = Instant::now();
        loop {
            match Store::open(config(), Box::new(|reason| panic!("{reason}"))).await {
                Ok(store) => return store,
                // The previous store may not have closed its files yet.
                Err(error) if matches!(error.reason, Problem::InUse(_)) => {
                    assert!(begun.elapsed() < LIMIT, "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Puts an item with the next number as its key.
    async fn put(&mut self, store: &Store) {
        let item = json!({"p": {"S": format!("k{}", self.written)}});
        call(store, "PutItem", &json!({"TableName": "table", "Item": item})).await;
        self.written += 1;
    }

    /// Checks that every acknowledged item can be read.
    async fn check(&self, store: &Store) {
        for number in 0..self.written {
            let key = json!({"p": {"S": format!("k{number}")}});
            let request = json!({"TableName": "table", "Key": key, "ConsistentRead": true});
            let answer = call(store, "GetItem", &request).await;
            assert_eq!(answer["Item"], key, "{number}");
        }
        let request = json!({"TableName": "table", "Select": "COUNT", "ConsistentRead": true});
        assert_eq!(call(store, "Scan", &request).await["Count"], json!(self.written));
    }

    fn aside(&self) -> Vec<usize> {
        (1..=3).map(|slot| directory::list_damaged(self.folder.path(), slot).len()).collect()
    }
}

async fn call(store: &Store, operation: &str, request: &Value) -> Value {
    let target = format!("DynamoDB_20120810.{operation}");
    for attempt in 1..=TRIES {
        let answer = api::handle(store, &target, request.to_string().as_bytes()).await;
        match answer.status {
            200 => return serde_json::from_str(&answer.body).unwrap(),
            500.. => tokio::time::sleep(Duration::from_millis(100 * attempt)).await,
            _ => panic!("{operation}: {}", answer.body),
        }
    }
    panic!("{operation} had no response within {TRIES} attempts")
}

async fn create(store: &Store) {
    let create = json!({
        "TableName": "table", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
    });
    call(store, "CreateTable", &create).await;
}

fn report(store: &Store, slot: u64) {
    let nodes = store.current_nodes();
    let (damaged, _) = split(&nodes, slot);
    damaged[0].damage().report("a block is corrupt");
}

/// Returns the slot of the node that leads the first arc.
fn leader(store: &Store) -> u64 {
    slot_of(store.replica(node::ring::ArcId::FIRST).unwrap().id())
}

/// Returns the incarnation of each node, by slot, if all nodes vote and none is damaged.
fn whole(store: &Store) -> Option<BTreeMap<u64, u64>> {
    let statuses = store.statuses();
    let ids: BTreeSet<NodeId> = statuses.iter().map(|status| status.node).collect();
    let is_good = |status: &Status| {
        !status.is_damaged
            && status.learners.is_empty()
            && status.voters.iter().copied().collect::<BTreeSet<_>>() == ids
    };
    let is_whole = ids.len() == 3 && statuses.iter().all(is_good);
    is_whole.then(|| ids.into_iter().map(|id| (slot_of(id), incarnation_of(id))).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_nodes_are_rebuilt_one_after_the_other_under_writes() {
    for (arcs, damaged) in [(1, 1), (1, 2), (3, 1), (3, 2)] {
        let mut fixture = Fixture::new(arcs);
        let store = fixture.open().await;
        create(&store).await;
        for _ in 0..20 {
            fixture.put(&store).await;
        }
        let first = leader(&store);
        let slots: Vec<u64> = [first, first % 3 + 1].into_iter().take(damaged).collect();
        slots.iter().for_each(|slot| report(&store, *slot));
        let begun = Instant::now();
        let expected: BTreeMap<u64, u64> =
            (1..=3).map(|slot| (slot, u64::from(slots.contains(&slot)))).collect();
        while whole(&store).as_ref() != Some(&expected) {
            assert!(store.current_nodes().len() >= 2, "nodes are rebuilt one at a time");
            assert!(begun.elapsed() < LIMIT, "{:#?}", store.statuses());
            fixture.put(&store).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fixture.check(&store).await;
        let aside: Vec<usize> = (1..=3).map(|slot| usize::from(slots.contains(&slot))).collect();
        assert_eq!(fixture.aside(), aside);
        drop(store);
        let store = fixture.open().await;
        fixture.check(&store).await;
        assert_eq!(fixture.aside(), aside, "the next start finds complete nodes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_kept_if_the_others_cannot_do_without_it() {
    let mut fixture = Fixture::new(1);
    let store = fixture.open().await;
    create(&store).await;
    (1..=3).for_each(|slot| report(&store, slot));
    for _ in 0..20 {
        fixture.put(&store).await;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    assert_eq!(fixture.aside(), [0, 0, 0], "every node is damaged, so none is set aside");
    fixture.check(&store).await;
    drop(store);

    let mut fixture = Fixture::new(1);
    let store = fixture.open().await;
    create(&store).await;
    for number in 1..=3 {
        std::fs::create_dir(fixture.folder.path().join(format!("node-2.set-aside-{number}")))
            .unwrap();
    }
    report(&store, 2);
    for _ in 0..20 {
        fixture.put(&store).await;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    assert_eq!(fixture.aside(), [0, 3, 0], "three set-aside directories are the maximum");
    fixture.check(&store).await;
}
