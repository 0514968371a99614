//! The state: an ordered map of bytes, changed by atomic batches and read through views.
//!
//! The state does not interpret keys. No acknowledgement waits for the state, because the log makes
//! a command durable. After a crash an engine contains a prefix of its batches, at least the
//! batches before the last [`Storage::persist`]. Each batch contains the applied log index, from
//! which the node resumes the log. Therefore the log may be truncated only up to the last persisted
//! batch.
//!
//! [`LsmStorage`] is the production engine, in a directory or on a simulated disk. [`MemoryStorage`]
//! is for tests and the simulation. All pass the same tests.

#[cfg(test)]
mod contract_tests;
pub mod disk;
mod engine;
mod error;
pub mod log;
mod lsm;
#[cfg(test)]
mod lsm_simulated_tests;
#[cfg(test)]
mod lsm_tests;
mod memory;

pub use self::engine::{KEY_BYTES_MAX, Pace, Storage, StoredFile, VALUE_BYTES_MAX};
pub use self::error::Error;
pub use self::lsm::{BlockCache, LsmStorage, Options as LsmOptions, StorageFolder};
pub use self::lsm::{CACHE_BYTES_PER_TREE, OPEN_FILES_PER_TREE, OPEN_TABLES_MAX};
pub use self::memory::MemoryStorage;
