//! The real binary over real sockets, killed, paused and partitioned under load, checked by the
//! same checkers.
//!
//! `kill -9` does not test power loss, because the operating system keeps written data:
//! `power_loss` and the simulated disk do that.

pub mod aging;
pub mod cluster;
pub mod codec;
pub mod faults;
pub mod process;
pub mod proxy;
pub mod rounds;
pub mod wire;
