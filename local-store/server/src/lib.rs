//! The shell of the local store: HTTP, log, storage, ticks.

pub mod access;
pub mod api;
pub mod clock;
pub mod command_line;
pub mod descriptors;
pub mod disk;
pub mod gate;
pub mod http;
pub mod log;
mod mark;
pub mod node;
pub mod peer;
pub mod ring;
pub mod storage;
pub mod store;
pub mod token_key;
pub mod traffic;
