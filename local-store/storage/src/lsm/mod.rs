//! The production engine: a log-structured merge tree from the crate lsm-tree.
//!
//! The engine has no separate log. A batch goes into a table in memory. A full table is sealed; the
//! background thread flushes the entire table to disk and syncs it. Tables are sealed only between
//! two batches, so a crash leaves a prefix of the batches on disk, and the node's log restores the
//! rest.
//!
//! Stream records, which are only appended and removed in key order, are in separate files beside
//! the tree (`queue`).
//!
//! The tables in memory are implemented in this crate: a new version replaces the previous version
//! of its key, whereas the tables of lsm-tree keep every version until they are flushed.
//!
//! A read may find damage long after the storage was opened. The damage is recorded in a file
//! beside the storage, and the storage then refuses to open.

mod blocks;
mod disk_rows;
mod errors;
mod folder;
mod home;
mod key;
mod maintenance;
mod memtable;
mod memtables;
mod queue;
mod row;
mod rows;
mod storage_folder;
mod tables;
#[cfg(test)]
mod tests;
mod verify;
mod versions;
mod view;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard, OnceLock};

use locks::Mutex;
use lsm_tree::descriptor_table::DescriptorTable;
use lsm_tree::{Cache, SequenceNumberCounter};
use partition::mutation::{self, Mutation};
use partition::{Batch, QUEUE_KEYS, View};

use self::errors::{corrupt, io_error, is_exhausted, is_full, is_passing, sort, sort_opening};
use self::folder::Folder;
use self::home::{DamageRecord, Home, make_empty_directory, simulated_folder, sync_parent};
use self::maintenance::MaintenanceThread;
use self::memtable::Memtable;
use self::queue::{Listing, QueueFlush, Queues};
pub use self::storage_folder::StorageFolder;
use self::tables::{LsmTables, SimulatedTables, Tables, open_tree};
use self::view::{LsmView, ViewState, ViewStates};
use crate::disk::descriptors::{self, Backoff};
use crate::disk::{Damage, SimulatedDisk};
use crate::engine::{Pace, Storage, StoredFile, check};
use crate::error::Error;

/// The name of the operation in errors about a failed read.
const READ: &str = "read";

/// The tree's own list of its valid files. Every complete tree has this file.
const TREE_FILE: &str = "current";

/// The tree's folder of tables. The folder exists once the tree has tables.
const TABLES_FOLDER: &str = "tables";

/// The maximum number of tables that all trees of a process keep open. A tree opens other tables on
/// demand, and closes the least recently used tables. Without this limit, 5.4 GB of data would need
/// 690 descriptors for 690 tables, whereas a process often has a limit of 1,024.
pub const OPEN_TABLES_MAX: usize = 256;

/// The maximum number of files that one tree has open in addition to [`OPEN_TABLES_MAX`]: its lock,
/// its directory, and a file for each merged run (20 in the newest level, one in each of the other
/// six levels). During a flush or a merge, it also has open the table that it writes, one queue
/// file for reading and one for writing.
pub const OPEN_FILES_PER_TREE: usize = 32;

/// Caches that the trees of a process share: blocks that were read from disk, and open tables. The
/// leader reads much more than the followers, so it gets a larger part of the shared cache.
#[derive(Clone)]
pub struct BlockCache {
    blocks: Arc<Cache>,
    open_tables: Arc<DescriptorTable>,
}

impl BlockCache {
    /// Creates a cache of `bytes` bytes, and of as many open tables as a process may have.
    #[must_use]
    pub fn with_bytes(bytes: u64) -> Self {
        Self::new(bytes, OPEN_TABLES_MAX)
    }

    /// Creates a cache of `bytes` bytes and `open_tables` open tables.
    pub fn new(bytes: u64, open_tables: usize) -> Self {
        Self {
            blocks: Arc::new(Cache::with_capacity_bytes(bytes)),
            open_tables: Arc::new(DescriptorTable::new(open_tables)),
        }
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockCache of {} bytes", self.blocks.capacity())
    }
}

/// Memory limits and other options of the engine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cache of blocks and open tables.
    pub cache: BlockCache,
    /// The size in bytes at which a table of recent writes is sealed. Usually there are two tables
    /// in memory, the active and the last flushed table, and up to four more if the disk is too
    /// slow.
    pub memtable_bytes: u64,
    /// The maximum size of the tree's files in bytes, inclusive, at which the indexes and filters
    /// of all tables stay in memory. They have a sixtieth of the size of the files. A larger tree
    /// keeps only the indexes and filters of the newest tables in memory, and reads parts of the
    /// others through the cache.
    pub pinned_up_to: u64,
    /// The size in bytes at which a merge begins a new file. If a file overlaps with no file of the
    /// next level, it moves to that level without a rewrite, which is more likely if files are
    /// small.
    pub file_bytes: u64,
    /// The record of damage that is found after opening.
    pub damage: Damage,
}

