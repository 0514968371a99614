//! Assembles a store from replicas that the caller has started. The simulation uses this function to
//! replace disks, messages and time. All other code is the code of the real store: it routes commands,
//! delivers index entries, coordinates and recovers transactions, and does the periodic work.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use locks::Mutex;
use partition::{ARCS_MAX, TransactionId};

use super::{Shared, Store, movement, outbox_relay, own_replicas, scrub, ticks};
use crate::token_key::TokenKey;
use crate::traffic::Traffic;
use node::clock::Clock;
use node::remote::RemoteGroup;
use node::{Node, Replicas, random_seed};
use storage::disk::SplitMix64;

use super::ring_view::MergedCatalogue;

/// The parts of a store.
pub struct Assembly {
    /// The replicas of one node.
    pub replicas: Arc<Replicas>,
    /// A client of each arc of the ring, in the order of the arcs.
    pub groups: Vec<RemoteGroup>,
    /// The clock of the node.
    pub clock: Arc<Clock>,
    /// The seed of transaction ids. Different processes must have different seeds.
    pub seed: u64,
}

/// The source of transaction ids.
pub(super) enum Ids {
    /// Unpredictable ids.
    Random,
    /// Ids that are generated from a seed, so that a run is reproducible.
    Seeded(Mutex<SplitMix64>),
}

impl Ids {
    /// Returns a new transaction id; each attempt at a transaction has its own.
    pub(super) fn draw(&self, token: Option<&str>) -> TransactionId {
        TransactionId::new([self.next(), self.next()], token)
    }

    /// Adds jitter to a pause: returns a random time from 0.5 to 1.5 times `pause`, so that two
    /// conflicting transactions do not conflict again.
    pub(super) fn spread(&self, pause: Duration) -> Duration {
        let percent = u32::try_from(self.next() % 101).unwrap_or(0);
        pause / 2 + pause * percent / 100
    }

    fn next(&self) -> u64 {
        match self {
            Self::Random => random_seed(),
            Self::Seeded(random) => random.lock().next_u64(),
        }
    }
}

impl Store {
    /// Assembles a store of one node, whose peers are other stores. The caller must run
    /// [`Store::ticks`].
    #[must_use]
    pub fn assemble(assembly: Assembly) -> Self {
        let Assembly { replicas, groups, clock, seed } = assembly;
        let shared = Shared {
            arcs: u32::try_from(groups.len()).unwrap_or(ARCS_MAX),
            remote: groups.into_iter().map(Arc::new).collect(),
            nodes: super::node_set::node_set(vec![own_replicas::usable(&replicas)]),
            own_replicas: Some(replicas),
            catalogue: MergedCatalogue::default(),
            clock,
            traffic: Traffic::default(),
            long_reads: super::long_reads::LongReads::default(),
            token_key: TokenKey::new([0; 32]),
            ids: Ids::Seeded(Mutex::new(SplitMix64::new(seed))),
            coordinated_transactions: Arc::default(),
            membership: None,
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            handover: super::handover::Handover::default(),
            lock: None,
        };
        Self { shared: Arc::new(shared), pinned: None, owner: None }
    }

    /// Starts the background work of a node: the delivery of its index entries to their arcs, and the
    /// verification of its files in the directory `data`. The work runs until the node ends.
    pub(super) fn start_work_of(&self, replicas: &[Node], data: &Path) {
        self.start_outbox_relays(replicas);
        scrub::start(replicas, data);
    }

    /// Starts the delivery of a node's index entries to their arcs. It runs until the node ends.
    fn start_outbox_relays(&self, replicas: &[Node]) {
        if self.arc_count() > 1 {
            for replica in replicas {
                for to in self.arcs().filter(|to| *to != replica.arc()) {
                    tokio::spawn(outbox_relay::run(replica.downgrade(), self.downgrade(), to));
                }
            }
        }
    }

    /// Returns the background work of the store as a future, which ends when the store is dropped.
    pub fn ticks(&self) -> impl Future<Output = ()> + use<> {
        let (work, tables) = (ticks::run(self.downgrade()), ticks::follow_tables(self.downgrade()));
        let replicas = self.shared.own_replicas.clone().map(|replicas| {
            let movement = movement::run(self.downgrade(), Arc::downgrade(&replicas));
            let begin = |store: &Self, node: &Node| store.begin_work_of(node);
            futures::future::join(movement, own_replicas::follow(self.downgrade(), replicas, begin))
        });
        async move {
            tokio::join!(work, tables, OptionFuture::from(replicas));
        }
    }

    /// Starts the background work of a replica that was added to a process with one node.
    fn begin_work_of(&self, node: &Node) {
        let replicas = std::slice::from_ref(node);
        match &self.shared.lock {
            Some(lock) => self.start_work_of(replicas, lock.path()),
            None => self.start_outbox_relays(replicas),
        }
    }

    /// Returns the number of transactions over several arcs that this process is coordinating.
    #[must_use]
    pub fn transactions_under_way(&self) -> usize {
        // The store has one handle, and each coordinated transaction has another.
        Arc::strong_count(&self.shared.coordinated_transactions).saturating_sub(1)
    }
}
