//! Secondary indexes: their entries, how they are built and removed, and the items that they
//! reject.
//!
//! Definitions of indexes are in `table::index`, keys of entries in `keys::index_entry`, reads in
//! `read`.

pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;
pub(crate) mod upkeep;
