//! The kinds of failure of a command, by the action that the caller must take.

use std::fmt::Display;

use aws_smithy_types::error::operation::BuildError;
use thiserror::Error;

use crate::exit::Exit;

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Nothing was done, or a retry resumes the operation. A retry may succeed soon, because
    /// DynamoDB throttled the request or another process wrote at the same time.
    #[error("{0}")]
    Retry(String),
    /// Nothing was done. A retry fails until the operator removes the cause that the text names.
    #[error("{0}")]
    Refused(String),
    /// No response arrived, so the operation may have been applied. The caller has to check.
    #[error("{0}")]
    Unknown(String),
    /// The operation failed, and the same call would fail again. The text says what to correct.
    #[error("{0}")]
    Fatal(String),
}

/// The result of a step of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Returns a [`Failure::Fatal`] with this text.
#[macro_export]
macro_rules! fatal {
    ($($part:tt)*) => { $crate::failure::Failure::Fatal(format!($($part)*)) };
}
/// Returns a [`Failure::Refused`] with this text.
#[macro_export]
macro_rules! refused {
    ($($part:tt)*) => { $crate::failure::Failure::Refused(format!($($part)*)) };
}
pub use crate::{fatal, refused};

impl Failure {
    /// Returns a [`Failure::Fatal`] with the text of an error.
    pub fn fatal(error: impl Display) -> Self {
        Self::Fatal(error.to_string())
    }

    /// Returns a failure of the same kind, whose text is changed by `words`.
    #[must_use]
    pub fn with(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Retry(text) => Self::Retry(words(text)),
            Self::Refused(text) => Self::Refused(words(text)),
            Self::Unknown(text) => Self::Unknown(words(text)),
            Self::Fatal(text) => Self::Fatal(words(text)),
        }
    }

    /// Returns the failure with the text "`what`: text", of the same kind.
    #[must_use]
    pub fn about(self, what: impl Display) -> Self {
        self.with(|text| format!("{what}: {text}"))
    }

    /// Returns the result of the command that failed.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Refused(_) => Exit::Refused,
            Self::Retry(_) | Self::Unknown(_) | Self::Fatal(_) => Exit::Failed,
        }
    }
}

/// Converts the SDK's error for a request that lacks a required field.
impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        Self::fatal(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::fatal(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::fatal(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Fatal(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Fatal(text.to_owned())
    }
}

/// Converts a failure into its text, for callers that only show it.
impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

/// An extension of results that prefixes a failure's text with the action that failed.
pub trait Context<T> {
    /// Returns the failure with the text "`doing`: text", of the same kind.
    ///
    /// # Errors
    /// The failure of this result, with `doing` before its text.
    fn context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Failure>> Context<T> for std::result::Result<T, E> {
    fn context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().about(doing()))
    }
}
