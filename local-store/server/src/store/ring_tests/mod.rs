//! Tests of a store with three nodes and three arcs on a real directory. They cover tables and indexes over
//! several arcs, restarts, transactions that must preserve a sum, and transactions that lose their coordinator.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use expression::{ExpressionKind, Placeholders, parse_condition, parse_update};
use model::encoding::decode_item;
use model::{
    AttributeValue, Item, KeyAttribute, KeyAttributeType, KeySchema, KeyValue, Number, PrimaryKey,
};
use partition::{
    Billing, CancellationReason, Command, CreateTable, Decide, IndexDefinition, IndexKind,
    IndexProjection, ItemRange, PartitionNumber, Prepare, Reply, SplitPoint, Table, TableId,
    TokenRange, Transaction, TransactionId, Write, WriteAction, arc_of_token, fingerprint,
    read_encoded_entries, read_encoded_items, read_item,
};

use super::{Config, Problem, Store, transactions};
use node::ring::ArcId;

mod blocked_arc;
mod conflicts;

const ARCS: u32 = 3;
const TABLE: TableId = TableId(1);

fn config(directory: &Path, arcs: u32) -> Config {
    Config {
        directory: directory.to_owned(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
        replicas: 3,
        arcs,
    }
}

async fn open(directory: &Path, arcs: u32) -> Store {
    // The previous store may not have closed its files yet.
    for _ in 0..500 {
        match Store::open(config(directory, arcs), Box::new(|reason| panic!("{reason}"))).await {
            Ok(store) => return store,
            Err(error) if matches!(error.reason, Problem::InUse(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the directory stayed in use")
}

fn schema(name: &str) -> KeySchema {
    let partition = KeyAttribute { name: name.to_owned(), attribute_type: KeyAttributeType::S };
    KeySchema { partition, sort: None }
}

fn definition() -> CreateTable {
    let index = IndexDefinition {
        name: "by-g".to_owned(),
        kind: IndexKind::Global,
        key_schema: schema("g").into(),
        projection: IndexProjection::All,
        throughput: None,
    };
    CreateTable {
        name: "things".into(),
        key_schema: schema("p"),
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: None,
        indexes: vec![index],
        options: Vec::new(),
    }
}

async fn create(store: &Store) {
    let replies = store.submit(vec![Command::CreateTable(Box::new(definition()))]).await.unwrap();
    assert!(matches!(&replies[..], [Reply::Table(table)] if table.partitions.len() == 4));
}

fn key(name: u64) -> PrimaryKey {
    PrimaryKey { partition: KeyValue::S(format!("k{name}")), sort: None }
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(Number::from(value))
}

fn balance(item: &Item) -> u64 {
    match item.get("n") {
        Some(AttributeValue::N(number)) => number.to_string().parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn write(name: u64, action: WriteAction) -> Write {
    Write {
        table: TABLE,
        key: key(name),
        action,
        condition: None,
        return_old: false,
        return_new: false,
        return_on_failure: false,
    }
}

fn put(name: u64, n: u64) -> Write {
    let item = Item::new().with("p", format!("k{name}").as_str()).with("n", number(n));
    write(name, WriteAction::put(&item.with("g", format!("g{}", name % 7).as_str())))
}

/// Returns a write that adds `n` to a balance, or subtracts it if the balance is large enough.
fn change(name: u64, sign: char, n: u64) -> Write {
    let values = BTreeMap::from([(":n".to_owned(), number(n))]);
    let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
    let update = parse_update(&format!("SET n = n {sign} :n"), &mut placeholders).unwrap();
    let condition = (sign == '-')
        .then(|| parse_condition("n >= :n", ExpressionKind::Condition, &mut placeholders).unwrap());
    Write { condition: condition.map(Box::new), ..write(name, WriteAction::Update(update)) }
}

fn transfer(from: u64, to: u64, n: u64, token: Option<String>) -> Command {
    let operations = vec![change(from, '-', n), change(to, '+', n)];
    Command::Transaction(Box::new(Transaction { token, operations }))
}

fn table(store: &Store) -> Arc<Table> {
    Arc::clone(store.catalogue().find("things").unwrap())
}

fn read_all(store: &Store) -> Vec<Item> {
    let mut items = Vec::new();
    let range = ItemRange::Tokens(TokenRange::ALL);
    read_encoded_items(&*store.view(), &table(store), &range, None, true, &mut |item| {
        items.push(decode_item(item).unwrap());
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    items
}

fn count_entries(store: &Store, forward: bool) -> usize {
    let (mut entries, table) = (0, table(store));
    let range = ItemRange::Tokens(TokenRange::ALL);
    let index = table.indexes[0].number;
    read_encoded_entries(&*store.view(), &table, index, &range, None, forward, &mut |_| {
        entries += 1;
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

/// Returns two names whose items are in different arcs. Neither arc is the first arc.
fn names_apart(store: &Store) -> (u64, u64) {
    let arc = |name: &u64| table(store).arc_of(&key(*name));
    let find = |arc_id| (0..100).find(|name| arc(name) == ArcId(arc_id)).unwrap();
    (find(1), find(2))
}

#[tokio::test(flavor = "multi_thread")]
async fn data_over_several_arcs_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let puts = (0..200).map(|name| Command::Write(Box::new(put(name, 1)))).collect();
    let replies = store.submit(puts).await.unwrap();
    assert_eq!(replies.len(), 200);
    for arc in store.arcs() {
        let mut own = 0;
        let range = ItemRange::Tokens(TokenRange::ALL);
        let replica = store.replica(arc).unwrap();
        read_encoded_items(&*replica.view(), &table(&store), &range, None, true, &mut |_| {
            own += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert!(own > 10, "{arc} has {own} of 200 items");
    }
    store.indexes_settled().await.unwrap();
    assert_eq!((count_entries(&store, true), count_entries(&store, false)), (200, 200));
    drop(store);
    // The requested number of arcs is ignored, because the directory already has a ring.
    let store = open(folder.path(), 1).await;
    assert_eq!(store.arc_count(), ARCS);
    assert_eq!(read_all(&store).len(), 200);
    let (from, to) = names_apart(&store);
    let replies = store.submit(vec![transfer(from, to, 1, None)]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Transacted { repeated: false, .. }]));
    store.submit(vec![Command::DeleteTable { table: TABLE }]).await.unwrap();
    assert!(store.catalogue().find("things").is_none());
    for arc in store.arcs() {
        assert!(store.group(arc).catalogue().get(TABLE).is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_known_in_every_arc() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let (a, b) = names_apart(&store);
    for name in [a, b] {
        store.submit(vec![Command::Write(Box::new(put(name, 100)))]).await.unwrap();
    }
    for token in ["one", "two", "three", "four", "five"] {
        let token = Some(token.to_owned());
        let made = store.submit(vec![transfer(a, b, 5, token.clone())]).await.unwrap();
        assert!(matches!(made[..], [Reply::Transacted { repeated: false, .. }]), "{made:?}");
        let again = store.submit(vec![transfer(a, b, 5, token.clone())]).await.unwrap();
        assert!(matches!(again[..], [Reply::Transacted { repeated: true, .. }]), "{again:?}");
        // Another transaction with the same token is refused, even if it needs only one arc.
        let one = Transaction { token, operations: vec![change(a, '+', 7)] };
        let other = store.submit(vec![Command::Transaction(Box::new(one))]).await.unwrap();
        assert_eq!(other, [Reply::TokenMismatch]);
    }
    let balances: BTreeMap<String, u64> = read_all(&store)
        .iter()
        .map(|item| (format!("{:?}", item.get("p")), balance(item)))
        .collect();
    assert_eq!(balances.values().sum::<u64>(), 200);
    assert!(balances.values().any(|n| *n == 75), "{balances:?}");
}

/// Goal: during concurrent transfers, every reader of all accounts sees the same sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bank_over_arcs_always_has_the_same_sum() {
    const ACCOUNTS: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let puts = (0..ACCOUNTS).map(|name| Command::Write(Box::new(put(name, 100)))).collect();
    store.submit(puts).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let clients = (0..6_u64).map(|client| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut made = 0;
            for step in 0..60 {
                let from = (client * 5 + step * 7) % ACCOUNTS;
                let to = (from + 1 + step % (ACCOUNTS - 1)) % ACCOUNTS;
                let token = (step % 2 == 0).then(|| format!("{client}-{step}"));
                let replies = store.submit(vec![transfer(from, to, 3, token)]).await.unwrap();
                match &replies[..] {
                    [Reply::Transacted { repeated: false, .. }] => made += 1,
                    [Reply::TransactionCancelled(_)] => {}
                    other => panic!("{other:?}"),
                }
            }
            made
        })
    });
    let clients: Vec<_> = clients.collect();
    let auditor = {
        let (store, over) = (store.clone(), Arc::clone(&over));
        tokio::spawn(async move {
            let (table, keys) = (table(&store), (0..ACCOUNTS).map(key).collect::<Vec<_>>());
            let wanted: Vec<_> = keys.iter().map(|key| (&table, key)).collect();
            let mut audits = 0;
            while !over.load(Ordering::Relaxed) {
                if let Ok(items) = transactions::read(&store, &wanted).await.unwrap() {
                    let sum: u64 = items.iter().map(|item| balance(item.as_ref().unwrap())).sum();
                    assert_eq!(sum, ACCOUNTS * 100);
                    audits += 1;
                }
            }
            audits
        })
    };
    let mut made = 0;
    for client in clients {
        made += client.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let audits = auditor.await.unwrap();
    assert!(made > 100, "only {made} transfers were made");
    assert!(audits > 0, "nothing was audited");
    let sum: u64 = read_all(&store.up_to_date().await.unwrap()).iter().map(balance).sum();
    assert_eq!(sum, ACCOUNTS * 100);
}

/// Goal: no index entry is delivered to an arc that does not have the table yet, because the arc would
/// discard it.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_accepts_no_items_before_every_arc_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    // Without ticks, only this test updates the other arcs.
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    let store = Store::open_without_ticks(config(folder.path(), ARCS), on_fatal).await.unwrap();
    let first = store.replica(ArcId::FIRST).unwrap();
    let created = first.submit(vec![Command::CreateTable(Box::new(definition()))]);
    assert!(matches!(created.await.unwrap()[..], [Reply::Table(_)]));
    let puts = |names: std::ops::Range<u64>| -> Vec<Command> {
        names.map(|name| Command::Write(Box::new(put(name, 1)))).collect()
    };
    let early = store.submit(puts(0..20)).await.unwrap();
    assert_eq!(early, vec![Reply::TableNotFound; 20]);
    let operations = vec![put(1, 1), put(2, 1)];
    let early = Command::Transaction(Box::new(Transaction { token: None, operations }));
    assert_eq!(store.submit(vec![early]).await.unwrap(), [Reply::TableNotFound]);
    assert_eq!(table(&store).status_text(), "CREATING");
    super::routes::bring_along(&store).await.unwrap();
    assert_eq!(table(&store).status_text(), "ACTIVE");
    store.submit(puts(0..40)).await.unwrap();
    store.indexes_settled().await.unwrap();
    assert_eq!((read_all(&store).len(), count_entries(&store, true)), (40, 40));
}

/// Goal: a request with an unknown partition number is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_no_arc_has_is_not_split() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    for number in [7, 100_000_007, 500_000_000, 4_000_000_000, u32::MAX] {
        let (partition, at) = (PartitionNumber(number), SplitPoint::Half);
        let split = Command::SplitPartition { table: TABLE, partition, at };
        let replies = store.submit(vec![split]).await.unwrap();
        let is_refused = |text: &str| text.contains("it does not exist");
        assert!(matches!(&replies[..], [Reply::Invalid(text)] if is_refused(text)), "{replies:?}");
        let split = Command::SplitPartition { table: TableId(9), partition, at };
        assert_eq!(store.submit(vec![split]).await.unwrap(), [Reply::TableNotFound]);
    }
}

/// Goal: two readers always see two writes in the same order.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_over_arcs_notices_a_write_between_its_two_reads() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let (a, b) = names_apart(&store);
    for name in [a, b] {
        store.submit(vec![Command::Write(Box::new(put(name, 10)))]).await.unwrap();
    }
    let (table, keys) = (table(&store), [key(a), key(b)]);
    let wanted: Vec<_> = keys.iter().map(|key| (&table, key)).collect();
    let parts =
        BTreeMap::from([(table.arc_of(&keys[0]), vec![0]), (table.arc_of(&keys[1]), vec![1])]);
    let look = async || transactions::look(&store, &parts, &wanted).await.unwrap().unwrap();
    let first = look().await;
    assert!(look().await == first, "nothing happened in between");
    for name in [b, a] {
        let before = look().await;
        store.submit(vec![Command::Write(Box::new(change(name, '+', 1)))]).await.unwrap();
        assert!(look().await != before, "a single write, and no step of a transaction");
    }
}

/// Goal: a client that has read items with locks can write them immediately, because the locks are
/// released.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_leaves_no_locks_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let (a, b) = names_apart(&store);
    for name in [a, b] {
        store.submit(vec![Command::Write(Box::new(put(name, 10)))]).await.unwrap();
    }
    let (table, keys) = (table(&store), [key(a), key(b)]);
    let wanted: Vec<_> = keys.iter().map(|key| (&table, key)).collect();
    let mut parts = transactions::Parts::new();
    for (place, key) in keys.iter().enumerate() {
        parts.entry(table.arc_of(key)).or_default().push(place);
    }
    for round in 0..10 {
        let read = transactions::read_with_locks(&store, &parts, &wanted).await.unwrap();
        let balances: Vec<u64> = read.unwrap().iter().flatten().map(balance).collect();
        assert_eq!(balances, [10 + round; 2]);
        for name in [a, b] {
            let command = Command::Write(Box::new(change(name, '+', 1)));
            let replies = store.submit(vec![command]).await.unwrap();
            assert!(matches!(replies[..], [Reply::Written(_)]), "{replies:?}");
        }
    }
}

/// Goal: if recovery releases a read with locks before all its items are locked, the read reports a
/// conflict. Without this conflict, the read could return values from different points in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_was_released_meanwhile_reports_a_conflict() {
    let folder = tempfile::tempdir().unwrap();
    // Without ticks, only this test ends the read.
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    let store = Store::open_without_ticks(config(folder.path(), ARCS), on_fatal).await.unwrap();
    create(&store).await;
    let names: [u64; 2] = names_apart(&store).into();
    for name in names {
        store.submit(vec![Command::Write(Box::new(put(name, 10)))]).await.unwrap();
    }
    let [first, second] = names.map(|name| table(&store).arc_of(&key(name)));
    let began = store.now();
    let check = |name| Write { action: WriteAction::Check, ..put(name, 0) };
    for is_given_up in [true, false] {
        let reader_of = |parts: &[(ArcId, usize)]| transactions::LockingReader {
            store: store.clone(),
            parts: parts.iter().map(|(arc, place)| (*arc, vec![*place])).collect(),
            checks: names.map(check).into(),
            id: TransactionId(u128::from(is_given_up)),
            began,
        };
        let mut items = reader_of(&[(first, 0)]).lock().await.unwrap().unwrap();
        if is_given_up {
            // Releases the locks of the read, as the leader of the arc does when it recovers the
            // read.
            assert!(reader_of(&[(first, 0)]).release().await.unwrap());
            let two = vec![change(names[0], '-', 1), change(names[1], '+', 1)];
            let two = Transaction { token: None, operations: two };
            let made = store.submit(vec![Command::Transaction(Box::new(two))]).await.unwrap();
            assert!(matches!(made[..], [Reply::Transacted { .. }]), "{made:?}");
        }
        items[1] = reader_of(&[(second, 1)]).lock().await.unwrap().unwrap()[1].take();
        let balances: Vec<u64> = items.iter().flatten().map(balance).collect();
        assert_eq!(balances, if is_given_up { [10, 11] } else { [9, 11] });
        let all_at_once = reader_of(&[(first, 0), (second, 1)]).release().await.unwrap();
        assert_eq!(all_at_once, !is_given_up);
    }
}

/// Goal: if the coordinator is lost, an undecided transaction is aborted, and a decided transaction is
/// applied.
#[tokio::test(flavor = "multi_thread")]
async fn unfinished_transactions_are_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), ARCS).await;
    create(&store).await;
    let (a, b) = names_apart(&store);
    for (round, decided) in [(1, false), (2, true)] {
        for name in [a, b] {
            store.submit(vec![Command::Write(Box::new(put(name, 10)))]).await.unwrap();
        }
        let (id, began, deciding_arc) = (TransactionId(round), store.now(), ArcId(0));
        let mut participants = Vec::new();
        for name in [a, b] {
            let arc = table(&store).arc_of(&key(name));
            let operations = vec![change(name, '+', 1)];
            let prepare = Prepare { id, deciding_arc, began, operations, return_items: false };
            let command = Command::Prepare(Box::new(prepare));
            let replies = store.group(arc).submit(vec![command]).await.unwrap();
            assert!(matches!(replies[..], [Reply::Prepared { .. }]));
            participants.push((arc, 1));
        }
        let conflict = store.submit(vec![Command::Write(Box::new(put(a, 99)))]).await.unwrap();
        assert_eq!(conflict, [Reply::Conflict]);
        if decided {
            let (token, sizes) = (None, Vec::new());
            let decide = Decide { id, began, commit: true, token, sizes, participants };
            let command = Command::Decide(Box::new(decide));
            let replies = store.group(deciding_arc).submit(vec![command]).await.unwrap();
            assert_eq!(replies, [Reply::Decided { commit: true }]);
        }
        // The coordinator never returns. Other writes succeed after recovery has unlocked the items.
        let expected = if decided { 11 } else { 10 };
        for name in [a, b] {
            let free = loop {
                let replies =
                    store.submit(vec![Command::Write(Box::new(change(name, '+', 0)))]).await;
                match &replies.unwrap()[..] {
                    [Reply::Conflict] => tokio::time::sleep(Duration::from_millis(50)).await,
                    other => break other.to_vec(),
                }
            };
            assert!(matches!(free[..], [Reply::Written(_)]));
        }
        let balances: Vec<u64> = read_all(&store).iter().map(balance).collect();
        assert_eq!(balances, [expected, expected], "decided: {decided}");
    }
}

/// Goal: after a repeated request has returned the result of its earlier execution, every strongly
/// consistent read sees the writes. This also applies if the first coordinator was lost or is slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_transaction_is_readable_once_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    // Without ticks, nothing else finishes the transaction.
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    let store = Store::open_without_ticks(config(folder.path(), ARCS), on_fatal).await.unwrap();
    create(&store).await;
    let (a, b) = names_apart(&store);
    let elsewhere = |token: &&&str| arc_of_token(token, ARCS) != table(&store).arc_of(&key(b));
    let of_one = ["u", "v", "w", "x", "y", "z"].iter().find(elsewhere).unwrap();
    let two = vec![change(a, '-', 1), change(b, '+', 1)];
    for (token, operations, expected) in
        [("lost", two, [9, 11]), (*of_one, vec![change(b, '+', 5)], [10, 15])]
    {
        for name in [a, b] {
            store.submit(vec![Command::Write(Box::new(put(name, 10)))]).await.unwrap();
        }
        let (id, began) = (TransactionId::new([7, 7], Some(token)), store.now());
        let deciding_arc = arc_of_token(token, ARCS);
        let mut participants = Vec::new();
        for operation in &operations {
            let arc = table(&store).arc_of(&operation.key);
            let operations = vec![operation.clone()];
            let prepare = Prepare { id, deciding_arc, began, operations, return_items: false };
            let prepare = vec![Command::Prepare(Box::new(prepare))];
            let replies = store.group(arc).submit(prepare).await.unwrap();
            assert!(matches!(replies[..], [Reply::Prepared { .. }]));
            participants.push((arc, 1));
        }
        let known = Some((token.to_owned(), fingerprint(&operations).unwrap()));
        let sizes = vec![(0, 0); operations.len()];
        let decide = Decide { id, began, commit: true, token: known, sizes, participants };
        let decide = vec![Command::Decide(Box::new(decide))];
        let replies = store.group(deciding_arc).submit(decide).await.unwrap();
        assert_eq!(replies, [Reply::Decided { commit: true }]);
        // The coordinator never returns, and the client repeats the request.
        let again = Transaction { token: Some(token.to_owned()), operations };
        let again = store.submit(vec![Command::Transaction(Box::new(again))]).await.unwrap();
        assert!(matches!(again[..], [Reply::Transacted { repeated: true, .. }]), "{again:?}");
        let strong = store.up_to_date().await.unwrap();
        let found = [a, b].map(|name| {
            read_item(&*strong.view(), &table(&store), &key(name)).unwrap().as_ref().map(balance)
        });
        assert_eq!(found, expected.map(Some), "{token}");
    }
}
