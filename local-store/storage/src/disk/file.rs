//! The real disk: files in one directory, which only their owner can access.
//!
//! A [`FileDisk`] keeps the directory's exclusive lock until it is dropped. It retries only one
//! operation: opening a file while no file descriptor is available.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::descriptors::wait_for_one;
use super::{Disk, DiskFile, Error, ErrorKind, Operation};

/// An empty file, whose exclusive lock protects the entire data directory.
const LOCK_FILE: &str = "lock";

/// The buffer of zeros for new files. It is large enough for few system calls, and small enough for
/// a process with several nodes.
static ZERO_CHUNK: [u8; 64 * 1024] = [0; 64 * 1024];

/// A directory on a real file system, with its exclusive lock.
///
/// Clones and [`FileDisk::subdirectory`] share one lock, released when the last of them is dropped.
#[derive(Debug, Clone)]
pub struct FileDisk {
    directory: PathBuf,
    /// The lock; `None` if another object holds it.
    lock: Option<Arc<File>>,
}

impl FileDisk {
    /// Creates the directory if necessary (mode 0700), and acquires its lock.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InUse`] if this process or another process already holds the lock.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = directory.into();
        create_directory(&directory)?;
        let path = directory.join(LOCK_FILE);
        let fail = |source| Error::new(Operation::Lock, path.display().to_string(), source);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = wait_for_one(|| options.open(&path)).map_err(fail)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error {
                kind: ErrorKind::InUse,
                operation: Operation::Lock,
                file: directory.display().to_string(),
                source: io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "another process uses this data directory",
                ),
            },
            TryLockError::Error(source) => fail(source),
        })?;
        Ok(FileDisk { directory, lock: Some(Arc::new(file)) })
    }

    /// Opens a subdirectory of this directory, under the same lock, and creates it if necessary.
    ///
    /// The name is durable when this function returns.
    pub fn subdirectory(&self, name: &str) -> Result<Self, Error> {
        let directory = self.directory.join(name);
        create_directory(&directory)?;
        Ok(FileDisk { directory, lock: self.lock.clone() })
    }

    /// Returns an existing directory, whose users hold `lock`; `None` if another object holds it.
    #[must_use]
    pub fn of_owner(directory: PathBuf, lock: Option<Arc<File>>) -> Self {
        FileDisk { directory, lock }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    fn locate(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Creates a directory and its parents with mode 0700 unless they exist, and makes each new name
/// durable.
fn create_directory(directory: &Path) -> Result<(), Error> {
    if directory.is_dir() {
        return Ok(());
    }
    // The parent of a relative path with one element is empty, which means the working directory.
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_directory(parent)?;
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::new(Operation::Create, directory.display().to_string(), source));
        }
        // If the directory exists, another process may have created it without a sync, so the
        // parent is synced in any case.
        _ => {}
    }
    sync(parent)
}

/// Syncs a directory, which makes its names durable.
fn sync(directory: &Path) -> Result<(), Error> {
    let opened = wait_for_one(|| File::open(directory));
    opened.and_then(|opened| opened.sync_all()).map_err(|source| {
        Error::new(Operation::SyncDirectory, directory.display().to_string(), source)
    })
}

/// Returns the options that create a new file, which only its owner can access.
fn creation() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create_new(true).read(true).write(true).mode(0o600);
    options
}

/// An open file of a [`FileDisk`].
#[derive(Debug)]
struct OpenFile {
    file: File,
    /// The path for error messages.
    path: PathBuf,
}

impl OpenFile {
    fn fail(&self, operation: Operation) -> impl FnOnce(io::Error) -> Error + '_ {
        fail(operation, &self.path)
    }
}

fn fail(operation: Operation, path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |source| Error::new(operation, path.display().to_string(), source)
}

