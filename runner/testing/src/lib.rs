//! A store in this process, and an endpoint before it that fails as a test says.
//!
//! Only tests use it; `tests` shows how.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends by a panic, also in what its cases share"
)]

pub mod proxy;
pub mod store;
#[cfg(test)]
mod tests;
