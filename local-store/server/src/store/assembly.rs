//! A store over replicas that somebody else started: the simulation's, in its own world of disks,
//! messages and time. From here on everything is the store's own code: where commands go, what
//! brings index entries to their arcs, who coordinates and finishes transactions, the ticks.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use locks::Mutex;
use partition::TransactionId;

use super::{Shared, Store, outbox_relay, scrub, ticks};
use crate::token_key::TokenKey;
use crate::traffic::Traffic;
use node::clock::Clock;
use node::{Node, random_seed};
use storage::disk::SplitMix64;

use super::ring_view::MergedCatalogue;

/// What a store is made of.
pub struct Assembly {
    /// The replicas of one node, in the order of their arcs. Never empty.
    pub replicas: Vec<Node>,
    /// The node's clock.
    pub clock: Arc<Clock>,
    /// Of the ids that its transactions get: no two processes may have the same.
    pub seed: u64,
}

/// Where the ids of transactions come from.
pub(super) enum Ids {
    /// Nobody knows.
    Random,
    /// A seed, so that a run can be repeated.
    Seeded(Mutex<SplitMix64>),
}

impl Ids {
    /// An id that no attempt at a transaction has had.
    pub(super) fn draw(&self, token: Option<&str>) -> TransactionId {
        TransactionId::new([self.next(), self.next()], token)
    }

    /// A time between a half of this one and one and a half of it, so that two that met each other
    /// do not meet again in step.
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
    /// A store of one node whose peers are elsewhere. It ticks when [`Store::ticks`] is run.
    #[must_use]
    pub fn assemble(assembly: Assembly) -> Self {
        let Assembly { replicas, clock, seed } = assembly;
        let nodes = vec![replicas];
        let shared = Shared {
            arcs: super::arcs_of(&nodes),
            nodes: super::node_set::node_set(nodes),
            catalogue: MergedCatalogue::default(),
            clock,
            traffic: Traffic::default(),
            long_reads: super::long_reads::LongReads::default(),
            token_key: TokenKey::new([0; 32]),
            ids: Ids::Seeded(Mutex::new(SplitMix64::new(seed))),
            coordinated: Arc::default(),
            membership: None,
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            lock: None,
        };
        let store = Self { shared: Arc::new(shared), pinned: None, owner: None };
        for replicas in store.current_nodes().iter() {
            store.start_outbox_relays(replicas);
        }
        store
    }

    /// Starts what is done beside a node's requests, as long as the node is there: its index entries
    /// are brought to their arcs, and its files in this directory are verified.
    pub(super) fn start_work_of(&self, replicas: &[Node], data: &Path) {
        self.start_outbox_relays(replicas);
        scrub::start(replicas, data);
    }

    /// Brings a node's index entries to their arcs from now on, as long as the node is there.
    fn start_outbox_relays(&self, replicas: &[Node]) {
        if self.arc_count() > 1 {
            for replica in replicas {
                for to in self.arcs().filter(|to| *to != replica.arc()) {
                    tokio::spawn(outbox_relay::run(replica.downgrade(), self.downgrade(), to));
                }
            }
        }
    }

    /// What the store does of its own accord, as long as it is there.
    pub fn ticks(&self) -> impl Future<Output = ()> + use<> {
        ticks::run(self.downgrade())
    }

    /// How many transactions over several arcs this process coordinates now.
    #[must_use]
    pub fn transactions_under_way(&self) -> usize {
        // One handle is the store's own.
        Arc::strong_count(&self.shared.coordinated).saturating_sub(1)
    }
}
