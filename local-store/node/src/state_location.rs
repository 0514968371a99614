//! The location of a replica's state, and its replacement by a snapshot.
//!
//! The state is one storage. A snapshot is written into a separate, staged storage, which then
//! becomes the state in one atomic step. Other storages are removed when their last user drops
//! them, or at the next start after a crash.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use locks::Mutex;
use partition::mutation::{self, Mutation};
use storage::{Error, LsmOptions, MemoryStorage, Storage, StorageFolder};

/// An empty storage beside the state. It is filled with a snapshot and then adopted as the state.
/// Several staged storages can exist at the same time.
pub struct StagedStorage {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// The number of the storage in its location.
    pub number: u64,
}

/// The location of a replica's state.
pub trait StateLocation: Send + Sync + 'static {
    /// Opens the state, or creates an empty one.
    ///
    /// # Errors
    /// When the state cannot be read, or is damaged.
    fn open(&self) -> Result<Arc<dyn Storage>, Error>;

    /// Creates an empty storage beside the state and other staged storages. Another staged storage
    /// may be adopted at the same time. A storage that is not adopted is removed when its last user
    /// drops it.
    ///
    /// # Errors
    /// When the storage cannot be created.
    fn begin(&self) -> Result<StagedStorage, Error>;

    /// Makes a staged storage durable, and then makes it the state. The previous state is removed
    /// when its last user drops it.
    ///
    /// # Errors
    /// Every error is fatal: only a restart shows which of the two storages is the state.
    fn adopt(&self, staged: &StagedStorage) -> Result<(), Error>;
}

/// The name of the pointer file, which contains the name of the state's directory.
const CURRENT: &str = "current";

/// A location in directories `state-<number>`, with a file that contains the name of the current
/// directory.
pub struct DirectoryLocation {
    folder: StorageFolder,
    options: LsmOptions,
    storages: Mutex<Storages>,
}

impl fmt::Debug for DirectoryLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the states in {}", self.folder.path_of("").display())
    }
}

/// The number of the state, and the staged storages.
#[derive(Default)]
struct Storages {
    state: u64,
    last_staged: u64,
    /// The state, if it is kept open for the next [`StateLocation::open`].
    kept: Option<Arc<dyn Storage>>,
    /// For each open storage, a flag whether its directory is removed when its last user drops it.
    temporary: BTreeMap<u64, Weak<AtomicBool>>,
}

impl Storages {
    /// Decides whether the last user of an open storage removes its directory.
    fn set_temporary(&self, number: u64, is_temporary: bool) {
        if let Some(open) = self.temporary.get(&number).and_then(Weak::upgrade) {
            open.store(is_temporary, Ordering::Release);
        }
    }

    /// Returns whether a storage with this name is open.
    fn is_open(&self, name: &str) -> bool {
        let open = self.temporary.iter().filter(|(_, open)| open.strong_count() > 0);
        open.map(|(number, _)| name_of(*number)).any(|open| open == name)
    }
}

fn name_of(number: u64) -> String {
    format!("state-{number}")
}

