//! What a node runs on and what outlives its process: its disk, its state, its clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use locks::Mutex;
use node::MemoryHome;
use node::ring::ArcId;
use storage::MemoryStorage;
use storage::disk::{Disk as _, SimulatedDisk, SplitMix64};
use storage::log;

use super::environment::{Dice, Environment, NodeClock};

/// Bytes that rot together at most.
const ROTTEN_MAX: usize = 8;

/// How the names of a log's segments begin; they are in the order of the segments.
const SEGMENT_NAMES: &str = "segment-";
/// Segments of a log: small, so that switching and truncation are frequent.
const SEGMENT_BYTES: u64 = 64 * 1024;

/// Called by a node that cannot go on, with the reason: its process ends.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// What holds a node's data. All are handles: clones are the same.
#[derive(Clone, Debug)]
struct Medium {
    disk: SimulatedDisk,
    /// One for each arc.
    homes: Vec<MemoryHome>,
}

impl Medium {
    fn new(arcs: u32) -> Self {
        Self {
            disk: SimulatedDisk::default(),
            homes: (0..arcs).map(|_| MemoryHome::default()).collect(),
        }
    }
}

/// One machine.
#[derive(Debug)]
pub struct Machinery {
    /// The node's number, from 1.
    pub node: usize,
    /// How many arcs it holds a replica of.
    pub arcs: u32,
    medium: Mutex<Medium>,
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
    pub fn new(
        environment: &Arc<Environment>,
        node: usize,
        arcs: u32,
        log_spares: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            arcs,
            medium: Mutex::new(Medium::new(arcs)),
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

    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock()
    }

    /// The disk with the log.
    #[must_use]
    pub fn disk(&self) -> SimulatedDisk {
        self.medium().disk.clone()
    }

    /// Where the state of an arc is; it forgets what was not made durable when its process ends.
    #[must_use]
    pub fn home(&self, arc: ArcId) -> MemoryHome {
        let place = usize::try_from(arc.0).unwrap_or(usize::MAX);
        self.medium().homes.get(place).cloned().unwrap_or_default()
    }

    /// The state of an arc.
    #[must_use]
    pub fn storage(&self, arc: ArcId) -> MemoryStorage {
        self.home(arc).storage()
    }

    /// The arcs that it holds a replica of.
    pub fn arcs(&self) -> impl Iterator<Item = ArcId> + use<> {
        (0..self.arcs).map(ArcId)
    }

    /// Puts a new medium with nothing on it in the place of the old one. No process may run.
    pub fn replace_medium(&self) {
        *self.medium() = Medium::new(self.arcs);
    }

    /// Changes some bytes of a segment of the log that is not the newest one: what the end of the
    /// newest one holds cannot be told from what a power cut tore. Gives whether there was one.
    pub fn rot(&self) -> bool {
        let disk = self.disk();
        let mut segments = disk.list().unwrap_or_default();
        segments.retain(|name| name.starts_with(SEGMENT_NAMES));
        segments.sort_unstable();
        segments.pop();
        self.dice.roll(|random| {
            let Some(name) = segments.len().checked_sub(1).map(|last| random.up_to(last)) else {
                return false;
            };
            let Some(name) = segments.get(name) else { return false };
            let last = usize::try_from(self.log_options.segment_bytes).unwrap_or(1) - 1;
            let offset = random.up_to(last);
            let mask: Vec<u8> = (0..=random.up_to(ROTTEN_MAX - 1))
                .map(|_| u8::try_from(1 + random.up_to(254)).unwrap_or(1))
                .collect();
            disk.corrupt(name, offset, &mask);
            self.environment.note(&format!(
                "node {}: {} bytes of {name} rot at {offset}",
                self.node,
                mask.len()
            ));
            true
        })
    }

    /// Damages a block of the state of an arc. Gives whether there was one.
    pub fn rot_state(&self, place: usize) -> bool {
        let arcs: Vec<ArcId> = self.arcs().collect();
        let Some(arc) = arcs.get(place % arcs.len().max(1)) else { return false };
        let is_rotten = self.storage(*arc).rot(self.dice.roll(SplitMix64::next_u64));
        if is_rotten {
            self.environment.note(&format!("node {}: a block of {arc} rots", self.node));
        }
        is_rotten
    }

    /// Whether a block of some state is damaged.
    pub fn is_state_rotten(&self) -> bool {
        self.arcs().any(|arc| self.storage(arc).is_rotten())
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

    /// Ends what is in memory alone: the state forgets what it may since it was last made durable.
    pub fn lose_memory(&self) {
        let forgotten: usize = self
            .arcs()
            .map(|arc| self.storage(arc).lose_memory(self.dice.roll(SplitMix64::next_u64)))
            .sum();
        self.environment.coverage.add("lost batches", forgotten as u64);
        if forgotten > 0 {
            self.environment.note(&format!("node {}: {forgotten} batches forgotten", self.node));
        }
    }

    /// Cuts the power of a node whose process has ended: the disk loses what it may.
    pub fn cut_power(&self) {
        let cut = self.disk().power_cut(self.dice.roll(SplitMix64::next_u64));
        let coverage = &self.environment.coverage;
        coverage.add("lost sectors", cut.sectors_lost as u64);
        if cut.sectors_lost > 0 && cut.sectors_kept > 0 {
            coverage.hit("torn writes");
        }
        self.environment.note(&format!("node {}: {cut:?}", self.node));
    }
}
