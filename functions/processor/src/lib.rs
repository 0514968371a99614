//! The shell of the stream functions: decodes a batch, loads what the rule needs, lets the rule
//! decide, folds, applies and reports. It also implements the access to DynamoDB tables and to S3.
//!
//! The decisions are in the crate `rules`. Nothing here knows whether it talks to AWS or to a local
//! store: endpoints come from the SDK's environment variables.

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

/// A batch allocates tens of thousands of small values and frees them together. This allocator
/// needs about a third less time for that than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
