//! Connects commands to DynamoDB, to the running `weir up`, and to the terminal.
//!
//! - connection: `endpoint`, `https`, `keys`, `retries`, `server_date`, `running`;
//! - responses: `sdk_error`, `attribute`, `table_description`, `shards`, `stream_page`,
//!   `newest_records`, `contention`;
//! - output: `output`, `exit`, `interruption`.
//!
//! The crate has no verb, and does not depend on the local runtime.

pub mod attribute;
pub mod contention;
pub mod endpoint;
pub mod exit;
pub mod https;
pub mod interruption;
pub mod invocation;
pub mod keys;
pub mod newest_records;
pub mod output;
pub mod partitions;
pub mod retries;
pub mod running;
pub mod sdk_error;
pub mod server_date;
pub mod shards;
pub mod stream_page;
pub mod table_description;
