//! Tests of an arc that does not accept index entries. Only writes to the table of the index, TTL and the
//! building of indexes are blocked.
//!
//! Method: one arc has an index that the other arcs do not have yet, so its index entries wait.

use partition::{
    IndexNumber, IndexStatus, Placement, SecondaryIndex, TimeToLive, TimeToLiveChange, adds_entries,
};

use super::*;
use crate::api::{self, Response};
use crate::store::outbox_relay;
use crate::store::ticks::{self, SweepResult};

/// The only arc that has the index, so its index entries wait.
const AHEAD: ArcId = ArcId(1);

/// Returns the command that adds an index to the table in an arc. The test first sends this command
/// only to [`AHEAD`].
fn adopt(known: &Table) -> Command {
    let mut wider = known.definition();
    let late = SecondaryIndex { number: IndexNumber(1), ..wider.indexes[0].clone() };
    wider.indexes.push(late);
    wider.next_index = 2;
    let placement = Placement { version: known.placement.version + 1, ..known.placement.clone() };
    Command::AdoptTable { table: Box::new(wider), placement }
}

async fn answer(store: &Store, operation: &str, body: String) -> Response {
    api::handle(store, &format!("DynamoDB_20120810.{operation}"), body.as_bytes()).await
}

async fn put_here(store: &Store, name: u64) -> Response {
    let item = format!(r#"{{"p":{{"S":"k{name}"}},"g":{{"S":"g"}}}}"#);
    answer(store, "PutItem", format!(r#"{{"TableName":"things","Item":{item}}}"#)).await
}

async fn transact(store: &Store, token: &str, name: u64) -> Response {
    let item = format!(r#"{{"p":{{"S":"k{name}"}},"g":{{"S":"g"}}}}"#);
    let operation = format!(r#"{{"Put":{{"TableName":"things","Item":{item}}}}}"#);
    let body = format!(r#"{{"ClientRequestToken":"{token}","TransactItems":[{operation}]}}"#);
    answer(store, "TransactWriteItems", body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_cannot_follow_blocks_writes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let known = table(&store);
    let mut names = (0..).filter(|name| known.arc_of(&key(*name)) == AHEAD);
    let made = names.next().unwrap();
    assert_eq!(transact(&store, "made", made).await.status, 200);
    let adopt = adopt(&known);
    store.group(AHEAD).submit(vec![adopt.clone()]).await.unwrap();
    let puts = names.by_ref().take(1500).map(|name| Command::Write(Box::new(put(name, 1))));
    store.submit(puts.collect()).await.unwrap();
    assert!(store.blocks_writes(&known, &key(made)).await.unwrap());

    // Background work also waits, but the removal of an index does not wait.
    assert!(!outbox_relay::has_room(&store, AHEAD, &known).await.unwrap());
    let with = |status: IndexStatus| {
        let mut table = Table::clone(&known);
        table.indexes.iter_mut().for_each(|index| index.status = status.clone());
        table
    };
    let ending = with(IndexStatus::Deleting);
    assert!(
        outbox_relay::has_room(&store, AHEAD, &ending).await.unwrap() && !adds_entries(&ending)
    );
    assert!(adds_entries(&with(IndexStatus::Creating { cursor: None })));

    let name = names.next().unwrap();
    let refused = put_here(&store, name).await;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("#ThrottlingException"), "{}", refused.body);
    assert!(refused.body.contains("IndexWriteKeyRangeThroughputExceeded"), "{}", refused.body);
    let cancelled = transact(&store, "new", name).await;
    assert!(cancelled.body.contains("ThrottlingError"), "{}", cancelled.body);
    // A transaction that was already executed gets its earlier result and is not executed again.
    let repeated = transact(&store, "made", made).await;
    assert_eq!(repeated.status, 200, "{}", repeated.body);
    let elsewhere = (0..).find(|name| known.arc_of(&key(*name)) != AHEAD).unwrap();
    assert_eq!(put_here(&store, elsewhere).await.status, 200);

    for arc in store.arcs() {
        store.group(arc).submit(vec![adopt.clone()]).await.unwrap();
    }
    store.indexes_settled().await.unwrap();
    assert_eq!(put_here(&store, name).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_sweep_reports_the_blocked_tables() {
    let folder = tempfile::tempdir().unwrap();
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    let store = Store::open_without_ticks(config(folder.path(), ARCS), on_fatal).await.unwrap();
    create(&store).await;
    let change = TimeToLiveChange::Enable("ttl".to_owned());
    store.submit(vec![Command::UpdateTimeToLive { table: TABLE, change }]).await.unwrap();
    // The arcs change the table one after the other, so TTL is enabled in all arcs only after several
    // ticks.
    for _ in 0..3 {
        ticks::tick(&store).await.unwrap();
    }
    let ahead = Arc::clone(store.group(AHEAD).catalogue().get(TABLE).unwrap());
    assert!(matches!(ahead.time_to_live, TimeToLive::Enabled { .. }), "{:?}", ahead.time_to_live);
    let known = table(&store);
    let adopt = adopt(&known);
    store.group(AHEAD).submit(vec![adopt.clone()]).await.unwrap();
    let names = (0..).filter(|name| known.arc_of(&key(*name)) == AHEAD).take(1000);
    let past = store.now().seconds() - 60;
    let item = |name: u64| {
        let group = format!("g{}", name % 7);
        let item = Item::new().with("p", format!("k{name}").as_str()).with("g", group.as_str());
        write(name, WriteAction::put(&item.with("ttl", number(past))))
    };
    let puts = names.map(|name| Command::Write(Box::new(item(name))));
    store.submit(puts.collect()).await.unwrap();
    let swept = store.sweep_time_to_live().await.unwrap();
    assert_eq!(swept, SweepResult { expired: 0, blocked: ["things".to_owned()].into() });
    assert_eq!(read_all(&store).len(), 1000);

    for arc in store.arcs() {
        store.group(arc).submit(vec![adopt.clone()]).await.unwrap();
    }
    store.indexes_settled().await.unwrap();
    let mut expired = 0;
    // The index entries of deleted items must be delivered, which may take longer than one sweep waits.
    for _ in 0..100 {
        expired += store.sweep_time_to_live().await.unwrap().expired;
        if expired == 1000 {
            break;
        }
    }
    assert_eq!((expired, read_all(&store).len()), (1000, 0));
}
