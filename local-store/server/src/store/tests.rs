//! Tests without HTTP of a store of three nodes on a real directory: commands, restarts, ticks, and nodes
//! that lose their data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use expression::{ExpressionKind, Placeholders, parse_condition, parse_update};
use model::{
    AttributeValue, EpochMillis, Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, Number,
    PrimaryKey,
};
use partition::{
    Billing, Command, CreateTable, Reply, TableId, TimeToLiveChange, Transaction, Write,
    WriteAction, read_item,
};

use super::directory::{Host, Identity};
use super::{Config, Problem, Store, cluster};
use node::LocalTransport;
use node::clock::Clock;
use node::status::Status;
use node::{Settings, node_id, slot_of};

fn config(directory: &Path) -> Config {
    Config {
        directory: directory.to_owned(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas: 3,
        arcs: 1,
    }
}

async fn open(directory: &Path) -> Store {
    // The previous store may not have closed its files yet.
    for _ in 0..200 {
        match Store::open(config(directory), Box::new(|reason| panic!("{reason}"))).await {
            Ok(store) => return store,
            Err(error) if matches!(error.reason, Problem::InUse(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the directory stayed in use")
}

fn schema() -> KeySchema {
    KeySchema {
        partition: KeyAttribute { name: "p".to_owned(), attribute_type: KeyAttributeType::S },
        sort: None,
    }
}

fn create() -> Command {
    Command::CreateTable(Box::new(CreateTable {
        name: "t".into(),
        key_schema: schema(),
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: None,
        indexes: Vec::new(),
        options: Vec::new(),
    }))
}

fn key(name: &str) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::S(name.to_owned()), sort: None }
}

fn put(name: &str, item: Item) -> Command {
    let item = item.with("p", name);
    Command::Write(Box::new(Write {
        table: TableId(1),
        key: key(name),
        action: WriteAction::put(&item),
        condition: None,
        return_old: false,
        return_new: false,
        return_on_failure: false,
    }))
}

fn get(store: &Store, name: &str) -> Option<Item> {
    let catalogue = store.catalogue();
    read_item(&*store.view(), catalogue.find("t").unwrap(), &key(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_survive_a_restart_and_the_directory_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let replies = store.submit(vec![create(), put("a", Item::new())]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Table(_), Reply::Written(_)]));
    let second = Store::open(config(folder.path()), Box::new(|_| {})).await;
    assert!(second.is_err_and(|error| error.to_string().contains("other process")));
    let writers = (0..20).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.submit(vec![put(&format!("k{n}"), Item::new())]).await })
    });
    for writer in writers.collect::<Vec<_>>() {
        assert!(matches!(writer.await.unwrap().unwrap()[..], [Reply::Written(_)]));
    }
    assert!(get(&store, "k7").is_some());
    drop(store);
    let store = open(folder.path()).await;
    // A new leader may not have applied its complete log yet. This write is applied after the log.
    store.submit(vec![put("b", Item::new())]).await.unwrap();
    assert!(get(&store, "a").is_some());
    assert!((0..20).all(|n| get(&store, &format!("k{n}")).is_some()));
}

/// Goal: if the process dies while it creates a cluster, the next start completes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_creation_of_the_cluster_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(Arc::new(|reason| panic!("{reason}")), 3, true);
    let mut files = (1..=3).map(|slot| {
        let identity = Identity::new("c".to_owned(), node_id(slot, 0), 1);
        cluster::create_slot(folder.path(), slot, identity, &host).unwrap()
    });
    let (first, others) = (files.next().unwrap(), files.collect::<Vec<_>>());
    drop(others);
    // Only the first node has stored the members durably. No other node has them.
    let clock = Arc::new(Clock::starting_at(EpochMillis(0)));
    let transport = Arc::new(LocalTransport::default());
    let settings = Settings::of_one_process();
    let replicas =
        cluster::start_replicas(first, transport, settings, &clock, &host).await.unwrap();
    replicas[0].initialize((1..=3).map(|slot| node_id(slot, 0)).collect()).await.unwrap();
    assert!(replicas[0].holds_data());
    replicas[0].shutdown().await;
    drop(replicas);
    let store = open(folder.path()).await;
    store.submit(vec![create(), put("a", Item::new())]).await.unwrap();
    assert!(get(&store, "a").is_some());
    let nodes: Vec<_> = store.statuses().iter().map(|status| status.node).collect();
    assert_eq!(nodes, [1, 2, 3].map(|slot| node_id(slot, 0)));
}