impl Disk for FileDisk {
    /// Writes zeros instead of only reserving the space: later writes then overwrite allocated
    /// blocks in place, so that `sync_data` has no metadata to commit.
    fn create(&self, name: &str, size_bytes: u64) -> Result<Box<dyn DiskFile>, Error> {
        let path = self.locate(name);
        let fill = |file: &File| -> io::Result<()> {
            let mut offset = 0;
            while offset < size_bytes {
                let rest = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
                let chunk = ZERO_CHUNK.get(..rest).unwrap_or(&ZERO_CHUNK);
                file.write_all_at(chunk, offset)?;
                offset += chunk.len() as u64;
            }
            file.sync_all()
        };
        let options = creation();
        let file = wait_for_one(|| options.open(&path)).map_err(fail(Operation::Create, &path))?;
        if let Err(source) = fill(&file) {
            // The first error is reported. If the incomplete file cannot be removed either, the
            // next start recognises it by its size.
            let _ = fs::remove_file(&path);
            return Err(fail(Operation::Create, &path)(source));
        }
        Ok(Box::new(OpenFile { file, path }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        let path = self.locate(name);
        let file = wait_for_one(|| OpenOptions::new().read(true).write(true).open(&path))
            .map_err(fail(Operation::Open, &path))?;
        Ok(Box::new(OpenFile { file, path }))
    }

    fn create_empty(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        let path = self.locate(name);
        let file = creation().open(&path).map_err(fail(Operation::Create, &path))?;
        Ok(Box::new(OpenFile { file, path }))
    }

    fn open_to_read(&self, name: &str) -> Result<Box<dyn DiskFile>, Error> {
        let path = self.locate(name);
        let file = File::open(&path).map_err(fail(Operation::Open, &path))?;
        Ok(Box::new(OpenFile { file, path }))
    }

    fn list(&self) -> Result<Vec<String>, Error> {
        let read = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for found in wait_for_one(|| fs::read_dir(&self.directory))? {
                let found = found?;
                let name = found.file_name();
                if let Some(name) = name.to_str().filter(|name| *name != LOCK_FILE)
                    && found.file_type()?.is_file()
                {
                    names.push(name.to_owned());
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        read().map_err(|source| {
            Error::new(Operation::List, self.directory.display().to_string(), source)
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let path = self.locate(from);
        fs::rename(&path, self.locate(to)).map_err(fail(Operation::Rename, &path))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.locate(name);
        fs::remove_file(&path).map_err(fail(Operation::Remove, &path))
    }

    fn sync_directory(&self) -> Result<(), Error> {
        sync(&self.directory)
    }
}

impl DiskFile for OpenFile {
    fn size_bytes(&self) -> Result<u64, Error> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(self.fail(Operation::Size))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.file.read_exact_at(buffer, offset).map_err(self.fail(Operation::Read))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all_at(bytes, offset).map_err(self.fail(Operation::Write))
    }

    fn append(&self, bytes: &[u8]) -> Result<(), Error> {
        self.write_at(self.size_bytes()?, bytes)
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(self.fail(Operation::SyncData))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn written_bytes_survive_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(directory.path().join("data")).unwrap();
        let file = disk.create("a", 100_000).unwrap();
        assert_eq!(file.size_bytes().unwrap(), 100_000);
        file.write_at(99_990, b"0123456789").unwrap();
        file.sync_data().unwrap();
        assert_eq!(disk.create("a", 1).unwrap_err().kind, ErrorKind::Name);
        disk.rename("a", "b").unwrap();
        disk.create("c", 0).unwrap();
        disk.sync_directory().unwrap();
        assert_eq!(disk.list().unwrap(), ["b", "c"]);
        disk.remove("c").unwrap();
        assert_eq!(disk.open("c").unwrap_err().kind, ErrorKind::Name);
        let mut read = [0; 10];
        let file = disk.open("b").unwrap();
        file.read_at(99_990, &mut read).unwrap();
        assert_eq!(&read, b"0123456789");
        assert!(file.read_at(99_991, &mut read).unwrap_err().is_fatal());
    }

    #[test]
    fn files_belong_to_their_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(directory.path().join("data")).unwrap();
        let below = disk.subdirectory("log").unwrap();
        below.create("segment", 10).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(disk.path()), 0o700);
        assert_eq!(mode(below.path()), 0o700);
        assert_eq!(mode(&below.path().join("segment")), 0o600);
        assert_eq!(mode(&disk.path().join(LOCK_FILE)), 0o600);
    }

    #[test]
    fn a_directory_has_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let first = FileDisk::open(directory.path()).unwrap();
        let below = first.subdirectory("log").unwrap();
        for _ in 0..2 {
            let refused = FileDisk::open(directory.path()).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::InUse);
            let message = refused.to_string();
            assert!(message.contains("choose another data directory"), "{message}");
        }
        drop(first);
        assert!(FileDisk::open(directory.path()).is_err(), "the subdirectory keeps the lock");
        drop(below);
        FileDisk::open(directory.path()).unwrap();
    }
}
