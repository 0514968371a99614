//! The engine for real use: a log-structured merge tree of the crate lsm-tree.
//!
//! It has no log of its own. A batch goes into a table in memory; when that is full it is sealed, and
//! written to disk and synced as a whole in the background. A table is sealed only between two
//! batches, so what a crash leaves on disk is always some first part of the batches, and what it
//! lost our log brings back.
//!
//! The tables in memory are ours, not the crate's: there a key that is written again takes the place
//! of what it was, where the crate keeps every version until it is written to disk.
//!
//! Damage may be found long after the storage was opened, by a read. It is noted in a file beside
//! the storage, which then never opens again.

mod key;
mod memtable;
mod memtables;
mod rows;
mod upkeep;
mod view;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use lsm_tree::config::PinningPolicy;
use lsm_tree::{AbstractTree, AnyTree, Cache, Config, SequenceNumberCounter};
use partition::{Batch, View};

use self::upkeep::Upkeep;
use self::view::{LsmView, Moments};
use super::{Error, Storage, check};

/// The file that is locked while the storage is open.
const LOCK_FILE: &str = "lock";

/// How often the lock is tried, and how long apart: a tenth of a second in all.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The tree's own file that says which of its files count. A tree that was made whole has it.
const TREE_FILE: &str = "current";

/// How much memory the engine may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// For blocks that were read from disk.
    pub cache_bytes: u64,
    /// For one table of recent writes. There are two of them, one that is filled and the last one
    /// that was written to disk, and up to four more while the disk cannot keep up.
    pub memtable_bytes: u64,
    /// Bytes of the storage's files, inclusive, up to which the indexes and filters of all its tables
    /// stay in memory while it is open. They are a sixtieth of the files. Those of a larger storage are
    /// read through the cache, part by part, but for the newest tables.
    pub pinned_up_to: u64,
    /// A merge begins a new file at this size. Files whose keys nothing overlaps with, as those of
    /// stream records, move on without being written again, so they must not be large.
    pub file_bytes: u64,
}

impl Default for Options {
    /// So that three replicas in one process stay below 100 MB each, of which items that they share
    /// are a part. Data that does not fit is read through the page cache.
    fn default() -> Self {
        let mebibyte = 1024 * 1024;
        let (cache_bytes, memtable_bytes) = (12 * mebibyte, 16 * mebibyte);
        // 17 MB of indexes and filters.
        let (pinned_up_to, file_bytes) = (1024 * mebibyte, 8 * mebibyte);
        Options { cache_bytes, memtable_bytes, pinned_up_to, file_bytes }
    }
}

/// A tree in a directory of its own, and the thread that looks after it.
pub struct LsmStorage {
    // Dropped in this order: the thread ends before the directory is anybody else's.
    upkeep: Upkeep,
    state: Arc<State>,
    _lock: File,
}

/// What the storage, its views and its thread share.
struct State {
    tree: AnyTree,
    path: PathBuf,
    memtable_bytes: u64,
    file_bytes: u64,
    /// The next batch's number; the tree takes some for its own changes.
    numbers: SequenceNumberCounter,
    /// Held while a batch is applied, so that no view is opened between its changes.
    moments: Mutex<Moments>,
    /// Why nothing can be written any more.
    failed: OnceLock<Error>,
    /// The directory at `path`, however it is called by now.
    directory: File,
    /// Whether the directory goes with the last one who uses it.
    is_temporary: Arc<AtomicBool>,
}

