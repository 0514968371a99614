//! The simulation: it runs the store's own code in a simulated world with seeded faults, and checks
//! the results that clients saw.
//!
//! This crate is not part of the store's binaries.

#[cfg(not(tokio_unstable))]
compile_error!(
    "the simulation needs tokio's seeded scheduler: build it without RUSTFLAGS in the environment, \
     which replaces the flags of .cargo/config.toml, or add `--cfg tokio_unstable` to it"
);

pub mod batch;
pub mod checkers;
pub mod command_line;
pub mod error;
pub mod export;
pub mod history;
pub mod minimise;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod power_loss;
pub mod processes;
pub mod quiet_reads;
pub mod request;
pub mod run;
pub mod workload;
pub mod world;
