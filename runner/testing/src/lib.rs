//! Test support: a store in this process, and a proxy that makes requests fail as a test requires.
//!
//! `tests` contains an example.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends by a panic, also in what its cases share"
)]

pub mod proxy;
pub mod store;
#[cfg(test)]
mod tests;
