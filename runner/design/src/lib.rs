//! A DynamoDB data model on paper: tables, example items, access patterns, and the expected workload.
//!
//! - `reader` reads a model file and finds its mistakes; `data_model` has its types;
//! - `command` is the request of an access pattern;
//! - `trial` says which requests try a model on a store, and collects what they return;
//! - `estimate` computes units, storage, partitions and prices; `capacity`, `range` and `prices` have the rules;
//! - `findings` says what is wrong with the model;
//! - `report` shows all of that; `sam` makes a template.
//!
//! The crate is pure: the caller reads files and runs the requests.

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
