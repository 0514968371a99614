//! The machine of a node: its disk, its state and its clock. The machine outlives the node's
//! processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use locks::Mutex;
use node::ring::ArcId;
use storage::disk::{Disk as _, SimulatedDisk, SplitMix64};
use storage::log;

use super::environment::{Dice, Environment, NodeClock};
use super::plan::Plan;
use super::state::State;

/// The maximum number of bytes that are damaged together.
const ROTTEN_MAX: usize = 8;

/// The prefix of segment names. The names sort in the order of the segments.
const SEGMENT_NAMES: &str = "segment-";
/// The size of a log segment in bytes. The size is small, so that logs often switch segments and truncate.
const SEGMENT_BYTES: u64 = 64 * 1024;

/// A callback for a node that cannot continue. It receives the reason and ends the process.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The storage media of a node.
#[derive(Debug)]
struct Medium {
    disk: SimulatedDisk,
    /// The state of each arc that the node has or had.
    states: BTreeMap<ArcId, State>,
    /// Whether a state was ever damaged.
    was_damaged: bool,
}

impl Medium {
    fn new() -> Self {
        Self { disk: SimulatedDisk::default(), states: BTreeMap::new(), was_damaged: false }
    }
}

/// One machine.
#[derive(Debug)]
pub struct Machinery {
    /// The node's number, from 1.
    pub node: usize,
    /// The number of arcs of the ring.
    pub arcs: u32,
    memtable_bytes: Option<u64>,
    medium: Mutex<Medium>,
    /// The node's clock.
    pub clock: Arc<NodeClock>,
    /// The layout of the log.
    pub log_options: log::Options,
    /// The environment of the world.
    pub environment: Arc<Environment>,
    dice: Dice,
    slow_ms: AtomicU64,
}

impl Machinery {
    /// Creates an empty machine for a node of the plan.
    #[must_use]
    pub fn new(environment: &Arc<Environment>, node: usize, plan: &Plan) -> Arc<Self> {
        Arc::new(Self {
            node,
            arcs: plan.arcs,
            memtable_bytes: plan.memtable_bytes,
            medium: Mutex::new(Medium::new()),
            clock: NodeClock::new(environment),
            log_options: log::Options {
                segment_bytes: SEGMENT_BYTES,
                first_segment_bytes: SEGMENT_BYTES / 8,
                spares_max: plan.log_spares,
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

    /// Returns the disk with the log.
    #[must_use]
    pub fn disk(&self) -> SimulatedDisk {
        self.medium().disk.clone()
    }

    /// Returns the state of an arc, which is empty at first. When the node's process ends, the state loses
    /// batches that were not persisted.
    #[must_use]
    pub fn state(&self, arc: ArcId) -> State {
        let mut medium = self.medium();
        let Medium { disk, states, .. } = &mut *medium;
        let state = || State::new(disk, arc, self.memtable_bytes);
        states.entry(arc).or_insert_with(state).clone()
    }

    /// Returns whether the machine has data of an arc.
    #[must_use]
    pub fn has_data(&self, arc: ArcId) -> bool {
        self.medium().states.get(&arc).is_some_and(|state| !state.is_empty())
    }

    /// Returns whether the states are those of the production engine.
    #[must_use]
    pub fn has_engine(&self) -> bool {
        self.memtable_bytes.is_some()
    }

    /// Replaces the media with empty media. The node must not be running.
    pub fn replace_medium(&self) {
        *self.medium() = Medium::new();
    }

    /// Damages some bytes of a log segment. Returns false if there is no segment to damage. Never
    /// damages the newest segment, because damage at its end could be mistaken for a torn write.
    pub fn damage_log(&self) -> bool {
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
                "node {}: damaged {} bytes of {name} at {offset}",
                self.node,
                mask.len()
            ));
            true
        })
    }

    /// Damages a block of an arc's state. Returns false if the state has no block.
    pub fn damage_state(&self, arc: ArcId) -> bool {
        let mut medium = self.medium();
        let medium = &mut *medium;
        let Some(state) = medium.states.get_mut(&arc) else { return false };
        let is_rotten = self.dice.roll(|random| state.damage(random));
        medium.was_damaged |= is_rotten;
        if is_rotten {
            self.environment.note(&format!("node {}: damaged a block of {arc}", self.node));
        }
        is_rotten
    }

    /// Returns whether a block of some state was ever damaged. An earlier state of an arc can still
    /// be read after a snapshot has replaced it.
    pub fn was_state_damaged(&self) -> bool {
        self.medium().was_damaged
    }

    /// Returns whether a block of some state is damaged.
    pub fn is_state_damaged(&self) -> bool {
        self.medium().states.values().any(State::is_damaged)
    }

    /// Returns the duration of the next sync.
    pub fn sync_time(&self) -> Duration {
        let slow = self.slow_ms.load(Ordering::SeqCst);
        if slow > 0 {
            self.environment.coverage.hit("slow disk");
        }
        self.dice.micros(100, 2_000) + self.dice.micros(0, slow * 1_000)
    }

    /// Makes each sync take up to this many milliseconds longer.
    pub fn set_slow(&self, millis: u64) {
        self.slow_ms.store(millis, Ordering::SeqCst);
    }

    /// Simulates the loss of the process's memory: the state may lose batches that were not
    /// persisted.
    pub fn lose_memory(&self) {
        let lose = |state: &State| state.lose_memory(self.dice.roll(SplitMix64::next_u64));
        let forgotten: usize = self.medium().states.values().map(lose).sum();
        self.environment.coverage.add("lost batches", forgotten as u64);
        if forgotten > 0 {
            self.environment.note(&format!("node {}: lost {forgotten} batches", self.node));
        }
    }

    /// Cuts the power of a node whose process has ended. The disk loses unsynced data.
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