impl LsmStorage {
    /// Opens the storage in `path` with the default options, or makes it there.
    ///
    /// # Errors
    ///
    /// As [`LsmStorage::open_with`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, &Options::default())
    }

    /// Opens the storage in `path`, or makes it there.
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
            // A tree that is only half made cannot be opened, so it gets its name last.
            let fresh = path.with_added_extension("new");
            make_empty_directory(&fresh).map_err(fail_io)?;
            let numbers = SequenceNumberCounter::default();
            drop(open_tree(&fresh, options, &numbers).map_err(|error| sort("open", path, error))?);
            fs::rename(&fresh, path).map_err(fail_io)?;
            sync_parent(path).map_err(fail_io)?;
        }
        let lock = lock(path)?;
        let numbers = SequenceNumberCounter::default();
        // Without it the tree would begin anew, with nothing.
        if !path.join(TREE_FILE).try_exists().map_err(fail_io)? {
            let path = path.display().to_string();
            let reason =
                format!("the file `{TREE_FILE}`, which says what belongs to it, is missing");
            return Err(Error::Corrupt { path, reason });
        }
        let tree = open_tree(path, options, &numbers).map_err(|error| sort_opening(path, error))?;
        numbers.fetch_max(tree.get_highest_persisted_seqno().map_or(1, |highest| highest + 1));
        let state = Arc::new(State {
            moments: Mutex::new(Moments::new(numbers.get())),
            tree,
            path: path.to_owned(),
            memtable_bytes: options.memtable_bytes,
            file_bytes: options.file_bytes,
            numbers,
            failed: OnceLock::new(),
            directory: File::open(path).map_err(fail_io)?,
            is_temporary: Arc::default(),
        });
        let upkeep = Upkeep::start(Arc::clone(&state)).map_err(fail_io)?;
        Ok(LsmStorage { upkeep, state, _lock: lock })
    }

    /// While this says so, the directory is removed when the storage and its last view are gone.
    pub(crate) fn is_temporary(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.state.is_temporary)
    }

    /// Removes the storage in `path`, if there is one, and what was noted about it.
    ///
    /// # Errors
    ///
    /// When something of it cannot be removed.
    pub(crate) fn remove(path: &Path) -> io::Result<()> {
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
    // What views may see is ours to say: a batch may be half applied while a table is registered.
    let ignored = SequenceNumberCounter::default();
    let config = Config::new(path, numbers.clone(), ignored)
        .use_cache(Arc::new(Cache::with_capacity_bytes(options.cache_bytes)));
    if bytes_below(path)? > options.pinned_up_to {
        return config.open();
    }
    // Whatever is read by its key then needs one look into the cache instead of three.
    config
        .index_block_partitioning_policy(PinningPolicy::all(false))
        .filter_block_partitioning_policy(PinningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .open()
}

/// Bytes of all files in a directory and in those in it. A file that goes meanwhile has none.
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
        // A node that was started again meanwhile may have removed it, and made another one there.
        let same = |own: fs::Metadata, found: fs::Metadata| {
            (own.dev(), own.ino()) == (found.dev(), found.ino())
        };
        let found =
            self.directory.metadata().and_then(|own| Ok(same(own, fs::metadata(&self.path)?)));
        if matches!(found, Ok(true))
            && let Err(error) = LsmStorage::remove(&self.path)
        {
            let path = self.path.display();
            tracing::warn!(%error, %path, "what is of no use stays until the next start");
        }
    }
}

impl State {
    fn sort(&self, operation: &'static str, error: lsm_tree::Error) -> Error {
        let error = sort(operation, &self.path, error);
        if let Error::Corrupt { reason, .. } = &error {
            note_damage(&self.path, reason);
        }
        error
    }

    fn moments(&self) -> MutexGuard<'_, Moments> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Below this number only the newest version of a key is of use: to every view that is open, and
    /// to every later one.
    fn oldest_seen(&self) -> u64 {
        let moments = self.moments();
        moments.seen().oldest.min(moments.now().number)
    }

    /// Seals the table that is filled, between two batches.
    fn seal(&self) {
        let mut moments = self.moments();
        let (number, tables) = (moments.now().number, moments.now().tables.seal());
        moments.publish(number, tables);
    }

    /// How many sealed tables wait to be written.
    fn sealed_count(&self) -> usize {
        self.moments().now().tables.sealed_count()
    }

    /// Writes what is sealed to disk, and syncs it.
    fn flush(&self) -> Result<(), lsm_tree::Error> {
        let _flushing = self.tree.get_flush_lock();
        // At most as many as there can be; what is sealed meanwhile has somebody who writes it.
        for _ in 0..self.sealed_count() {
            let Some(table) = self.moments().now().tables.oldest_sealed() else { break };
            let oldest = self.oldest_seen();
            let written =
                table.with_versions(|versions| self.tree.flush_to_tables(&mut versions.map(Ok)))?;
            if let Some((tables, _)) = written {
                self.tree.register_tables(&tables, None, None, &[], oldest)?;
            }
            let mut moments = self.moments();
            // The tree shows a new table only to views with higher numbers than its registration
            // took; the others still have the table in memory.
            let number = moments.now().number.max(self.numbers.get());
            let tables = moments.now().tables.wrote_oldest();
            moments.publish(number, tables);
        }
        Ok(())
    }
}

impl Storage for LsmStorage {
    fn apply(&self, batch: &Batch) -> Result<(), Error> {
        check(batch)?;
        let state = &*self.state;
        if let Some(error) = state.failed.get() {
            return Err(error.clone());
        }
        let bytes = {
            let mut moments = state.moments();
            let number = state.numbers.next();
            let tables = moments.now().tables.clone();
            tables.active().apply(&batch.ops, number, &moments.seen());
            let bytes = tables.active().bytes();
            moments.publish(number + 1, tables);
            bytes
        };
        if bytes > state.memtable_bytes {
            state.seal();
            self.upkeep.wait_for_room()?;
        }
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        self.state.seal();
        self.state.flush().map_err(|error| self.state.sort("persist", error))?;
        // Each of these tables is a run of its own. Where entries are small none is ever written
        // because it is full, and nobody else would have the runs merged.
        self.upkeep.look_after_tables();
        Ok(())
    }

    fn view(&self) -> Box<dyn View + Send + Sync> {
        Box::new(LsmView::new(Arc::clone(&self.state)))
    }
}

/// The file that says what damage was found in a storage.
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

/// Sees to it that the storage is not opened again.
fn note_damage(path: &Path, reason: &str) {
    let file = damage_file(path);
    let noted = fs::write(&file, reason).and_then(|()| File::open(&file)?.sync_all());
    if let Err(error) = noted.and_then(|()| sync_parent(path)) {
        // The damage is still there, and is found again.
        tracing::error!(%error, reason, "damage cannot be noted");
    }
}

