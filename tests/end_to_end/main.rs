//! End to end: the real binaries as processes, over real sockets, with faults from outside.
//!
//! Nothing of ours is linked here: what these tests know is what a user can see.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test ends by a panic, also in the functions that its cases share"
)]

mod archive;
mod bad_input;
mod cost;
mod crash;
mod editions;
mod gate;
mod gateway;
mod hindered;
mod hot;
mod in_place;
mod leaps;
mod load;
mod mentions;
mod meter;
mod migrating;
mod migrations;
mod parquet_rows;
mod pipe;
mod process;
mod purge;
mod rate;
mod repairs;
mod slips;
mod streams;
mod switching;
mod unsaid;
mod wire;

// Beside a running system, as its users are.
mod documents;
mod elsewhere;
mod verbs;
