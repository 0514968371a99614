//! Where a replica's state lives, and how a snapshot takes its place.
//!
//! The state is one storage. A snapshot is written into a new one beside it, which then becomes the
//! state in one step that a crash either has made or has not. What a crash leaves over is removed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::storage::{Error, LsmStorage, MemoryStorage, Storage};

/// An empty storage beside the state, to be filled and adopted. Several can be begun at the same
/// time: the number says which one it is.
pub struct Begun {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// Its number in its home.
    pub number: u64,
}

/// The place of a replica's state.
pub trait StorageHome: Send + Sync + 'static {
    /// Opens the state; an empty one if there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    fn open(&self) -> Result<Arc<dyn Storage>, Error>;

    /// An empty storage beside the state, and beside others that were begun: one of them may just be
    /// becoming the state. Those that are not adopted are removed when the home is opened again.
    ///
    /// # Errors
    /// When it cannot be written.
    fn begin(&self) -> Result<Begun, Error>;

    /// Makes this storage durable, and then the state.
    ///
    /// # Errors
    /// Every error is fatal: which of the two is the state is known after a restart only.
    fn adopt(&self, begun: &Begun) -> Result<(), Error>;
}

/// The name of the file that says which directory is the state.
const CURRENT: &str = "current";

/// Directories `state-<number>`, and a file that names the one that counts.
#[derive(Debug)]
pub struct DirectoryHome {
    directory: PathBuf,
    /// The numbers of the state and of what was begun last.
    numbers: Mutex<(u64, u64)>,
}

impl DirectoryHome {
    /// The home in this directory, which is made if it is not there. The caller holds its lock.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn new(directory: PathBuf) -> Result<Self, Error> {
        let home = Self { directory, numbers: Mutex::new((0, 0)) };
        let number = home.read_current().map_err(|error| home.fail("open", &error))?;
        *home.lock() = (number, number);
        Ok(home)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (u64, u64)> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, operation: &'static str, error: &io::Error) -> Error {
        let path = self.directory.display().to_string();
        match error.kind() {
            io::ErrorKind::InvalidData => Error::Corrupt { path, reason: error.to_string() },
            _ => Error::Io { path, operation, reason: error.to_string() },
        }
    }

    fn read_current(&self) -> io::Result<u64> {
        fs::create_dir_all(&self.directory)?;
        match fs::read_to_string(self.directory.join(CURRENT)) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let text = text.escape_debug();
                io::Error::new(io::ErrorKind::InvalidData, format!("`{CURRENT}` says `{text}`"))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.write_current(1)?;
                Ok(1)
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the file in one step, durably.
    fn write_current(&self, number: u64) -> io::Result<()> {
        let fresh = self.directory.join("current.new");
        let mut file = File::create(&fresh)?;
        writeln!(file, "{number}")?;
        file.sync_all()?;
        fs::rename(fresh, self.directory.join(CURRENT))?;
        File::open(&self.directory)?.sync_all()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("state-{number}"))
    }

    /// Removes every storage but the one with this number.
    fn remove_others(&self, kept: u64) -> io::Result<()> {
        let kept = self.path(kept);
        for found in fs::read_dir(&self.directory)? {
            let path = found?.path();
            if path != kept && is_storage(&path) {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }
}

fn is_storage(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("state-")) && path.is_dir()
}

impl StorageHome for DirectoryHome {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        let (current, _) = *self.lock();
        self.remove_others(current).map_err(|error| self.fail("open", &error))?;
        Ok(Arc::new(LsmStorage::open(&self.path(current))?))
    }

    fn begin(&self) -> Result<Begun, Error> {
        let mut numbers = self.lock();
        // A storage that was begun before may still be open: it goes with the next open.
        numbers.1 += 1;
        let path = self.path(numbers.1);
        if path.is_dir() {
            fs::remove_dir_all(&path).map_err(|error| self.fail("write to", &error))?;
        }
        Ok(Begun { storage: Arc::new(LsmStorage::open(&path)?), number: numbers.1 })
    }

    fn adopt(&self, begun: &Begun) -> Result<(), Error> {
        begun.storage.persist()?;
        let mut numbers = self.lock();
        self.write_current(begun.number).map_err(|error| self.fail("write to", &error))?;
        numbers.0 = begun.number;
        Ok(())
    }
}

/// A home in memory, for tests and the simulation. It outlives the nodes that use it.
#[derive(Debug, Clone, Default)]
pub struct MemoryHome {
    storages: Arc<Mutex<MemoryStorages>>,
}

/// The state, and what was begun beside it, by number.
#[derive(Debug, Default)]
struct MemoryStorages {
    state: MemoryStorage,
    begun: BTreeMap<u64, MemoryStorage>,
    last_number: u64,
}

impl MemoryHome {
    /// The state as it is now, to cut its power.
    #[must_use]
    pub fn storage(&self) -> MemoryStorage {
        self.lock().state.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, MemoryStorages> {
        self.storages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageHome for MemoryHome {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        let mut storages = self.lock();
        storages.begun.clear();
        Ok(Arc::new(storages.state.clone()))
    }

    fn begin(&self) -> Result<Begun, Error> {
        let mut storages = self.lock();
        storages.last_number += 1;
        let (number, storage) = (storages.last_number, MemoryStorage::new());
        storages.begun.insert(number, storage.clone());
        Ok(Begun { storage: Arc::new(storage), number })
    }

    fn adopt(&self, begun: &Begun) -> Result<(), Error> {
        begun.storage.persist()?;
        let mut storages = self.lock();
        if let Some(storage) = storages.begun.remove(&begun.number) {
            storages.state = storage;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use partition::{Batch, Op};

    use super::*;

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

    #[test]
    fn what_is_begun_counts_only_when_it_is_adopted() {
        let folder = tempfile::tempdir().unwrap();
        let open = || DirectoryHome::new(folder.path().to_owned()).unwrap();
        let home = open();
        let state = home.open().unwrap();
        put(&*state, b"old");
        state.persist().unwrap();
        let begun = home.begin().unwrap();
        put(&*begun.storage, b"new");
        drop((state, begun));
        let home = open();
        let state = home.open().unwrap();
        assert_eq!(keys(&*state), [b"old"]);
        let begun = home.begin().unwrap();
        assert!(keys(&*begun.storage).is_empty(), "what was begun before is not continued");
        put(&*begun.storage, b"new");
        home.adopt(&begun).unwrap();
        drop((state, begun));
        assert_eq!(keys(&*open().open().unwrap()), [b"new"]);
        let folders = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(folders, 2, "the state and the file that names it");
    }

    /// A leader that heard nothing begins to send its snapshot again while the first one is being
    /// installed.
    #[test]
    fn what_is_adopted_is_what_was_meant_and_not_what_was_begun_last() {
        fn check(home: &dyn StorageHome) {
            let meant = home.begin().unwrap();
            put(&*meant.storage, b"meant");
            let later = home.begin().unwrap();
            put(&*later.storage, b"half");
            home.adopt(&meant).unwrap();
            drop((meant, later));
        }
        let folder = tempfile::tempdir().unwrap();
        let open = || DirectoryHome::new(folder.path().to_owned()).unwrap();
        check(&open());
        assert_eq!(keys(&*open().open().unwrap()), [b"meant"]);
        let home = MemoryHome::default();
        check(&home);
        assert_eq!(keys(&*home.open().unwrap()), [b"meant"]);
    }

    #[test]
    fn a_damaged_pointer_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CURRENT), "seven").unwrap();
        let error = DirectoryHome::new(folder.path().to_owned()).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}
