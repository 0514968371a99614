//! End to end: the real binaries as processes, over real sockets, with faults from outside.
//!
//! Nothing of ours is linked here: what these tests know is what a user can see.

mod bad_input;
mod crash;
mod load;
mod pipe;
mod process;
mod wire;
