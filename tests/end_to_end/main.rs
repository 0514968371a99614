//! End-to-end tests: the real binaries run as processes and communicate over real sockets, with
//! faults from outside.
//!
//! The tests link no crate of the product, so they see only what a user can see.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test ends by a panic, also in the functions that its cases share"
)]

mod archive;
mod bad_input;
mod budgets;
mod console;
mod console_jobs;
mod console_streams;
mod console_tables;
mod copy;
mod crash;
mod documented_commands;
mod editions;
mod gate;
mod gateway;
mod hot;
mod init;
mod languages;
mod load;
mod migration;
mod parquet_rows;
mod pipe;
mod process;
mod streams;
mod tutorials;
mod wire;

// These tests require a running system, as the readers of the documents do.
mod documents;
mod foreign_store;
mod verbs;
