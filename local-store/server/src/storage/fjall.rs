//! The engine for real use: fjall, a log-structured merge tree.
//!
//! One keyspace holds everything. It is not asked to sync or to compress; its own journal makes
//! batches atomic across a crash, and what the journal lost our log brings back.
//!
//! Damage may be found long after the storage was opened, by a read. It is noted in a file beside
//! the storage, which then never opens again.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Slice,
};
use partition::{Batch, Op, ReadError, View, Visit};

use super::recent::RecentWrites;
use super::{Error, KEY_BYTES_MAX, Storage, check, journal};

/// The name of the one keyspace.
const KEYSPACE: &str = "state";

/// One thread for flushes and compactions: with two, fjall 3.1 keeps the first one free for flushes,
/// and that one asks without a pause whether there is one while the other compacts.
const WORKER_THREADS: usize = 1;

/// Old journals beyond this size make fjall flush what they still hold. It is the smallest that
/// leaves room for one full journal beside the one in use.
const JOURNAL_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// How much memory the engine may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// For blocks that were read from disk.
    pub cache_bytes: u64,
    /// For one table of recent writes. Up to five of them exist while the disk cannot keep up.
    pub memtable_bytes: u64,
    /// For the last writes by their keys.
    pub recent_bytes: u64,
}

impl Default for Options {
    /// So that three replicas in one process stay below 100 MB each: a million entries of 200 bytes,
    /// written as fast as one thread can, left 50 to 90 MB resident, most of it for the tables that
    /// wait to be flushed. Data that does not fit is read through the page cache.
    fn default() -> Self {
        let mebibyte = 1024 * 1024;
        Options {
            cache_bytes: 12 * mebibyte,
            memtable_bytes: 4 * mebibyte,
            recent_bytes: 8 * mebibyte,
        }
    }
}

/// A fjall database in a directory of its own.
///
/// Whoever opens it holds the lock of the data directory around it ([`crate::disk::FileDisk`]).
pub struct FjallStorage {
    // Dropped in this order: the database waits for its threads.
    keyspace: Keyspace,
    database: Database,
    recent: Arc<RecentWrites>,
    path: Arc<Path>,
}

