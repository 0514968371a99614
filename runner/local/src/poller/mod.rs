//! The I/O of an event source mapping: runs the crate [`mapping`](mapping) with the real Streams
//! API, a function, and checkpoints on disk.
//!
//! The mapping decides which records are read, delivered, retried or discarded.

mod chaos;
mod checkpoint_store;
mod destination;
mod invoke;
mod reports;
mod run;
mod stream;

#[cfg(test)]
mod arrival_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

pub use self::chaos::{Chaos, MappingChaos};
pub use self::checkpoint_store::{CheckpointError, CheckpointStore};
pub use self::destination::{FailureDestination, FileDestination, NoDestination, S3Destination};
pub(crate) use self::invoke::request_id;
pub use self::invoke::{Invoke, InvokeOutcome};

pub use self::reports::{Observed, Observer, PageWatcher};
pub use self::run::{Poller, RunEnd, RunError, run_mapping, tick_ms};
