//! The library of the binary `weir`: the command line, and the commands for the template and the
//! running system.
//!
//! `up` and `demo` run a template with the crate `local`. The other commands on tables are in
//! `operations` and `load`.

pub mod check;
pub mod clock;
pub mod command_line;
pub mod console;
pub mod copy;
pub mod data_model;
pub mod demo;
pub mod doctor;
pub mod init;
pub mod invoke;
mod local_workers;
pub mod logs;
pub mod mcp;
pub mod partitions;
pub mod status;
pub mod streams;
mod unused_options;
pub mod up;