/// Keeps the directory from being opened a second time.
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

/// Takes a file's lock, unless somebody else holds it for longer than a moment: a process that this one
/// has just forked holds what it holds until it runs its own program.
fn take(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            other => return other,
        }
    }
    file.try_lock()
}

/// Makes a directory with nothing in it, for its owner only.
fn make_empty_directory(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        fs::remove_dir_all(path)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn io_error(operation: &'static str, path: &Path, source: &io::Error) -> Error {
    let remedy = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space: the log has what was acknowledged"
        }
        _ => "",
    };
    let reason = format!("{source}{remedy}");
    Error::Io { path: path.display().to_string(), operation, reason }
}

/// Sorts the tree's errors by what to do about them.
fn sort(operation: &'static str, path: &Path, error: lsm_tree::Error) -> Error {
    match error {
        lsm_tree::Error::Io(source) => io_error(operation, path, &source),
        other => corrupt(path, &other),
    }
}

/// The same for a tree that is opened: files that are missing, or end too early, are damage as much as
/// those with wrong bytes. A table that is empty is one in which the tree seeks before its beginning.
fn sort_opening(path: &Path, error: lsm_tree::Error) -> Error {
    match &error {
        lsm_tree::Error::Io(source)
            if matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
            ) =>
        {
            corrupt(path, &error)
        }
        _ => sort("open", path, error),
    }
}

fn corrupt(path: &Path, error: &lsm_tree::Error) -> Error {
    Error::Corrupt { path: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: u64) -> Batch {
        Batch { ops: vec![partition::Op::Put(key.to_be_bytes().to_vec(), vec![0; 2_000].into())] }
    }

    fn small(path: &Path) -> LsmStorage {
        let options = Options { memtable_bytes: 1_000, ..Options::default() };
        LsmStorage::open_with(path, &options).unwrap()
    }

    /// Waits until the storage's thread has done something.
    fn wait(until: impl Fn() -> bool) {
        let patience = Duration::from_millis(10);
        assert!((0..6_000).any(|_| until() || (thread::sleep(patience), false).1));
    }

    #[test]
    fn what_is_persisted_again_and_again_is_merged() {
        let directory = tempfile::tempdir().unwrap();
        let storage = LsmStorage::open(&directory.path().join("state")).unwrap();
        for key in 0..60 {
            storage.apply(&put(key)).unwrap();
            storage.persist().unwrap();
        }
        wait(|| storage.state.tree.l0_run_count() <= 10);
    }

    /// Goal: whatever is written in whatever order, writers never wait for ever. Keys in no order reach
    /// several levels, whose merges the strategy prefers to those that writers wait for.
    #[test]
    fn a_storage_of_many_levels_takes_writes() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { memtable_bytes: 4_000, file_bytes: 1_000, ..Options::default() };
        let path = directory.path().join("state");
        let storage = LsmStorage::open_with(&path, &options).unwrap();
        let (written, is_done) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let mut random = crate::disk::SplitMix64::new(7);
            for _ in 0..MANY_LEVELS {
                storage.apply(&put(random.next_u64())).unwrap();
            }
            written.send(storage.state.tree.level_table_count(3)).unwrap();
        });
        // A bound for a process that hangs, far from what it takes.
        let third = is_done.recv_timeout(Duration::from_secs(300)).unwrap();
        assert!(third > Some(0), "not many levels");
    }

    /// Batches of 2 KB.
    const MANY_LEVELS: usize = 1_500;

    #[test]
    fn others_go_on_while_a_writer_waits_for_room() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Arc::new(small(&directory.path().join("state")));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let not_written = storage.state.tree.get_flush_lock();
        let writer = Arc::clone(&storage);
        let written =
            runtime.spawn(async move { (0..10).for_each(|key| writer.apply(&put(key)).unwrap()) });
        wait(|| storage.state.sealed_count() > 3);
        let (other, is_done) = std::sync::mpsc::channel();
        runtime.spawn(async move { other.send(()).unwrap() });
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(!written.is_finished());
        drop(not_written);
        runtime.block_on(written).unwrap();
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let full = lsm_tree::Error::Io(io::ErrorKind::StorageFull.into());
        let text = sort("write to", Path::new("state"), full).to_string();
        assert!(text.contains("free some space") && text.ends_with("restart to recover"), "{text}");
    }

    #[test]
    fn what_is_missing_is_damage_only_where_a_tree_is_opened() {
        use io::ErrorKind::{NotFound, PermissionDenied, UnexpectedEof};
        for (kind, is_damage) in
            [(NotFound, true), (UnexpectedEof, true), (PermissionDenied, false)]
        {
            let error = || lsm_tree::Error::Io(kind.into());
            let found = sort_opening(Path::new("state"), error());
            assert_eq!(matches!(found, Error::Corrupt { .. }), is_damage, "{found}");
            assert!(matches!(sort("write to", Path::new("state"), error()), Error::Io { .. }));
        }
    }
}
