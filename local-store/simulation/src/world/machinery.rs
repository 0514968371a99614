//! What a node runs on and what outlives its process: its disk, its state, its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use server::disk::{SimulatedDisk, SplitMix64};
use server::log;
use server::node::MemoryHome;
use server::storage::MemoryStorage;

use super::environment::{Dice, Environment, NodeClock};

/// Segments of a log: small, so that switching and truncation are frequent.
const SEGMENT_BYTES: u64 = 64 * 1024;

/// Called by a node that cannot go on, with the reason: its process ends.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// One machine.
#[derive(Debug)]
pub struct Machinery {
    /// The node's number, from 1.
    pub node: usize,
    /// The disk with the log.
    pub disk: SimulatedDisk,
    /// Where the state is; it forgets what was not made durable when the power is cut.
    pub home: MemoryHome,
    /// The node's clock.
    pub clock: Arc<NodeClock>,
    /// How the log is laid out.
    pub log_options: log::Options,
    /// The world.
    pub environment: Arc<Environment>,
    dice: Dice,
    slow_ms: AtomicU64,
}

impl Machinery {
    /// A new machine with nothing on it.
    #[must_use]
    pub fn new(environment: &Arc<Environment>, node: usize, log_spares: usize) -> Arc<Self> {
        Arc::new(Self {
            node,
            disk: SimulatedDisk::new(),
            home: MemoryHome::default(),
            clock: NodeClock::new(environment),
            log_options: log::Options {
                segment_bytes: SEGMENT_BYTES,
                spares_max: log_spares,
                ..log::Options::default()
            },
            environment: Arc::clone(environment),
            dice: Dice::new(environment.seed, &format!("machine {node}")),
            slow_ms: AtomicU64::new(0),
        })
    }

    /// The state.
    #[must_use]
    pub fn storage(&self) -> MemoryStorage {
        self.home.storage()
    }

    /// How long the next sync takes.
    pub fn sync_time(&self) -> Duration {
        let slow = self.slow_ms.load(Ordering::SeqCst);
        if slow > 0 {
            self.environment.coverage.hit("slow disk");
        }
        self.dice.micros(100, 2_000) + self.dice.micros(0, slow * 1_000)
    }

    /// Makes syncs take up to this much longer.
    pub fn set_slow(&self, millis: u64) {
        self.slow_ms.store(millis, Ordering::SeqCst);
    }

    /// Cuts the power: the disk loses what it may, the state forgets what it may.
    pub fn cut_power(&self) {
        let cut = self.disk.power_cut(self.dice.roll(SplitMix64::next_u64));
        let forgotten = self.storage().power_cut(self.dice.roll(SplitMix64::next_u64));
        let coverage = &self.environment.coverage;
        coverage.add("lost sectors", cut.sectors_lost as u64);
        if cut.sectors_lost > 0 && cut.sectors_kept > 0 {
            coverage.hit("torn writes");
        }
        coverage.add("lost batches", forgotten as u64);
        self.environment
            .note(&format!("node {}: {cut:?}, {forgotten} batches forgotten", self.node));
    }
}
