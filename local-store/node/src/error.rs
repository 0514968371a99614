//! Errors of a submitted request that got no reply.

use thiserror::Error;

/// The reason why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// The request was not applied and never will be: retry it.
    #[error("the request was not applied: {0}")]
    NotDone(String),
    /// The outcome is unknown: the request may have been applied, may be applied later, or may
    /// never be applied.
    #[error("the outcome of the request is unknown: {0}")]
    Unknown(String),
}
