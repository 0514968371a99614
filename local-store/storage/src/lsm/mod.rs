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
mod key;
mod maintenance;
mod memtable;
mod memtables;
mod queue;
mod row;
mod rows;
#[cfg(test)]
mod tests;
mod verify;
mod versions;
mod view;

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use locks::Mutex;
use lsm_tree::config::PinningPolicy;
use lsm_tree::descriptor_table::DescriptorTable;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, SequenceNumberCounter};
use partition::{Batch, QUEUE_KEYS, View};

use self::errors::{corrupt, io_error, is_exhausted, is_full, is_passing, sort, sort_opening};
use self::maintenance::MaintenanceThread;
use self::memtable::Memtable;
use self::queue::{Listing, QueueFlush, Queues};
use self::view::{LsmView, ViewState, ViewStates};
use crate::disk::Damage;
use crate::disk::descriptors::{self, Backoff};
use crate::engine::{Pace, Storage, StoredFile, check};
use crate::error::Error;

/// The file that is locked while the storage is open.
const LOCK_FILE: &str = "lock";

/// The name of the operation in errors about a failed read.
const READ: &str = "read";

/// The maximum number of attempts to acquire the lock. The next constant is the pause between two
/// attempts. All attempts together take a tenth of a second.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

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

/// A tree in its own directory, and the tree's maintenance thread.
pub struct LsmStorage {
    maintenance: MaintenanceThread,
    state: Arc<State>,
}

/// The state that the storage, its views and its thread share.
struct State {
    tree: AnyTree,
    path: PathBuf,
    memtable_bytes: u64,
    file_bytes: u64,
    /// The number of the next batch. The tree uses some numbers for its own changes.
    numbers: SequenceNumberCounter,
    /// Locked while a batch is applied, so that no view shows only a part of the batch.
    view_states: Mutex<ViewStates>,
    /// The error that prevents all further writes.
    failed: OnceLock<Error>,
    /// The open directory, which stays the same even if `path` is renamed.
    directory: File,
    /// Whether the directory is removed when the last user drops it.
    is_temporary: Arc<AtomicBool>,
    damage: Damage,
    /// The lock of the directory, held until the last view is dropped. Tables are opened by path,
    /// so without the lock a view could read the tables of a newer storage at the same path.
    _lock: File,
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
        if let Some(reason) = read_damage(path).map_err(fail_io)? {
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
        let lock = lock(path)?;
        let numbers = SequenceNumberCounter::default();
        // Without this file the tree would start empty, so a missing file is damage.
        if !path.join(TREE_FILE).try_exists().map_err(fail_io)? {
            let path = path.display().to_string();
            let reason =
                format!("the file `{TREE_FILE}`, which lists the files of the storage, is missing");
            return Err(Error::Corrupt { path, reason });
        }
        let tree = open_tree(path, options, &numbers).map_err(|error| sort_opening(path, error))?;
        numbers.fetch_max(tree.get_highest_persisted_seqno().map_or(1, |highest| highest + 1));
        let queues = open_queues(path, &tree).map_err(|error| sort_opening(path, error))?;
        let state = Arc::new(State {
            view_states: Mutex::new(ViewStates::new(numbers.get(), queues)),
            tree,
            path: path.to_owned(),
            memtable_bytes: options.memtable_bytes,
            file_bytes: options.file_bytes,
            numbers,
            failed: OnceLock::new(),
            directory: File::open(path).map_err(fail_io)?,
            is_temporary: Arc::default(),
            damage: options.damage.clone(),
            _lock: lock,
        });
        let maintenance = MaintenanceThread::start(Arc::clone(&state)).map_err(fail_io)?;
        Ok(LsmStorage { maintenance, state })
    }

    /// Returns a flag. If it is true when the storage and its last view are dropped, the directory
    /// is removed.
    pub fn is_temporary(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.state.is_temporary)
    }

    /// Removes the storage in `path`, if there is one, and its record of damage.
    ///
    /// # Errors
    ///
    /// When a part of the storage cannot be removed.
    pub fn remove(path: &Path) -> io::Result<()> {
        let or_missing = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        or_missing(fs::remove_dir_all(path))?;
        or_missing(fs::remove_file(damage_file(path)))
    }
}

