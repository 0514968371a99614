//! The runner: runs template.yaml on this machine as AWS runs it.
//!
//! `template` reads what to run; `system` runs it; `mapping` (pure) says which records go to which
//! function when, and `poller` carries that out; `function` runs binaries on the Lambda Runtime
//! API; `object_store` is the S3 endpoint. It knows nothing of rules' business.

mod addition;
pub mod archive;
pub mod check;
pub mod clock;
pub mod command_line;
mod contention;
pub mod counters;
pub mod demo;
pub mod doctor;
pub mod editions;
mod endpoint;
pub mod exit;
pub mod fan_out;
pub mod function;
pub mod interruption;
pub mod invoke;
mod item_key;
pub mod journal;
mod keys;
pub mod load;
pub mod logs;
pub mod mapping;
pub mod migrate;
pub mod object_store;
pub mod output;
pub mod partitions;
pub mod poller;
mod retries;
mod running;
pub mod schedule;
mod sdk_error;
mod server_date;
pub mod status;
pub mod streams;
pub mod system;
pub mod template;
#[cfg(test)]
mod test_proxy;
#[cfg(test)]
mod test_store;
pub mod up;
pub mod versions;
