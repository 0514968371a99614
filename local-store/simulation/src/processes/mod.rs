//! The real binary over real sockets, killed, stopped and cut off under load, judged by the same checkers.
//!
//! `kill -9` says nothing about power loss, because the operating system keeps what was written:
//! that is what `power_loss` and the simulated disk are for.

pub mod aging;
pub mod cluster;
pub mod codec;
pub mod faults;
pub mod process;
pub mod proxy;
pub mod rounds;
pub mod wire;
