//! The real binary over real sockets, killed under load, judged by the same checkers.
//!
//! `kill -9` says nothing about power loss, because the operating system keeps what was written:
//! that is what `power_loss` and the simulated disk are for.

pub mod codec;
pub mod process;
pub mod rounds;
pub mod wire;
