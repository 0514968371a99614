//! Tests of several stores over sockets, each with one node: the creation of a cluster, the restart of a
//! node, the refusal of nodes, and nodes that join and leave.

use std::time::Duration;

use partition::{Billing, Command, CreateTable, Reply};

use super::super::{Config, OpenError, Store};
use super::*;
use model::EpochMillis;
use node::LocalTransport;
use node::ring::ArcId;
use node::transfer::BYTES_PER_SECOND;

struct Processes {
    folder: tempfile::TempDir,
    /// The number of arcs of the nodes.
    arcs: u32,
    addresses: BTreeMap<u64, SocketAddr>,
    /// The ports. They stay open while a node is down, so that no other test can take a port.
    listeners: BTreeMap<u64, std::net::TcpListener>,
}

impl Processes {
    fn new(nodes: u64, arcs: u32) -> Self {
        let listeners: BTreeMap<u64, _> = (1..=nodes)
            .map(|slot| (slot, std::net::TcpListener::bind("127.0.0.1:0").unwrap()))
            .collect();
        let address = |(slot, listener): (&u64, &std::net::TcpListener)| {
            listener.set_nonblocking(true).unwrap();
            (*slot, listener.local_addr().unwrap())
        };
        let addresses = listeners.iter().map(address).collect();
        Self { folder: tempfile::tempdir().unwrap(), arcs, addresses, listeners }
    }

    fn data(&self, slot: u64) -> PathBuf {
        self.folder.path().join(slot.to_string())
    }

