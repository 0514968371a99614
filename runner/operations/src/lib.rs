//! The verbs that work on any DynamoDB: migrate, archive, counters, versions, editions, fan-out, load.
//!
//! Each module is one verb, with its arguments and its report. They reach tables through the AWS SDK
//! alone.

mod addition;
pub mod archive;
pub mod counters;
pub mod editions;
pub mod fan_out;
pub mod item_key;
pub mod load;
pub mod migrate;
pub mod versions;
