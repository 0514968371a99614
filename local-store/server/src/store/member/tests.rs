//! Tests of three stores over sockets, each with one node: the creation of a cluster, the restart of a
//! node, and the refusal of nodes.

use std::time::Duration;

use partition::{Billing, Command, CreateTable, Reply};

use super::super::{Config, OpenError, Store};
use super::*;
use model::EpochMillis;
use node::LocalTransport;

struct Trio {
    folder: tempfile::TempDir,
    /// The number of arcs of the nodes.
    arcs: u32,
    addresses: BTreeMap<u64, SocketAddr>,
    /// The ports. They stay open while a node is down, so that no other test can take a port.
    listeners: BTreeMap<u64, std::net::TcpListener>,
}

impl Trio {
    fn new(arcs: u32) -> Self {
        let listeners: BTreeMap<u64, _> = (1..=3)
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
        let listener = self.listeners.get(&slot).unwrap().try_clone().unwrap();
        let member = Member {
            slot,
            addresses: self.addresses.clone(),
            secret: None,
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

    async fn open_all(&self) -> [Store; 3] {
        let (first, second, third) = tokio::join!(self.open(1), self.open(2), self.open(3));
        [first.unwrap(), second.unwrap(), third.unwrap()]
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
    survive(Trio::new(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_with_several_arcs_survive_the_same() {
    survive(Trio::new(3)).await;
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

async fn survive(trio: Trio) {
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

    let mut stores = trio.open_all().await.to_vec();
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

impl Trio {
    fn open_lock(&self, slot: u64) -> Option<storage::disk::FileDisk> {
        storage::disk::FileDisk::open(self.data(slot)).ok()
    }
}

/// Goal: if all processes die while the cluster is created, their next start completes it.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_creation_of_the_cluster_is_completed() {
    for arcs in [1, 3] {
        let trio = Trio::new(arcs);
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
    let (one, other) = (Trio::new(1), Trio::new(1));
    let (stores, others) = (one.open_all().await, other.open_all().await);
    drop(others);
    drop(stores);
    let addresses = one.addresses.clone();
    let listeners = one.listeners.iter().map(|(slot, held)| (*slot, held.try_clone().unwrap()));
    let listeners = listeners.collect();
    let stranger = Trio { folder: other.folder, arcs: 1, addresses, listeners };
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
    let trio = Trio::new(1);
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
