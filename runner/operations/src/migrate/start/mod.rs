//! Starts a migration: its fence, its tasks, and their workers.

pub(crate) mod begin;
pub(crate) mod command;
pub(crate) mod fence;
pub(crate) mod record_time;
pub(crate) mod route;
pub(crate) mod tasks;
pub(crate) mod unused_options;
pub(crate) mod workers;
