//! Authentication: reads access keys from a file, and verifies that a request is signed with one of
//! these keys.
//!
//! Without access keys, the store accepts signed and unsigned requests, and listens only on loopback
//! addresses. There is no authorisation: every access key permits every operation.

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
