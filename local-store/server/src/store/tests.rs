//! A store on a real directory: commands, restarts, ticks. No HTTP.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use expression::{Placeholders, parse_update};
use model::{
    AttributeValue, EpochMillis, Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, Number,
    PrimaryKey,
};
use partition::{
    Billing, Command, CreateTable, Reply, TableId, TimeToLiveChange, Write, WriteAction, read_item,
};

use super::{Config, Store};

fn config(directory: &Path) -> Config {
    Config {
        directory: directory.to_owned(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
    }
}

fn open(directory: &Path) -> Store {
    // The threads of the store before may still be closing its files.
    for _ in 0..200 {
        match Store::open(config(directory), Box::new(|reason| panic!("{reason}"))) {
            Ok(store) => return store,
            Err(error) if error.reason.contains("other process") => {
                std::thread::sleep(Duration::from_millis(20));
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
    Command::CreateTable(CreateTable {
        name: "t".to_owned(),
        key_schema: schema(),
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: None,
        indexes: Vec::new(),
        options: Vec::new(),
    })
}

fn key(name: &str) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::S(name.to_owned()), sort: None }
}

fn put(name: &str, item: Item) -> Command {
    let item = item.with("p", name);
    Command::Write(Box::new(Write {
        table: TableId(1),
        key: key(name),
        action: WriteAction::Put(item),
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
    let store = open(folder.path());
    let replies = store.submit(vec![create(), put("a", Item::new())]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Table(_), Reply::Written(_)]));
    let second = Store::open(config(folder.path()), Box::new(|_| {}));
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
    let store = open(folder.path());
    assert!(get(&store, "a").is_some());
    assert!((0..20).all(|n| get(&store, &format!("k{n}")).is_some()));
}

/// Together these are more than one log record may hold, so they must not become one entry.
#[tokio::test(flavor = "multi_thread")]
async fn large_updates_that_come_together_are_all_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
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
        tokio::spawn(async move { store.submit(vec![command]).await })
    });
    for writer in writers.collect::<Vec<_>>() {
        assert!(matches!(writer.await.unwrap().unwrap()[..], [Reply::Written(_)]));
    }
    assert!((0..120).all(|n| get(&store, &format!("k{n}")).is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expires_is_gone_within_seconds_of_store_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
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
