//! A directory of storages and small files, on a real or on a simulated disk.
//!
//! The module does not decide which storage is used: see `StateLocation` of the crate `node`.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::home::sync_parent;
use super::{LsmStorage, Options};
use crate::disk::descriptors::wait_for_one;
use crate::disk::{Disk, FileDisk, SimulatedDisk};
use crate::error::Error;

/// A directory of storages.
#[derive(Clone, Debug)]
pub enum StorageFolder {
    /// A real directory.
    Directory(FileDisk),
    /// A directory of a simulated disk.
    Simulated(SimulatedDisk),
}

impl StorageFolder {
    fn files(&self) -> &dyn Disk {
        match self {
            Self::Directory(disk) => disk,
            Self::Simulated(disk) => disk,
        }
    }

    /// Returns the path of a name for error messages. The empty name is the directory itself.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        match self {
            Self::Directory(disk) if name.is_empty() => disk.path().to_owned(),
            Self::Directory(disk) => disk.path().join(name),
            Self::Simulated(_) => PathBuf::from(name),
        }
    }

    /// Returns the names of all storages, complete or not, ascending.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let disk = match self {
            Self::Simulated(disk) => return Ok(disk.subdirectories()?),
            Self::Directory(disk) => disk,
        };
        let mut names = Vec::new();
        for entry in wait_for_one(|| fs::read_dir(disk.path()))? {
            let entry = entry?;
            // Follows symbolic links, because a storage may be on another disk.
            if entry.path().is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens the storage with this name, or creates it.
    ///
    /// # Errors
    /// The errors of [`LsmStorage::open_with`] and [`LsmStorage::open_simulated`].
    pub fn open(&self, name: &str, options: &Options) -> Result<LsmStorage, Error> {
        match self {
            Self::Directory(disk) => LsmStorage::open_with(&disk.path().join(name), options),
            Self::Simulated(disk) => LsmStorage::open_simulated(disk, name, options),
        }
    }

    /// Removes the storage with this name, if there is one, and its record of damage.
    ///
    /// # Errors
    /// When a part of the storage cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Directory(disk) => LsmStorage::remove(&disk.path().join(name)),
            Self::Simulated(disk) => LsmStorage::remove_simulated(disk, name),
        }
    }

    /// Returns the content of a file, or `None` if there is no such file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_file(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let opened = wait_for_one(|| self.files().open_to_read(name).map_err(io::Error::from));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = vec![0; usize::try_from(file.size_bytes()?).unwrap_or(usize::MAX)];
        file.read_at(0, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces the content of a file atomically and durably, or creates the file. A file with the
    /// additional extension `new` is incomplete and is overwritten.
    ///
    /// # Errors
    /// When the file cannot be written. It then has the old or the new content.
    pub fn replace_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (files, fresh) = (self.files(), format!("{name}.new"));
        match files.remove(&fresh).map_err(io::Error::from) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = wait_for_one(|| files.create_empty(&fresh).map_err(io::Error::from))?;
        file.append(bytes)?;
        file.sync_data()?;
        files.rename(&fresh, name)?;
        Ok(files.sync_directory()?)
    }

    /// Makes the directory's own name survive a power loss. A simulated directory has no name that
    /// could be lost.
    ///
    /// # Errors
    /// When the sync fails.
    pub fn sync_name(&self) -> io::Result<()> {
        match self {
            Self::Directory(disk) => sync_parent(disk.path()),
            Self::Simulated(_) => Ok(()),
        }
    }
}