const MEBIBYTE: u64 = 1024 * 1024;
/// The cache size in bytes for each tree that shares the cache.
pub const CACHE_BYTES_PER_TREE: u64 = 12 * MEBIBYTE;

impl Options {
    /// Returns options with this block cache. With them, each of three replicas in one process uses
    /// less than 100 MB of memory. Blocks that are not in the block cache are read through the
    /// operating system's page cache.
    #[must_use]
    pub fn with_cache(cache: BlockCache) -> Self {
        // The pinned indexes and filters of 1 GiB of files take 17 MB.
        let (pinned_up_to, file_bytes) = (1024 * MEBIBYTE, 8 * MEBIBYTE);
        let damage = Damage::default();
        Options { cache, memtable_bytes: 16 * MEBIBYTE, pinned_up_to, file_bytes, damage }
    }
}

impl Default for Options {
    /// Returns options with a separate cache.
    fn default() -> Self {
        Self::with_cache(BlockCache::with_bytes(CACHE_BYTES_PER_TREE))
    }
}

/// A tree in its own directory, and the tree's maintenance thread. On a simulated disk, simulated
/// tables replace the tree, and there is no thread.
pub struct LsmStorage {
    maintenance: MaintenanceThread,
    state: Arc<State>,
}

/// The state that the storage, its views and its thread share.
struct State {
    /// The first field, so that an unused directory is removed before its files are closed.
    home: Home,
    tables: Tables,
    memtable_bytes: u64,
    /// The number of the next batch. The tree uses some numbers for its own changes.
    numbers: SequenceNumberCounter,
    /// Locked while a batch is applied, so that no view shows only a part of the batch.
    view_states: Mutex<ViewStates>,
    /// The error that prevents all further writes.
    failed: OnceLock<Error>,
    damage: Damage,
    /// The folder of the queue files, which holds the lock of the directory. It is the last field,
    /// so that the lock is released last.
    queue_folder: Arc<Folder>,
}

impl LsmStorage {
    /// Opens the storage in `path` with the default options, or creates it.
    ///
    /// # Errors
    ///
    /// The errors of [`LsmStorage::open_with`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, &Options::default())
    }

    /// Opens the storage in `path`, or creates it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], [`Error::Corrupt`], [`Error::Io`].
    pub fn open_with(path: &Path, options: &Options) -> Result<Self, Error> {
        let fail_io = |source: io::Error| io_error("open", path, &source);
        if let Some(reason) = DamageRecord::beside(path).read().map_err(fail_io)? {
            return Err(Error::Corrupt { path: path.display().to_string(), reason });
        }
        if !path.try_exists().map_err(fail_io)? {
            // An incomplete tree cannot be opened. A new tree is therefore created under another
            // name, and its directory is renamed when it is complete.
            let fresh = path.with_added_extension("new");
            make_empty_directory(&fresh).map_err(fail_io)?;
            let numbers = SequenceNumberCounter::default();
            drop(open_tree(&fresh, options, &numbers).map_err(|error| sort("open", path, error))?);
            fs::rename(&fresh, path).map_err(fail_io)?;
            sync_parent(path).map_err(fail_io)?;
        }
        let home = Home::open(path)?;
        let numbers = SequenceNumberCounter::default();
        // Without this file the tree would start empty, so a missing file is damage.
        if !path.join(TREE_FILE).try_exists().map_err(fail_io)? {
            let path = path.display().to_string();
            let reason =
                format!("the file `{TREE_FILE}`, which lists the files of the storage, is missing");
            return Err(Error::Corrupt { path, reason });
        }
        let tree = open_tree(path, options, &numbers).map_err(|error| sort_opening(path, error))?;
        let tables = Tables::Lsm(LsmTables { tree, file_bytes: options.file_bytes });
        let state = State::open(home, tables, numbers, options)?;
        let maintenance = MaintenanceThread::start(Arc::clone(&state)).map_err(fail_io)?;
        Ok(LsmStorage { maintenance, state })
    }

    /// Opens the storage with this name on a simulated disk, or creates it. The storage starts no
    /// thread: the calls that seal or persist tables also flush and merge them.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open_simulated(
        disk: &SimulatedDisk,
        name: &str,
        options: &Options,
    ) -> Result<Self, Error> {
        let path = Path::new(name);
        let fail_io = |source: io::Error| io_error("open", path, &source);
        let home = Home::simulated(disk, name);
        if let Some(reason) = home.record().read().map_err(fail_io)? {
            return Err(Error::Corrupt { path: name.to_owned(), reason });
        }
        let tables =
            SimulatedTables::open(simulated_folder(&disk.subdirectory(name), TABLES_FOLDER, path))
                .map_err(|error| sort_opening(path, error.into()))?;
        let numbers = SequenceNumberCounter::default();
        let state = State::open(home, Tables::Simulated(tables), numbers, options)?;
        Ok(LsmStorage { maintenance: MaintenanceThread::inline(Arc::clone(&state)), state })
    }

    /// Returns a flag. If it is true when the storage and its last view are dropped, the directory
    /// is removed.
    pub fn is_temporary(&self) -> Arc<AtomicBool> {
        Arc::clone(self.state.home.is_temporary())
    }

    /// Removes the storage in `path`, if there is one, and its record of damage.
    ///
    /// # Errors
    ///
    /// When a part of the storage cannot be removed.
    pub fn remove(path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        DamageRecord::beside(path).remove()
    }

    /// Removes the storage with this name on a simulated disk, if there is one, and its record of
    /// damage.
    ///
    /// # Errors
    ///
    /// When a part of the storage cannot be removed.
    pub fn remove_simulated(disk: &SimulatedDisk, name: &str) -> io::Result<()> {
        disk.remove_subdirectory(name)?;
        DamageRecord::simulated(disk, name).remove()
    }
}

