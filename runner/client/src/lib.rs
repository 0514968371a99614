//! Connects commands to DynamoDB, to the running `weir up`, and to the terminal.
//!
//! - connection: `endpoint`, `aws_host`, `https`, `keys`, `retries`, `server_date`, `running`;
//! - responses: `sdk_error`, `error_cause`, `attribute`, `table_description`, `shards`, `stream_page`,
//!   `newest_records`, `contention`, `addition`;
//! - input: `item_key`, `plain_json`;
//! - output: `output`, `exit`, `failure`, `interruption`.
//!
//! The crate implements no command, and does not depend on the local runtime.

pub mod addition;
pub mod attribute;
pub mod aws_host;
pub mod contention;
pub mod endpoint;
pub mod error_cause;
pub mod exit;
pub mod failure;
pub mod https;
pub mod interruption;
pub mod invocation;
pub mod item_key;
pub mod keys;
pub mod newest_records;
pub mod output;
pub mod partitions;
pub mod plain_json;
pub mod retries;
pub mod running;
pub mod sdk_error;
pub mod server_date;
pub mod shards;
pub mod stream_page;
pub mod table_description;