impl DirectoryLocation {
    /// Creates a location in this folder, whose lock the caller holds. All storages get the same
    /// options.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn new(folder: StorageFolder, options: LsmOptions) -> Result<Self, Error> {
        let mut location = Self { folder, options, storages: Mutex::default() };
        let number = location.read_current().map_err(|error| location.fail("open", &error))?;
        location.storages =
            Mutex::new(Storages { state: number, last_staged: number, ..Storages::default() });
        Ok(location)
    }

    /// Keeps the state, which was opened to check it, for the next [`StateLocation::open`].
    pub fn keep(&self, state: Arc<dyn Storage>) {
        self.storages.lock().kept = Some(state);
    }

    fn open_storage(
        &self,
        storages: &mut Storages,
        number: u64,
    ) -> Result<Arc<dyn Storage>, Error> {
        let storage = self.folder.open(&name_of(number), &self.options)?;
        let is_temporary = storage.is_temporary();
        is_temporary.store(number != storages.state, Ordering::Release);
        storages.temporary.retain(|_, is_temporary| is_temporary.strong_count() > 0);
        storages.temporary.insert(number, Arc::downgrade(&is_temporary));
        Ok(Arc::new(storage))
    }

    fn fail(&self, operation: &'static str, error: &io::Error) -> Error {
        let path = self.folder.path_of("").display().to_string();
        match error.kind() {
            io::ErrorKind::InvalidData => Error::Corrupt { path, reason: error.to_string() },
            _ => Error::Io { path, operation, reason: error.to_string() },
        }
    }

    fn read_current(&self) -> io::Result<u64> {
        let damaged = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        if let Some(text) = self.folder.read_file(CURRENT)? {
            let text = String::from_utf8_lossy(&text);
            let strange = |_| {
                damaged(format!(
                    "`{CURRENT}` must contain a number, but contains `{}`",
                    text.escape_debug()
                ))
            };
            return text.trim().parse().map_err(strange);
        }
        // The first start writes the pointer file durably before it creates a storage. If there is
        // a storage but no pointer file, the file was lost.
        if let Some(found) = self.find_storages()?.first() {
            let found = self.folder.path_of(found);
            return Err(damaged(format!(
                "`{CURRENT}`, which names the state directory, is missing, but the directory `{}` exists",
                found.display()
            )));
        }
        self.folder.sync_name()?;
        self.write_current(1)?;
        Ok(1)
    }

    /// Replaces the pointer file atomically and durably.
    fn write_current(&self, number: u64) -> io::Result<()> {
        self.folder.replace_file(CURRENT, format!("{number}\n").as_bytes())
    }

    /// Returns the names of storages.
    fn find_storages(&self) -> io::Result<Vec<String>> {
        self.find(|rest| rest.parse::<u64>().is_ok())
    }

    /// Returns the names of storages whose creation was interrupted. They contain no data, because
    /// a directory gets its final name after its storage is complete.
    fn find_half_made(&self) -> io::Result<Vec<String>> {
        self.find(|rest| rest.strip_suffix(".new").is_some_and(|rest| rest.parse::<u64>().is_ok()))
    }

    /// Returns the names `state-<suffix>` for which `is_meant` accepts the suffix.
    fn find(&self, is_meant: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut names = self.folder.names()?;
        names.retain(|name| name.strip_prefix("state-").is_some_and(&is_meant));
        Ok(names)
    }

    /// Removes every storage except storage `kept` and storages that a reader still has open. If storage `kept` is missing but another
    /// storage exists, returns an error and removes nothing: the pointer file is wrong, and the
    /// other storage may be the state.
    fn remove_others(&self, kept: u64, storages: &Storages) -> io::Result<()> {
        self.find_half_made()?.iter().try_for_each(|name| self.folder.remove(name))?;
        let (kept, found) = (name_of(kept), self.find_storages()?);
        if let Some(other) = found.first().filter(|_| !found.contains(&kept)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "`{CURRENT}` names the state directory `{}`, which does not exist; `{}` exists instead",
                    self.folder.path_of(&kept).display(),
                    self.folder.path_of(other).display()
                ),
            ));
        }
        let unused = found.iter().filter(|name| **name != kept && !storages.is_open(name));
        unused.into_iter().try_for_each(|name| self.folder.remove(name))
    }
}

impl StateLocation for DirectoryLocation {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        let mut storages = self.storages.lock();
        if let Some(kept) = storages.kept.take() {
            return Ok(kept);
        }
        let number = storages.state;
        self.remove_others(number, &storages).map_err(|error| self.fail("open", &error))?;
        self.open_storage(&mut storages, number)
    }

    fn begin(&self) -> Result<StagedStorage, Error> {
        let mut storages = self.storages.lock();
        storages.last_staged += 1;
        let number = storages.last_staged;
        let removed = self.folder.remove(&name_of(number));
        removed.map_err(|error| self.fail("write to", &error))?;
        Ok(StagedStorage { storage: self.open_storage(&mut storages, number)?, number })
    }

    fn adopt(&self, staged: &StagedStorage) -> Result<(), Error> {
        if !mutation::is_active(Mutation::AdoptUnpersisted) {
            staged.storage.persist()?;
        }
        let mut storages = self.storages.lock();
        // After a restart, the pointer may name this storage, so it is never removed, even if
        // writing the pointer fails.
        storages.set_temporary(staged.number, false);
        self.write_current(staged.number).map_err(|error| self.fail("write to", &error))?;
        storages.set_temporary(storages.state, true);
        storages.state = staged.number;
        // A storage that is not open has no last user: the previous state, or one that an earlier process had open.
        let removed = self.remove_others(staged.number, &storages);
        removed.map_err(|error| self.fail("remove an earlier state in", &error))
    }
}

