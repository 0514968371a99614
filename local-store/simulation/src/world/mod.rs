//! The world: one thread, paused time, and everything that a node touches replaced by something
//! that follows from a seed.

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
pub mod ticks;
pub mod translation;
