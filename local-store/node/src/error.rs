//! The outcome of a request that got no reply.

use thiserror::Error;

/// Why a request got no reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// The request was not carried out and never will be: retry it.
    #[error("it was not carried out: {0}")]
    NotDone(String),
    /// The outcome is unknown: the request was carried out, will be, or never will be.
    #[error("whether it was carried out is not known: {0}")]
    Unknown(String),
}