    async fn open(&self, slot: u64) -> Result<Store, OpenError> {
        // The previous store may not have closed its files yet.
        let mut tries = 400;
        loop {
            match self.open_once(slot).await {
                Err(OpenError { reason: Problem::InUse(_), .. }) if tries > 0 => tries -= 1,
                opened => return opened,
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    async fn open_once(&self, slot: u64) -> Result<Store, OpenError> {
        self.open_with(slot, self.addresses.clone(), false).await
    }

    async fn open_with(
        &self,
        slot: u64,
        addresses: BTreeMap<u64, SocketAddr>,
        joins: bool,
    ) -> Result<Store, OpenError> {
        let listener = self.listeners.get(&slot).unwrap().try_clone().unwrap();
        let member = Member {
            slot,
            addresses,
            joins,
            secret: None,
            transfer_bytes_per_second: BYTES_PER_SECOND,
            listener: TcpListener::from_std(listener).unwrap(),
        };
        let config = Config {
            directory: self.data(slot),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 3,
            arcs: self.arcs,
        };
        let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
        let on_damage = Box::new(|reason: &str| panic!("{reason}"));
        Store::open_member(config, member, on_fatal, on_damage).await
    }

    async fn open_all(&self) -> Vec<Store> {
        let all = join_all(self.addresses.keys().map(|slot| self.open(*slot))).await;
        all.into_iter().map(|store| store.map_err(|error| error.to_string()).unwrap()).collect()
    }
}

fn create(name: &str) -> Command {
    let partition =
        model::KeyAttribute { name: "p".to_owned(), attribute_type: model::KeyAttributeType::S };
    Command::CreateTable(Box::new(CreateTable {
        name: name.into(),
        key_schema: model::KeySchema { partition, sort: None },
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: None,
        indexes: Vec::new(),
        options: Vec::new(),
    }))
}

async fn make(store: &Store, name: &str) {
    let replies = store.submit(vec![create(name)]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Table(_)]), "{replies:?}");
}

async fn sees(store: &Store, name: &str) -> bool {
    store.up_to_date().await.unwrap().catalogue().find(name).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_become_one_store_which_survives_a_restart_and_an_empty_disk() {
    survive(Processes::new(3, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_with_several_arcs_survive_the_same() {
    survive(Processes::new(3, 3)).await;
}

/// Returns the voters of each arc according to a node, in the order of the arcs.
fn voters(store: &Store) -> Vec<Vec<NodeId>> {
    let sorted = |status: Status| {
        let mut voters = status.voters;
        voters.sort_unstable();
        voters
    };
    store.statuses().into_iter().map(sorted).collect()
}

async fn survive(trio: Processes) {
    let arcs = usize::try_from(trio.arcs).unwrap();
    let stores = trio.open_all().await;
    for (place, store) in stores.iter().enumerate() {
        make(store, &format!("table-{place}")).await;
    }
    for store in &stores {
        for name in ["table-0", "table-1", "table-2"] {
            assert!(sees(store, name).await, "{name}");
        }
        assert_eq!(store.token_key().as_bytes(), stores[0].token_key().as_bytes());
    }
    drop(stores);

    let mut stores = trio.open_all().await;
    assert_eq!(
        voters(&stores[2]),
        vec![vec![1, 2, 3]; arcs],
        "a restart changes nobody's identity"
    );
    drop(stores.remove(2));
    // The directory is removed only after all processes have closed it.
    while trio.open_lock(3).is_none() {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    std::fs::remove_dir_all(trio.data(3)).unwrap();
    make(&stores[0], "meanwhile").await;
    let third = trio.open(3).await.unwrap();
    assert!(sees(&third, "meanwhile").await);
    let expected = vec![vec![1, 2, node_id(3, 1)]; arcs];
    for _ in 0..600 {
        if voters(&third) == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(voters(&third), expected, "the node is a voter with a new identity");
    let reports = third.nodes().await;
    let slots: Vec<u64> = reports.iter().map(|report| report.slot).collect();
    assert_eq!(slots, [1, 2, 3]);
    assert!(reports.iter().all(|report| report.unreachable.is_none()), "{reports:?}");
    for report in &reports {
        let found: Vec<u32> = report.replicas.iter().map(|replica| replica.arc.0).collect();
        assert_eq!(found, (0..trio.arcs).collect::<Vec<_>>(), "a replica of each arc");
    }
}

impl Processes {
    fn open_lock(&self, slot: u64) -> Option<storage::disk::FileDisk> {
        storage::disk::FileDisk::open(self.data(slot)).ok()
    }
}

/// Goal: if all processes die while the cluster is created, their next start completes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_creation_of_the_cluster_is_completed() {
    for arcs in [1, 3] {
        let trio = Processes::new(3, arcs);
        let host = Host::new(Arc::new(|reason| panic!("{reason}")), 1, true);
        let mut files = (1..=3).map(|slot| {
            std::fs::create_dir_all(trio.data(slot)).unwrap();
            TokenKey::adopt(&trio.data(slot), &[7; 32]).unwrap();
            let identity = Identity::new("c".to_owned(), node_id(slot, 0), arcs);
            cluster::create_slot(&trio.data(slot), slot, identity, &host).unwrap()
        });
        let (first, others) = (files.next().unwrap(), files.collect::<Vec<_>>());
        drop(others);
        // Only one arc of the first node has stored its members durably. No other node has them.
        let clock = Arc::new(Clock::starting_at(EpochMillis(0)));
        let transport = Arc::new(LocalTransport::default());
        let settings = Settings { has_neighbours: false, ..Settings::default() };
        let replicas =
            cluster::start_replicas(first, transport, settings, &clock, &host).await.unwrap();
        replicas[0].initialize((1..=3).map(|slot| node_id(slot, 0)).collect()).await.unwrap();
        assert!(replicas[0].holds_data());
        for replica in &replicas {
            replica.shutdown().await;
        }
        drop(replicas);
        let opened = tokio::time::timeout(Duration::from_secs(60), trio.open_all());
        let stores = opened.await.expect("the nodes wait for each other");
        make(&stores[1], "t").await;
        for store in &stores {
            assert!(sees(store, "t").await);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_store_is_refused() {
    let (one, other) = (Processes::new(3, 1), Processes::new(3, 1));
    let (stores, others) = (one.open_all().await, other.open_all().await);
    drop(others);
    drop(stores);
    let addresses = one.addresses.clone();
    let listeners = one.listeners.iter().map(|(slot, held)| (*slot, held.try_clone().unwrap()));
    let listeners = listeners.collect();
    let stranger = Processes { folder: other.folder, arcs: 1, addresses, listeners };
    let (_first, _second, third) = tokio::join!(one.open(1), one.open(2), stranger.open(3));
    let refused = third.err().unwrap().to_string();
    assert!(refused.contains("belongs to another store"), "{refused}");
    // Checks that the node does not run, because a running node has its files open.
    let closed = async || {
        while storage::disk::FileDisk::open(stranger.data(3).join("node-3")).is_err() {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), closed()).await.expect("its files stay open");
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Goal: a node whose directory was restored from an older copy does not start. The leader, which has the
/// acknowledgements of the node, has not changed.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_a_directory_is_refused_while_the_leader_lives() {
    let trio = Processes::new(3, 1);
    let mut stores: BTreeMap<u64, Store> = (1..).zip(trio.open_all().await).collect();
    make(&stores[&1], "before").await;
    let leader = slot_of(stores[&1].statuses()[0].leader.unwrap());
    let slot = (1..=3).find(|slot| *slot != leader).unwrap();
    let close = async |store: Option<Store>| {
        drop(store);
        while trio.open_lock(slot).is_none() {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    close(stores.remove(&slot)).await;
    let copy = tempfile::tempdir().unwrap();
    copy_all(&trio.data(slot), copy.path());

    let follower = trio.open(slot).await.unwrap();
    make(&stores[&leader], "acknowledged").await;
    let last = stores[&leader].statuses()[0].last_log;
    for _ in 0..600 {
        if stores[&leader].statuses()[0].acknowledged.get(&node_id(slot, 0)).copied() >= last {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    close(Some(follower)).await;
    std::fs::remove_dir_all(trio.data(slot)).unwrap();
    copy_all(copy.path(), &trio.data(slot));
    let refused = trio.open(slot).await.err().expect("the copy lacks acknowledged entries");
    let refused = refused.to_string();
    assert!(refused.contains(&format!("move `node-{slot}` away")), "{refused}");
    assert!(sees(&stores[&leader], "acknowledged").await, "the leader has not changed");

    let directory = trio.data(slot).join(format!("node-{slot}"));
    std::fs::rename(directory, copy.path().join("away")).unwrap();
    let follower = trio.open(slot).await.unwrap();
    assert!(sees(&follower, "acknowledged").await);
}

/// Sends a request to a store, which must succeed, and returns the answer.
async fn ask(store: &Store, operation: &str, body: &str) -> String {
    let target = format!("DynamoDB_20120810.{operation}");
    for _ in 0..200 {
        let answer = crate::api::handle(store, &target, body.as_bytes()).await;
        // A leader may have changed, an arc may have moved, or a table may not be complete yet.
        if answer.status == 200 {
            return answer.body;
        }
        assert!(answer.status >= 500 || answer.body.contains("NotFound"), "{}", answer.body);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{operation} {body} does not succeed");
}

async fn put(store: &Store, key: usize) {
    let body =
        format!(r#"{{"TableName":"items","Item":{{"p":{{"S":"{key}"}},"n":{{"N":"{key}"}}}}}}"#);
    ask(store, "PutItem", &body).await;
}

/// Checks that a store returns the items 0 to `count` by every kind of read.
async fn check_all(store: &Store, count: usize) {
    for key in 0..count {
        let body = format!(
            r#"{{"TableName":"items","Key":{{"p":{{"S":"{key}"}}}},"ConsistentRead":true}}"#
        );
        let found = ask(store, "GetItem", &body).await;
        assert!(found.contains(&format!(r#""n":{{"N":"{key}"}}"#)), "{key}: {found}");
    }
    let scanned = ask(store, "Scan", r#"{"TableName":"items","ConsistentRead":true}"#).await;
    assert!(scanned.contains(&format!(r#""Count":{count}"#)), "{scanned}");
    let keys: Vec<String> = (0..count).map(|key| format!(r#"{{"p":{{"S":"{key}"}}}}"#)).collect();
    let body = format!(
        r#"{{"RequestItems":{{"items":{{"Keys":[{}],"ConsistentRead":true}}}}}}"#,
        keys.join(",")
    );
    let found = ask(store, "BatchGetItem", &body).await;
    assert_eq!(found.matches(r#""n":{"N":"#).count(), count, "{found}");
    let query = r#"{"TableName":"items","ConsistentRead":true,"KeyConditionExpression":"p = :p","ExpressionAttributeValues":{":p":{"S":"1"}}}"#;
    let found = ask(store, "Query", query).await;
    assert!(found.contains(r#""Count":1"#), "{found}");
    let gets: Vec<String> = (0..3)
        .map(|key| format!(r#"{{"Get":{{"TableName":"items","Key":{{"p":{{"S":"{key}"}}}}}}}}"#))
        .collect();
    let body = format!(r#"{{"TransactItems":[{}]}}"#, gets.join(","));
    let found = ask(store, "TransactGetItems", &body).await;
    assert_eq!(found.matches(r#""n":{"N":"#).count(), 3, "{found}");
    let described = ask(store, "DescribeTable", r#"{"TableName":"items"}"#).await;
    assert!(described.contains(&format!(r#""ItemCount":{count}"#)), "{described}");
}

/// Waits for at most a minute until `is_so` returns true.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}");
}

/// Goal: in a cluster of more nodes than replicas, every node answers every request, and a node that lost its disk
/// is filled again.
#[tokio::test(flavor = "multi_thread")]
async fn every_node_answers_for_the_arcs_of_others() {
    let five = Processes::new(5, 4);
    let mut stores = five.open_all().await;
    make(&stores[4], "items").await;
    for key in 0..20 {
        put(&stores[key % 5], key).await;
    }
    for store in &stores {
        assert!(store.statuses().len() < 4, "no node has every arc: {:?}", store.statuses());
        check_all(store, 20).await;
    }
    drop(stores.remove(1));
    while five.open_lock(2).is_none() {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    std::fs::remove_dir_all(five.data(2)).unwrap();
    for key in 20..30 {
        put(&stores[key % 4], key).await;
    }
    let second = five.open(2).await.map_err(|error| error.to_string()).unwrap();
    check_all(&second, 30).await;
    let own = node_id(2, 1);
    let is_filled = || {
        let statuses = second.statuses();
        let arcs = (0..4).filter(|arc| holders(ArcId(*arc), &[1, 2, 3, 4, 5]).contains(&2)).count();
        statuses.len() == arcs && statuses.iter().all(|status| status.voters.contains(&own))
    };
    wait_until("the node is a voter of its arcs again", is_filled).await;
    check_all(&second, 30).await;
}

/// Goal: a node that joins takes over a part of the arcs, a node that leaves hands over its arcs, and no item is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_and_another_leaves() {
    let all = Processes::new(4, 8);
    let mut founders = all.addresses.clone();
    let fourth_address = founders.remove(&4).unwrap();
    let open = |slot| all.open_with(slot, founders.clone(), false);
    let (first, second, third) = tokio::join!(open(1), open(2), open(3));
    let [first, second, third] =
        [first, second, third].map(|store| store.map_err(|e| e.to_string()).unwrap());
    make(&first, "items").await;
    for key in 0..20 {
        put(&second, key).await;
    }
    // The new node knows one node of the store.
    let known = BTreeMap::from([(2, founders[&2]), (4, fourth_address)]);
    let fourth = all.open_with(4, known.clone(), true).await.map_err(|e| e.to_string()).unwrap();
    check_all(&fourth, 20).await;
    let has_its_share = || {
        let statuses = fourth.statuses();
        statuses.len() == 6 && statuses.iter().all(|status| status.voters.contains(&4))
    };
    wait_until("the new node has a quarter of 24 replicas", has_its_share).await;
    for key in 20..30 {
        put(&fourth, key).await;
    }
    check_all(&first, 30).await;

    let leave = RingChange::Leave { slot: Slot::new(2).unwrap() };
    let replies = third.submit(vec![Command::ChangeRing(Box::new(leave))]).await.unwrap();
    assert!(matches!(replies[..], [Reply::Ring(_)]), "{replies:?}");
    let has_left = || first.ring().is_some_and(|ring| ring.nodes.len() == 3);
    wait_until("no arc needs the node", has_left).await;
    drop(second);
    for key in 30..40 {
        put(&third, key).await;
    }
    for store in [&first, &third, &fourth] {
        let without = || store.statuses().iter().all(|status| !status.voters.contains(&2));
        wait_until("the node is no voter", without).await;
        check_all(store, 40).await;
    }

    // A restart knows the nodes from the ring.
    drop(fourth);
    while all.open_lock(4).is_none() {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let known = BTreeMap::from([(1, founders[&1]), (4, fourth_address)]);
    let fourth = all.open_with(4, known, true).await.map_err(|e| e.to_string()).unwrap();
    check_all(&fourth, 40).await;
}

/// Goal: a new node takes its share although neither it nor the only node that it knows gets the first arc, which has
/// the ring.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_joins_through_a_node_without_the_ring() {
    let all = Processes::new(6, 3);
    let mut founders = all.addresses.clone();
    let [fifth_address, sixth_address] = [5, 6].map(|slot| founders.remove(&slot).unwrap());
    let open = |slot| all.open_with(slot, founders.clone(), false);
    let opened = tokio::join!(open(1), open(2), open(3), open(4));
    let [first, _second, _third, fourth] = [opened.0, opened.1, opened.2, opened.3]
        .map(|store| store.map_err(|e| e.to_string()).unwrap());
    let has_first_arc =
        |store: &Store| store.statuses().iter().any(|status| status.arc == ArcId::FIRST);
    let has_one = |store: &Store, slot| {
        let statuses = store.statuses();
        statuses.len() == 1 && statuses.iter().all(|status| status.voters.contains(&slot))
    };
    make(&first, "items").await;
    for key in 0..5 {
        put(&first, key).await;
    }
    let known = BTreeMap::from([(1, founders[&1]), (5, fifth_address)]);
    let fifth = all.open_with(5, known, true).await.map_err(|e| e.to_string()).unwrap();
    let has_its_share = || fifth.statuses().iter().any(|status| status.voters.contains(&5));
    wait_until("the fifth node has an arc", has_its_share).await;
    wait_until("the fourth node has no first arc", || !has_first_arc(&fourth)).await;

    let known = BTreeMap::from([(4, founders[&4]), (6, sixth_address)]);
    let sixth = all.open_with(6, known, true).await.map_err(|e| e.to_string()).unwrap();
    wait_until("the sixth node has one of 9 replicas", || has_one(&sixth, 6)).await;
    assert!(!has_first_arc(&sixth) && !has_first_arc(&fourth));
    let knows_all = || sixth.ring().is_some_and(|ring| ring.nodes.len() == 6);
    wait_until("the new node knows the ring", knows_all).await;
    check_all(&sixth, 5).await;
}
