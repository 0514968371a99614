//! Tests of the real binary over real sockets. Processes are killed, paused and partitioned under load, and
//! the same checkers verify the result.
//!
//! `kill -9` does not test power loss, because the operating system keeps written data. `power_loss` and the
//! simulated disk test power loss.

pub mod aging;
pub mod cluster;
pub mod codec;
pub mod damage;
pub mod faults;
pub mod moves;
pub mod process;
pub mod proxy;
pub mod rounds;
pub mod wire;