/// A location in memory, for tests and the simulation. The location outlives the nodes that use it,
/// as a disk does.
#[derive(Debug, Clone, Default)]
pub struct MemoryLocation {
    storages: Arc<Mutex<MemoryStorages>>,
}

/// The number of the state, and the staged storages.
#[derive(Debug, Default)]
struct MemoryStorages {
    state: MemoryStorage,
    staged: BTreeMap<u64, MemoryStorage>,
    last_number: u64,
}

impl MemoryLocation {
    /// Returns the storage of the current state, so that a test can cut its power.
    #[must_use]
    pub fn storage(&self) -> MemoryStorage {
        self.lock().state.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, MemoryStorages> {
        self.storages.lock()
    }
}

impl StateLocation for MemoryLocation {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        let mut storages = self.lock();
        storages.staged.clear();
        if storages.state.has_known_damage() {
            let (path, reason) = ("state".to_owned(), "a read found damage".to_owned());
            return Err(Error::Corrupt { path, reason });
        }
        Ok(Arc::new(storages.state.clone()))
    }

    fn begin(&self) -> Result<StagedStorage, Error> {
        let mut storages = self.lock();
        storages.last_number += 1;
        let (number, storage) = (storages.last_number, MemoryStorage::new());
        storages.staged.insert(number, storage.clone());
        Ok(StagedStorage { storage: Arc::new(storage), number })
    }

    fn adopt(&self, staged: &StagedStorage) -> Result<(), Error> {
        staged.storage.persist()?;
        let mut storages = self.lock();
        if let Some(storage) = storages.staged.remove(&staged.number) {
            storages.state = storage;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests use real directories")]
mod tests {
    use std::fs;
    use std::ops::ControlFlow;
    use std::path::Path;

    use partition::{Batch, Op};
    use storage::BlockCache;
    use storage::disk::FileDisk;

    use super::*;

    fn at(directory: &Path) -> Result<DirectoryLocation, Error> {
        fs::create_dir_all(directory).unwrap();
        let folder = StorageFolder::Directory(FileDisk::of_owner(directory.to_owned(), None));
        DirectoryLocation::new(folder, LsmOptions::with_cache(BlockCache::with_bytes(1 << 20)))
    }

    fn keys(storage: &dyn Storage) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let view = storage.view();
        view.scan(&[0], &[255], false, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        keys
    }

    fn put(storage: &dyn Storage, key: &[u8]) {
        storage.apply(&Batch { ops: vec![Op::Put(key.to_vec(), [].into())] }).unwrap();
    }

    /// Goal: if the pointer file names a missing state, no storage is removed.
    #[test]
    fn a_pointer_to_a_missing_state_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let location = at(folder.path()).unwrap();
        let state = location.open().unwrap();
        put(&*state, b"kept");
        state.persist().unwrap();
        drop((state, location));
        fs::write(folder.path().join(CURRENT), "3\n").unwrap();
        let location = at(folder.path()).unwrap();
        assert!(matches!(location.open(), Err(Error::Corrupt { .. })));
        fs::write(folder.path().join(CURRENT), "1\n").unwrap();
        let location = at(folder.path()).unwrap();
        assert_eq!(keys(&*location.open().unwrap()), [b"kept"]);
    }

    /// Goal: a crash during the creation of the first storage, or of another one, has no effect on
    /// the next start.
    #[test]
    fn an_incomplete_storage_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let open = || at(folder.path()).unwrap();
        drop(open());
        let half = |number: u64| {
            let path = folder.path().join(format!("state-{number}.new"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("lock"), "").unwrap();
            path
        };
        let first = half(1);
        let state = open().open().unwrap();
        assert!(!first.exists());
        put(&*state, b"kept");
        state.persist().unwrap();
        drop(state);
        let other = half(2);
        assert_eq!(keys(&*open().open().unwrap()), [b"kept"]);
        assert!(!other.exists());
    }

    #[test]
    fn a_staged_storage_counts_only_when_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let open = || at(folder.path()).unwrap();
        let location = open();
        let state = location.open().unwrap();
        put(&*state, b"old");
        state.persist().unwrap();
        let staged = location.begin().unwrap();
        put(&*staged.storage, b"new");
        drop((state, staged));
        let location = open();
        let state = location.open().unwrap();
        assert_eq!(keys(&*state), [b"old"]);
        let staged = location.begin().unwrap();
        assert!(keys(&*staged.storage).is_empty(), "an earlier staged storage is not reused");
        put(&*staged.storage, b"new");
        location.adopt(&staged).unwrap();
        drop((state, staged));
        assert_eq!(keys(&*open().open().unwrap()), [b"new"]);
        let folders = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(folders, 2, "only the state and the file that names it remain");
    }

    #[test]
    fn states_that_are_not_open_are_removed_when_another_is_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let location = at(folder.path()).unwrap();
        put(&*location.open().unwrap(), b"old");
        // An earlier process ended while it had this storage open.
        fs::create_dir(folder.path().join("state-7")).unwrap();
        let staged = location.begin().unwrap();
        location.adopt(&staged).unwrap();
        let folders = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(folders, 2, "only the state and the file that names it remain");
    }

