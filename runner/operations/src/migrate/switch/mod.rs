//! The subcommands that compare, switch and end migrations.
//!
//! The crate `control` decides the order of steps.

pub(crate) mod arguments;
pub(crate) mod claim;
pub(crate) mod clear_touches;
pub(crate) mod comparison;
pub(crate) mod complete;
pub(crate) mod cutover;
pub(crate) mod differences;
pub(crate) mod executor;
pub(crate) mod in_place;
pub(crate) mod inverse_check;
pub(crate) mod revert;
pub(crate) mod sweep;
pub(crate) mod verb_hooks;
pub(crate) mod verify;

#[cfg(test)]
pub(crate) mod fault_tests;
#[cfg(test)]
pub(crate) mod switching_tests;