impl State {
    /// Opens the queue files that the tables list, and removes the others. `numbers` is the counter
    /// of the tables.
    fn open(
        home: Home,
        tables: Tables,
        numbers: SequenceNumberCounter,
        options: &Options,
    ) -> Result<Arc<Self>, Error> {
        numbers.fetch_max(tables.highest_number().map_or(1, |highest| highest + 1));
        let listed = Listing::read_all(&tables, home.path());
        let queues = listed.and_then(|listed| Ok(Queues::open(home.queues(), listed)?));
        let queues = queues.map_err(|error| sort_opening(home.path(), error))?;
        Ok(Arc::new(Self {
            view_states: Mutex::new(ViewStates::new(numbers.get(), queues)),
            queue_folder: Arc::clone(home.queues()),
            home,
            tables,
            memtable_bytes: options.memtable_bytes,
            numbers,
            failed: OnceLock::new(),
            damage: options.damage.clone(),
        }))
    }

    /// Classifies an error, and reports damage. Wrong bytes are damage. A failed read or write
    /// counts as damage only if other nodes can rebuild this node.
    fn sort(&self, operation: &'static str, error: lsm_tree::Error) -> Error {
        let error = match error {
            lsm_tree::Error::Io(source)
                if self.damage.has_peers()
                    && self.home.is_reachable()
                    && (errors::is_of_disk(&source)
                        || (operation == READ && !descriptors::is_passing(&source))) =>
            {
                corrupt(self.home.path(), &source)
            }
            other => sort(operation, self.home.path(), other),
        };
        if let Error::Corrupt { reason, .. } = &error {
            self.home.record().note(reason);
            self.damage.report(&error.to_string());
        }
        error
    }

    /// Does the same as [`State::sort`] for an error that a verification found. The only node of a
    /// store cannot be rebuilt, so its storage may still be opened again, for its undamaged data.
    fn sort_verified(&self, error: lsm_tree::Error) -> Error {
        if self.damage.has_peers() {
            return self.sort(READ, error);
        }
        let error = sort(READ, self.home.path(), error);
        if matches!(error, Error::Corrupt { .. }) {
            self.damage.report(&error.to_string());
        }
        error
    }

