//! Authentication: access keys from a file, and the verification that a request is signed with one
//! of them.
//!
//! Without access keys every request is accepted, signed or not; the store then listens only on loopback
//! addresses. There is no authorisation: every key may do everything.

mod canonical;
mod claim;
mod keys;
mod requester;
mod signature;
#[cfg(test)]
mod tests;

pub use keys::AccessKeys;
pub(crate) use requester::requester;
pub(crate) use signature::verify;