fn open_tree(
    path: &Path,
    options: &Options,
    numbers: &SequenceNumberCounter,
) -> Result<AnyTree, lsm_tree::Error> {
    // The tree's own counter of visible changes is not used: a batch may be partly applied while
    // the tree registers a table. Therefore this crate decides which batches a view sees.
    let ignored = SequenceNumberCounter::default();
    let config = Config::new(path, numbers.clone(), ignored)
        .use_cache(Arc::clone(&options.cache.blocks))
        .use_descriptor_table(Some(Arc::clone(&options.cache.open_tables)));
    let tables = path.join(TABLES_FOLDER);
    if tables.try_exists()? && bytes_below(&tables)? > options.pinned_up_to {
        return config.open();
    }
    // With complete indexes and filters in memory, a read by key needs one cache lookup instead of
    // three.
    config
        .index_block_partitioning_policy(PinningPolicy::all(false))
        .filter_block_partitioning_policy(PinningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .open()
}

/// Opens the queue files that the tree lists.
fn open_queues(path: &Path, tree: &AnyTree) -> Result<Queues, lsm_tree::Error> {
    let folder = path.join(queue::FOLDER);
    if !folder.try_exists()? {
        DirBuilder::new().mode(0o700).create(&folder)?;
        File::open(path)?.sync_all()?;
    }
    Ok(Queues::open(&folder, Listing::read_all(tree, path)?)?)
}

/// Returns the total size in bytes of all files in a directory, recursively. A file that is removed
/// in the meantime counts as empty.
fn bytes_below(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path())?,
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
}

impl Drop for State {
    fn drop(&mut self) {
        if !self.is_temporary.load(Ordering::Acquire) {
            return;
        }
        // A restarted node may have removed the directory and created a new one at the same path.
        let same = |own: fs::Metadata, found: fs::Metadata| {
            (own.dev(), own.ino()) == (found.dev(), found.ino())
        };
        let found =
            self.directory.metadata().and_then(|own| Ok(same(own, fs::metadata(&self.path)?)));
        if matches!(found, Ok(true))
            && let Err(error) = LsmStorage::remove(&self.path)
        {
            let path = self.path.display();
            tracing::warn!(%error, %path, "cannot remove an unused storage; the next start removes it");
        }
    }
}

impl State {
    /// Classifies an error, and reports damage. Wrong bytes are damage. A failed read or write
    /// counts as damage only if other nodes can rebuild this node.
    fn sort(&self, operation: &'static str, error: lsm_tree::Error) -> Error {
        let error = match error {
            lsm_tree::Error::Io(source)
                if self.damage.has_peers()
                    && (errors::is_of_disk(&source)
                        || (operation == READ && !descriptors::is_passing(&source))) =>
            {
                corrupt(&self.path, &source)
            }
            other => sort(operation, &self.path, other),
        };
        if let Error::Corrupt { reason, .. } = &error {
            note_damage(&self.path, reason);
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
        let error = sort(READ, &self.path, error);
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
        let _flushing = self.tree.get_flush_lock();
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
            let versions = table.versions(in_tree).chain(listed);
            let written = self.tree.flush_to_tables(&mut versions.map(Ok))?;
            if let Some((tables, _)) = written {
                self.tree.register_tables(&tables, None, None, &[], oldest)?;
            }
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
        QueueFlush::new(&queues, &self.path.join(queue::FOLDER), &rows).map(Some)
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
        self.state.tree.disk_space() + self.state.view_states().current().queues.bytes()
    }
}

/// Returns the path of the file that records the damage of a storage.
fn damage_file(path: &Path) -> PathBuf {
    path.with_added_extension("damaged")
}

fn read_damage(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(damage_file(path)) {
        Ok(reason) => Ok(Some(reason)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Records damage, so that the storage is not opened again.
fn note_damage(path: &Path, reason: &str) {
    let file = damage_file(path);
    let write = || fs::write(&file, reason).and_then(|()| File::open(&file)?.sync_all());
    let noted = descriptors::wait_for_one(write);
    if let Err(error) = noted.and_then(|()| sync_parent(path)) {
        // The damage persists, so a later read will find it again.
        tracing::error!(%error, reason, "cannot record the damage of a storage");
    }
}

/// Locks the directory, so that it cannot be opened a second time.
fn lock(path: &Path) -> Result<File, Error> {
    let fail = |source: io::Error| io_error("open", path, &source);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join(LOCK_FILE))
        .map_err(fail)?;
    match take(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.display().to_string() }),
        Err(TryLockError::Error(source)) => Err(fail(source)),
    }
}

/// Acquires a file's lock. Retries for a tenth of a second, because a forked child process holds
/// the lock until it executes its own program.
fn take(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            other => return other,
        }
    }
    file.try_lock()
}

/// Creates an empty directory that only its owner can access.
fn make_empty_directory(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        fs::remove_dir_all(path)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    descriptors::wait_for_one(|| File::open(parent.unwrap_or(Path::new("."))))?.sync_all()
}
