//! The shell of the stream functions: decode a batch, load what the rule needs, let it decide,
//! fold, apply, report. And what is done to tables and to S3 for it.
//!
//! The decisions themselves are in the crate `rules`. Nothing here knows whether it talks to AWS
//! or to a local store: endpoints come from the SDK's own environment variables.

pub mod archive_sink;
pub mod back_off;
pub mod copies;
pub mod event;
pub mod failure;
pub mod frame;
pub mod histories;
mod https;
pub mod lambda;
pub mod maintenance;
pub mod metrics;
mod migration;
pub mod object_store;
pub mod quarantine;
pub mod reconcile;
pub mod settings;
pub mod tables;
pub mod totals;

pub use failure::Failure;

/// A batch becomes tens of thousands of small values that are given back together: this allocator
/// takes about a third less time for that than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
