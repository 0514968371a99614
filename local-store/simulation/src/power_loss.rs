//! Tests of power loss. The tests cut the power at any disk operation, also while a replica
//! recovers from the previous cut. The log and the state must open again. Their contents must be
//! byte for byte the result of a prefix of the history, which contains every acknowledged entry.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use locks::Mutex;
use model::{EpochMillis, Item};
use node::ring::ArcId;
use partition::{Command, Entry, Machine, TableId, View, WriteAction, encode_entry};
use serde_json::{Value, json};
use storage::disk::{Fault, SimulatedDisk, SplitMix64};
use storage::log::{self, Log};
use storage::{MemoryStorage, Storage};

use crate::checkers::replicas::Dump;
use crate::error::{HarnessError, NodeError};
use crate::request::{KEY, OWNER, WRITE_ID};
use crate::workload::number;
use crate::world::environment::{START, stream};
use crate::world::single::recover;
use crate::world::state::{Alive, State};
use crate::world::translation::{create_table, key};

/// The number of images of one history. The next history begins with an empty disk.
const IMAGES_PER_SEED: u64 = 25;
/// The sizes in bytes of the production engine's tables in memory. Half of the histories use this
/// engine, and the others use states in memory.
const MEMTABLE_BYTES: [u64; 3] = [2 * 1024, 8 * 1024, 32 * 1024];
/// The maximum number of disk operations between two cuts.
const OPERATIONS_MAX: usize = 90;
/// The number of items in the history.
const KEYS: usize = 12;
/// The maximum number of violations that are reported.
const VIOLATIONS_KEPT: usize = 10;

/// The result for several images. An image is the content of a disk after a power cut.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of images that were opened.
    pub images: u64,
    /// The number of images that result from a cut during a recovery.
    pub in_recovery: u64,
    /// The number of cuts that lost unsynced sectors.
    pub lossy: u64,
    /// The number of cuts that lost some unsynced sectors, but not all.
    pub torn: u64,
    /// The number of acknowledged entries.
    pub acknowledged: u64,
    /// The violations, each with its seed.
    pub violations: Vec<(u64, String)>,
    /// The real time that the check took.
    pub took: Duration,
}

impl Summary {
    /// Returns whether all images opened correctly. Returns false if no cut lost data, because such
    /// a run tests nothing.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let telling =
            self.images < 1_000 || (self.lossy > 0 && self.torn > 0 && self.in_recovery > 0);
        self.violations.is_empty() && self.acknowledged > 0 && telling
    }

    /// Returns the summary as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let violations: Vec<Value> = self
            .violations
            .iter()
            .map(|(seed, what)| json!({"seed": seed, "violation": what}))
            .collect();
        json!({
            "images": self.images, "in_recovery": self.in_recovery, "lossy": self.lossy,
            "torn": self.torn, "acknowledged": self.acknowledged, "violations": violations,
            "took_s": self.took.as_secs_f64(),
        })
    }
}

/// A running replica.
struct Opened {
    /// Whether the process is alive.
    alive: Alive,
    log: Log,
    machine: Machine,
    storage: Arc<dyn Storage>,
}

/// A replica under power cuts, and its expected state.
struct History {
    random: SplitMix64,
    disk: SimulatedDisk,
    state: State,
    options: log::Options,
    /// Every appended entry, by index from 1. An entry that a cut lost remains until a new entry
    /// replaces it.
    entries: Vec<Entry>,
    /// The last acknowledged index.
    acknowledged: u64,
    reference: (Machine, MemoryStorage),
}

impl History {
    fn new(seed: u64) -> Result<Self, HarnessError> {
        let mut random = stream(seed, "power loss");
        let disk = SimulatedDisk::new();
        let engine = stream(seed, "engine").up_to(2 * MEMTABLE_BYTES.len() - 1);
        let memtable_bytes = MEMTABLE_BYTES.get(engine).copied();
        let storage = MemoryStorage::new();
        let machine = Machine::open(&*storage.view())?;
        let options = log::Options {
            segment_bytes: 16 * 1024,
            first_segment_bytes: 8 * 1024,
            spares_max: random.up_to(2),
            ..log::Options::default()
        };
        Ok(Self {
            random,
            state: State::new(&disk, ArcId::FIRST, memtable_bytes),
            disk,
            options,
            entries: Vec::new(),
            acknowledged: 0,
            reference: (machine, storage),
        })
    }

