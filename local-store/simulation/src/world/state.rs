//! The states of a machine: in memory, or of the production engine on the machine's disk.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use node::ring::ArcId;
use node::{DirectoryLocation, MemoryLocation, StagedStorage, StateLocation};
use storage::disk::{Damage, Disk as _, SimulatedDisk, SplitMix64};
use storage::{BlockCache, Error, LsmOptions, Storage, StorageFolder};

use super::environment::Environment;

/// Whether a process is alive. Every object that could outlive its process checks this.
pub type Alive = Arc<AtomicBool>;

/// The cache of each state in bytes.
const CACHE_BYTES: u64 = 64 * 1024;

/// The subdirectories of a storage whose files are damaged. Damage of other files is found only at
/// a start.
const DAMAGED_FOLDERS: [&str; 2] = ["tables", "queues"];
/// The list of tables, which is in the same subdirectory as the tables.
const TABLE_LIST: &str = "list";
/// The end of the name of the engine's record of damage.
const DAMAGE_RECORD: &str = ".damaged";

/// The state of one arc.
#[derive(Clone, Debug)]
pub enum State {
    /// A state in memory.
    Memory(MemoryLocation),
    /// A state of the production engine.
    Engine(EngineState),
}

/// A state of the production engine.
#[derive(Clone, Debug)]
pub struct EngineState {
    /// The arc's directory.
    disk: SimulatedDisk,
    memtable_bytes: u64,
    damaged: Vec<DataFile>,
}

/// A file of the engine.
#[derive(Clone, Debug)]
struct DataFile {
    /// The storage that has the file.
    storage: String,
    folder: SimulatedDisk,
    name: String,
    /// The number of the file on its disk.
    number: usize,
}

impl State {
    /// Creates the state of an arc on an empty machine. `memtable_bytes` is as in
    /// [`super::plan::Plan`].
    #[must_use]
    pub fn new(disk: &SimulatedDisk, arc: ArcId, memtable_bytes: Option<u64>) -> Self {
        match memtable_bytes {
            None => Self::Memory(MemoryLocation::default()),
            Some(memtable_bytes) => Self::Engine(EngineState {
                disk: disk.subdirectory(&arc.to_string()),
                memtable_bytes,
                damaged: Vec::new(),
            }),
        }
    }

    /// Opens the state for a process without a group.
    ///
    /// # Errors
    /// When the disk cannot be read or written, or is damaged.
    pub fn open(&self, alive: &Alive) -> Result<Arc<dyn Storage>, Error> {
        match self {
            Self::Memory(location) => location.open(),
            Self::Engine(state) => state.location(alive, Damage::default())?.open(),
        }
    }

    /// Damages some data of the state. Returns false if there is no data to damage.
    pub fn damage(&mut self, random: &mut SplitMix64) -> bool {
        match self {
            Self::Memory(location) => location.storage().damage_keys(random.next_u64()),
            Self::Engine(state) => state.damage(random),
        }
    }

    /// Returns whether some data of the state is damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        match self {
            Self::Memory(location) => location.storage().is_damaged(),
            Self::Engine(state) => state.is_damaged(),
        }
    }

    /// Returns whether the state has no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Memory(location) => location.storage().is_empty(),
            Self::Engine(state) => state.files().is_empty(),
        }
    }

    /// Simulates the loss of a process's memory. Returns the number of lost batches, if it is
    /// known.
    pub fn lose_memory(&self, seed: u64) -> usize {
        match self {
            Self::Memory(location) => location.storage().lose_memory(seed),
            // The engine of a dead process can no longer reach the disk.
            Self::Engine(_) => 0,
        }
    }
}

impl EngineState {
    /// Returns the location of the state for one process, which reports later damage to `damage`.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn location(&self, alive: &Alive, damage: Damage) -> Result<DirectoryLocation, Error> {
        let folder = StorageFolder::Simulated(self.disk.of_process(Arc::clone(alive)));
        let (cache, memtable_bytes) = (BlockCache::with_bytes(CACHE_BYTES), self.memtable_bytes);
        let options = LsmOptions { memtable_bytes, damage, ..LsmOptions::with_cache(cache) };
        DirectoryLocation::new(folder, options)
    }

    /// Returns the files with the data of all storages.
    fn files(&self) -> Vec<DataFile> {
        let mut files = Vec::new();
        for storage in self.disk.subdirectories().unwrap_or_default() {
            for folder in DAMAGED_FOLDERS {
                let folder = self.disk.subdirectory(&storage).subdirectory(folder);
                let names = folder.list().unwrap_or_default().into_iter();
                let names = names.filter(|name| !name.starts_with(TABLE_LIST));
                files.extend(names.filter_map(|name| {
                    let (storage, folder) = (storage.clone(), folder.clone());
                    let number = folder.number_of(&name)?;
                    Some(DataFile { storage, folder, name, number })
                }));
            }
        }
        files
    }

    fn damage(&mut self, random: &mut SplitMix64) -> bool {
        let mut files = self.files();
        let Some(last) = files.len().checked_sub(1) else { return false };
        let file = files.swap_remove(random.up_to(last));
        let bytes =
            file.folder.open_to_read(&file.name).and_then(|file| file.size_bytes()).unwrap_or(0);
        let Some(last) = usize::try_from(bytes).unwrap_or(0).checked_sub(1) else { return false };
        let mask = u8::try_from(1 + random.up_to(254)).unwrap_or(1);
        file.folder.corrupt(&file.name, random.up_to(last), &[mask]);
        self.damaged.push(file);
        true
    }

    /// Returns whether a damaged file exists, or the engine has found damage of a storage with a
    /// damaged file. A damaged file can be merged or removed before any read finds its damage.
    fn is_damaged(&self) -> bool {
        self.damaged.iter().any(|file| {
            let record = format!("{}{DAMAGE_RECORD}", file.storage);
            file.folder.number_of(&file.name) == Some(file.number)
                || self.disk.number_of(&record).is_some()
        })
    }
}

/// A location that counts the snapshots that become states.
pub struct CountedLocation {
    location: Arc<dyn StateLocation>,
    environment: Arc<Environment>,
}

impl CountedLocation {
    /// Wraps a location.
    pub fn new(location: Arc<dyn StateLocation>, environment: &Arc<Environment>) -> Arc<Self> {
        Arc::new(Self { location, environment: Arc::clone(environment) })
    }
}

impl StateLocation for CountedLocation {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        self.location.open()
    }

    fn begin(&self) -> Result<StagedStorage, Error> {
        self.location.begin()
    }

    fn adopt(&self, staged: &StagedStorage) -> Result<(), Error> {
        self.location.adopt(staged)?;
        self.environment.coverage.hit("snapshot installed");
        Ok(())
    }
}
