//! A directory of files for the log and the engine: create, read, write, sync, rename, remove.
//!
//! The module does not interpret the files, keeps no cache and starts no thread. [`FileDisk`] is a
//! real directory; [`SimulatedDisk`] is a directory in memory whose power can be cut.
//!
//! Both fulfil this contract, on which all callers rely:
//!
//! - Bytes of [`DiskFile::write_at`] survive a power loss only after [`DiskFile::sync_data`] of
//!   that file. Until the sync, each 512-byte sector of these bytes may have the old or the new
//!   content.
//! - Bytes of [`DiskFile::append`] survive only after the same sync. Until the sync, the file may
//!   have any length from its synced length on, and zeros in place of appended bytes.
//! - A creation, renaming or removal of a name survives a power loss only after
//!   [`Disk::sync_directory`].
//! - After a failed sync, the bytes written since the last successful sync are in an unknown state.
//!   The kernel may have marked them clean, so the success of a second sync proves nothing (Rebello
//!   et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020). Such an error is
//!   fatal: see [`Error::is_fatal`].

mod damage;
pub mod descriptors;
mod error;
mod file;
mod simulated;
mod simulated_state;
#[cfg(test)]
mod simulated_tests;
mod splitmix;

pub use damage::Damage;
pub use error::{Error, ErrorKind, Operation};
pub use file::FileDisk;
pub use simulated::{Fault, PowerCut, SimulatedDisk};
pub use splitmix::SplitMix64;

use std::fmt;

/// The size in bytes of a sector, which a power loss leaves either old or new. A larger write may
/// be torn.
pub const SECTOR_BYTES: usize = 512;

/// A directory of files without subdirectories. File names have no separators.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file of exactly `size_bytes` zero bytes, with its space allocated.
    ///
    /// The bytes are durable when this function returns; the name is durable only after
    /// [`Disk::sync_directory`]. If a file with this name exists, returns an error. If the space is
    /// insufficient, removes the incomplete file.
    fn create(&self, name: &str, size_bytes: u64) -> Result<Box<dyn DiskFile>, Error>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, Error>;

    /// Creates an empty file, which grows by [`DiskFile::append`]. If a file with this name exists,
    /// returns an error. Does not wait for a file descriptor.
    fn create_empty(&self, name: &str) -> Result<Box<dyn DiskFile>, Error>;

    /// Opens an existing file for reading only. Does not wait for a file descriptor.
    fn open_to_read(&self, name: &str) -> Result<Box<dyn DiskFile>, Error>;

    /// Returns the names of all files, ascending.
    fn list(&self) -> Result<Vec<String>, Error>;

    /// Renames a file; replaces an existing file with the name `to`.
    fn rename(&self, from: &str, to: &str) -> Result<(), Error>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), Error>;

    /// Makes all earlier creates, renames and removes survive a power loss.
    fn sync_directory(&self) -> Result<(), Error>;
}

/// An open file. Each read and write specifies its offset, so there is no shared position.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Returns the length in bytes.
    fn size_bytes(&self) -> Result<u64, Error>;

    /// Fills `buffer` with the bytes from `offset` on. Returns an error if the file ends too early.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error>;

    /// Writes all of `bytes` at `offset`; the range must be inside the file.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Writes all of `bytes` at the end of the file. No two callers may append at the same time.
    fn append(&self, bytes: &[u8]) -> Result<(), Error>;

    /// Makes all earlier writes to this file survive a power loss.
    fn sync_data(&self) -> Result<(), Error>;
}