    /// Returns the next entry. The first entry creates the table; each later entry has some writes
    /// of random size.
    fn draw(&mut self) -> Entry {
        let now = EpochMillis(START.0 + self.entries.len() as u64 * 10);
        if self.entries.is_empty() {
            return Entry { now, commands: vec![create_table()] };
        }
        let id = self.entries.len() as u64;
        let commands = (0..=self.random.up_to(3))
            .map(|_| {
                let name = format!("k{}", self.random.up_to(KEYS - 1));
                let filling = "x".repeat(self.random.up_to(1_500));
                let owner = format!("o{}", self.random.up_to(3));
                let item = Item::new()
                    .with(KEY, name.as_str())
                    .with(OWNER, owner)
                    .with(WRITE_ID, number(id))
                    .with("filling", filling);
                let action = match self.random.up_to(4) {
                    0 => WriteAction::Delete,
                    _ => WriteAction::put(&item),
                };
                Command::Write(Box::new(partition::Write {
                    table: TableId(1),
                    key: key(&name),
                    action,
                    condition: None,
                    return_old: false,
                    return_new: false,
                    return_on_failure: false,
                }))
            })
            .collect();
        Entry { now, commands }
    }

    /// Opens the state and the log, as a new process does.
    fn open(&self) -> Result<Opened, NodeError> {
        let alive = Arc::new(AtomicBool::new(true));
        let storage = self.state.open(&alive)?;
        let (log, machine) = recover(&self.disk, &*storage, &self.options)?;
        Ok(Opened { alive, log, machine, storage })
    }

