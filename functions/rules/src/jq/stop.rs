//! The reasons why an evaluation ends early.
//!
//! `evaluation` and the filters return them.

use super::value::Val;

/// The reason why an evaluation ends early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// An error of jq, which `try` catches.
    Error(Val),
    /// A result that may differ from jq's result. `try` does not catch it.
    Refused(String),
    /// A `break` to a label.
    Break(u64),
    /// The receiver needs no more values.
    NoMoreValues,
    /// The receiver of a `try` body's values ended the evaluation. The `try` has stored the reason.
    ReceiverStopped,
}

impl Stop {
    /// Returns an error with a message.
    pub(super) fn error(message: impl Into<String>) -> Self {
        Self::Error(Val::from(message.into()))
    }

    /// Returns a refusal with its reason.
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self::Refused(reason.into())
    }
}

pub(super) type Flow<T = ()> = Result<T, Stop>;