/// Goal: concurrent updates whose total size exceeds a log record are executed. The updates must
/// not be combined in one entry.
#[tokio::test(flavor = "multi_thread")]
async fn large_concurrent_updates_are_all_executed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.submit(vec![create()]).await.unwrap();
    let update = |n: u32| {
        let value = AttributeValue::S("x".repeat(390 * 1024));
        let values = BTreeMap::from([(":v".to_owned(), value)]);
        let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
        let update = parse_update("SET v = :v", &mut placeholders).unwrap();
        let Command::Write(write) = put(&format!("k{n}"), Item::new()) else { panic!("a write") };
        Command::Write(Box::new(Write { action: WriteAction::Update(update), ..*write }))
    };
    let writers = (0..120).map(|n| {
        let (store, command) = (store.clone(), update(n));
        tokio::spawn(async move {
            // On a busy machine, the outcome may be unknown. The update is idempotent, so the test retries it.
            for _ in 0..20 {
                if let Ok(replies) = store.submit(vec![command.clone()]).await {
                    return replies;
                }
            }
            Vec::new()
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        assert!(matches!(writer.await.unwrap()[..], [Reply::Written(_)]));
    }
    assert!((0..120).all(|n| get(&store, &format!("k{n}")).is_some()));
}

/// Goal: a request that is too large for a log entry, because it repeats a value, is refused. The store
/// continues to execute other requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_no_entry_has_room_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.submit(vec![create()]).await.unwrap();
    // The value occurs in the update and in the condition: 31 MB.
    let write = |n: u32| {
        let value = AttributeValue::S("x".repeat(390_000));
        let values = BTreeMap::from([(":v".to_owned(), value)]);
        let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
        let update = parse_update("SET v = :v", &mut placeholders).unwrap();
        let condition =
            parse_condition("v <> :v", ExpressionKind::Condition, &mut placeholders).unwrap();
        let Command::Write(write) = put(&format!("k{n}"), Item::new()) else { panic!("a write") };
        let (action, condition) = (WriteAction::Update(update), Some(Box::new(condition)));
        Write { action, condition, ..*write }
    };
    let operations: Vec<Write> = (0..40).map(write).collect();
    let writes: Vec<Command> =
        operations.iter().cloned().map(Box::new).map(Command::Write).collect();
    let transaction = Command::Transaction(Box::new(Transaction { token: None, operations }));
    // Concurrent requests succeed, because they are not in the same entry.
    let small = async || store.submit(vec![put("small", Item::new())]).await.unwrap();
    let (large, before, after) =
        tokio::join!(store.submit(vec![transaction.clone()]), small(), small());
    let text = "Transaction payload size cannot exceed 4 MB";
    assert_eq!(large.unwrap(), [Reply::Invalid(text.to_owned())]);
    assert!(matches!((&before[..], &after[..]), ([Reply::Written(_)], [Reply::Written(_)])));
    let replies = store.submit(writes).await.unwrap();
    assert_eq!(replies.len(), 40);
    let is_refused =
        |reply: &Reply| matches!(reply, Reply::Invalid(text) if text.contains("large"));
    assert!(replies.iter().all(is_refused));
    assert!(get(&store, "k0").is_none() && get(&store, "small").is_some());
    drop(store);
    let store = open(folder.path()).await;
    assert!(get(&store, "k0").is_none() && get(&store, "small").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_items_are_deleted_within_seconds_of_store_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let change = TimeToLiveChange::Enable("ttl".to_owned());
    store
        .submit(vec![create(), Command::UpdateTimeToLive { table: TableId(1), change }])
        .await
        .unwrap();
    let now = store.clock().freeze();
    let item = |seconds: u64| Item::new().with("ttl", Number::from(now.seconds() + seconds));
    store.submit(vec![put("soon", item(60)), put("later", item(7200))]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(get(&store, "soon").is_some(), "time has not passed");
    store.clock().advance(120_000);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while get(&store, "soon").is_some() {
        assert!(std::time::Instant::now() < deadline, "the item did not expire");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(get(&store, "later").is_some());
    store.clock().advance(3 * 3_600_000);
    store.sweep_time_to_live().await.unwrap();
    assert!(get(&store, "later").is_none());
    assert!(store.now() >= EpochMillis(now.0 + 120_000 + 3 * 3_600_000));
}

/// Goal: a requested sweep ends even if many items have expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_has_a_maximum_and_the_next_one_deletes_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let change = TimeToLiveChange::Enable("ttl".to_owned());
    let enable = Command::UpdateTimeToLive { table: TableId(1), change };
    let now = store.clock().freeze();
    let item = Item::new().with("ttl", Number::from(now.seconds() - 60));
    let step = Command::StepTimeToLive { table: TableId(1) };
    store.submit(vec![create(), enable, step]).await.unwrap();
    let puts = (0..1_501).map(|number| put(&number.to_string(), item.clone()));
    store.submit(puts.collect()).await.unwrap();
    // A tick may already have deleted some items.
    let deleted = store.sweep_time_to_live().await.unwrap().expired;
    assert!(deleted <= 1_500, "{deleted}");
    store.sweep_time_to_live().await.unwrap();
    assert!(get(&store, "0").is_none() && get(&store, "1500").is_none());
}

/// Waits until every node is a complete voter with the given incarnation.
async fn healed(store: &Store, incarnations: [u64; 3]) {
    let wanted: Vec<u64> = (1..=3).zip(incarnations).map(|(slot, n)| node_id(slot, n)).collect();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let statuses = store.statuses();
        let committed = statuses.iter().filter_map(|status| status.committed).max();
        let well = |status: &Status| {
            let mut voters = status.voters.clone();
            voters.sort_by_key(|id| slot_of(*id));
            voters == wanted && status.learners.is_empty() && status.applied == committed
        };
        if statuses.iter().all(well) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "not healed: {statuses:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_data_is_rebuilt_with_a_new_identity() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.submit(vec![create()]).await.unwrap();
    let items: Vec<Command> = (0..500).map(|n| put(&format!("k{n}"), Item::new())).collect();
    store.submit(items).await.unwrap();
    drop(store);
    // The test first removes the complete directory of a node, and then only the log of another node.
    let aside = |slot: u64, name: &str| folder.path().join(format!("node-{slot}{name}"));
    wait_until_closed(folder.path()).await;
    std::fs::remove_dir_all(aside(2, "")).unwrap();
    let store = open(folder.path()).await;
    healed(&store, [0, 1, 0]).await;
    drop(store);
    wait_until_closed(folder.path()).await;
    std::fs::remove_dir_all(aside(1, "/log")).unwrap();
    let store = open(folder.path()).await;
    healed(&store, [1, 1, 0]).await;
    let reason = std::fs::read_to_string(aside(1, ".set-aside-1/reason")).unwrap();
    assert!(reason.contains("the node's log is missing"), "{reason}");
    drop(store);
    wait_until_closed(folder.path()).await;
    // Two nodes were rebuilt, and the third is damaged. The store detects the damage, and all acknowledged
    // writes can be read.
    let log = aside(3, "/log");
    let segment = std::fs::read_dir(&log).unwrap().map(|found| found.unwrap().path());
    let segment = segment.filter(|path| path.to_string_lossy().contains("segment-")).max().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    // Flips a bit in the payload of the first record, which is followed by valid records.
    bytes[4096 + 42] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let store = open(folder.path()).await;
    healed(&store, [1, 1, 1]).await;
    let reason = std::fs::read_to_string(aside(3, ".set-aside-1/reason")).unwrap();
    assert!(reason.contains("corrupt"), "{reason}");
    let strong = store.up_to_date().await.unwrap();
    assert!((0..500).all(|n| get(&strong, &format!("k{n}")).is_some()));
}

/// Goal: if the logs of all nodes are lost, the store does not start, because acknowledged writes may be
/// missing.
#[tokio::test(flavor = "multi_thread")]
async fn states_without_any_log_are_refused() {
    for replicas in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let config = || Config { replicas, ..config(folder.path()) };
        let store = Store::open(config(), Box::new(|reason| panic!("{reason}"))).await.unwrap();
        store.submit(vec![create()]).await.unwrap();
        write_a_table(&store, folder.path(), replicas).await;
        drop(store);
        wait_until_closed(folder.path()).await;
        for slot in 1..=replicas {
            std::fs::remove_dir_all(folder.path().join(format!("node-{slot}/log"))).unwrap();
        }
        let refused = Store::open(config(), Box::new(|reason| panic!("{reason}"))).await;
        let error = refused.err().unwrap().to_string();
        assert!(
            error.contains("the log of every node of") && error.contains("empty store"),
            "{error}"
        );
        wait_until_closed(folder.path()).await;
        // The states are not removed, so that an operator can restore the logs from a copy.
        assert!(folder.path().join("node-1/arc-0/state-1/current").exists());
    }
}

/// Writes more data than fits in memory, and waits until each node has a table (file) on disk.
async fn write_a_table(store: &Store, folder: &Path, replicas: u64) {
    for n in 0..50 {
        let item = Item::new().with("v", "x".repeat(390 * 1024));
        store.submit(vec![put(&format!("k{n}"), item)]).await.unwrap();
    }
    let state = |slot: u64| folder.join(format!("node-{slot}/arc-0/state-1"));
    // The first version of a tree has no table.
    let has_table = |slot| (1..9).any(|version| state(slot).join(format!("v{version}")).exists());
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !(1..=replicas).all(has_table) {
        assert!(std::time::Instant::now() < deadline, "no table was written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Goal: if any file of one node's state is missing or empty, the node is rebuilt from the other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_state_lacks_files_is_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.submit(vec![create()]).await.unwrap();
    write_a_table(&store, folder.path(), 3).await;
    let state = |slot: u64| folder.path().join(format!("node-{slot}/arc-0/state-1"));
    drop(store);
    let mut incarnations = [0, 0, 0];
    for (slot, is_damaged) in [
        (1, (|name| name.starts_with("tables/")) as fn(&str) -> bool),
        (2, |name| name.starts_with('v')),
        (3, |name| name == "current"),
    ] {
        wait_until_closed(folder.path()).await;
        let state = state(slot);
        let tables = std::fs::read_dir(state.join("tables")).unwrap();
        let files =
            std::fs::read_dir(&state).unwrap().chain(tables).map(|file| file.unwrap().path());
        let name = |file: &Path| file.strip_prefix(&state).unwrap().to_str().unwrap().to_owned();
        let damaged: Vec<_> = files.filter(|file| is_damaged(&name(file))).collect();
        assert!(!damaged.is_empty());
        for file in damaged {
            match slot {
                1 => std::fs::write(file, "").unwrap(),
                _ => std::fs::remove_file(file).unwrap(),
            }
        }
        let store = open(folder.path()).await;
        incarnations[usize::try_from(slot - 1).unwrap()] = 1;
        healed(&store, incarnations).await;
        let aside = folder.path().join(format!("node-{slot}.set-aside-1/reason"));
        let reason = std::fs::read_to_string(aside).unwrap();
        assert!(reason.contains("corrupt"), "{reason}");
        let strong = store.up_to_date().await.unwrap();
        assert!((0..50).all(|n| get(&strong, &format!("k{n}")).is_some()));
    }
}

/// Goal: if fewer nodes than a majority have data, the store does not start, and no node runs. Method: the
/// test checks that no node has its files open.
#[tokio::test(flavor = "multi_thread")]
async fn less_than_a_majority_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.submit(vec![create()]).await.unwrap();
    drop(store);
    wait_until_closed(folder.path()).await;
    for slot in [1, 3] {
        std::fs::remove_dir_all(folder.path().join(format!("node-{slot}"))).unwrap();
    }
    let refused = Store::open(config(folder.path()), Box::new(|_| {})).await;
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("1 of 3 replicas"), "{error}");
    wait_until_closed(&folder.path().join("node-2")).await;
}

/// Flips a bit in the header of a node's log.
fn damage(directory: &Path, slot: u64) {
    let log = directory.join(format!("node-{slot}/log"));
    let segment = std::fs::read_dir(&log).unwrap().map(|found| found.unwrap().path());
    let segment = segment.filter(|path| path.to_string_lossy().contains("segment-")).min().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
}

/// Goal: if all nodes of a store are damaged, no empty store is created in their place.
#[tokio::test(flavor = "multi_thread")]
async fn no_new_store_is_created_next_to_a_damaged_one() {
    for replicas in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let config = || Config { replicas, ..config(folder.path()) };
        let store = Store::open(config(), Box::new(|_| {})).await.unwrap();
        store.submit(vec![create()]).await.unwrap();
        drop(store);
        wait_until_closed(folder.path()).await;
        (1..=replicas).for_each(|slot| damage(folder.path(), slot));
        // The second attempt to open the store fails with the same error.
        for _ in 0..2 {
            let refused = Store::open(config(), Box::new(|_| {})).await;
            let error = refused.err().unwrap().to_string();
            assert!(error.contains("move") && error.contains("empty store"), "{error}");
            wait_until_closed(folder.path()).await;
        }
        assert_eq!(folder.path().join("node-1").exists(), replicas == 1, "the only one stays");
    }
}

/// Goal: the store detects that the directories of two nodes were swapped.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_another_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    store.submit(vec![create()]).await.unwrap();
    drop(store);
    wait_until_closed(folder.path()).await;
    let node = |name: &str| folder.path().join(format!("node-{name}"));
    std::fs::rename(node("1"), node("x")).unwrap();
    std::fs::rename(node("2"), node("1")).unwrap();
    std::fs::rename(node("x"), node("2")).unwrap();
    let refused = Store::open(config(folder.path()), Box::new(|_| {})).await;
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("node-1` belongs to node 2, not to node 1"), "{error}");
}

/// Waits until the nodes of a dropped store have closed their files in the background.
async fn wait_until_closed(directory: &Path) {
    for _ in 0..1000 {
        if storage::disk::FileDisk::open(directory).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the directory stayed in use")
}
