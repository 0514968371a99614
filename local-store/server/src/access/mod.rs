//! Who may use the store: access keys from a file, and whether a request is signed with one.
//!
//! Without access keys every request is taken, signed or not; then the store listens on loopback
//! addresses only. What a key may do is not limited: there are no policies.

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
