//! The local store except its machines: HTTP, log, storage, ticks.

pub mod access;
pub mod api;
pub mod command_line;
pub mod gate;
pub mod http;
mod mac;
pub mod peer;
pub mod store;
pub mod token_key;
pub mod traffic;
