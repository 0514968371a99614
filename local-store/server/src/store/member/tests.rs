//! Three stores with a node each, which meet over sockets: how a cluster comes to be, how a node
//! comes back, and who is turned away.

use std::time::Duration;

use partition::{Billing, Command, CreateTable, Reply};

use super::super::{Config, Store};
use super::*;

struct Trio {
    folder: tempfile::TempDir,
    addresses: BTreeMap<u64, SocketAddr>,
}

impl Trio {
    async fn new() -> Self {
        let mut addresses = BTreeMap::new();
        let mut held = Vec::new();
        for slot in 1..=3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.insert(slot, listener.local_addr().unwrap());
            held.push(listener);
        }
        Self { folder: tempfile::tempdir().unwrap(), addresses }
    }

    fn data(&self, slot: u64) -> PathBuf {
        self.folder.path().join(slot.to_string())
    }

    async fn open(&self, slot: u64) -> Result<Store, String> {
        // The store before may still be closing its files and its port.
        for _ in 0..400 {
            match self.open_once(slot).await {
                Err(reason) if reason.contains("other process") || reason.contains("in use") => {
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                opened => return opened,
            }
        }
        Err("it stayed in use".to_owned())
    }

    async fn open_once(&self, slot: u64) -> Result<Store, String> {
        let address = self.addresses.get(&slot).copied().unwrap();
        let member = Member {
            slot,
            addresses: self.addresses.clone(),
            secret: None,
            listener: crate::listener::bind(address).await?,
        };
        let config = Config {
            directory: self.data(slot),
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            replicas: 3,
            arcs: 1,
        };
        let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
        Store::open_member(config, member, on_fatal).await.map_err(|error| error.to_string())
    }

    async fn open_all(&self) -> [Store; 3] {
        let (first, second, third) = tokio::join!(self.open(1), self.open(2), self.open(3));
        [first.unwrap(), second.unwrap(), third.unwrap()]
    }
}

fn create(name: &str) -> Command {
    let partition =
        model::KeyAttribute { name: "p".to_owned(), attribute_type: model::KeyAttributeType::S };
    Command::CreateTable(CreateTable {
        name: name.to_owned(),
        key_schema: model::KeySchema { partition, sort: None },
        billing: Billing::OnDemand,
        deletion_protection: false,
        stream: None,
        indexes: Vec::new(),
        options: Vec::new(),
    })
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
    let trio = Trio::new().await;
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
    let known = stores[2].statuses()[0].voters.clone();
    assert_eq!(known, [1, 2, 3], "a restart changes nobody's identity");
    drop(stores.remove(2));
    // The directory is removed when nobody holds it any more.
    while trio.open_lock(3).is_none() {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    std::fs::remove_dir_all(trio.data(3)).unwrap();
    make(&stores[0], "meanwhile").await;
    let third = trio.open(3).await.unwrap();
    assert!(sees(&third, "meanwhile").await);
    let mut voters = Vec::new();
    for _ in 0..600 {
        voters = third.statuses()[0].voters.clone();
        voters.sort_unstable();
        if voters == [1, 2, node_id(3, 1)] {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(voters, [1, 2, node_id(3, 1)], "it has a new identity, and its vote again");
    let reports = third.nodes().await;
    let slots: Vec<u64> = reports.iter().map(|report| report.slot).collect();
    assert_eq!(slots, [1, 2, 3]);
    assert!(reports.iter().all(|report| report.unreachable.is_none()), "{reports:?}");
}

impl Trio {
    fn open_lock(&self, slot: u64) -> Option<crate::disk::FileDisk> {
        crate::disk::FileDisk::open(self.data(slot)).ok()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_store_is_turned_away() {
    let (one, other) = (Trio::new().await, Trio::new().await);
    let (stores, others) = (one.open_all().await, other.open_all().await);
    drop(others);
    drop(stores);
    let stranger = Trio { folder: other.folder, addresses: one.addresses.clone() };
    let (_first, _second, third) = tokio::join!(one.open(1), one.open(2), stranger.open(3));
    let refused = third.err().unwrap();
    assert!(refused.contains("belongs to another store"), "{refused}");
}