    #[test]
    fn unused_storages_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let is_there = |number: u64| folder.path().join(format!("state-{number}")).is_dir();
        let location = at(folder.path()).unwrap();
        let state = location.open().unwrap();
        put(&*state, b"old");
        state.persist().unwrap();
        let aborted = location.begin().unwrap();
        assert!(is_there(2));
        drop(aborted);
        assert!(!is_there(2), "it was not adopted");
        let staged = location.begin().unwrap();
        put(&*staged.storage, b"new");
        location.adopt(&staged).unwrap();
        let view = state.view();
        drop(state);
        assert!(view.get(b"old").unwrap().is_some());
        assert!(is_there(1), "a view still reads the previous state");
        drop((view, staged));
        assert!(!is_there(1) && is_there(3));
        assert_eq!(keys(&*location.open().unwrap()), [b"new"]);
        assert!(is_there(3), "a state that is not open is kept");
    }

    #[test]
    fn dropping_an_old_storage_removes_no_newer_one() {
        let folder = tempfile::tempdir().unwrap();
        let open = || at(folder.path()).unwrap();
        let earlier = open();
        drop(earlier.open().unwrap());
        let earlier = earlier.begin().unwrap();
        let location = open();
        let state = location.open().unwrap();
        let staged = location.begin().unwrap();
        assert_eq!(staged.number, earlier.number);
        put(&*staged.storage, b"new");
        drop(earlier);
        location.adopt(&staged).unwrap();
        drop((state, staged));
        assert_eq!(keys(&*open().open().unwrap()), [b"new"]);
    }

    /// Goal: a state is never removed because the pointer is missing.
    #[test]
    fn a_missing_pointer_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("arc-0");
        let open = || at(&directory);
        let state = open().unwrap().open().unwrap();
        put(&*state, b"old");
        state.persist().unwrap();
        drop(state);
        fs::remove_file(directory.join(CURRENT)).unwrap();
        let error = open().unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(directory.join("state-1").is_dir());
        fs::remove_dir_all(directory.join("state-1")).unwrap();
        assert!(open().is_ok(), "the process died before it created a storage");
    }

    /// Case: a leader gets no response and sends its snapshot again, while the first snapshot is
    /// being installed.
    #[test]
    fn the_given_storage_is_adopted_not_the_last_staged_one() {
        fn check(location: &dyn StateLocation) {
            let meant = location.begin().unwrap();
            put(&*meant.storage, b"meant");
            let later = location.begin().unwrap();
            put(&*later.storage, b"half");
            location.adopt(&meant).unwrap();
            drop((meant, later));
        }
        let folder = tempfile::tempdir().unwrap();
        let open = || at(folder.path()).unwrap();
        check(&open());
        assert_eq!(keys(&*open().open().unwrap()), [b"meant"]);
        let location = MemoryLocation::default();
        check(&location);
        assert_eq!(keys(&*location.open().unwrap()), [b"meant"]);
    }

    #[test]
    fn a_damaged_pointer_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CURRENT), "seven").unwrap();
        let error = at(folder.path()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}
