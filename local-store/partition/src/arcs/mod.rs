//! Several arcs: which arc a key or a command belongs to, and what goes from one arc to another.
//!
//! Transactions over several arcs are in `transaction::two_phase_commit`; where the arcs are placed
//! is in `table::placement`.

pub(crate) mod adoption;
pub(crate) mod delivery;
pub(crate) mod outbox;
pub(crate) mod routing;
#[cfg(test)]
mod tests;