    /// Appends, syncs and applies entries until the disk fails.
    fn write_until_cut(&mut self, opened: &mut Opened) -> Result<(), HarnessError> {
        let Opened { log, machine, storage, .. } = opened;
        // After a cut, the history continues after the last entry that survived.
        let kept = usize::try_from(log.last_index()).unwrap_or(usize::MAX);
        self.entries.truncate(kept);
        loop {
            let group = 1 + self.random.up_to(2);
            let mut records = Vec::new();
            for _ in 0..group {
                let entry = self.draw();
                let payload = encode_entry(&entry)?;
                self.entries.push(entry);
                records.push(log::Entry {
                    index: self.entries.len() as u64,
                    term: 1,
                    payload: payload.into(),
                });
            }
            if log.append(&records).and_then(|()| log.sync()).is_err() {
                return Ok(());
            }
            self.acknowledged = self.entries.len() as u64;
            let applied = machine.applied_index();
            for (index, entry) in (1..).zip(&self.entries).filter(|(index, _)| *index > applied) {
                match apply(machine, &**storage, index, entry) {
                    Err(NodeError::PowerLost(_)) => return Ok(()),
                    applied => applied?,
                }
            }
            if self.random.chance(8) {
                match storage.persist().map_err(NodeError::from) {
                    Err(NodeError::PowerLost(_)) => return Ok(()),
                    persisted => persisted?,
                }
                if log.truncate_prefix(machine.applied_index()).is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// Compares the recovered state with the state after the same number of entries of the history.
    fn check(&mut self, opened: &Opened) -> Result<(), HarnessError> {
        let Opened { log, machine, storage: recovered, .. } = opened;
        let found = machine.applied_index();
        if found < self.acknowledged {
            return Err(format!(
                "{} entries were acknowledged, but only {found} survived",
                self.acknowledged
            )
            .into());
        }
        if found > self.entries.len() as u64 || log.last_index() != found {
            return Err(format!(
                "{} entries were written, but the log ends at entry {} and the state at entry {found}",
                self.entries.len(),
                log.last_index()
            )
            .into());
        }
        let (reference, storage) = &mut self.reference;
        let applied = reference.applied_index();
        let missing = (1..).zip(&self.entries);
        for (index, entry) in missing.filter(|(index, _)| *index > applied && *index <= found) {
            apply(reference, storage, index, entry)?;
        }
        // Recovery has made the recovered entries durable, so later power cuts must not lose them.
        self.acknowledged = found;
        if dump(&*recovered.view())? != dump(&*storage.view())? {
            return Err(
                format!("the state after {found} entries differs from the expected state").into()
            );
        }
        Ok(())
    }
}

fn apply(
    machine: &mut Machine,
    storage: &dyn Storage,
    index: u64,
    entry: &Entry,
) -> Result<(), NodeError> {
    let (batch, _) = machine.apply(&*storage.view(), index, entry)?;
    Ok(storage.apply(&batch)?)
}

/// Returns all keys and values of a state.
pub(crate) fn dump(view: &(dyn View + Send + Sync)) -> Result<Dump, HarnessError> {
    let mut dump = Vec::new();
    view.scan(&[], &[u8::MAX; 8], false, &mut |key, value| {
        dump.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(dump)
}

/// Runs the images of one seed.
fn run_seed(seed: u64, images: u64, summary: &mut Summary) -> Result<(), HarnessError> {
    let mut history = History::new(seed)?;
    let mut opened = history.open()?;
    let mut left = images;
    while left > 0 {
        let after = history.random.up_to(OPERATIONS_MAX) as u64;
        history.disk.fail_at(history.disk.operations() + after, Fault::PowerOff);
        history.write_until_cut(&mut opened)?;
        opened.alive.store(false, Ordering::SeqCst);
        // The power is also cut during recoveries, possibly several times in succession.
        loop {
            let cut = history.disk.power_cut(history.random.next_u64());
            history.state.lose_memory(history.random.next_u64());
            summary.lossy += u64::from(cut.sectors_lost > 0);
            summary.torn += u64::from(cut.sectors_lost > 0 && cut.sectors_kept > 0);
            summary.images += 1;
            left = left.saturating_sub(1);
            if history.random.chance(30) {
                let after = history.random.up_to(8) as u64;
                history.disk.fail_at(history.disk.operations() + after, Fault::PowerOff);
            }
            match history.open() {
                Ok(recovered) => {
                    history.check(&recovered)?;
                    opened = recovered;
                    break;
                }
                Err(NodeError::PowerLost(_)) => summary.in_recovery += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
    summary.acknowledged += history.acknowledged;
    Ok(())
}

/// Runs the images of one seed on this thread. Returns the violation, if there is one.
#[must_use]
pub fn check_seed(seed: u64) -> Option<String> {
    run_seed(seed, IMAGES_PER_SEED, &mut Summary::default()).err().map(|error| error.0)
}

/// Opens `images` images, on all processors, and calls `progress` with the numbers of opened images
/// and failed histories.
#[must_use]
pub fn run_all(first: u64, images: u64, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Summary {
    let begun = Instant::now();
    let seeds = images.div_ceil(IMAGES_PER_SEED);
    let next = AtomicU64::new(0);
    let sum = Mutex::new((Summary::default(), progress));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::SeqCst);
                    if place >= seeds {
                        return;
                    }
                    let seed = first.wrapping_add(place);
                    let wanted = IMAGES_PER_SEED.min(images - place * IMAGES_PER_SEED);
                    let mut part = Summary::default();
                    let result = run_seed(seed, wanted, &mut part);
                    let mut sum = sum.lock();
                    let (total, progress) = &mut *sum;
                    total.images += part.images;
                    total.in_recovery += part.in_recovery;
                    total.lossy += part.lossy;
                    total.torn += part.torn;
                    total.acknowledged += part.acknowledged;
                    if let Err(HarnessError(what)) = result
                        && total.violations.len() < VIOLATIONS_KEPT
                    {
                        total.violations.push((seed, what));
                    }
                    progress(total.images, total.violations.len() as u64);
                }
            });
        }
    });
    let (summary, _) = sum.into_inner();
    Summary { took: begun.elapsed(), ..summary }
}
