//! Several arcs: the arc of a key or a command, and the messages between arcs.
//!
//! Transactions over several arcs are in `transaction::two_phase_commit`; the placement of arcs is
//! in `table::placement`.

pub(crate) mod adoption;
pub(crate) mod delivery;
pub(crate) mod outbox;
pub(crate) mod routing;
#[cfg(test)]
mod tests;
