//! A directory of files that the engine writes itself, on a real or on a simulated disk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use locks::Mutex;

use crate::disk::{Disk, DiskFile, SplitMix64};

/// A directory of files.
#[derive(Debug)]
pub(super) struct Folder {
    disk: Arc<dyn Disk>,
    /// The path for error messages.
    path: PathBuf,
    salts: Salts,
}

/// The source of the random parts of file names.
#[derive(Debug)]
pub(super) enum Salts {
    /// The operating system.
    System,
    /// A seed, for simulations.
    Seeded(Mutex<SplitMix64>),
}

impl Folder {
    /// Creates the folder for the files of a disk. Error messages contain `path`.
    pub(super) fn new(disk: Arc<dyn Disk>, path: PathBuf, salts: Salts) -> Arc<Self> {
        Arc::new(Self { disk, path, salts })
    }

    /// Returns the path of a file for error messages.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns a random number for a new file's name.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub(super) fn salt(&self) -> io::Result<u64> {
        match &self.salts {
            Salts::System => {
                let mut salt = [0; 8];
                getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
                Ok(u64::from_be_bytes(salt))
            }
            Salts::Seeded(random) => Ok(random.lock().next_u64()),
        }
    }

    /// Creates an empty file, which must not exist.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(super) fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.disk.create_empty(name)?)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.disk.open_to_read(name)?)
    }

    /// Returns the names of all files, ascending.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.list()?)
    }

    /// Removes a file, if it exists.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match self.disk.remove(name).map_err(io::Error::from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Renames a file, and replaces an existing file with the name `to`.
    ///
    /// # Errors
    /// When the file cannot be renamed.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(self.disk.rename(from, to)?)
    }

    /// Makes all created and removed names survive a power loss.
    ///
    /// # Errors
    /// When the sync fails.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(self.disk.sync_directory()?)
    }
}