impl FjallStorage {
    /// Opens the storage in `path` with the default options, or makes it there.
    ///
    /// # Errors
    ///
    /// As [`FjallStorage::open_with`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_with(path, &Options::default())
    }

    /// Opens the storage in `path`, or makes it there.
    ///
    /// A power loss may have torn the batches that were not persisted; they are cut off, as far as
    /// that is needed for the rest to be whole.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], [`Error::Corrupt`], [`Error::Io`].
    pub fn open_with(path: &Path, options: &Options) -> Result<Self, Error> {
        let fail_io = |source: io::Error| io_error("open", path, source.to_string());
        let fail = |source| sort_error("open", path, source);
        if let Some(reason) = read_damage(path).map_err(fail_io)? {
            return Err(Error::Corrupt { path: path.display().to_string(), reason });
        }
        if !path.try_exists().map_err(fail_io)? {
            // A database that is only half made cannot be opened, so it gets its name last.
            let fresh = path.with_added_extension("new");
            make_empty_directory(&fresh).map_err(fail_io)?;
            open_database(&fresh, options).map_err(fail)?;
            fs::rename(&fresh, path).map_err(fail_io)?;
            sync_parent(path).map_err(fail_io)?;
        }
        journal::cut_torn_end(path)?;
        let (database, keyspace) = open_database(path, options).map_err(fail)?;
        let recent = Arc::new(RecentWrites::new(options.recent_bytes));
        Ok(FjallStorage { keyspace, database, recent, path: Arc::from(path) })
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

fn open_database(path: &Path, options: &Options) -> Result<(Database, Keyspace), ::fjall::Error> {
    let database = Database::builder(path)
        .cache_size(options.cache_bytes)
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .manual_journal_persist(true)
        .worker_threads(WORKER_THREADS)
        .open()?;
    let keyspace = database.keyspace(KEYSPACE, || {
        KeyspaceCreateOptions::default()
            .manual_journal_persist(true)
            .max_memtable_size(options.memtable_bytes)
    })?;
    Ok((database, keyspace))
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

pub(super) fn io_error(operation: &'static str, path: &Path, reason: String) -> Error {
    Error::Io { path: path.display().to_string(), operation, reason }
}

/// Sorts fjall's errors by what to do about them.
fn sort_error(operation: &'static str, path: &Path, error: ::fjall::Error) -> Error {
    use ::fjall::{Error as Fjall, LsmError};
    let shown = path.display().to_string();
    match error {
        Fjall::Locked => Error::InUse { path: shown },
        Fjall::Io(source) | Fjall::Storage(LsmError::Io(source)) => {
            io_error(operation, path, source.to_string())
        }
        Fjall::Poisoned => io_error(operation, path, "an earlier write failed".to_owned()),
        other => Error::Corrupt { path: shown, reason: other.to_string() },
    }
}

/// As [`sort_error`], for a storage that is open.
fn sort_later_error(operation: &'static str, path: &Path, error: ::fjall::Error) -> Error {
    let error = sort_error(operation, path, error);
    if let Error::Corrupt { reason, .. } = &error {
        note_damage(path, reason);
    }
    error
}

impl Storage for FjallStorage {
    fn apply(&self, batch: Batch) -> Result<(), Error> {
        check(&batch)?;
        // Without a durability: the journal is written when its buffer is full, or by `persist`.
        let mut writes = OwnedWriteBatch::with_capacity(self.database.clone(), batch.ops.len());
        let next = self.recent.begin();
        for op in batch.ops {
            match op {
                Op::Put(key, value) => {
                    let (key, value) = (Slice::from(key), Slice::from(value));
                    next.enter(&key, Some(&value));
                    writes.insert(&self.keyspace, key, value);
                }
                Op::Delete(key) => {
                    let key = Slice::from(key);
                    next.enter(&key, None);
                    writes.remove(&self.keyspace, key);
                }
            }
        }
        writes.commit().map_err(|error| sort_later_error("write to", &self.path, error))?;
        next.applied();
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        self.database
            .persist(PersistMode::SyncAll)
            .map_err(|error| sort_later_error("persist", &self.path, error))
    }

    fn view(&self) -> Box<dyn View + Send + Sync> {
        // In this order: the snapshot has at least the batches that are counted before it.
        let seen = self.recent.applied();
        let snapshot = self.database.snapshot();
        let (keyspace, recent) = (self.keyspace.clone(), Arc::clone(&self.recent));
        Box::new(FjallView { snapshot, keyspace, recent, seen, path: self.path.clone() })
    }
}

struct FjallView {
    snapshot: ::fjall::Snapshot,
    keyspace: Keyspace,
    recent: Arc<RecentWrites>,
    /// The last batch that is certainly in the snapshot.
    seen: u64,
    path: Arc<Path>,
}

impl FjallView {
    fn fail(&self, error: ::fjall::Error) -> ReadError {
        ReadError(sort_later_error("read", &self.path, error).to_string())
    }
}

/// A lower and an upper bound.
type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The range from `from` (inclusive) to `to` (exclusive) in bounds that are no longer than a key,
/// as fjall panics at others, or `None` if no key can be in it.
fn clamp<'a>(from: &'a [u8], to: &'a [u8]) -> Option<KeyRange<'a>> {
    // A key that equals the first part of a longer bound is less than the bound.
    let (start, lower) = match from.get(..KEY_BYTES_MAX) {
        Some(start) if from.len() > KEY_BYTES_MAX => (start, Bound::Excluded(start)),
        _ => (from, Bound::Included(from)),
    };
    let (end, upper) = match to.get(..KEY_BYTES_MAX) {
        Some(end) if to.len() > KEY_BYTES_MAX => (end, Bound::Included(end)),
        _ => (to, Bound::Excluded(to)),
    };
    (start < end).then_some((lower, upper)).or_else(|| {
        // One key can be left between equal parts, if both bounds let it in.
        let both = matches!((lower, upper), (Bound::Included(_), Bound::Included(_)));
        (start == end && both).then_some((lower, upper))
    })
}

impl View for FjallView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        // No key is empty, and fjall does not expect to be asked for one.
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        if let Some(value) = self.recent.get(key, self.seen) {
            return Ok(value.map(|value| value.to_vec()));
        }
        let value = self.snapshot.get(&self.keyspace, key).map_err(|error| self.fail(error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        let Some(range) = clamp(from, to) else { return Ok(()) };
        let mut found = self.snapshot.range::<&[u8], _>(&self.keyspace, range);
        while let Some(guard) = if reverse { found.next_back() } else { found.next() } {
            let (key, value) = guard.into_inner().map_err(|error| self.fail(error))?;
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
