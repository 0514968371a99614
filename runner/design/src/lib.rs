//! DynamoDB data models: tables, example items, access patterns, and the expected workload.
//!
//! - `reader` reads a model file and finds its mistakes; `data_model` has its types;
//! - `command` is the request of an access pattern;
//! - `trial` creates the requests that try a model on a store, and collects their responses;
//! - `estimate` computes units, storage, partitions and prices; `capacity`, `range` and `prices` have the rules;
//! - `findings` checks the model for problems;
//! - `report` formats the results; `sam` generates a template.
//!
//! The crate performs no I/O: the caller reads files and runs the requests.

pub mod capacity;
pub mod command;
pub mod data_model;
pub mod estimate;
pub mod findings;
pub mod prices;
mod range;
mod reader;
pub mod report;
pub mod sam;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the cases are in files")]
mod tests;
pub mod trial;

pub use self::data_model::DataModel;
pub use self::prices::{Prices, PricesError};
pub use self::reader::{FILE_BYTES_MAX, read};
