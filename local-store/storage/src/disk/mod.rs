//! A directory of files as the log sees it: create, read, write, sync, rename, remove.
//!
//! It knows nothing of what the files hold, keeps no cache and starts no thread.
//! [`FileDisk`] is a real directory; [`SimulatedDisk`] is one in memory whose power can be cut.
//!
//! The contract that both keep, and that everything above relies on:
//!
//! - what [`DiskFile::write_at`] wrote survives a power loss only after [`DiskFile::sync_data`] of
//!   that file; until then any 512-byte sector of it may hold the old or the new bytes;
//! - a name that was created, renamed or removed stays so only after [`Disk::sync_directory`];
//! - after a failed sync nothing is known about the bytes since the last good one. The kernel may
//!   have marked them clean, so a second sync that succeeds proves nothing (Rebello et al., "Can
//!   Applications Recover from fsync Failures?", USENIX ATC 2020). Such an error is fatal: see
//!   [`Error::is_fatal`].

mod damage;
pub mod descriptors;
mod error;
mod file;
mod simulated;
#[cfg(test)]
mod simulated_tests;
mod splitmix;

pub use damage::Damage;
pub use error::{Error, ErrorKind, Operation};
pub use file::FileDisk;
pub use simulated::{Fault, PowerCut, SimulatedDisk};
pub use splitmix::SplitMix64;

use std::fmt;

/// The unit in which a power loss tears a write.
pub const SECTOR_BYTES: usize = 512;

/// One flat directory of files. File names have no separators.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file of exactly `size_bytes` zero bytes, with its space allocated.
    ///
    /// The bytes are durable when this returns; the name is so only after
    /// [`Disk::sync_directory`]. An existing file of that name is an error.
    /// When there is no space, no file is left behind.
    fn create(&self, name: &str, size_bytes: u64) -> Result<Box<dyn DiskFile>, Error>;

    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, Error>;

    /// The names of all files, ascending.
    fn list(&self) -> Result<Vec<String>, Error>;

    /// Renames a file; a file that has the name `to` already is replaced.
    fn rename(&self, from: &str, to: &str) -> Result<(), Error>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), Error>;

    /// Makes every create, rename and remove up to now survive a power loss.
    fn sync_directory(&self) -> Result<(), Error>;
}

/// One open file; reads and writes name their offset, so there is no position to share.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// The length in bytes.
    fn size_bytes(&self) -> Result<u64, Error>;

    /// Fills `buffer` from `offset`. A file that ends before is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error>;

    /// Writes all of `bytes` at `offset`, which must lie inside the file.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Makes every write to this file up to now survive a power loss.
    fn sync_data(&self) -> Result<(), Error>;
}
