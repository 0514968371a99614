//! Reports about migrations: status, list, journal, and waiting for a phase.

pub(crate) mod actions;
pub(crate) mod application;
pub(crate) mod backfill;
pub(crate) mod documents;
pub(crate) mod failure_tolerance;
pub(crate) mod list;
pub(crate) mod next_steps;
pub(crate) mod phase_line;
pub(crate) mod pointer;
pub(crate) mod problems;
pub(crate) mod progress;
pub(crate) mod safety;
pub(crate) mod samples;
pub(crate) mod status;
pub(crate) mod status_line;
pub(crate) mod switches;
pub(crate) mod throttling;
pub(crate) mod wait;

#[cfg(test)]
pub(crate) mod status_tests;
