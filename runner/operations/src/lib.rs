//! The subcommands that work on any DynamoDB endpoint: migrate, archive, counters, versions,
//! editions, fan-out.
//!
//! Each module implements one subcommand, with its arguments and its report; `batches` is for all. All
//! modules access tables through the AWS SDK.

pub mod archive;
pub mod batches;
pub mod counters;
pub mod editions;
pub mod fan_out;
pub mod migrate;
mod unchanged;
pub mod versions;
