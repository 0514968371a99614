//! The server of the local store: HTTP, the API, the cluster of nodes, and periodic work. The crate
//! `partition` executes the commands.

pub mod access;
pub mod api;
pub mod fatal;
pub mod gate;
pub mod http;
mod mac;
pub mod peer;
pub mod store;
pub mod token_key;
pub mod traffic;
