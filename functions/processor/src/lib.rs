//! The stream functions: decode a batch, load the data that the rule needs, let the rule decide,
//! fold, apply and report. Also implements the access to DynamoDB tables and to S3.
//!
//! The crate `rules` makes the decisions. This crate works the same with AWS and with a local store,
//! because endpoints come from the SDK's environment variables.

pub mod archive_sink;
pub mod back_off;
pub mod copies;
pub mod event;
pub mod failure;
pub mod frame;
pub mod histories;
pub mod lambda;
pub mod maintenance;
pub mod metrics;
mod migration;
pub mod object_store;
pub mod quarantine;
pub mod reconcile;
pub mod runtime;
mod sdk;
pub mod settings;
pub mod tables;
pub mod totals;

pub use failure::Failure;

/// The allocator of all functions. A batch allocates tens of thousands of small values and frees
/// them together, for which this allocator needs about a third less time than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
