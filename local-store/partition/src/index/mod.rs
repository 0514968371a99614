//! Secondary indexes: their entries, how they are built and removed, and the items that they refuse.
//!
//! What an index is is in `table::index`, its keys in `keys::index_entry`; reading it is in `read`.

pub(crate) mod build;
pub(crate) mod change;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;
pub(crate) mod upkeep;
