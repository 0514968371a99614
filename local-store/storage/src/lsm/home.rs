//! The directory of a storage: its lock, its removal, and the record of its damage.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use locks::Mutex;

use super::LsmStorage;
use super::errors::io_error;
use super::folder::{Folder, Salts};
use super::queue;
use crate::disk::{FileDisk, SimulatedDisk, SplitMix64, descriptors};
use crate::error::Error;

/// The file that is locked while the storage is open.
const LOCK_FILE: &str = "lock";

/// The extension of the file that records damage.
const DAMAGED: &str = "damaged";

/// The maximum number of attempts to acquire the lock. The next constant is the pause between two
/// attempts. All attempts together take a tenth of a second.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The place of an open storage.
pub(super) struct Home {
    path: PathBuf,
    place: Place,
    /// Whether the storage is removed when the last user drops it.
    is_temporary: Arc<AtomicBool>,
    record: DamageRecord,
    /// The folder of the queue files. It holds the lock of the directory until the last view is
    /// dropped. Tables are opened by path, so without the lock a view could read the tables of a
    /// newer storage at the same path.
    queues: Arc<Folder>,
}

enum Place {
    /// The open directory, which stays the same even if its path is renamed.
    Directory(File),
    /// The simulated disk that has the storage as a subdirectory.
    Simulated(SimulatedDisk),
}

impl Home {
    /// Locks an existing directory.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Io`].
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let fail_io = |source: io::Error| io_error("open", path, &source);
        let disk = FileDisk::of_owner(path.to_owned(), Some(Arc::new(lock(path)?)));
        let queues = disk.subdirectory(queue::FOLDER).map_err(|error| fail_io(error.into()))?;
        let folder = path.join(queue::FOLDER);
        Ok(Self {
            path: path.to_owned(),
            place: Place::Directory(File::open(path).map_err(fail_io)?),
            is_temporary: Arc::default(),
            record: DamageRecord::beside(path),
            queues: Folder::new(Arc::new(queues), folder, Salts::System),
        })
    }

    /// Returns the place of the storage with this name on a simulated disk.
    pub(super) fn simulated(disk: &SimulatedDisk, name: &str) -> Self {
        let path = PathBuf::from(name);
        Self {
            queues: simulated_folder(&disk.subdirectory(name), queue::FOLDER, &path),
            path,
            place: Place::Simulated(disk.clone()),
            is_temporary: Arc::default(),
            record: DamageRecord::simulated(disk, name),
        }
    }

    /// Returns whether a failed read can be damage: false if a simulated machine lost its power, or
    /// a simulated process was killed.
    pub(super) fn is_reachable(&self) -> bool {
        match &self.place {
            Place::Directory(_) => true,
            Place::Simulated(disk) => disk.is_reachable(),
        }
    }

    /// Returns the path for error messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the queue files.
    pub(super) fn queues(&self) -> &Arc<Folder> {
        &self.queues
    }

    /// Returns the flag that decides whether the last user removes the directory.
    pub(super) fn is_temporary(&self) -> &Arc<AtomicBool> {
        &self.is_temporary
    }

    /// Returns the record of damage.
    pub(super) fn record(&self) -> &DamageRecord {
        &self.record
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_temporary.load(Ordering::Acquire) {
            return;
        }
        let removed = match &self.place {
            Place::Directory(directory) => remove_same(directory, &self.path),
            Place::Simulated(disk) => {
                LsmStorage::remove_simulated(disk, &self.path.to_string_lossy())
            }
        };
        if let Err(error) = removed {
            let path = self.path.display();
            tracing::warn!(%error, %path, "cannot remove an unused storage; the next start removes it");
        }
    }
}

/// Removes the storage in `path`, unless a restarted node has removed the directory and created a
/// new one at the same path.
fn remove_same(directory: &File, path: &Path) -> io::Result<()> {
    let id = |found: fs::Metadata| (found.dev(), found.ino());
    let is_same = directory.metadata().and_then(|own| Ok(id(own) == id(fs::metadata(path)?)));
    if matches!(is_same, Ok(true)) { LsmStorage::remove(path) } else { Ok(()) }
}

/// Returns a folder of a storage on a simulated disk.
pub(super) fn simulated_folder(disk: &SimulatedDisk, name: &str, path: &Path) -> Arc<Folder> {
    let salts = Salts::Seeded(Mutex::new(SplitMix64::new(disk.operations())));
    Folder::new(Arc::new(disk.subdirectory(name)), path.join(name), salts)
}

/// The file beside a storage that records its damage, so that the storage is not opened again.
pub(super) struct DamageRecord {
    folder: Arc<Folder>,
    name: String,
}

impl DamageRecord {
    /// Returns the record of the storage in a directory.
    pub(super) fn beside(path: &Path) -> Self {
        let disk = FileDisk::of_owner(parent_of(path).to_owned(), None);
        let folder = Folder::new(Arc::new(disk), parent_of(path).to_owned(), Salts::System);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self { folder, name: format!("{name}.{DAMAGED}") }
    }

    /// Returns the record of the storage with this name on a simulated disk.
    pub(super) fn simulated(disk: &SimulatedDisk, name: &str) -> Self {
        let folder = Folder::new(Arc::new(disk.clone()), PathBuf::new(), Salts::System);
        Self { folder, name: format!("{name}.{DAMAGED}") }
    }

    /// Returns the recorded damage, or `None` if the storage is sound.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub(super) fn read(&self) -> io::Result<Option<String>> {
        let file = match self.folder.open(&self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut reason = vec![0; usize::try_from(file.size_bytes()?).unwrap_or(usize::MAX)];
        file.read_at(0, &mut reason)?;
        Ok(Some(String::from_utf8_lossy(&reason).into_owned()))
    }

    /// Records damage, unless it is recorded already.
    pub(super) fn note(&self, reason: &str) {
        let is_created = Cell::new(false);
        let write = || {
            let file = match self.folder.create(&self.name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // An attempt that created the file may have failed to sync the folder.
                    return if is_created.get() { self.folder.sync() } else { Ok(()) };
                }
                created => created?,
            };
            is_created.set(true);
            file.append(reason.as_bytes())?;
            file.sync_data()?;
            self.folder.sync()
        };
        if let Err(error) = descriptors::wait_for_one(write) {
            // The damage persists, so a later read will find it again.
            tracing::error!(%error, reason, "cannot record the damage of a storage");
        }
    }

    /// Removes the record, if there is one.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.folder.remove(&self.name)
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
pub(super) fn make_empty_directory(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        fs::remove_dir_all(path)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the name of a directory survive a power loss.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    descriptors::wait_for_one(|| File::open(parent_of(path)))?.sync_all()
}

/// Returns the parent directory. The parent of a relative path with one element is the working
/// directory.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