    fn view_states(&self) -> MutexGuard<'_, ViewStates> {
        self.view_states.lock()
    }

    /// Returns the lowest batch number that an open or later view can have. Views need only the
    /// newest of the versions with lower batch numbers.
    fn oldest_seen(&self) -> u64 {
        let view_states = self.view_states();
        view_states.open_views().oldest.min(view_states.current().number)
    }

    /// Seals the active table, between two batches.
    fn seal(&self) {
        let mut view_states = self.view_states();
        let ViewState { number, tables, queues } = view_states.current().copy();
        let unseen = view_states.publish(ViewState { number, tables: tables.seal(), queues });
        drop(view_states);
        drop(unseen);
    }

    /// Returns how many sealed tables wait for a flush.
    fn sealed_count(&self) -> usize {
        self.view_states().current().tables.sealed_count()
    }

    /// Flushes the sealed tables to disk, and syncs them. Retries while no file descriptor is
    /// available, unless the thread must end. Each retry writes a new file with another name.
    fn flush_with_descriptors(&self, is_to_end: impl Fn() -> bool) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        loop {
            match self.flush() {
                Err(error) if is_passing(&error) && !is_to_end() => backoff.pause(),
                flushed => return flushed.map_err(|error| self.sort("write to", error)),
            }
        }
    }

    /// Flushes the sealed tables to disk, and syncs them.
    fn flush(&self) -> Result<(), lsm_tree::Error> {
        let _flushing = self.tables.lock_flush();
        // The loop flushes only the tables that were sealed before it began. Code that seals
        // another table also requests its flush.
        for _ in 0..self.sealed_count() {
            let Some(table) = self.view_states().current().tables.oldest_sealed() else { break };
            let oldest = self.oldest_seen();
            let flush = self.flush_queues(&table)?;
            let listed = match &flush {
                Some(flush) => flush.rows(self.numbers.next())?,
                None => Vec::new(),
            };
            let in_tree = |first| first != QUEUE_KEYS;
            let forgotten = usize::from(mutation::is_active(Mutation::FlushForgetsKey));
            let versions = table.versions(in_tree).skip(forgotten).chain(listed);
            self.tables.flush(versions, oldest)?;
            let renewed = flush.map(|flush| Arc::new(flush.finish()));
            let mut view_states = self.view_states();
            let ViewState { number, tables, queues } = view_states.current().copy();
            // The tree shows a new table only to views with higher numbers than the table's
            // registration. Views with lower numbers read the table in memory.
            let number = number.max(self.numbers.get());
            let (tables, queues) = (tables.wrote_oldest(), renewed.unwrap_or(queues));
            let unseen = view_states.publish(ViewState { number, tables, queues });
            drop(view_states);
            drop(unseen);
        }
        Ok(())
    }

    /// Writes the rows of a table that belong to queues. Returns `None` if the table has no such
    /// rows.
    fn flush_queues(&self, table: &Memtable) -> io::Result<Option<QueueFlush>> {
        let newest = table.newest(QUEUE_KEYS);
        let rows = newest.rows();
        if rows.is_empty() {
            return Ok(None);
        }
        // Only a flush changes the queues, and this flush holds the flush lock.
        let queues = Arc::clone(&self.view_states().current().queues);
        QueueFlush::new(&queues, &self.queue_folder, &rows).map(Some)
    }
}

impl Storage for LsmStorage {
    fn apply(&self, batch: &Batch) -> Result<(), Error> {
        check(batch)?;
        let state = &*self.state;
        if let Some(error) = state.failed.get() {
            return Err(error.clone());
        }
        let mut view_states = state.view_states();
        let number = state.numbers.next();
        let ViewState { tables, queues, .. } = view_states.current().copy();
        tables.active().apply(&batch.ops, number, &view_states.open_views());
        let bytes = tables.active().bytes();
        let unseen = view_states.publish(ViewState { number: number + 1, tables, queues });
        drop(view_states);
        drop(unseen);
        if bytes > state.memtable_bytes {
            state.seal();
            self.maintenance.wait_for_room()?;
        }
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        if mutation::is_active(Mutation::PersistNothing) {
            return Ok(());
        }
        self.state.seal();
        self.state.flush_with_descriptors(|| false)?;
        // Each persist adds a table, which is a separate run. If entries are small, tables are
        // never full and are sealed only by a persist, so a persist must also request a merge.
        self.maintenance.start_maintenance();
        Ok(())
    }

    fn reclaim(&self) {
        self.maintenance.start_reclaiming();
    }

    fn view(&self) -> Box<dyn View + Send + Sync> {
        Box::new(LsmView::new(Arc::clone(&self.state), false))
    }

    fn patient_view(&self) -> Box<dyn View + Send + Sync> {
        Box::new(LsmView::new(Arc::clone(&self.state), true))
    }

    fn verify_next(
        &self,
        after: Option<StoredFile>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<StoredFile>, Error> {
        let verified = verify::verify_next(&self.state, after, pace);
        verified.map_err(|error| self.state.sort_verified(error))
    }

    fn disk_bytes(&self) -> u64 {
        self.state.tables.bytes() + self.state.view_states().current().queues.bytes()
    }
}
