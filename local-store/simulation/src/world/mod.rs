//! The simulated world: one thread, paused time, and a seeded replacement for everything that a node uses.

pub mod cluster;
pub mod coverage;
pub mod endpoint;
pub mod environment;
pub mod faults;
pub mod machinery;
pub mod network;
pub mod panics;
pub mod plan;
pub mod replica;
pub mod single;
pub mod state;
pub mod ticks;
pub mod translation;
