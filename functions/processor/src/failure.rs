//! Failures, classified by how the caller must react.
//!
//! A record that fails in every retry is not a `Failure` but a `rules::Refusal`.

use std::fmt::Display;

use lambda_runtime::Diagnostic;
use thiserror::Error;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A temporary failure: the records are delivered again.
    #[error("{0}")]
    Retry(String),
    /// A misconfigured deployment. The invocation fails, so the error metric shows the failure, and
    /// the records are delivered again.
    #[error("{0}")]
    Fatal(String),
}

impl Failure {
    /// Returns a fatal failure with the text of an error.
    #[must_use]
    pub fn fatal(error: impl Display) -> Self {
        Self::Fatal(error.to_string())
    }

    /// Returns the same failure with the name of the affected object as a prefix.
    #[must_use]
    pub fn within(self, what: &str) -> Self {
        match self {
            Self::Retry(reason) => Self::Retry(format!("{what}: {reason}")),
            Self::Fatal(reason) => Self::Fatal(format!("{what}: {reason}")),
        }
    }
}

impl From<Failure> for Diagnostic {
    fn from(failure: Failure) -> Self {
        let error_type = match &failure {
            Failure::Retry(_) => "Retry",
            Failure::Fatal(_) => "Fatal",
        };
        Self { error_type: error_type.to_owned(), error_message: failure.to_string() }
    }
}
